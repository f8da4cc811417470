"""`instep run`, killed under a storm: a few rounds; many by `make crash ROUNDS=500`."""

from __future__ import annotations

import random

import pytest

from tests.crash.rounds import rounds
from tests.postgres_kit import Missing


@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_killed_at_any_moment_nothing_is_lost_and_no_attempt_is_needless(database: str) -> None:
    seed = random.randrange(10_000)
    try:
        report = rounds(3, database=database, seed=seed, storm_per_s=200)
    except Missing as missing:
        pytest.skip(str(missing))
    print(f"seed {seed}: {report}")
    assert report.faults == []
    assert report.committed_records > 0
