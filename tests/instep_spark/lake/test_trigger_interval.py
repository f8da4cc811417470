"""The interval between micro-batches."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_spark.lake.lake import Lake
from instep_spark.lake.trigger_interval import next_interval_s, shared_out
from tests.instep_spark.lake.lake_kit import read
from tests.instep_spark.lake.log_kit import Provider, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("took_s", "rows", "wanted_s"),
    [
        (0.5, 10, 2.0),  # in time
        (2.0, 10, 2.0),
        (4.0, 10, 6.0),  # a third of the time is left
        (4.0, 20_001, 2.0),  # there may be more
        (50.0, 10, 60.0),  # a minute at most
    ],
)
def test_the_interval_grows_with_micro_batches_that_take_longer(
    took_s: float, rows: int, wanted_s: float
) -> None:
    assert next_interval_s(2.0, took_s, rows) == pytest.approx(wanted_s)


def test_the_interval_that_is_asked_for_is_the_shortest() -> None:
    assert next_interval_s(300.0, 301.0, 10) == 300.0


class _Stop(threading.Event):
    """Set by the first wait of the run for its next micro-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        self.set()
        return True


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_run_waits_between_micro_batches_that_take_long(
    spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path, Provider(7, "one", offsets=True).run(4))
    lake = Lake(tmp_path.as_uri(), spark, tables=["topology"])
    # A second passes each time somebody looks: a micro-batch takes longer than its interval.
    ticks = itertools.count()
    lake._clock = lambda: float(next(ticks))
    stop = _Stop()
    lake.run(stop=stop, interval_s=0.5)
    (pause_s,) = stop.waits_s
    assert pause_s is not None
    assert 0 < pause_s <= 60
    assert read(tmp_path, "entities")


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1_000), min_size=1), st.integers(1, 500))
def test_a_micro_batch_is_shared_out_among_streams(rows: dict[str, int], most: int) -> None:
    taken = shared_out(rows, most)
    assert sum(taken.values()) == min(most, sum(rows.values()))
    assert all(0 < number <= rows[key] for key, number in taken.items())
    if most >= len(rows):
        # Whoever gets less than all gets no less than others, but for what does not divide.
        cut = [number for key, number in taken.items() if number < rows[key]]
        assert all(number >= max(taken.values()) - 1 for number in cut)
