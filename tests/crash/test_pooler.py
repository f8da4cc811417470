"""PostgreSQL, broken behind a pgbouncer: a round of each fault; many by `make pooler`."""

from __future__ import annotations

import random

import pytest

from tests.crash.pooler import FAULTS, rounds
from tests.pgbouncer_kit import Mode
from tests.postgres_kit import Missing


@pytest.mark.asyncio
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["session", pytest.param("transaction", marks=pytest.mark.long)])
async def test_behind_a_pooler_nothing_ends_it_and_nothing_is_lost(mode: Mode) -> None:
    seed = random.randrange(10_000)
    try:
        report = await rounds(1, mode=mode, seed=seed, storm_per_s=200)
    except Missing as missing:
        pytest.skip(str(missing))
    print(f"seed {seed}: {report}")
    assert report.faults == []
    assert set(report.rounds) == set(FAULTS)
    assert report.entities > 0
    assert report.attempts == {1}
