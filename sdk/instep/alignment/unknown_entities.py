"""A CHANGE of an entity that is not stored (TR-548 5.2 of v3.2). Pure.

It makes no row: "the client should initiate a realignment by initiating a request with no token".
That is made once for an entity. If the attempt does not state it, the provider deviates: each such
CHANGE stays in quarantine, and no further realignment is made for it. A CHANGE goes to quarantine
at once, so nothing is lost while its realignment waits; the entry goes when the entity is stated,
or ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from instep.model.columns import CompactedAway
from instep.model.position import Phase, Position, UnknownEntity, UnknownState
from instep.model.records import Record, RecordHeader, RecordType, Unreadable
from instep.model.state_machine import next_state

__all__ = [
    "CHANGE_WITHOUT_ENTITY",
    "MAX_UNKNOWN",
    "QUARANTINE_REASON",
    "TRANSITIONS",
    "UnknownEvent",
    "absent_of",
    "after_alignment",
    "after_opening",
    "changes_met",
    "quarantine_entry",
    "realignment_due",
    "without_known",
]

CHANGE_WITHOUT_ENTITY: Final = "change-without-entity"
"""The deviation: an attempt has not stated what a CHANGE names."""
QUARANTINE_REASON: Final = "a CHANGE of an entity that is not stored (TR-548 5.2 of v3.2)"
MAX_UNKNOWN: Final = 256
"""So many entities are remembered. What a CHANGE names beyond them is taken as absent."""


class UnknownEvent(StrEnum):
    """What happens to an entity that is not stored."""

    CHANGED = "changed"
    """A CHANGE names it."""
    ATTEMPT_OPENED = "attempt opened"
    ALIGNED = "aligned"
    """The attempt has come to its end without it."""
    STATED = "stated"
    """A record states it whole, or ends it."""


TRANSITIONS: Final[dict[UnknownState, dict[UnknownEvent, UnknownState]]] = {
    UnknownState.KNOWN: {UnknownEvent.CHANGED: UnknownState.DUE},
    UnknownState.DUE: {
        UnknownEvent.CHANGED: UnknownState.DUE,
        UnknownEvent.ATTEMPT_OPENED: UnknownState.SOUGHT,
        # It was met while the attempt was open: that one may have passed what states it.
        UnknownEvent.ALIGNED: UnknownState.DUE,
        UnknownEvent.STATED: UnknownState.KNOWN,
    },
    UnknownState.SOUGHT: {
        # What ends it may come behind.
        UnknownEvent.CHANGED: UnknownState.SOUGHT,
        UnknownEvent.ATTEMPT_OPENED: UnknownState.SOUGHT,
        UnknownEvent.ALIGNED: UnknownState.ABSENT,
        UnknownEvent.STATED: UnknownState.KNOWN,
    },
    UnknownState.ABSENT: {
        UnknownEvent.CHANGED: UnknownState.ABSENT,
        UnknownEvent.ATTEMPT_OPENED: UnknownState.ABSENT,
        UnknownEvent.ALIGNED: UnknownState.ABSENT,
        UnknownEvent.STATED: UnknownState.KNOWN,
    },
}


def changes_met(position: Position, named: Mapping[str, str]) -> Position:
    """The position after CHANGEs of entities that are not stored: entity-key → uuid. The sink and
    the machine both ask for it, so what is stored is what is known.
    """
    if not named:
        return position
    unknown = dict(position.unknown)
    for key, uuid in named.items():
        known = unknown.get(key)
        if known is None and len(unknown) >= MAX_UNKNOWN:
            continue
        before = UnknownState.KNOWN if known is None else known.state
        unknown[key] = UnknownEntity(next_state(TRANSITIONS, before, UnknownEvent.CHANGED), uuid)
    return msgspec.structs.replace(position, unknown=unknown)


def absent_of(position: Position, named: Collection[str]) -> int:
    """How many of these, that CHANGEs have named, deviate: an attempt has not stated them, or there
    are too many.
    """
    found = (position.unknown.get(key) for key in named)
    return sum(one is None or one.state is UnknownState.ABSENT for one in found)


def without_known(position: Position, records: Iterable[RecordHeader]) -> Position:
    """The position once these records are stored: what they state, or end, is known. A header
    without its statement states nothing.
    """
    unknown = position.unknown
    if not unknown:
        return position
    records = [one for one in records if not isinstance(one, CompactedAway)]
    names = {one.key for one in records if one.kind is not RecordType.CHANGE}
    names |= {one.uuid for one in records if isinstance(one, Record) and not one.token} - {""}
    left = {key: one for key, one in unknown.items() if key not in names and one.uuid not in names}
    return position if left == unknown else msgspec.structs.replace(position, unknown=left)


def after_opening(unknown: Mapping[str, UnknownEntity]) -> dict[str, UnknownEntity]:
    """What is unknown, once an attempt is open."""
    return _moved(unknown, UnknownEvent.ATTEMPT_OPENED)


def after_alignment(unknown: Mapping[str, UnknownEntity]) -> tuple[dict[str, UnknownEntity], int]:
    """What is unknown once an attempt has come to its end, and how many it has sought in vain."""
    moved = _moved(unknown, UnknownEvent.ALIGNED)
    return moved, sum(one != unknown[key] for key, one in moved.items())


def _moved(unknown: Mapping[str, UnknownEntity], event: UnknownEvent) -> dict[str, UnknownEntity]:
    return {
        key: UnknownEntity(next_state(TRANSITIONS, one.state, event), one.uuid)
        for key, one in unknown.items()
    }


def realignment_due(position: Position, least_s: float, now_us: int) -> bool:
    """Whether the stream is realigned now: at least `least_s` after the last attempt began."""
    if position.phase is not Phase.ALIGNED or not position.unknown:
        return False
    since_s = (now_us - position.attempt_started_at_us) / 1_000_000
    owed = any(one.state is UnknownState.DUE for one in position.unknown.values())
    return owed and since_s >= least_s


def quarantine_entry(change: Record) -> Unreadable:
    """The CHANGE as it goes to quarantine."""
    body = change.body.decode(errors="replace")
    raw = msgspec.json.encode({"entity-key": change.key, "kind": change.kind.name, "body": body})
    return Unreadable(
        change.stream,
        raw,
        QUARANTINE_REASON,
        change.token,
        change.key,
        entity_class=change.entity_class,
    )
