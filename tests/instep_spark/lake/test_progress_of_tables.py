"""Which tables of a pipeline lag behind `entities`; no Spark is asked."""

from __future__ import annotations

from instep_spark.lake.batches.progress import StreamProgress, TableProgress
from instep_spark.lake.pipeline import Pipeline
from instep_spark.place import LakePlace

ONE, TWO = ("c", "one"), ("c", "two")


def at(one: int, two: int) -> TableProgress:
    return TableProgress({ONE: StreamProgress(one), TWO: StreamProgress(two)})


def test_a_table_lags_that_has_less_than_entities_of_any_stream() -> None:
    made = Pipeline(LakePlace("file:///lake"), tables=["alarms", "topology"])
    assert not made.lags()
    made.entities.progress = at(5, 7)
    assert made.lags()
    for target in made.followers:
        target.progress = at(5, 7)
    assert not made.lags()
    made.followers[1].progress = at(5, 6)
    assert made.lags()
    # Rows that no table has come with the next micro-batch.
    made.followers[1].progress = at(9, 9)
    assert not made.lags()
    assert not Pipeline(LakePlace("file:///lake"), tables=[]).lags()
