"""Makes tables again from `changes`: beside the old one, checked, then in its place (L3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from instep.errors import SinkError
from instep_spark.lake.pipeline import REMADE_RECORDS, Pipeline
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.intervals import IntervalTable
from instep_spark.lake.verify import Comparison, compare, expected
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compare_altered", "rebuild", "rebuilt_at"]


def rebuild(spark: SparkSession, place: LakePlace, names: Collection[str]) -> dict[str, int]:
    """Rebuild these tables of a lake (L3). Returns the number of rows of each."""
    pipeline = Pipeline(place, tables=names)
    pipeline.entities.open(spark, to_replace="entities" in names)
    _refuse_without_first_rows(spark, pipeline)
    if "entities" in names and not pipeline.entities.progress.by_stream:
        # None of its commits tells how far it has come: so it is made as a run would.
        rows = _remake_entities(spark, place, pipeline)
        others = [name for name in names if name != "entities"]
        return {"entities": rows, **rebuild(spark, place, others)}
    made: dict[str, int] = {}
    for target, beside in _pairs(pipeline, place, names):
        if target is not pipeline.entities:
            target.open(spark, to_replace=True)
        _remake_beside(spark, pipeline, place, target, beside)
        _check(spark, pipeline, beside)
        made[target.name] = beside.read(spark).count()
        target.replace_by(spark, beside)
        beside.clear(spark)
    return made


def compare_altered(spark: SparkSession, place: LakePlace, found: Comparison) -> Comparison:
    """Make each table again beside that which another writer has altered, and compare its rows.

    One that lacks rows of `changes` is not compared; and none is where another writer has altered
    `composed` or `identities`, of which the others are made.
    """
    names = {name for name in found.altered if found.rows_behind.get(name) == 0}
    pipeline = Pipeline(place, tables=names)
    if not names or found.altered.keys() & {pipeline.composed.name, pipeline.identities.name}:
        return found
    pipeline.entities.open(spark)
    altered = dict(found.altered)
    for target, beside in _pairs(pipeline, place, names):
        _remake_beside(spark, pipeline, place, target, beside)
        columns = [f"`{column.name}`" for column in target.table.columns]
        ours, made = (one.read(spark).selectExpr(*columns) for one in (target, beside))
        altered[target.name] = ours.exceptAll(made).count() + made.exceptAll(ours).count()
        beside.clear(spark)
    return msgspec.structs.replace(found, altered=altered)


def _pairs(
    pipeline: Pipeline, place: LakePlace, names: Collection[str]
) -> Iterator[tuple[LakeTable, LakeTable]]:
    """Each of these tables, and the one that is made beside it."""
    twin = Pipeline(place, tables=names)
    for target, beside in zip(pipeline.targets, twin.targets, strict=True):
        if target.name in names:
            yield target, beside


def _remake_beside(
    spark: SparkSession,
    pipeline: Pipeline,
    place: LakePlace,
    target: LakeTable,
    beside: LakeTable,
) -> None:
    """Make a table anew in the folder for that, as far as `entities` has come."""
    beside.move_to(rebuilt_at(place, target.name))
    beside.open(spark)
    beside.clear(spark)
    pipeline.remake(spark, beside)
    if target is pipeline.entities:
        # Held sweeps, too, that are still to be decided.
        beside.progress = target.progress
    beside.settle(spark)


def _remake_entities(spark: SparkSession, place: LakePlace, pipeline: Pipeline) -> int:
    """Make `entities` from all of `changes`, whatever is known of it. Returns its rows."""
    leader = Pipeline(place, tables=())
    made = leader.entities
    made.move_to(rebuilt_at(place, made.name))
    made.open(spark)
    made.clear(spark)
    leader.open(spark)
    changes = spark.sql(f"SELECT * FROM {pipeline.changes}")
    last = changes.groupBy("consumer", "stream").agg({"ordinal": "max"}).collect()
    ends = {(row.consumer, row.stream): row["max(ordinal)"] for row in last}
    begin = dict.fromkeys(ends, 0)
    while begin != ends:
        upto = {key: min(end, begin[key] + REMADE_RECORDS) for key, end in ends.items()}
        leader.apply(spark, upto)
        begin = upto
    made.settle(spark)
    _check(spark, leader, made)
    rows = made.read(spark).count()
    pipeline.entities.replace_by(spark, made)
    made.clear(spark)
    return rows


def rebuilt_at(place: LakePlace, name: str) -> str:
    """The URL at which a table is made before it takes the place of the old one."""
    return f"{place.url.rstrip('/')}/_rebuild/{name}"


def _refuse_without_first_rows(spark: SparkSession, pipeline: Pipeline) -> None:
    """Raise `SinkError` where the tables know more than `changes` does (L3)."""
    progress = pipeline.entities.progress
    known = {key for key, one in progress.by_stream.items() if one.ordinal}
    first = spark.sql(f"SELECT DISTINCT consumer, stream FROM {pipeline.changes} WHERE ordinal = 1")
    lost = known - {(row.consumer, row.stream) for row in first.collect()}
    if lost:
        raise SinkError(
            "changes has lost its first rows, so no table can be made again from it: "
            + ", ".join(f"{consumer} / {stream}" for consumer, stream in sorted(lost)[:5]),
            where=pipeline.changes,
            hint="the tables know more than changes does: keep them",
        )


def _check(spark: SparkSession, pipeline: Pipeline, made: LakeTable) -> None:
    """Raise `SinkError` where a table that was made is not what `changes` amounts to."""
    wrong = 0
    if isinstance(made, IntervalTable):
        twice = made.read(spark).where("open").groupBy("consumer", "stream", "id").count()
        wrong = twice.where("count > 1").count()
    elif made.name == "entities":
        changes = spark.sql(f"SELECT * FROM {pipeline.changes}")
        found = compare(expected(changes, made.progress), made.read(spark))
        wrong = found.stale + found.bogus + found.missing
    if wrong:
        raise SinkError(
            f"{made.name} made again is wrong for {wrong:,} entities: the old table stays",
            where=made.sql,
            hint="see: instep lake verify",
        )
