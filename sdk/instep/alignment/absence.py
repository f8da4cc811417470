"""What an attempt proves to be absent, and what it does not (A17, A19). Pure.

An entity is removed because it was not met. That proves something only where everything was read.
A record that cannot be read may be about any entity of its partition and class, so those that the
attempt has not met are held: they stay, unproven, until an attempt can read everything. A record
whose key can be read is no hold: the store marks its entity.

An answer without content is no statement where the store holds something: a controller that is
loading its data answers so. Such a class is held, too, and read again. It counts as gone when
readings agree for long enough, and something else of the provider was stated meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from instep.alignment.settings import AlignmentSettings
from instep.model.holds import EmptyReadings, Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import RecordHeader, Unreadable
from instep.model.streams import StreamInfo, SweepEstimate

__all__ = [
    "MAX_HOLDS",
    "EmptyVerdict",
    "empty_notices",
    "held_records",
    "holds_all",
    "is_held",
    "judge_empty",
    "reread_due",
    "unguarded",
    "unproven_texts",
    "with_holds",
    "without_empty",
]

MAX_HOLDS: Final = 32
"""With more, one hold of the whole stream stands for all."""
_US: Final = 1_000_000
_REREAD_S: Final = (60, 300, 1_800)
"""After a class has counted as gone it is read again."""
_FIRST_WAIT_SHARE: Final = 6
_LONGEST_WAIT_S: Final = 300.0
_OPEN: Final = (Phase.ALIGNING, Phase.BASELINING, Phase.SWEEPING, Phase.SWEEP_HELD)


def with_holds(
    position: Position,
    unreadable: Sequence[Unreadable],
    *,
    of_baseline: bool = False,
    marks_keys: bool = False,
) -> Position:
    """The position after these were met: an open attempt cannot prove absent what they may be
    about (A17). An element of a baseline leaves its class unproven: what lies in it is not known,
    either.

    `marks_keys`: the store marks the entity of a record whose key can be read.
    """
    if position.phase not in _OPEN:
        return position
    found = dict.fromkeys(position.holds)
    for one in unreadable:
        if of_baseline:
            reason = UnprovenReason.UNREADABLE_ELEMENT
            found[Hold(reason, one.entity_class, digest=one.digest)] = None
        elif one.key is None or not marks_keys:
            found[_hold_of(one, position)] = None
    if len(found) == len(position.holds):
        return position
    holds = tuple(found)
    if len(holds) > MAX_HOLDS:
        last = holds[-1]
        holds = (Hold(last.reason, digest=last.digest),)
    return replace(position, holds=holds)


def _hold_of(one: Unreadable, position: Position) -> Hold:
    partition, offset = one.partition, one.offset
    if partition is None and len(position.offsets) == 1:
        (partition,) = position.offsets
    if offset < 0 and partition is not None:
        # It came behind what was committed there.
        offset = position.offsets.get(partition, -1)
    reason = UnprovenReason.UNREADABLE_RECORD
    hold = Hold(reason, one.entity_class, partition, one.digest, offset, position.lineage)
    for before in position.held_before:
        same_log = before.lineage == hold.lineage
        if same_log and before.digest == hold.digest and before.partition == partition:
            return replace(hold, offset=before.offset, met_before=True)
    return hold


def held_records(holds: Iterable[Hold], accepted: frozenset[str]) -> tuple[Hold, ...]:
    """Those that hold something still: no operator has accepted them."""
    return tuple(hold for hold in holds if hold.digest not in accepted or not hold.digest)


def without_empty(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """Those of records and elements that cannot be read."""
    return tuple(hold for hold in holds if hold.reason is not UnprovenReason.EMPTY_ANSWER)


def is_held(holds: Iterable[Hold], row: RecordHeader, entity_class: str, lineage: int) -> bool:
    """Whether the unmarked entity of this last record is held (A17). A row of a baseline has no
    place in the log, so a hold of any partition holds it.
    """
    return any(_holds(hold, row, entity_class, lineage) for hold in holds)


def _holds(hold: Hold, row: RecordHeader, entity_class: str, lineage: int) -> bool:
    if hold.entity_class not in ("", entity_class):
        return False
    if hold.partition is None or not row.token:
        return True
    if row.partition != hold.partition:
        return False
    later = hold.met_before and lineage == hold.lineage and row.offset > hold.offset >= 0
    return not later


def holds_all(holds: Iterable[Hold]) -> bool:
    """Whether nothing of the stream can be swept."""
    return any(not hold.entity_class and hold.partition is None for hold in holds)


def unguarded(
    estimate: SweepEstimate, holds: Sequence[Hold], readable: frozenset[str] | None
) -> SweepEstimate:
    """The estimate without what stays whatever the guard says (A6)."""
    if holds_all(holds):
        return SweepEstimate(estimate.total, 0)
    held = {hold.entity_class for hold in holds if hold.partition is None}
    kept = sum(
        unmarked
        for name, (_, unmarked) in estimate.by_class.items()
        if name in held or (readable is not None and name not in readable)
    )
    return SweepEstimate(estimate.total, estimate.unmarked - kept)


class EmptyVerdict(NamedTuple):
    """What readings without content prove."""

    readings: EmptyReadings
    holds: tuple[Hold, ...]
    """Of classes that are not proven to be gone."""
    gone: tuple[str, ...]
    """Classes that count as gone from now on."""


def judge_empty(
    readings: EmptyReadings,
    estimate: SweepEstimate,
    stream: StreamInfo,
    settings: AlignmentSettings,
    *,
    now_us: int,
    stated_elsewhere_us: int,
    confirmed: bool,
) -> EmptyVerdict:
    """Judge the classes of which this attempt has met nothing, and the store holds something (A19).

    `stated_elsewhere_us`: when another stream of the provider stated something last. `confirmed`:
    an operator has said that they are gone.
    """
    met = any(unmarked < total for total, unmarked in estimate.by_class.values())
    empty = [
        name
        for name, (total, unmarked) in sorted(estimate.by_class.items())
        if name in stream.readable - stream.absence_stated and 0 < total == unmarked
    ]
    since_us = {name: readings.since_us.get(name, now_us) for name in empty}
    gone = tuple(
        name
        for name, at_us in since_us.items()
        if confirmed
        or (
            now_us - at_us >= settings.empty_confirm_s * _US
            and (met or stated_elsewhere_us >= at_us)
        )
    )
    held = {name: at_us for name, at_us in since_us.items() if name not in gone}
    rereads = {at_us for at_us in readings.reread_at_us if at_us > now_us}
    count = 0
    if held:
        count = readings.readings + 1
        first_s = settings.empty_confirm_s / _FIRST_WAIT_SHARE
        wait_s = min(_LONGEST_WAIT_S, first_s * 2 ** min(count - 1, 16))
        rereads.add(now_us + int(wait_s * _US))
    if gone:
        rereads |= {now_us + after_s * _US for after_s in _REREAD_S}
    found = EmptyReadings(held, count, tuple(sorted(rereads)))
    holds = tuple(Hold(UnprovenReason.EMPTY_ANSWER, name) for name in held)
    return EmptyVerdict(found, holds, gone)


def empty_notices(
    verdict: EmptyVerdict, estimate: SweepEstimate, settings: AlignmentSettings
) -> list[str]:
    """What is told of classes that the provider states nothing of."""
    told = [
        f"the provider states nothing of {name}, where {_entities(estimate.by_class[name][0])}"
        " stored: kept as unproven, and read again; `instep sweep release` confirms that they are"
        " gone"
        for name in verdict.readings.since_us
    ]
    told += [
        f"{name} counts as gone, with {_entities(estimate.by_class[name][0])} stored: readings over"
        f" {settings.empty_confirm_s:g} s agree"
        for name in verdict.gone
    ]
    return told


def _entities(count: int) -> str:
    return "1 entity is" if count == 1 else f"{count:,} entities are"


def unproven_texts(position: Position) -> list[str]:
    """What is told of the records and elements that cannot be read, once the sweep is over."""
    told: list[str] = []
    for hold in without_empty(position.holds):
        element = hold.reason is UnprovenReason.UNREADABLE_ELEMENT
        if element or position.unproven:
            what = hold.entity_class or "the stream"
            if hold.partition is not None:
                what += f", partition {hold.partition!r}"
            told.append(
                f"of {what} what was not met is unproven: {hold.reason} {hold.digest};"
                " `instep quarantine` shows it"
            )
    return told


def reread_due(position: Position, now_us: int) -> bool:
    """Whether current state is read again because of an answer without content (A19)."""
    due = position.empty.reread_at_us[:1]
    return bool(due) and due[0] <= now_us and position.phase is Phase.ALIGNED
