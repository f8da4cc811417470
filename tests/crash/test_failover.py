"""Fail-over under a storm: a few rounds here, many with `python -m tests.crash.failover`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.failover import rounds


@pytest.mark.timeout(300)
@pytest.mark.asyncio
async def test_st_4_2_nothing_is_missing_while_instances_come_and_go(tmp_path: Path) -> None:
    seed = random.randrange(10_000)
    report = await rounds(5, seed=seed, folder=tmp_path)
    print(f"seed {seed}: {report}")
    assert report.missing == []
    assert report.phantoms == []
    assert report.differences == []
    assert report.streams == 1
    assert report.moves == 5
    assert report.samples > 0
