"""What becomes of sweeps (A5 to A7): made at their place, held by the guard, made
later, or overtaken; and the same in the tables that follow.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from instep_spark.lake.batches.micro_batch import PendingRows, Segment
from instep_spark.lake.batches.progress import DeferredSweep, StreamProgress, TableProgress
from instep_spark.lake.batches.stats import Sweep
from instep_spark.lake.sql.literals import StreamKey
from instep_spark.lake.tables.composed import ComposedTable
from instep_spark.lake.tables.entities import EntitiesTable
from instep_spark.lake.tables.intervals import IntervalTable
from instep_spark.place import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "OVERTAKEN",
    "LakeSettings",
    "LakeSweep",
    "SweepEvent",
    "SweepOutcome",
    "SweptTable",
    "apply_deferred_sweep",
    "apply_due_sweeps",
    "apply_released_sweep",
    "apply_sweeps_behind",
    "catch_up_sweeps",
    "skip_empty_sweeps",
    "sweep_events",
]

SweptTable = EntitiesTable | IntervalTable | ComposedTable
"""Tables from which sweeps remove what they have not seen proved."""
OVERTAKEN: Final = -1
"""Stands for the place of a held sweep that another attempt's sweep has made needless."""


class LakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pipeline decides."""

    sweep_guard_share: float = 0.5
    """A sweep of more than this share of a stream's entities is held …"""
    sweep_guard_records: int = 100
    """… when it is also more than this many."""
    layout: Layout = "copy-on-write"
    """What a change does to the files of the tables."""
    by_driver: bool = True
    """The driver reads and merges few rows itself, where it can."""
    upkeep_share: float = 0.1
    """A run spends this share of its time at most on joining and deleting files, and on audits."""
    audit_reading: str = ""
    """The lake of another reading of the logs, with which a run compares `entities`; or empty."""
    audit_interval_s: float = 86_400.0


class LakeSweep(msgspec.Struct, frozen=True):
    """A sweep that was made, as it is reported (A6)."""

    stream: str
    attempt: int
    removed: int
    """Entities."""


class SweepOutcome(msgspec.Struct, frozen=True):
    """What became of the sweeps that were due."""

    made: tuple[LakeSweep, ...] = ()
    held: tuple[StreamKey, ...] = ()
    empty: frozenset[Sweep] = frozenset()
    """Those that were made and found each entity marked: no table that follows has anything to
    remove at their places."""


class SweepEvent(msgspec.Struct, frozen=True):
    """A sweep that `entities` has made, for a table that follows."""

    at: int
    """It comes behind the row with this ordinal."""
    sweep: Sweep
    deferred: DeferredSweep | None = None


def apply_due_sweeps(
    spark: SparkSession, entities: EntitiesTable, due: list[Sweep], settings: LakeSettings
) -> SweepOutcome:
    """Make the sweeps that the guard lets pass, and hold the others (A6)."""
    counts = entities.count_sweep(spark, due)
    progress = entities.progress
    passing: list[Sweep] = []
    held: list[StreamKey] = []
    for sweep in due:
        stream_progress = progress[sweep.stream]
        before = stream_progress.held()
        if before is not None:
            deferred = stream_progress.with_deferred(replace(before, applied_ordinal=OVERTAKEN))
            stream_progress = replace(stream_progress, deferred=deferred)
        stream_progress = replace(stream_progress, ordinal=sweep.ordinal)
        found = counts[sweep.stream]
        guarded = found.removed > found.total * settings.sweep_guard_share
        if guarded and found.removed > settings.sweep_guard_records:
            waiting = DeferredSweep(
                sweep.ordinal,
                sweep.attempt,
                unmarked=found.unmarked,
                total=found.total,
                readable=sweep.readable,
            )
            stream_progress = replace(
                stream_progress, deferred=stream_progress.with_deferred(waiting)
            )
            held.append(sweep.stream)
        else:
            stream_progress = replace(
                stream_progress, ordinal=_behind(sweep, stream_progress), swept=sweep.ordinal
            )
            passing.append(sweep)
        progress = progress.moved({sweep.stream: stream_progress})
    empty = frozenset(sweep for sweep in passing if not counts[sweep.stream].unmarked)
    if len(empty) < len(passing):
        entities.sweep(spark, passing, progress)
    elif any(
        progress[one.stream].deferred != entities.progress[one.stream].deferred for one in due
    ):
        entities.commit_progress(spark, progress)
    else:
        entities.progress = progress  # durable with the next commit; made again it changes nothing
    made = (LakeSweep(one.stream[1], one.attempt, counts[one.stream].removed) for one in passing)
    return SweepOutcome(tuple(made), tuple(held), empty)


def _behind(sweep: Sweep, stream_progress: StreamProgress) -> int:
    """Where a table stands that has made the sweep: what is left of entities that have lost changes
    by it has the sweep's own ordinal, and comes next.
    """
    return sweep.ordinal - stream_progress.by_change


def apply_released_sweep(
    spark: SparkSession, entities: EntitiesTable, key: StreamKey, deferred: DeferredSweep
) -> LakeSweep:
    """Make a held sweep that was released."""
    sweep = Sweep(key, deferred.ordinal, deferred.attempt, deferred.readable)
    removed = entities.count_sweep(spark, [sweep])[key].removed
    apply_deferred_sweep(spark, entities, key, deferred)
    return LakeSweep(key[1], deferred.attempt, removed)


def apply_deferred_sweep(
    spark: SparkSession, target: SweptTable, key: StreamKey, deferred: DeferredSweep
) -> None:
    """Make a held sweep after all, where the table stands."""
    stream_progress = target.progress[key]
    at = stream_progress.ordinal if deferred.applied_ordinal is None else deferred.applied_ordinal
    applied = stream_progress.with_deferred(replace(deferred, applied_ordinal=at))
    moved = replace(stream_progress, deferred=applied, swept=max(stream_progress.swept, at))
    progress = target.progress.moved({key: moved})
    target.sweep(spark, [Sweep(key, at, deferred.attempt, deferred.readable)], progress)


def catch_up_sweeps(spark: SparkSession, target: SweptTable, decided: TableProgress) -> None:
    """Make the sweeps that `entities` made late, that lie behind the table, and that it lacks."""
    for key, stream_progress in decided.by_stream.items():
        made = {one.ordinal for one in target.progress[key].deferred}
        for deferred in stream_progress.deferred:
            at = deferred.applied_ordinal
            if at is None or at == OVERTAKEN or deferred.ordinal in made:
                continue
            if at <= target.progress[key].ordinal:
                apply_deferred_sweep(spark, target, key, deferred)


def sweep_events(
    key: StreamKey, pending: PendingRows, progress: TableProgress, decided: TableProgress
) -> list[SweepEvent]:
    """The sweeps in a part that `entities` has made, in order; `progress` is the table's."""
    deferred = {one.ordinal: one for one in decided[key].deferred}
    stats = pending.stats_by_stream[key]
    found = [
        SweepEvent(one.ordinal - 1, one) for one in stats.sweeps if one.ordinal not in deferred
    ]
    for one in deferred.values():
        at = one.applied_ordinal
        if at is not None and progress[key].ordinal < at <= stats.last:
            found.append(SweepEvent(at, Sweep(key, at, one.attempt, one.readable), one))
    return sorted(found, key=lambda event: event.at)


def skip_empty_sweeps(
    target: SweptTable,
    pending: PendingRows,
    found: dict[StreamKey, list[SweepEvent]],
    empty: Collection[Sweep],
) -> dict[StreamKey, list[SweepEvent]]:
    """The sweeps of `found` at which the rows of the part have to be cut for this table. `empty`:
    those that found nothing in `entities`; the table has passed them when it has the part.

    Where a stream is joined with a baseline, or states changes only, what follows is compared
    otherwise behind each sweep (A14).
    """
    needed: dict[StreamKey, list[SweepEvent]] = {}
    for key, events in found.items():
        at = target.progress[key]
        joined = at.by_uuid or at.by_change or pending.stats_by_stream[key].keyed
        passed = [e for e in events if not joined and e.deferred is None and e.sweep in empty]
        needed[key] = [event for event in events if event not in passed]
        if passed:
            swept = max(at.swept, passed[-1].sweep.ordinal)
            target.progress = target.progress.moved({key: replace(at, swept=swept)})
    return needed


def apply_sweeps_behind(
    spark: SparkSession,
    target: SweptTable,
    segment: Segment,
    found: dict[StreamKey, list[SweepEvent]],
) -> None:
    """Make the sweeps that end this segment."""
    due = [one[segment.number] for one in found.values() if segment.number < len(one)]
    if not due:
        return
    progress = target.progress
    for event in due:
        key = event.sweep.stream
        stream_progress = progress[key]
        stream_progress = replace(
            stream_progress,
            ordinal=max(stream_progress.ordinal, _behind(event.sweep, stream_progress)),
            swept=event.sweep.ordinal,
        )
        if event.deferred is not None:
            stream_progress = replace(
                stream_progress, deferred=stream_progress.with_deferred(event.deferred)
            )
        progress = progress.moved({key: stream_progress})
    target.sweep(spark, [event.sweep for event in due], progress)
