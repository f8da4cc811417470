"""From `changes` to the tables of the pipeline, micro-batch by micro-batch.

`entities` goes first: with it, sweeps are decided (DESIGN 3, rules 5 and 6). The others follow,
each from its own progress. Each commit carries the progress of its table, so that a micro-batch
that comes late, again or in another order, or stops half way, changes nothing that it should not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from instep.errors import ConfigurationError, SinkError
from instep_spark.lake.alarms import Alarms
from instep_spark.lake.batch import Batch, Part, Segment, StreamKey, Survey, Sweep
from instep_spark.lake.current import Current
from instep_spark.lake.health import Health
from instep_spark.lake.history import History
from instep_spark.lake.intervals import Intervals
from instep_spark.lake.stamp import LateSweep, Progress
from instep_spark.lake.target import Target, place, table_exists
from instep_spark.lake.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FOLLOWERS", "LakeSettings", "Pipeline", "Step"]

FOLLOWERS: Final = ("entity_history", "alarms", "topology", "stream_health")
"""The tables that follow `entities`."""
_OVERTAKEN: Final = -1
_CONFLICTS: Final = 5
"""How often a micro-batch is tried."""
_CONFLICT: Final = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception")


class LakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pipeline decides."""

    sweep_guard_share: float = 0.5
    """A sweep of more than this share of a stream's entities is held …"""
    sweep_guard_records: int = 100
    """… when it is also more than this many."""


class Step(msgspec.Struct, frozen=True):
    """What is told of a micro-batch."""

    table: str
    rows: int
    swept: tuple[StreamKey, ...] = ()
    held: tuple[StreamKey, ...] = ()


class Pipeline:
    """The tables of one lake, and what moves them."""

    def __init__(
        self,
        url: str,
        *,
        tables: Collection[str] = FOLLOWERS,
        settings: LakeSettings | None = None,
        told: Callable[[Step], None] | None = None,
    ) -> None:
        unknown = set(tables) - {*FOLLOWERS, "entities"}
        if unknown:
            raise ConfigurationError(
                f"the pipeline has no table {min(unknown)!r}",
                where="tables",
                hint=f"it has: entities, {', '.join(FOLLOWERS)}",
            )
        self.url = url
        self.settings = settings or LakeSettings()
        self.changes = place(url, "changes")
        self._facts = place(url, "stream_facts")
        self._told = told or (lambda _step: None)
        self.entities = Current(url)
        made: dict[str, Target] = {
            "entity_history": History(url, self.changes),
            "alarms": Alarms(url, self.changes),
            "topology": Topology(url),
            "stream_health": Health(url, self._facts),
        }
        self.followers = [target for name, target in made.items() if name in tables]
        self.targets = [self.entities, *self.followers]

    def open(self, spark: SparkSession) -> None:
        """Make or upgrade the tables, and read how far each has come."""
        for target in self.targets:
            target.open(spark)

    def apply(self, rows: DataFrame) -> None:
        """Bring all tables as far as these rows of `changes` lead.

        Where another writer came between (an OPTIMIZE of the platform), the whole micro-batch is
        run again from what the tables then say. Raises `SinkError`.
        """
        from pyspark.errors import PySparkException  # noqa: PLC0415 — half a second to import

        for attempts_left in reversed(range(_CONFLICTS)):
            try:
                self._apply(rows)
                return
            except PySparkException as error:
                if attempts_left == 0 or not _CONFLICT.search(str(error)):
                    raise
            for target in self.targets:
                target.open(rows.sparkSession)

    def _apply(self, rows: DataFrame) -> None:
        spark = rows.sparkSession
        self.release(spark)
        batch = Batch(rows, spark.sql(f"SELECT * FROM {self.changes}"), self.url)  # noqa: S608
        self._advance_entities(spark, batch)
        for target in self.followers:
            self._advance(spark, target, batch)
        self.release(spark)

    def settle(self, spark: SparkSession) -> None:
        """Make durable how far each table has come, also where nothing concerned it."""
        for target in self.targets:
            target.settle(spark)

    def release(self, spark: SparkSession) -> None:
        """Make the held sweeps that somebody has released since."""
        held = {k: s.held() for k, s in self.entities.progress.stands.items()}
        waiting = {key: late for key, late in held.items() if late is not None}
        if not waiting or not table_exists(spark, self._facts):
            return
        released = spark.sql(
            f"SELECT DISTINCT consumer, stream, count AS attempt FROM {self._facts} "  # noqa: S608
            "WHERE fact = 'RELEASE'"
        ).collect()
        for row in released:
            key = (row.consumer, row.stream)
            late = waiting.get(key)
            if late is not None and late.attempt == row.attempt:
                self._make_late(spark, self.entities, key, late)
        for target in self.followers:
            self._catch_up_late(spark, target)

    def _make_late(
        self, spark: SparkSession, target: Target, key: StreamKey, late: LateSweep
    ) -> None:
        """Make a released sweep where the table stands."""
        stand = target.progress[key]
        at = stand.ordinal if late.applied_ordinal is None else late.applied_ordinal
        applied = msgspec.structs.replace(late, applied_ordinal=at)
        moved = msgspec.structs.replace(stand, late=stand.with_late(applied))
        sweep = Sweep(key, at, late.attempt, late.readable)
        assert isinstance(target, Current | Intervals)
        target.sweep(spark, [sweep], target.progress.moved({key: moved}))
        self._told(Step(target.name, 0, swept=(key,)))

    def _catch_up_late(self, spark: SparkSession, target: Target) -> None:
        """Make in `target` the released sweeps that lie behind it and that it has not made."""
        if isinstance(target, Health):
            return
        for key, stand in self.entities.progress.stands.items():
            made = {one.ordinal for one in target.progress[key].late}
            for late in stand.late:
                applied = late.applied_ordinal
                if applied is None or applied == _OVERTAKEN or late.ordinal in made:
                    continue
                if applied <= target.progress[key].ordinal:
                    self._make_late(spark, target, key, late)

    # -- entities, and what becomes of sweeps ----------------------------------------------------

    def _advance_entities(self, spark: SparkSession, batch: Batch) -> None:
        part = batch.after(self.entities.progress)
        self._refuse_partial(part)
        cuts = {key: [s.ordinal - 1 for s in found.sweeps] for key, found in part.surveys.items()}
        for segment in part.cut(cuts):
            if segment.last:
                self.entities.apply(part, segment)
            due = _numbered(part.surveys, segment)
            swept, held = self._decide(spark, due) if due else ((), ())
            rows = sum(survey.rows for survey in part.surveys.values())
            self._told(Step("entities", rows, swept, held))

    def _refuse_partial(self, part: Part) -> None:
        for (consumer, stream), survey in part.surveys.items():
            if survey.partial:
                raise SinkError(
                    f"{consumer} / {stream} states changes only (TR-548 3.8.2.2), which the tables "
                    "of a lake cannot be made of",
                    where=self.url,
                    hint="keep this stream in a SQL store, or land it in a lake of its own",
                )

    def _decide(
        self, spark: SparkSession, due: list[Sweep]
    ) -> tuple[tuple[StreamKey, ...], tuple[StreamKey, ...]]:
        """Make the sweeps that the guard lets pass, and hold the others (rule 6)."""
        counts = self.entities.census(spark, due)
        progress = self.entities.progress
        passing: list[Sweep] = []
        held: list[StreamKey] = []
        for sweep in due:
            stand = progress[sweep.stream]
            before = stand.held()
            late = stand.late
            if before is not None:
                late = stand.with_late(msgspec.structs.replace(before, applied_ordinal=_OVERTAKEN))
            stand = msgspec.structs.replace(stand, ordinal=sweep.ordinal, late=late)
            census = counts[sweep.stream]
            guarded = census.unmarked > census.total * self.settings.sweep_guard_share
            if guarded and census.unmarked > self.settings.sweep_guard_records:
                waiting = LateSweep(
                    sweep.ordinal,
                    sweep.attempt,
                    None,
                    census.unmarked,
                    census.total,
                    sweep.readable,
                )
                stand = msgspec.structs.replace(stand, late=stand.with_late(waiting))
                held.append(sweep.stream)
            else:
                passing.append(sweep)
            progress = progress.moved({sweep.stream: stand})
        if passing:
            self.entities.sweep(spark, passing, progress)
        else:
            self.entities.stamp(spark, progress)
        return tuple(sweep.stream for sweep in passing), tuple(held)

    # -- the tables that follow ------------------------------------------------------------------

    def _advance(self, spark: SparkSession, target: Target, batch: Batch) -> None:
        self._catch_up_late(spark, target)
        part = batch.after(target.progress)
        if not part.surveys:
            return
        if isinstance(target, Health):
            (segment,) = part.cut({})
            facts = table_exists(spark, self._facts)
            target.apply(part, segment, self.entities.progress, has_facts=facts)
        else:
            assert isinstance(target, Current | Intervals)
            events = {key: self._events(key, part, target.progress) for key in part.surveys}
            for segment in part.cut({k: [at for at, *_ in found] for k, found in events.items()}):
                if segment.last:
                    target.apply(part, segment)
                self._follow(spark, target, segment, events)
        self._told(Step(target.name, sum(survey.rows for survey in part.surveys.values())))

    def _events(
        self, key: StreamKey, part: Part, progress: Progress
    ) -> list[tuple[int, Sweep, LateSweep | None]]:
        """The sweeps that were made, each with the ordinal behind which it comes."""
        late = {one.ordinal: one for one in self.entities.progress[key].late}
        survey = part.surveys[key]
        events: list[tuple[int, Sweep, LateSweep | None]] = [
            (sweep.ordinal - 1, sweep, None) for sweep in survey.sweeps if sweep.ordinal not in late
        ]
        for one in late.values():
            at = one.applied_ordinal
            if at is not None and progress[key].ordinal < at <= survey.last:
                events.append((at, Sweep(key, at, one.attempt, one.readable), one))
        return sorted(events, key=lambda event: event[0])

    def _follow(
        self,
        spark: SparkSession,
        target: Current | Intervals,
        segment: Segment,
        events: dict[StreamKey, list[tuple[int, Sweep, LateSweep | None]]],
    ) -> None:
        """Make in a table that follows the sweeps that end this segment."""
        due = [found[segment.number] for found in events.values() if segment.number < len(found)]
        if not due:
            return
        progress = target.progress
        for _, sweep, late in due:
            stand = progress[sweep.stream]
            stand = msgspec.structs.replace(stand, ordinal=max(stand.ordinal, sweep.ordinal))
            if late is not None:
                stand = msgspec.structs.replace(stand, late=stand.with_late(late))
            progress = progress.moved({sweep.stream: stand})
        target.sweep(spark, [sweep for _, sweep, _ in due], progress)


def _numbered(surveys: dict[StreamKey, Survey], segment: Segment) -> list[Sweep]:
    """The sweeps that end this segment."""
    number = segment.number
    return [s.sweeps[number] for s in surveys.values() if number < len(s.sweeps)]
