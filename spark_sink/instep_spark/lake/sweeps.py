"""What becomes of sweeps (A5 to A7): made at their place, held by the guard, made
later, or overtaken; and the same in the tables that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from instep_spark.lake.batch import Part, Segment
from instep_spark.lake.composed import Composed
from instep_spark.lake.current import Current
from instep_spark.lake.intervals import Intervals
from instep_spark.lake.stamp import LateSweep, Progress, Stand
from instep_spark.lake.survey import StreamKey, Sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "OVERTAKEN",
    "Event",
    "LakeSettings",
    "Swept",
    "catch_up",
    "decide",
    "events",
    "follow",
    "make",
]

Swept = Current | Intervals | Composed
"""Tables from which sweeps remove what they have not seen proved."""
OVERTAKEN: Final = -1
"""Stands for the place of a held sweep that another attempt's sweep has made needless."""


class LakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pipeline decides."""

    sweep_guard_share: float = 0.5
    """A sweep of more than this share of a stream's entities is held …"""
    sweep_guard_records: int = 100
    """… when it is also more than this many."""


class Event(msgspec.Struct, frozen=True):
    """A sweep that `entities` has made, for a table that follows."""

    at: int
    """It comes behind the row with this ordinal."""
    sweep: Sweep
    late: LateSweep | None = None


def decide(
    spark: SparkSession, entities: Current, due: list[Sweep], settings: LakeSettings
) -> tuple[tuple[StreamKey, ...], tuple[StreamKey, ...]]:
    """Make the sweeps that the guard lets pass, and hold the others (A6); whose they are."""
    counts = entities.census(spark, due)
    progress = entities.progress
    passing: list[Sweep] = []
    held: list[StreamKey] = []
    for sweep in due:
        stand = progress[sweep.stream]
        before = stand.held()
        if before is not None:
            late = stand.with_late(replace(before, applied_ordinal=OVERTAKEN))
            stand = replace(stand, late=late)
        stand = replace(stand, ordinal=sweep.ordinal)
        found = counts[sweep.stream]
        guarded = found.unmarked > found.total * settings.sweep_guard_share
        if guarded and found.unmarked > settings.sweep_guard_records:
            waiting = LateSweep(
                sweep.ordinal,
                sweep.attempt,
                unmarked=found.unmarked,
                total=found.total,
                readable=sweep.readable,
            )
            stand = replace(stand, late=stand.with_late(waiting))
            held.append(sweep.stream)
        else:
            stand = replace(stand, ordinal=_behind(sweep, stand))
            passing.append(sweep)
        progress = progress.moved({sweep.stream: stand})
    if passing:
        entities.sweep(spark, passing, progress)
    else:
        entities.stamp(spark, progress)
    return tuple(sweep.stream for sweep in passing), tuple(held)


def _behind(sweep: Sweep, stand: Stand) -> int:
    """Where a table stands that has made the sweep: what is left of entities that have lost changes
    by it has the sweep's own ordinal, and comes next.
    """
    return sweep.ordinal - stand.by_change


def make(spark: SparkSession, target: Swept, key: StreamKey, late: LateSweep) -> None:
    """Make a held sweep after all, where the table stands."""
    stand = target.progress[key]
    at = stand.ordinal if late.applied_ordinal is None else late.applied_ordinal
    applied = stand.with_late(replace(late, applied_ordinal=at))
    progress = target.progress.moved({key: replace(stand, late=applied)})
    target.sweep(spark, [Sweep(key, at, late.attempt, late.readable)], progress)


def catch_up(spark: SparkSession, target: Swept, decided: Progress) -> None:
    """Make the sweeps that `entities` made late, that lie behind the table, and that it lacks."""
    for key, stand in decided.stands.items():
        made = {one.ordinal for one in target.progress[key].late}
        for late in stand.late:
            at = late.applied_ordinal
            if at is None or at == OVERTAKEN or late.ordinal in made:
                continue
            if at <= target.progress[key].ordinal:
                make(spark, target, key, late)


def events(key: StreamKey, part: Part, progress: Progress, decided: Progress) -> list[Event]:
    """The sweeps in a part that `entities` has made, in order; `progress` is the table's."""
    late = {one.ordinal: one for one in decided[key].late}
    survey = part.surveys[key]
    found = [Event(one.ordinal - 1, one) for one in survey.sweeps if one.ordinal not in late]
    for one in late.values():
        at = one.applied_ordinal
        if at is not None and progress[key].ordinal < at <= survey.last:
            found.append(Event(at, Sweep(key, at, one.attempt, one.readable), one))
    return sorted(found, key=lambda event: event.at)


def follow(
    spark: SparkSession,
    target: Swept,
    segment: Segment,
    found: dict[StreamKey, list[Event]],
) -> None:
    """Make the sweeps that end this segment."""
    due = [one[segment.number] for one in found.values() if segment.number < len(one)]
    if not due:
        return
    progress = target.progress
    for event in due:
        key = event.sweep.stream
        stand = progress[key]
        stand = replace(stand, ordinal=max(stand.ordinal, _behind(event.sweep, stand)))
        if event.late is not None:
            stand = replace(stand, late=stand.with_late(event.late))
        progress = progress.moved({key: stand})
    target.sweep(spark, [event.sweep for event in due], progress)
