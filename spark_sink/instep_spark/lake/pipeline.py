"""From `changes` to the tables of the pipeline, micro-batch by micro-batch.

`entities` goes first: with it, sweeps are decided (A5 and A6). Where a stream states changes
only, `composed` goes before it, from sweep to sweep. The others follow, each from its own progress.
Each commit carries the progress of its table, so that a micro-batch that comes late, again or in
another order, or stops half way, changes nothing that it should not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from instep.errors import ConfigurationError, SinkError
from instep_spark.derivations import ENTITY_TABLES, EPISODE_TABLES
from instep_spark.error_text import is_conflict
from instep_spark.lake.batches.micro_batch import MicroBatch, PendingRows, Segment
from instep_spark.lake.batches.progress import StreamProgress
from instep_spark.lake.batches.stats import Sweep
from instep_spark.lake.sql.literals import (
    NAMED_STREAMS,
    StreamKey,
    in_any_stream,
    in_stream,
    ordinals,
    rows_behind,
)
from instep_spark.lake.sweeps import (
    LakeSettings,
    LakeSweep,
    SweepOutcome,
    apply_due_sweeps,
    apply_released_sweep,
    apply_sweeps_behind,
    catch_up_sweeps,
    skip_empty_sweeps,
    sweep_events,
)
from instep_spark.lake.tables.base import LakeTable, OvertakenError, table_exists
from instep_spark.lake.tables.composed import ComposedTable
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.lake.tables.entities import DerivedTable, EntitiesTable
from instep_spark.lake.tables.entity_history import EntityHistoryTable
from instep_spark.lake.tables.episodes import EpisodesTable
from instep_spark.lake.tables.identities import IdentitiesTable
from instep_spark.lake.tables.intervals import IntervalTable
from instep_spark.lake.tables.stream_health import StreamHealthTable
from instep_spark.lake.tables.typed import TypedTable
from instep_spark.lake.typed_views import class_named, typed_classes, typed_name
from instep_spark.place import LakePlace
from instep_spark.session import ONE_TASK, configured, is_connect, own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FOLLOWERS",
    "REMADE_RECORDS",
    "LakeSettings",
    "Pipeline",
    "PipelineStep",
    "check_tables",
]

_FOLLOWING: Final[dict[str, Callable[[LakePlace], LakeTable]]] = {
    "entity_history": EntityHistoryTable,
    **{one.name: partial(EpisodesTable, one) for one in EPISODE_TABLES},
    **{one.name: partial(DerivedTable, one) for one in ENTITY_TABLES},
    "stream_health": StreamHealthTable,
}
FOLLOWERS: Final = tuple(_FOLLOWING)
"""The tables that follow `entities`."""
_CONFLICTS: Final = 5
"""How often a micro-batch is tried when other writers commit to the same table."""
REMADE_RECORDS: Final = 500_000
"""Rows of a stream from which a table is made again at a time."""
_LOCAL_BYTES: Final = 1 << 20
"""Held rows of more bytes are no local relation (by default, 48 MB are): Spark would compute what a
query projects of them while it plans the query, in one thread, and without compiling it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class PipelineStep(msgspec.Struct, frozen=True):
    """The report of one table's step in a micro-batch."""

    table: str
    rows: int
    seconds: float = 0.0
    """How long it took."""
    swept: tuple[LakeSweep, ...] = ()
    held: tuple[StreamKey, ...] = ()
    """Streams whose sweep is held."""


def check_tables(tables: Collection[str], where: str = "tables") -> None:
    """Raise `ConfigurationError` for a name that no table of the pipeline has."""
    if isinstance(tables, str):
        raise ConfigurationError(
            f"the tables are one text, {tables!r}",
            where=where,
            hint=f"give a list of names: [{tables!r}]",
        )
    typed = map(typed_name, typed_classes())
    unknown = set(tables) - {*FOLLOWERS, "entities", *typed}
    if unknown:
        raise ConfigurationError(
            f"the pipeline has no table {min(unknown)!r}",
            where=where,
            hint=f"it has: entities, {', '.join(FOLLOWERS)}; and one for each class with known "
            "members, such as typed_node",
        )


class Pipeline:
    """The tables of one lake, and what moves them."""

    def __init__(
        self,
        place: LakePlace,
        *,
        tables: Collection[str] = FOLLOWERS,
        settings: LakeSettings | None = None,
        storage_options: Mapping[str, str] | None = None,
        report: Callable[[PipelineStep], None] | None = None,
    ) -> None:
        """`storage_options`: with which the driver reaches an object store itself."""
        check_tables(tables)
        self.url = place.url
        self._storage_options = storage_options
        self.settings = settings or LakeSettings()
        self.changes = place.table("changes")
        self._facts = place.table("stream_facts")
        self._told = report or (lambda _step: None)
        self._telling = threading.Lock()
        self.entities = EntitiesTable(place)
        self.composed = ComposedTable(place)
        self.identities = IdentitiesTable(place)
        self.followers = [made(place) for name, made in _FOLLOWING.items() if name in tables]
        typed = sorted(name for name in tables if class_named(name))
        self.followers += [TypedTable(place, name) for name in typed]
        self.targets = [self.entities, *self.followers]

        self.changes_by_driver: DeltaRsTable | None = None
        """What reads `changes`, where the driver can do that itself."""
        self._changes_at = place.location("changes")
        self._sessions: list[SparkSession] = []

    def _report(self, step: PipelineStep) -> None:
        with self._telling:
            self._told(step)

    def open(self, spark: SparkSession) -> None:
        """Make the tables that are not there, and read how far each has come."""
        if not self._sessions and not is_connect(spark):
            self._sessions = [own_session(spark) for _ in self.targets]
            for session in self._sessions:
                session.conf.set("spark.sql.execution.arrow.localRelationThreshold", _LOCAL_BYTES)
        # Where the driver may write one of them, it may write all.
        self._open(self._sessions[0] if self._sessions else spark, self.entities)
        self._beside_each_other(spark, self._open, self.followers)
        for helper in self._helpers:
            helper.open(spark)
        if self.has_changes(spark):
            self.refuse_other_changes(spark)
            self.identities.catch_up(spark, self.changes, self.entities)
            self._catch_up_composed(spark)

    def _catch_up_composed(self, spark: SparkSession) -> None:
        """Compose what `entities` has passed and `composed` has not: it was restored, or lost."""
        decided, composed = self.entities.progress, self.composed
        if not decided.changing():
            return
        if not composed.is_open:
            composed.open(spark)
        while True:
            begin = {key: composed.progress[key].ordinal for key in decided.changing()}
            upto = {
                key: min(decided[key].ordinal, begin[key] + REMADE_RECORDS)
                for key in begin
                if begin[key] < decided[key].ordinal
            }
            if not upto:
                return
            self._compose(spark, self._batch(spark, upto), upto)

    def has_changes(self, spark: SparkSession) -> bool:
        """Whether `changes` is there."""
        if self.entities.by_driver is not None and self.changes_by_driver is None:
            self.changes_by_driver = DeltaRsTable(
                self._changes_at, self._storage_options, any_size=True
            )
        if self.changes_by_driver is not None and self.changes_by_driver.described() is not None:
            return True
        return table_exists(spark, self.changes)

    @property
    def all_tables(self) -> list[LakeTable]:
        """All that it may make."""
        return [*self.targets, self.composed, self.identities]

    @property
    def _helpers(self) -> list[LakeTable]:
        """The tables that are made for some streams only, where they are open."""
        return [one for one in (self.composed, self.identities) if one.is_open]

    def look_after_others(self, spark: SparkSession) -> bool:
        """Read anew how far the tables have come, where somebody has restored one, removed it or
        made it anew since. Returns whether somebody has.
        """
        changed: list[str] = []

        def look(session: SparkSession, target: LakeTable) -> None:
            if not target.is_as_known(session):
                changed.append(target.name)

        self._beside_each_other(spark, look, self.targets)
        for helper in self._helpers:
            look(spark, helper)
        if changed:
            self.open(spark)
        return bool(changed)

    def _open(self, spark: SparkSession, target: LakeTable) -> None:
        proven = target is not self.entities and self.entities.by_driver is not None
        target.by_driver = None  # what it knows may be of a table that is there no more
        if self.settings.by_driver:
            target.use_driver(spark, self._storage_options, proven=proven)
        target.open(spark)
        if self.settings.by_driver:
            # Its folder may be new.
            target.use_driver(spark, self._storage_options, proven=proven)
        target.lay_out(spark, self.settings.layout)

    def refuse_other_changes(self, spark: SparkSession) -> None:
        """Raise `SinkError` where `changes` has gone back (a RESTORE): other rows have, or will
        have, ordinals that the tables have passed (L2).
        """
        followed = {key: at for key, at in self._farthest().items() if at.ordinal}
        last = {key: at.ordinal for key, at in followed.items()}
        seen = {key: at.seen[0] for key, at in followed.items() if at.seen is not None}
        found = self._rows_at(spark, "consumer, stream, ordinal, committed_at", "=", seen)
        wrong = [
            key
            for row in found
            if followed[key := (row["consumer"], row["stream"])].seen
            != (row["ordinal"], (row["committed_at"] - _EPOCH) // _MICROSECOND)
        ]
        reached = self._rows_at(spark, "consumer, stream", ">=", last)
        missing = last.keys() - {(row["consumer"], row["stream"]) for row in reached}
        if missing:
            # Rows that all tables have passed may be deleted, also all of a stream.
            rows = spark.sql(f"SELECT consumer, stream FROM {self.changes}")
            left = rows.where(in_any_stream(missing)).distinct()
            wrong += [(row.consumer, row.stream) for row in left.collect()]
        if wrong:
            consumer, stream = wrong[0]
            raise SinkError(
                f"changes does not have the rows of {consumer} / {stream} that the tables follow "
                f"up to {last[consumer, stream]}",
                where=self.url,
                hint="was it restored, or is a table of another lake? Restore a newer version, or "
                "move the tables of the pipeline away and let them be made anew",
            )

    def _rows_at(
        self,
        spark: SparkSession,
        columns: str,
        how: Literal["=", ">="],
        known: Mapping[StreamKey, int],
    ) -> list[dict[str, Any]]:
        """These columns of the rows of `changes` whose ordinals compare so with those of their
        streams, each found once.
        """
        asked = f"SELECT DISTINCT {columns} FROM {{}} WHERE {{}}"
        found = None
        if len(known) <= NAMED_STREAMS:
            # So the statistics of files tell which few to read.
            each = (f"({in_stream(key)} AND ordinal {how} {at})" for key, at in known.items())
            condition = " OR ".join(each) or "false"
            if self.changes_by_driver is not None:
                found = self.changes_by_driver.query(asked.format("t", condition))
            if found is None:
                with configured(spark, ONE_TASK):
                    found = spark.sql(asked.format(self.changes, condition)).toArrow()
        else:
            rows = spark.sql(f"SELECT * FROM {self.changes}")
            rows = rows.join(ordinals(spark, known=known), ["consumer", "stream"])
            rows.where(f"ordinal {how} known").createOrReplaceTempView("instep_known")
            found = spark.sql(asked.format("instep_known", "true")).toArrow()
        listed: list[dict[str, Any]] = found.to_pylist()
        return listed

    def rows_behind(self, spark: SparkSession) -> int:
        """How many rows of `changes` the tables still lack."""
        done = self.done()
        if self.changes_by_driver is not None and len(done) <= NAMED_STREAMS:
            passed = (f"NOT ({in_stream(key)} AND ordinal <= {at})" for key, at in done.items())
            counted = self.changes_by_driver.query(
                f"SELECT count(*) AS rows FROM t WHERE {' AND '.join(passed) or 'true'}"
            )
            if counted is not None:
                return int(counted["rows"][0].as_py())
        rows = spark.sql(f"SELECT * FROM {self.changes}")
        return rows_behind(rows, done).count()

    def done(self) -> dict[StreamKey, int]:
        """Up to which ordinal of each stream no table lacks a row."""
        return {
            key: min(target.progress[key].ordinal for target in self.targets)
            for key in self._farthest()
        }

    def lacks(self, ends: Mapping[StreamKey, int]) -> dict[str, int]:
        """How many ordinals each table lacks of these streams, up to these."""
        return {
            target.name: sum(
                max(0, last - target.progress[key].ordinal) for key, last in ends.items()
            )
            for target in self.targets
        }

    def passed(self) -> dict[StreamKey, int]:
        """Up to which ordinal of each stream some table has come."""
        return {key: at.ordinal for key, at in self._farthest().items()}

    def _farthest(self) -> dict[StreamKey, StreamProgress]:
        """By stream the progress of the table that has come farthest."""
        return {
            key: max((target.progress[key] for target in self.targets), key=attrgetter("ordinal"))
            for key in {key for target in self.targets for key in target.progress.by_stream}
        }

    def apply(self, spark: SparkSession, upto: Mapping[StreamKey, int]) -> None:
        """Apply the rows of `changes` that tables lack to all of them: of these streams, up to
        these ordinals.

        Where another writer came between (an OPTIMIZE of the platform, or a pipeline that was
        killed and whose statement still runs in a server), the whole micro-batch is run again from
        what the tables then hold. Raises `SinkError` where `changes` lacks rows.
        """
        self._despite_others(spark, lambda: self._apply(spark, upto))

    def _despite_others(self, spark: SparkSession, do: Callable[[], None]) -> None:
        """Do it, and do it again from what the tables then hold where another writer comes
        between.
        """
        for attempts_left in reversed(range(_CONFLICTS)):
            try:
                do()
                return
            except Exception as error:
                known = isinstance(error, OvertakenError) or is_conflict(error)
                if attempts_left == 0 or not known:
                    raise
            for target in (*self.targets, *self._helpers):
                target.open(spark)

    def _batch(self, spark: SparkSession, upto: Mapping[StreamKey, int]) -> MicroBatch:
        ask = None if self.changes_by_driver is None else self.changes_by_driver.query
        return MicroBatch(spark, self.changes, upto, self.url, self.identities.resolve, ask)

    def _apply(self, spark: SparkSession, upto: Mapping[StreamKey, int]) -> None:
        self._release(spark)
        batch = self._batch(spark, upto)
        decided = self.entities.progress
        self.identities.follow(spark, batch.landed_after(decided), decided)
        empty = self._advance_entities(spark, batch)
        advance = partial(self._advance, batch=batch, empty=empty)
        self._beside_each_other(spark, advance, self.followers)
        self._release(spark)

    def settle(self, spark: SparkSession) -> None:
        """Commit the progress of each table, also where no row concerned it."""

        def settle() -> None:
            for target in self.all_tables:
                target.settle(spark)

        self._despite_others(spark, settle)

    def release(self, spark: SparkSession) -> None:
        """Make the held sweeps that were released meanwhile."""
        self._despite_others(spark, lambda: self._release(spark))

    def _release(self, spark: SparkSession) -> None:
        held = {
            key: stream_progress.held()
            for key, stream_progress in self.entities.progress.by_stream.items()
        }
        waiting = {key: deferred for key, deferred in held.items() if deferred is not None}
        released = self._released(spark) if waiting else set()
        for key, deferred in waiting.items():
            if (*key, deferred.attempt) in released:
                swept = apply_released_sweep(spark, self.entities, key, deferred)
                self._report(PipelineStep("entities", 0, swept=(swept,)))
        for target in self.followers:
            if isinstance(target, EntitiesTable | IntervalTable):
                catch_up_sweeps(spark, target, self.entities.progress)

    def _released(self, spark: SparkSession) -> set[tuple[str, str, int]]:
        """Return consumer, stream and attempt of the sweeps that were released."""
        if not table_exists(spark, self._facts):
            return set()
        rows = spark.sql(
            f"SELECT DISTINCT consumer, stream, count AS attempt FROM {self._facts} "
            "WHERE fact = 'RELEASE'"
        ).collect()
        return {(row.consumer, row.stream, row.attempt) for row in rows}

    # -- entities, and what becomes of sweeps ----------------------------------------------------

    def _advance_entities(self, spark: SparkSession, batch: MicroBatch) -> set[Sweep]:
        """Return the sweeps that have found nothing."""
        empty: set[Sweep] = set()
        pending = batch.after(self.entities.progress)
        changing = {key for key, stats in pending.stats_by_stream.items() if stats.partial}
        self.entities.progress = self.entities.progress.by_change(changing)
        cuts = {
            key: [s.ordinal - 1 for s in found.sweeps]
            for key, found in pending.stats_by_stream.items()
        }
        for segment in pending.cut(cuts):
            begun_s = time.monotonic()
            if segment.last:
                self._compose(spark, batch, segment.last)
                self.entities.apply(*self._with_whole_statements(pending, segment))
            due = [
                stats.sweeps[segment.number]
                for stats in pending.stats_by_stream.values()
                if segment.number < len(stats.sweeps)
            ]
            sweeps = SweepOutcome()
            if due:
                sweeps = apply_due_sweeps(spark, self.entities, due, self.settings)
                empty |= sweeps.empty
            rows = sum(last - segment.begin[key] for key, last in segment.last.items())
            seconds = time.monotonic() - begun_s
            self._report(PipelineStep("entities", rows, seconds, sweeps.made, sweeps.held))
        return empty

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

    def remake(self, spark: SparkSession, target: LakeTable) -> None:
        """Bring a table that is not one of the pipeline's as far as `entities` has come. Sweeps
        that were held, and made late, come at the same places in it.
        """
        decided = self.entities.progress
        self.identities.catch_up(spark, self.changes, self.entities)
        self._catch_up_composed(spark)
        while True:
            begin = {key: target.progress[key].ordinal for key in decided.by_stream}
            upto = {
                key: min(stream_progress.ordinal, begin[key] + REMADE_RECORDS)
                for key, stream_progress in decided.by_stream.items()
            }
            if upto == begin:
                return
            self._advance(spark, target, self._batch(spark, upto))

    def _beside_each_other(
        self,
        spark: SparkSession,
        do: Callable[[SparkSession, LakeTable], None],
        targets: Sequence[LakeTable],
    ) -> None:
        """Do the same for several tables at a time: what takes time is one statement after another,
        and not what there is to compute. Each has a session, because that holds its views and what
        its commits carry. A client of Spark Connect has only one.
        """
        if not self._sessions or not targets:
            for target in targets:
                do(spark, target)
            return
        with ThreadPoolExecutor(len(targets), "instep-lake") as pool:
            running = [
                pool.submit(do, session, target)
                for session, target in zip(self._sessions, targets, strict=False)
            ]
        for one in running:
            one.result()

    def _advance(
        self,
        spark: SparkSession,
        target: LakeTable,
        batch: MicroBatch,
        empty: Collection[Sweep] = (),
    ) -> None:
        decided = self.entities.progress
        if isinstance(target, EntitiesTable | IntervalTable):
            catch_up_sweeps(spark, target, decided)
        target.progress = target.progress.by_change(decided.changing())
        pending = batch.after(target.progress)
        if not pending.stats_by_stream:
            return
        begun_s = time.monotonic()
        if pending.held is not None or pending.rows.sparkSession is not spark:
            composed = decided.changing() & pending.stats_by_stream.keys()
            pending = pending.in_session(spark, None if composed else target.concerned)
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
            found = skip_empty_sweeps(target, pending, found, empty)
            for segment in pending.cut({key: [e.at for e in each] for key, each in found.items()}):
                if segment.last:
                    target.apply(*self._with_whole_statements(pending, segment))
                apply_sweeps_behind(spark, target, segment, found)
        rows = sum(stats.rows for stats in pending.stats_by_stream.values())
        self._report(PipelineStep(target.name, rows, time.monotonic() - begun_s))
