"""`instep run` into a lake, killed under a storm: a few rounds; many by hand, see `lake`."""

from __future__ import annotations

import random

import pytest

from tests.crash.lake import rounds


@pytest.mark.timeout(600)
def test_killed_at_any_moment_every_committed_record_is_a_row_once() -> None:
    seed = random.randrange(10_000)
    report = rounds(10, mode="rust", seed=seed, storm_per_s=200)
    print(f"seed {seed}: {report}")
    assert report.faults == []
    assert report.committed_records > 0
