"""What one statement of a condition-detector says: pure (TR-548 v1.1 4.4, 4.5, 4.7; v3.2 4.5).

Members are found by name, with and without the name of their module, where TAPI 2.1.3 and the later
tapi-fm have them. A body that has the members of 2.1.3 and no others is read by their types, which
is several times as fast and gives the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec

from instep.model.records import Record
from instep.model.storable import LONGEST_UUID_CHARS, storable_text
from instep_tapi.facts.event_times import read_envelope
from instep_tapi.facts.members import (
    UNREADABLE,
    flag,
    identity,
    identity_member,
    read_json,
    text_member,
)
from instep_tapi.facts.names import CONDITION_DETECTOR, class_named, strip_module

__all__ = [
    "CONTAINERS",
    "DETECTOR",
    "EVENT_STATES",
    "EVENT_TYPES",
    "NATIVE",
    "SEVERITIES",
    "STATES",
    "STATE_UNKNOWN",
    "Detector",
    "all_active",
    "may_end",
    "read_detector",
    "read_statement",
    "reread_detector",
    "states_end",
    "unknown_states",
]

DETECTOR: Final = CONDITION_DETECTOR
SEVERITIES: Final = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
"""From the least to the worst."""
_ENDS: Final = (b"CLEAR", b"FLEETING")
"""A body after which nothing stands has one of them, or an escape. Searched for from
the end: in texts as long as an entity, that takes half as long."""
NATIVE: Final = "_NATIVE"
"""How a `detected-condition-name` ends that names no condition: ALARM_NAME_NATIVE (v3.2 4.5.2), or
DC_NATIVE in the YANG."""
_BACKSLASH: Final = ord("\\")
"""As a number: searching for a text of one byte takes five times as long."""
EVENT_TYPES: Final = frozenset({"EVENT_DETECTOR", "PM_THRESHOLD_DETECTOR"})
EVENT_STATES: Final = frozenset(
    {"FLEETING", "ACTIVE_NO_EXPLICIT_CLEAR", "ACTIVE_WITH_NO_SPECIFIC_CLEAR"}
)
"""What happened and is over, or is never cleared: nothing stands (v3.2 4.5.2)."""
_KNOWN_STATES: Final = EVENT_STATES | {"ACTIVE", "INTERMITTENT", "CLEAR"}
STATE_UNKNOWN: Final = "detector-state-unknown"
"""The deviation: a state of no edition."""
_STATE: Final = b"-detector-state"
_IS_ACTIVE: Final = b'":"ACTIVE"'
_stated_states: Final = re.compile(rb'-detector-state"\s*:\s*"([^"]{0,128})').findall
STATES: Final = ("alarm-detector-state", "simple-detector-state")
# Where 2.1.3 and the later tapi-fm keep state and severity, from the condition-detector downwards.
CONTAINERS: Final = frozenset(
    {
        "alarm-condition-detector-detail",
        "legacy-properties",
        "detected-condition",
        "detector-info",
        "simple-detector",
    }
)


class _Legacy(msgspec.Struct, rename="kebab", frozen=True, gc=False, forbid_unknown_fields=True):
    """`legacy-properties` (4.5)."""

    perceived_severity: str | None = None
    service_affect: str | None = None
    is_acknowledged: bool | None = None
    additional_alarm_info: list[str] | None = None


class _Detail(msgspec.Struct, rename="kebab", frozen=True, gc=False, forbid_unknown_fields=True):
    """`alarm-condition-detector-detail` (4.5)."""

    alarm_detector_state: str | None = None
    legacy_properties: _Legacy = _Legacy()


class _Usual(msgspec.Struct, rename="kebab", frozen=True, gc=False, forbid_unknown_fields=True):
    """A condition-detector as 2.1.3 has it (4.4). No name is there on two levels."""

    condition_native_name: str | None = None
    condition_normalized_name: str | None = None
    measured_entity_uuid: str | None = None
    measured_entity_native_id: str | None = None
    measured_entity_local_id: list[str] | None = None
    measured_entity_class: str | None = None
    detector_uuid: str | None = None
    detector_native_id: str | None = None
    condition_detector_type: str | None = None
    alarm_condition_detector_detail: _Detail = _Detail()
    uuid: Any = None
    """Not read; `Any`, so that it is checked as the rest of the body is. So is `name`."""
    name: Any = None


_encode: Final = msgspec.json.Encoder().encode
_decode_usual: Final = msgspec.json.Decoder(_Usual).decode


class Detector(msgspec.Struct, frozen=True, gc=False):
    """A condition-detector as one statement has it. None: not stated."""

    state: str = "ACTIVE"
    event: bool = False
    """It reports what happened, and never clears: an event detector that states no state (TR-548
    v1.1 3.9.2.5), or a state of `EVENT_STATES`.
    """
    severity: str | None = None
    service_affect: str | None = None
    acknowledged: bool | None = None
    info: str | None = None
    """`additional-alarm-info` as a JSON array."""
    condition: str | None = None
    condition_normalized: str | None = None
    detector_type: str | None = None
    detector_native_id: str | None = None
    detector_uuid: str | None = None
    measured_class: str | None = None
    measured_uuid: str | None = None
    measured_native_id: str | None = None
    measured_local_id: str | None = None
    """`measured-entity-local-id` as a JSON array."""
    node_uuid: str | None = None
    """The node in the parent-address, or the measured node."""


def all_active(text: bytes) -> bool:
    """Whether each detector in this text of several is ACTIVE beyond doubt: none ends, and none
    states what no edition has. A short cut to `may_end` and `unknown_states`.
    """
    if _BACKSLASH in text or text.rfind(b"CLEAR") >= 0:
        return False
    states = {after[: len(_IS_ACTIVE)] for after in text.rsplit(_STATE)[1:]}
    return not states - {_IS_ACTIVE}


def may_end(text: bytes | bytearray) -> bool:
    """Whether some body in this text may end an alarm; most say no, and are not parsed."""
    return any(text.rfind(one) >= 0 for one in _ENDS) or _BACKSLASH in text


def states_end(content: bytes | bytearray, deviations: list[str]) -> bool:
    """Whether after this content of a condition-detector nothing stands, in any spelling of the
    field (A4): it is CLEAR, or an event.

    The detector's state decides (TR-548 4.4.1). A legacy severity counts only where no state is
    stated; one that contradicts the state is added to `deviations`. Raises `msgspec.MsgspecError`.
    """
    if not may_end(content):
        return False
    members = list(_stated_members(msgspec.json.decode(content)))
    state = _state_of(members)
    if state not in (None, "CLEAR") and _is_cleared(members):
        deviations.append("severity-against-state")
    return state == "CLEAR" or state in EVENT_STATES


def unknown_states(text: bytes | bytearray) -> int:
    """How many detectors in this text state what no edition has (4.4.1; v3.2 4.5.2): they count as
    ACTIVE, since what may last has not ended.
    """
    stated = Counter(_stated_states(text))
    return sum(times for value, times in stated.items() if not _is_known(value))


@lru_cache(maxsize=256)
def _is_known(spelling: bytes) -> bool:
    named = identity(spelling.decode(errors="replace"))
    return named is None or named in _KNOWN_STATES


def _state_of(members: Sequence[tuple[str, Any]]) -> str | None:
    """The state that a detector states, None where it states none (4.4.1).

    Where two contradict each other, the first that is not CLEAR counts: what may last has not
    ended. A legacy severity counts only where no state is stated.
    """
    stated = [identity(value) for name, value in members if name in STATES and _is_text(value)]
    states = [state for state in stated if state]
    lasting = (state for state in states if state != "CLEAR")
    return next(lasting, "CLEAR" if states or _is_cleared(members) else None)


def _is_cleared(members: Iterable[tuple[str, Any]]) -> bool:
    return any(
        name == "perceived-severity" and _is_text(value) and identity(value) == "CLEARED"
        for name, value in members
    )


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def read_detector(record: Record, normalized: Mapping[str, str]) -> Detector:
    """Read a statement; what cannot be read is not stated. `normalized` gives the normalized name
    of native ones where the provider states none (4.9).
    """
    return read_statement(record.body, _parent_address(record), normalized)


def read_statement(
    body: bytes | bytearray, address: Any, normalized: Mapping[str, str]
) -> Detector:
    """The same of a body and a parent-address."""
    return _usual_detector(body, address, normalized) or _any_detector(body, address, normalized)


def reread_detector(before: Detector, record: Record, normalized: Mapping[str, str]) -> Detector:
    """What `read_detector` reads of a statement whose body is that of the statement `before` was
    read from: only the envelope and the normalized names may be others. The body is not read again.
    """
    if before.condition_normalized != normalized.get(before.condition or ""):
        return read_detector(record, normalized)
    address = _parent_address(record)
    node = _node(address, before.measured_class, before.measured_uuid)
    return before if node == before.node_uuid else msgspec.structs.replace(before, node_uuid=node)


def _usual_detector(
    body: bytes | bytearray, address: Any, normalized: Mapping[str, str]
) -> Detector | None:
    """What `_any_detector` gives for the same body, or None where it may be another."""
    # Then every text in it can be stored as it is.
    if not body.isascii() or b"\\" in body:
        return None
    try:
        read = _decode_usual(body)
    except UNREADABLE:
        return None
    detail = read.alarm_condition_detector_detail
    legacy = detail.legacy_properties
    severity = identity(legacy.perceived_severity)
    state = identity(detail.alarm_detector_state) or ("CLEAR" if severity == "CLEARED" else None)
    detector_type = identity(read.condition_detector_type)
    measured_class, measured_uuid = _class(read.measured_entity_class), read.measured_entity_uuid
    if measured_uuid is not None and len(measured_uuid) > LONGEST_UUID_CHARS:
        measured_uuid = None
    info, local_id = legacy.additional_alarm_info, read.measured_entity_local_id
    return Detector(
        state=state or "ACTIVE",
        event=_is_event(state, detector_type),
        severity=severity,
        service_affect=identity(legacy.service_affect),
        acknowledged=legacy.is_acknowledged,
        info=_encode(info).decode() if info else None,
        condition=read.condition_native_name or None,
        condition_normalized=read.condition_normalized_name
        or normalized.get(read.condition_native_name or ""),
        detector_type=detector_type,
        detector_native_id=read.detector_native_id or None,
        detector_uuid=read.detector_uuid or None,
        measured_class=measured_class,
        measured_uuid=measured_uuid or None,
        measured_native_id=read.measured_entity_native_id or None,
        measured_local_id=_encode(local_id).decode() if local_id else None,
        node_uuid=_node(address, measured_class, measured_uuid or None),
    )


def _any_detector(body: bytes | bytearray, address: Any, normalized: Mapping[str, str]) -> Detector:
    stated = list(_stated_members(read_json(body)))
    members = dict(reversed(stated))  # the outer one counts where a name is there twice
    state = _state_of(stated)
    detector_type = identity_member(members, "condition-detector-type")
    measured_class = _class(
        text_member(members, "measured-entity-class") or text_member(members, "target-object-type")
    )
    measured_uuid = text_member(members, "measured-entity-uuid") or text_member(
        members, "target-object-identifier"
    )
    if measured_uuid is not None and len(measured_uuid) > LONGEST_UUID_CHARS:
        measured_uuid = None
    native = text_member(members, "condition-native-name") or text_member(
        members, "detected-condition-native-name"
    )
    acknowledged = flag(members.get("is-acknowledged"))
    if acknowledged is None:
        acknowledged = flag(members.get("is-acknowledge"))
    return Detector(
        state=state or "ACTIVE",
        event=_is_event(state, detector_type),
        severity=identity_member(members, "perceived-severity"),
        service_affect=identity_member(members, "service-affect")
        or identity_member(members, "service-affecting"),
        acknowledged=acknowledged,
        info=_info(members),
        condition=native,
        condition_normalized=_normalized(members) or normalized.get(native or ""),
        detector_type=detector_type,
        detector_native_id=text_member(members, "detector-native-id"),
        detector_uuid=text_member(members, "detector-uuid"),
        measured_class=measured_class,
        measured_uuid=measured_uuid,
        measured_native_id=text_member(members, "measured-entity-native-id"),
        measured_local_id=_list(members.get("measured-entity-local-id")),
        node_uuid=_node(address, measured_class, measured_uuid),
    )


def _is_event(state: str | None, detector_type: str | None) -> bool:
    return state in EVENT_STATES or (state is None and detector_type in EVENT_TYPES)


def _normalized(members: dict[str, Any]) -> str | None:
    """The normalized name that is stated: in 2.4 and later an identity, or ALARM_NAME_NATIVE where
    there is none (v3.2 4.5.2).
    """
    stated = text_member(members, "condition-normalized-name")
    if stated is not None:
        return stated
    name = text_member(members, "detected-condition-name")
    named = strip_module(name).strip() if name else ""
    return None if named.endswith(NATIVE) else named or None


def _info(members: dict[str, Any]) -> str | None:
    listed = _list(members.get("additional-alarm-info"))
    own = text_member(members, "detected-condition-native-info")
    return listed or (_list([own]) if own else None)


def _stated_members(value: Any) -> Iterator[tuple[str, Any]]:
    """The members of a condition-detector and of its containers by their names without module, the
    outer ones first.
    """
    level = [value]
    for _ in range(len(CONTAINERS) + 1):  # one cannot contain itself
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                for member, stated in one.items():
                    name = strip_module(member)
                    if name in CONTAINERS:
                        inner.append(stated)
                    else:
                        yield name, stated
        if not inner:
            return
        level = inner


def _class(identity_of_class: str | None) -> str | None:
    named = identity(identity_of_class)
    return (class_named(named) or None) if named else None


def _list(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return None
    texts = [storable_text(one) for one in value if isinstance(one, str)]
    return _encode(texts).decode()


def _parent_address(record: Record) -> Any:
    # Most alarms state none.
    if b"parent-address" not in record.envelope and b"\\" not in record.envelope:
        return None
    return read_envelope(record.envelope).get("parent-address")


def _node(address: Any, measured_class: str | None, measured_uuid: str | None) -> str | None:
    for element in address if isinstance(address, list) else ():
        if isinstance(element, str) and element.startswith("node-uuid:"):
            node = storable_text(element.removeprefix("node-uuid:"))
            if node:
                return node
            break
    return measured_uuid if measured_class == "NODE" else None
