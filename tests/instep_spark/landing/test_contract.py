"""The Delta sink keeps the promises of a sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.testing import SINK_PROMISES, check_sink
from instep_spark import DeltaSink

WRONG = {"offsets-decide-before-append-times"}
KNOWN = pytest.mark.xfail(strict=False, reason="append times are compared before offsets")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "promise",
    [pytest.param(one, marks=KNOWN if one in WRONG else ()) for one in SINK_PROMISES],
)
async def test_a_lake_keeps(promise: str, tmp_path: Path) -> None:
    await check_sink(lambda name: DeltaSink((tmp_path / name).as_uri()), only=promise)
