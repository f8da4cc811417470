"""The Delta sink keeps the promises of a sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.testing import SINK_PROMISES, check_sink
from instep_spark import DeltaSink


@pytest.mark.asyncio
@pytest.mark.parametrize("promise", SINK_PROMISES)
async def test_a_lake_keeps(promise: str, tmp_path: Path) -> None:
    await check_sink(lambda name: DeltaSink((tmp_path / name).as_uri()), only=promise)
