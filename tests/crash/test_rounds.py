"""`instep run`, killed under a storm: a few rounds; many by `python -m tests.crash.rounds`."""

from __future__ import annotations

import random

import pytest

from tests.crash.rounds import rounds


@pytest.mark.timeout(300)
def test_killed_at_any_moment_nothing_is_lost_and_no_attempt_is_needless() -> None:
    seed = random.randrange(10_000)
    report = rounds(8, seed=seed, storm_per_s=200)
    print(f"seed {seed}: {report}")
    assert report.ahead == []
    assert report.needless_attempts == []
    assert report.differences == []
    assert report.committed_records > 0
