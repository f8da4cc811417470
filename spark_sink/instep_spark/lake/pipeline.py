"""From `changes` to the tables of the pipeline, micro-batch by micro-batch.

`entities` goes first: with it, sweeps are decided (A5 and A6). Where a stream states changes
only, `composed` goes before it, from sweep to sweep. The others follow, each from its own progress.
Each commit carries the progress of its table, so that a micro-batch that comes late, again or in
another order, or stops half way, changes nothing that it should not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from instep.errors import ConfigurationError
from instep_spark.lake.batches.micro_batch import MicroBatch, PendingRows, Segment
from instep_spark.lake.sql.literals import StreamKey
from instep_spark.lake.sweeps import (
    LakeSettings,
    apply_deferred_sweep,
    apply_due_sweeps,
    apply_sweeps_behind,
    catch_up_sweeps,
    sweep_events,
)
from instep_spark.lake.tables.alarms import AlarmsTable
from instep_spark.lake.tables.base import LakeTable, OvertakenError, table_exists, table_identifier
from instep_spark.lake.tables.composed import ComposedTable
from instep_spark.lake.tables.entities import EntitiesTable
from instep_spark.lake.tables.entity_history import EntityHistoryTable
from instep_spark.lake.tables.intervals import IntervalTable
from instep_spark.lake.tables.stream_health import StreamHealthTable
from instep_spark.lake.tables.topology import TopologyTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FOLLOWERS", "LakeSettings", "Pipeline", "PipelineStep", "check_tables"]

FOLLOWERS: Final = ("entity_history", "alarms", "topology", "stream_health")
"""The tables that follow `entities`."""
_CONFLICTS: Final = 5
"""How often a micro-batch is tried when other writers commit to the same table."""
_CONFLICT: Final = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception")


class PipelineStep(msgspec.Struct, frozen=True):
    """The report of one table's step in a micro-batch."""

    table: str
    rows: int
    swept: tuple[StreamKey, ...] = ()
    held: tuple[StreamKey, ...] = ()


def check_tables(tables: Collection[str], where: str = "tables") -> None:
    """Raise `ConfigurationError` for a name that no table of the pipeline has."""
    unknown = set(tables) - {*FOLLOWERS, "entities"}
    if unknown:
        raise ConfigurationError(
            f"the pipeline has no table {min(unknown)!r}",
            where=where,
            hint=f"it has: entities, {', '.join(FOLLOWERS)}",
        )


class Pipeline:
    """The tables of one lake, and what moves them."""

    def __init__(
        self,
        url: str,
        *,
        tables: Collection[str] = FOLLOWERS,
        settings: LakeSettings | None = None,
        report: Callable[[PipelineStep], None] | None = None,
    ) -> None:
        check_tables(tables)
        self.url = url
        self.settings = settings or LakeSettings()
        self.changes = table_identifier(url, "changes")
        self._facts = table_identifier(url, "stream_facts")
        self._report = report or (lambda _step: None)
        self.entities = EntitiesTable(url)
        self.composed = ComposedTable(url)
        made: dict[str, LakeTable] = {
            "entity_history": EntityHistoryTable(url, self.changes),
            "alarms": AlarmsTable(url, self.changes),
            "topology": TopologyTable(url),
            "stream_health": StreamHealthTable(url, self._facts),
        }
        self.followers = [target for name, target in made.items() if name in tables]
        self.targets = [self.entities, *self.followers]

    def open(self, spark: SparkSession) -> None:
        """Make or upgrade the tables, and read how far each has come."""
        for target in self.targets:
            target.open(spark)

    def apply(self, rows: DataFrame) -> None:
        """Apply these rows of `changes` to all tables.

        Where another writer came between (an OPTIMIZE of the platform, or a pipeline that was
        killed and whose statement still runs in a server), the whole micro-batch is run again from
        what the tables then hold. Raises `SinkError` where `changes` lacks rows.
        """
        from pyspark.errors import PySparkException  # noqa: PLC0415 — half a second to import

        for attempts_left in reversed(range(_CONFLICTS)):
            try:
                self._apply(rows)
                return
            except (PySparkException, OvertakenError) as error:
                known = isinstance(error, OvertakenError) or _CONFLICT.search(str(error))
                if attempts_left == 0 or not known:
                    raise
            for target in (*self.targets, *([self.composed] if self.composed.is_open else [])):
                target.open(rows.sparkSession)

    def _apply(self, rows: DataFrame) -> None:
        spark = rows.sparkSession
        self.release(spark)
        batch = MicroBatch(rows, spark.sql(f"SELECT * FROM {self.changes}"), self.url)  # noqa: S608
        self._advance_entities(spark, batch)
        for target in self.followers:
            self._advance(spark, target, batch)
        self.release(spark)

    def settle(self, spark: SparkSession) -> None:
        """Commit the progress of each table, also where no row concerned it."""
        for target in (self.composed, *self.targets):
            target.settle(spark)

    def release(self, spark: SparkSession) -> None:
        """Make the held sweeps that were released meanwhile."""
        held = {
            key: stream_progress.held()
            for key, stream_progress in self.entities.progress.by_stream.items()
        }
        waiting = {key: deferred for key, deferred in held.items() if deferred is not None}
        released = self._released(spark) if waiting else set()
        for key, deferred in waiting.items():
            if (*key, deferred.attempt) in released:
                apply_deferred_sweep(spark, self.entities, key, deferred)
                self._report(PipelineStep("entities", 0, swept=(key,)))
        for target in self.followers:
            if isinstance(target, EntitiesTable | IntervalTable):
                catch_up_sweeps(spark, target, self.entities.progress)

    def _released(self, spark: SparkSession) -> set[tuple[str, str, int]]:
        """Return consumer, stream and attempt of the sweeps that were released."""
        if not table_exists(spark, self._facts):
            return set()
        rows = spark.sql(
            f"SELECT DISTINCT consumer, stream, count AS attempt FROM {self._facts} "  # noqa: S608
            "WHERE fact = 'RELEASE'"
        ).collect()
        return {(row.consumer, row.stream, row.attempt) for row in rows}

    # -- entities, and what becomes of sweeps ----------------------------------------------------

    def _advance_entities(self, spark: SparkSession, batch: MicroBatch) -> None:
        pending = batch.after(self.entities.progress)
        changing = {key for key, stats in pending.stats_by_stream.items() if stats.partial}
        self.entities.progress = self.entities.progress.by_change(changing)
        cuts = {
            key: [s.ordinal - 1 for s in found.sweeps]
            for key, found in pending.stats_by_stream.items()
        }
        for segment in pending.cut(cuts):
            if segment.last:
                self._compose(spark, batch, segment.last)
                self.entities.apply(*self._with_whole_statements(pending, segment))
            due = [
                stats.sweeps[segment.number]
                for stats in pending.stats_by_stream.values()
                if segment.number < len(stats.sweeps)
            ]
            swept: tuple[StreamKey, ...] = ()
            held: tuple[StreamKey, ...] = ()
            if due:
                swept, held = apply_due_sweeps(spark, self.entities, due, self.settings)
            rows = sum(stats.rows for stats in pending.stats_by_stream.values())
            self._report(PipelineStep("entities", rows, swept, held))

    # -- streams that state changes only ---------------------------------------------------------

    def _compose(
        self, spark: SparkSession, batch: MicroBatch, upto: Mapping[StreamKey, int]
    ) -> None:
        """Compose CHANGE_ONLY rows into `composed` up to these ordinals."""
        decided, composed = self.entities.progress, self.composed
        keys = decided.changing() & upto.keys()
        if not keys:
            return
        if not composed.is_open:
            composed.open(spark)
        catch_up_sweeps(spark, composed, decided)
        whole = batch.after(decided.moved({key: composed.progress[key] for key in keys}))
        stats_by_stream = {
            key: whole.stats_by_stream[key].until(upto[key])
            for key in keys & whole.stats_by_stream.keys()
            if whole.stats_by_stream[key].first <= upto[key]
        }
        pending = msgspec.structs.replace(whole, stats_by_stream=stats_by_stream)
        found = {
            key: sweep_events(key, pending, composed.progress, decided) for key in stats_by_stream
        }
        for segment in pending.cut({key: [e.at for e in each] for key, each in found.items()}):
            if segment.last:
                composed.apply(pending, segment)
            apply_sweeps_behind(spark, composed, segment, found)

    def _with_whole_statements(
        self, pending: PendingRows, segment: Segment
    ) -> tuple[PendingRows, Segment]:
        return self.composed.with_whole_statements(
            pending, segment, self.entities.progress.changing()
        )

    # -- the tables that follow ------------------------------------------------------------------

    def _advance(self, spark: SparkSession, target: LakeTable, batch: MicroBatch) -> None:
        decided = self.entities.progress
        if isinstance(target, EntitiesTable | IntervalTable):
            catch_up_sweeps(spark, target, decided)
        target.progress = target.progress.by_change(decided.changing())
        pending = batch.after(target.progress)
        if not pending.stats_by_stream:
            return
        if isinstance(target, StreamHealthTable):
            (segment,) = pending.cut({})
            segment = self.composed.with_unresolved(segment, decided.changing())
            target.apply(pending, segment, decided, has_facts=table_exists(spark, self._facts))
        else:
            assert isinstance(target, EntitiesTable | IntervalTable)
            found = {
                key: sweep_events(key, pending, target.progress, decided)
                for key in pending.stats_by_stream
            }
            for segment in pending.cut({key: [e.at for e in each] for key, each in found.items()}):
                if segment.last:
                    target.apply(*self._with_whole_statements(pending, segment))
                apply_sweeps_behind(spark, target, segment, found)
        self._report(
            PipelineStep(target.name, sum(stats.rows for stats in pending.stats_by_stream.values()))
        )
