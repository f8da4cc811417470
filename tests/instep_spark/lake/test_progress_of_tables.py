"""How far the tables of a pipeline have come; no Spark is asked."""

from __future__ import annotations

from instep_spark.lake.batches.progress import StreamProgress, TableProgress
from instep_spark.lake.pipeline import Pipeline
from instep_spark.place import LakePlace

ONE, TWO = ("c", "one"), ("c", "two")


def at(one: int, two: int) -> TableProgress:
    return TableProgress({ONE: StreamProgress(one), TWO: StreamProgress(two)})


def test_done_is_what_all_tables_have_and_passed_what_some_table_has() -> None:
    made = Pipeline(LakePlace("file:///lake"), tables=["alarms", "topology"])
    assert made.done() == made.passed() == {}
    made.entities.progress = at(5, 7)
    assert made.done() == {ONE: 0, TWO: 0}
    assert made.passed() == {ONE: 5, TWO: 7}
    for target in made.followers:
        target.progress = at(5, 7)
    assert made.done() == made.passed() == {ONE: 5, TWO: 7}
    made.followers[1].progress = at(5, 6)
    assert made.done() == {ONE: 5, TWO: 6}
    # Also a follower may know more than `entities`, which was restored or removed.
    made.entities.progress = TableProgress()
    assert made.done() == {ONE: 0, TWO: 0}
    assert made.passed() == {ONE: 5, TWO: 7}
