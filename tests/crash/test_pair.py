"""Two processes on one store, one taken away: a few rounds; many by `make pair ROUNDS=50`."""

from __future__ import annotations

import random

import pytest

from tests.crash.pair import rounds
from tests.postgres_kit import Missing


@pytest.mark.timeout(400)
def test_one_writes_at_a_time_and_nothing_is_lost() -> None:
    seed = random.randrange(10_000)
    try:
        report = rounds(3, seed=seed, storm_per_s=200)
    except Missing as missing:
        pytest.skip(str(missing))
    print(f"seed {seed}: {report}")
    assert report.faults == []
    assert report.commits > 0
    assert report.epochs > 1 or report.pauses == report.rounds
