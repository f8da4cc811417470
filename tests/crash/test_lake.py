"""A lake that is killed under a storm: a few rounds; many by hand, see `lake`."""

from __future__ import annotations

import random

import pytest

from instep_spark.session import java_version
from tests.crash.lake import rounds
from tests.crash.lake_processes_kit import Mode

_SPARK = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(java_version() not in (17, 21), reason="no Java 17 or 21"),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("mode", "count"), [("landing", 2), pytest.param("rust", 1, marks=_SPARK)])
def test_killed_at_any_moment_a_lake_is_what_the_provider_states(mode: Mode, count: int) -> None:
    seed = random.randrange(10_000)
    report = rounds(count, mode=mode, seed=seed, storm_per_s=40)
    print(f"seed {seed}: {report}")
    assert report.faults == []
    assert report.committed_records > 0
