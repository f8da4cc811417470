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
from instep_spark.lake.alarms import Alarms
from instep_spark.lake.batch import Batch, Part, Segment
from instep_spark.lake.composed import Composed
from instep_spark.lake.current import Current
from instep_spark.lake.health import Health
from instep_spark.lake.history import History
from instep_spark.lake.intervals import Intervals
from instep_spark.lake.survey import StreamKey
from instep_spark.lake.sweeps import (
    LakeSettings,
    catch_up,
    decide,
    events,
    follow,
    make,
)
from instep_spark.lake.target import OvertakenError, Target, place, table_exists
from instep_spark.lake.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FOLLOWERS", "LakeSettings", "Pipeline", "Step", "check_tables"]

FOLLOWERS: Final = ("entity_history", "alarms", "topology", "stream_health")
"""The tables that follow `entities`."""
_CONFLICTS: Final = 5
"""How often a micro-batch is tried."""
_CONFLICT: Final = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception")


class Step(msgspec.Struct, frozen=True):
    """What is told of a micro-batch."""

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
        told: Callable[[Step], None] | None = None,
    ) -> None:
        check_tables(tables)
        self.url = url
        self.settings = settings or LakeSettings()
        self.changes = place(url, "changes")
        self._facts = place(url, "stream_facts")
        self._told = told or (lambda _step: None)
        self.entities = Current(url)
        self.composed = Composed(url)
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

        Where another writer came between (an OPTIMIZE of the platform, or a pipeline that was
        killed and whose statement still runs in a server), the whole micro-batch is run again from
        what the tables then say. Raises `SinkError` where `changes` lacks rows.
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
        batch = Batch(rows, spark.sql(f"SELECT * FROM {self.changes}"), self.url)  # noqa: S608
        self._advance_entities(spark, batch)
        for target in self.followers:
            self._advance(spark, target, batch)
        self.release(spark)

    def settle(self, spark: SparkSession) -> None:
        """Make durable how far each table has come, also where nothing concerned it."""
        for target in (self.composed, *self.targets):
            target.settle(spark)

    def release(self, spark: SparkSession) -> None:
        """Make the held sweeps that somebody has released since."""
        held = {key: stand.held() for key, stand in self.entities.progress.stands.items()}
        waiting = {key: late for key, late in held.items() if late is not None}
        released = self._released(spark) if waiting else set()
        for key, late in waiting.items():
            if (*key, late.attempt) in released:
                make(spark, self.entities, key, late)
                self._told(Step("entities", 0, swept=(key,)))
        for target in self.followers:
            if isinstance(target, Current | Intervals):
                catch_up(spark, target, self.entities.progress)

    def _released(self, spark: SparkSession) -> set[tuple[str, str, int]]:
        """Consumer, stream and attempt of the sweeps that were released."""
        if not table_exists(spark, self._facts):
            return set()
        rows = spark.sql(
            f"SELECT DISTINCT consumer, stream, count AS attempt FROM {self._facts} "  # noqa: S608
            "WHERE fact = 'RELEASE'"
        ).collect()
        return {(row.consumer, row.stream, row.attempt) for row in rows}

    # -- entities, and what becomes of sweeps ----------------------------------------------------

    def _advance_entities(self, spark: SparkSession, batch: Batch) -> None:
        part = batch.after(self.entities.progress)
        changing = {key for key, survey in part.surveys.items() if survey.partial}
        self.entities.progress = self.entities.progress.by_change(changing)
        cuts = {key: [s.ordinal - 1 for s in found.sweeps] for key, found in part.surveys.items()}
        for segment in part.cut(cuts):
            if segment.last:
                self._compose(spark, batch, segment.last)
                self.entities.apply(*self._whole(part, segment))
            due = [
                survey.sweeps[segment.number]
                for survey in part.surveys.values()
                if segment.number < len(survey.sweeps)
            ]
            swept: tuple[StreamKey, ...] = ()
            held: tuple[StreamKey, ...] = ()
            if due:
                swept, held = decide(spark, self.entities, due, self.settings)
            rows = sum(survey.rows for survey in part.surveys.values())
            self._told(Step("entities", rows, swept, held))

    # -- streams that state changes only ---------------------------------------------------------

    def _compose(self, spark: SparkSession, batch: Batch, upto: Mapping[StreamKey, int]) -> None:
        """Bring `composed` up to these ordinals."""
        decided, composed = self.entities.progress, self.composed
        keys = decided.changing() & upto.keys()
        if not keys:
            return
        if not composed.is_open:
            composed.open(spark)
        catch_up(spark, composed, decided)
        whole = batch.after(decided.moved({key: composed.progress[key] for key in keys}))
        surveys = {
            key: whole.surveys[key].until(upto[key])
            for key in keys & whole.surveys.keys()
            if whole.surveys[key].first <= upto[key]
        }
        part = msgspec.structs.replace(whole, surveys=surveys)
        found = {key: events(key, part, composed.progress, decided) for key in surveys}
        for segment in part.cut({key: [e.at for e in each] for key, each in found.items()}):
            if segment.last:
                composed.apply(part, segment)
            follow(spark, composed, segment, found)

    def _whole(self, part: Part, segment: Segment) -> tuple[Part, Segment]:
        return self.composed.instead(part, segment, self.entities.progress.changing())

    # -- the tables that follow ------------------------------------------------------------------

    def _advance(self, spark: SparkSession, target: Target, batch: Batch) -> None:
        decided = self.entities.progress
        if isinstance(target, Current | Intervals):
            catch_up(spark, target, decided)
        target.progress = target.progress.by_change(decided.changing())
        part = batch.after(target.progress)
        if not part.surveys:
            return
        if isinstance(target, Health):
            (segment,) = part.cut({})
            segment = self.composed.beside(segment, decided.changing())
            target.apply(part, segment, decided, has_facts=table_exists(spark, self._facts))
        else:
            assert isinstance(target, Current | Intervals)
            found = {key: events(key, part, target.progress, decided) for key in part.surveys}
            for segment in part.cut({key: [e.at for e in each] for key, each in found.items()}):
                if segment.last:
                    target.apply(*self._whole(part, segment))
                follow(spark, target, segment, found)
        self._told(Step(target.name, sum(survey.rows for survey in part.surveys.values())))
