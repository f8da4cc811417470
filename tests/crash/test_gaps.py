"""Gaps that never close under kills; at full size by `python -m tests.crash.gaps KIND`."""

from __future__ import annotations

import random

import pytest

from tests.crash.gaps import KINDS, run


@pytest.mark.asyncio
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.long] if k != "didcomm" else []) for k in KINDS]
)
async def test_s13_what_is_acknowledged_is_in_a_table(kind: str) -> None:
    seed = random.randrange(10_000)
    report = await run(kind, kills=2, seed=seed)
    print(f"seed {seed}: {report}")
    assert report.lost == []
    assert report.exit_code == 0
    assert report.acknowledged > 0
