"""The rules about the life of entities and of alarms (TR-548 3.8.1.1, 4.4 to 4.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from instep.conformance import HELD, NOTHING, Judge, Rule, RuleBroken, RuleLevel, Verdict
from instep_tapi.conformance.making import by_record, clauses, listed
from instep_tapi.conformance.observations import (
    ConnectionSeen,
    Object,
    RecordSeen,
)
from instep_tapi.conformance.streams import plain_identity
from instep_tapi.facts.names import CONDITION_DETECTOR, strip_module
from instep_tapi.facts.stream_profile import TAPI_2_1_3

__all__ = ["RULES"]

_CHAPTER: Final = "Alarms and the end of entities"
_WITHIN_US: Final = 10_000_000
"""Within so long, by append times, a TOMBSTONE must follow that is to follow at once."""
_ENTITY_WITHIN_US: Final = 60_000_000
_MAX_PENDING: Final = 10_000
_STATES_2_1_3: Final = {
    f"ALARM_DETECTOR_STATE_{name}" for name in ("ACTIVE", "INTERMITTENT", "CLEAR")
}
_SIMPLE: Final = {
    f"SIMPLE_DETECTOR_STATE_{name}"
    for name in ("ACTIVE", "INTERMITTENT", "CLEAR", "FLEETING", "ACTIVE_NO_EXPLICIT_CLEAR")
}
_TYPES: Final = {
    f"CONDITION_DETECTOR_TYPE_{name}"
    for name in ("ALARM_DETECTOR", "EVENT_DETECTOR", "PM_THRESHOLD_DETECTOR")
}


def _inner(content: Object, name: str) -> dict[str, Any] | None:
    found = content.get(name)
    if not isinstance(found, dict):
        return None
    return {strip_module(member): value for member, value in found.items()}


def _is_detector(seen: RecordSeen) -> bool:
    return seen.cls == CONDITION_DETECTOR and seen.states and seen.kind != "CHANGE"


def _is_part(seen: RecordSeen) -> bool:
    """Whether it may be a part of an entity only (CHANGE_ONLY of v1.1)."""
    declared = seen.connection.declared
    return bool(declared and declared.type and declared.type.strategy == "CHANGE_ONLY")


def _old_state(seen: RecordSeen) -> Any:
    detail = _inner(seen.content, "alarm-condition-detector-detail")
    return None if detail is None else detail.get("alarm-detector-state")


def _new_state(seen: RecordSeen) -> Any:
    condition = _inner(seen.content, "detected-condition") or {}
    simple = _inner(condition, "simple-detector")
    return None if simple is None else simple.get("simple-detector-state")


def state_of(seen: RecordSeen) -> str:
    """The state of a detector in short; empty where none is stated."""
    stated = plain_identity(_old_state(seen)) or plain_identity(_new_state(seen))
    return stated.rpartition("STATE_")[2]


def _mandatory(seen: RecordSeen) -> str | None:
    if not _is_detector(seen) or not seen.content or _is_part(seen):
        return None
    names = ["measured-entity-native-id", "detector-native-id", "condition-detector-type"]
    condition = _inner(seen.content, "detected-condition")
    if condition is None:
        names.append("condition-native-name")
    lacking = [name for name in names if seen.content.get(name) in (None, "")]
    if condition is not None:
        named = ("detected-condition-name", "detected-condition-native-name")
        lacking += [name for name in named if condition.get(name) in (None, "")]
    return f"the detector does not state {listed(lacking)}" if lacking else ""


def _type(seen: RecordSeen) -> str | None:
    stated = seen.content.get("condition-detector-type")
    if not _is_detector(seen) or stated is None:
        return None
    return "" if plain_identity(stated) in _TYPES else f"condition-detector-type is {stated!r}"


def _state(seen: RecordSeen) -> str | None:
    if not _is_detector(seen) or not seen.content or _is_part(seen):
        return None
    old, new = _old_state(seen), _new_state(seen)
    if old is not None:
        return "" if plain_identity(old) in _STATES_2_1_3 else f"alarm-detector-state is {old!r}"
    if new is not None and seen.edition != TAPI_2_1_3:
        return "" if plain_identity(new) in _SIMPLE else f"simple-detector-state is {new!r}"
    kind = plain_identity(seen.content.get("condition-detector-type"))
    if kind.endswith("ALARM_DETECTOR"):
        return "an alarm detector states no state"
    return None


def _severity(seen: RecordSeen) -> str | None:
    condition = _inner(seen.content, "detected-condition") or {}
    detail = _inner(seen.content, "alarm-condition-detector-detail") or {}
    info = _inner(condition, "detector-info") or _inner(detail, "legacy-properties") or {}
    stated = info.get("perceived-severity")
    if not _is_detector(seen) or not isinstance(stated, str):
        return None
    if plain_identity(stated).rpartition("_")[2] != "CLEARED" or state_of(seen) in {"", "CLEAR"}:
        return ""
    return f"perceived-severity is {stated!r}, and the state is {state_of(seen)}"


def _clear_by_delete(seen: RecordSeen) -> str | None:
    if seen.cls != CONDITION_DETECTOR or state_of(seen) != "CLEAR":
        return None
    return "" if seen.ends else f"CLEAR comes in a {seen.kind}"


class _Follows:
    """Judges that a TOMBSTONE follows at once: by append times, within the partition, on the
    connection that brought what it is to follow. Only where no offset is missing between that and
    a later record is it certain that there is none.
    """

    def __init__(self, opens: Callable[[RecordSeen], bool], within_us: int, what: str) -> None:
        self._opens = opens
        self._within_us = within_us
        self._what = what
        self._runs: dict[tuple[int, str], _Run] = {}

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            for name in [name for name in self._runs if name[0] == seen.id]:
                del self._runs[name]
            return NOTHING
        if seen.place is None or seen.append_us is None or not seen.key:
            return NOTHING
        partition, offset = seen.place
        run = self._runs.setdefault((seen.connection.id, partition), _Run(offset - 1))
        found: list[Verdict] = []
        if seen.kind == "TOMBSTONE":
            found += HELD if run.pending.pop(seen.key, None) else ()
        if offset <= run.last:
            return found  # it comes again
        if offset != run.last + 1:
            run.pending.clear()
        run.last = offset
        again = run.pending.get(seen.key)
        if again is not None and seen.states and state_of(seen) != "CLEAR":
            del run.pending[seen.key]
            found += self._broken(again, seen)
        oldest = next(iter(run.pending.values()), None)
        within_us = min(self._within_us, _kept_us(seen) / 3)
        if oldest is not None and seen.append_us - (oldest.append_us or 0) > within_us:
            del run.pending[oldest.key]
            found += self._broken(oldest, seen)
        if self._opens(seen) and len(run.pending) < _MAX_PENDING:
            run.pending.setdefault(seen.key, seen)
        return found

    def _broken(self, last: RecordSeen, seen: RecordSeen) -> Sequence[Verdict]:
        age_us = seen.at_us + seen.ahead_us - (last.append_us or 0)
        if age_us > _kept_us(last, superseded=seen.key == last.key) / 2:
            return NOTHING  # the TOMBSTONE may have gone before we came to it
        after = ((seen.append_us or 0) - (last.append_us or 0)) / 1e6
        other = "the next record of it" if seen.key == last.key else "another record"
        reason = (
            f"{self._what} of {last.key} has no TOMBSTONE; {other} was appended {after:.1f} s"
            " later, and none between is missing"
        )
        return (RuleBroken(reason, (last.evidence, seen.evidence)),)


def _kept_us(ended: RecordSeen, *, superseded: bool = False) -> float:
    """How long the TOMBSTONE of what has ended is in the log; `superseded`: as another record of it
    followed.
    """
    declared = ended.connection.declared
    type_ = declared.type if declared else None
    if type_ is None:
        return inf
    kept_s = type_.retention_s if type_.compacts and not superseded else type_.delay_s
    return inf if kept_s is None else kept_s * 1e6


@dataclass(slots=True)
class _Run:
    """The records of a partition that came without an offset missing between them."""

    last: int
    pending: dict[str, RecordSeen] = field(default_factory=dict)
    """Entity-key → what a TOMBSTONE has to follow."""


def _alarm_ends(seen: RecordSeen) -> bool:
    return seen.states and seen.cls == CONDITION_DETECTOR and state_of(seen) == "CLEAR"


def _entity_ends(seen: RecordSeen) -> bool:
    return seen.kind == "DELETE"


def _rule(id_: str, look: Callable[[RecordSeen], str | None] | None = None, **given: Any) -> Rule:
    make: Callable[[], Judge] = by_record(look) if look else given.pop("make_judge")
    given.setdefault("provoke", "Raise an alarm, change its severity, and clear it.")
    given.setdefault("sees", (RecordSeen,))
    return Rule(id=f"tapi-{id_}", chapter=_CHAPTER, make_judge=make, **given)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "delete-tombstone",
        text="A TOMBSTONE with the same entity-key follows each DELETE.",
        clauses=clauses("3.8.1.1", "3.8.1.1"),
        provoke="Delete an entity, and let something else change a minute later.",
        why="Compaction keeps the last record of a key: a DELETE without TOMBSTONE stays in the"
        " log for ever, and the log grows without bound.",
        right="DELETE of k, then TOMBSTONE of k",
        wrong="DELETE of k, then nothing more of k",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=lambda: _Follows(_entity_ends, _ENTITY_WITHIN_US, "the DELETE"),
    ),
    _rule(
        "clear-tombstone",
        text="A TOMBSTONE follows the CLEAR of an alarm at once.",
        clauses=clauses("4.4, 4.7", "4.4, 4.7"),
        provoke="Clear an alarm, and let something else change ten seconds later.",
        why="A cleared alarm without TOMBSTONE stays in the log: each client that aligns anew gets"
        " all alarms that ever were.",
        right="CLEAR of k, then TOMBSTONE of k",
        wrong="CLEAR of k, then ACTIVE of k",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=lambda: _Follows(_alarm_ends, _WITHIN_US, "the CLEAR"),
    ),
    _rule(
        "clear-delete",
        _clear_by_delete,
        text="The CLEAR of an alarm is a DELETE.",
        clauses=clauses("", "4.4"),
        provoke="Clear an alarm.",
        why="A client of this edition ends an alarm by its record-type. A CLEAR in a record that"
        " states an entity leaves it standing.",
        right="RECORD_TYPE_DELETE, then RECORD_TYPE_TOMBSTONE",
        wrong="RECORD_TYPE_UPDATE with SIMPLE_DETECTOR_STATE_CLEAR",
    ),
    _rule(
        "alarm-mandatory",
        _mandatory,
        text="A condition-detector states its native id, what it measures, its type and condition.",
        clauses=clauses("4.5", "4.5.1, 4.5.2"),
        why="An operator looks an alarm up at the device by these names. Without them it is a"
        " light that nobody can find.",
        right='"measured-entity-native-id", "detector-native-id", "condition-native-name" …',
        wrong="a uuid alone",
    ),
    _rule(
        "detector-type",
        _type,
        text="condition-detector-type is an identity that the YANG names.",
        clauses=clauses("4.5 (YANG)", "4.5.1 (YANG)"),
        why="A detector of events has no state that lasts. One that is taken for an alarm stands"
        " for ever.",
        right='"CONDITION_DETECTOR_TYPE_ALARM_DETECTOR"',
        wrong='"ALARM_DETECTOR"',
    ),
    _rule(
        "alarm-state",
        _state,
        text="An alarm detector states a state that the YANG names.",
        clauses=clauses("4.4, 4.5", "4.4, 4.5"),
        why="Whether an alarm stands is this member, and nothing else. An unknown state is neither"
        " raised nor cleared.",
        right='"alarm-detector-state": "ALARM_DETECTOR_STATE_ACTIVE"',
        wrong='"alarm-detector-state": "RAISED"',
    ),
    _rule(
        "severity-cleared",
        _severity,
        text="The severity of an alarm that stands is not CLEARED.",
        clauses=clauses("4.5", "4.5.2", RuleLevel.SHOULD),
        why="Two members say two things of one alarm: each client believes another one.",
        right='"perceived-severity": "MAJOR" with ACTIVE',
        wrong='"perceived-severity": "CLEARED" with ACTIVE',
    ),
)
