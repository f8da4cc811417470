"""What one statement of a condition-detector says: pure (TR-548 4.4, 4.5, 4.8).

Members are found by name, with and without the name of their module, where TAPI 2.1.3 and the later
tapi-fm have them. A body that has the members of 2.1.3 and no others is read by their types, which
is several times as fast and gives the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from instep.model.records import Record
from instep_sql.engine.value_check import LONGEST_UUID_CHARS, storable_text
from instep_sql.tapi_members import (
    UNREADABLE,
    flag,
    plain_members,
    read_json,
    text_member,
    time_us,
)

__all__ = [
    "DETECTOR",
    "SEVERITIES",
    "ApproximateTime",
    "Detector",
    "detector_of",
    "same_body",
    "time_of",
]

DETECTOR: Final = "CONDITION_DETECTOR"
SEVERITIES: Final = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
"""From the least to the worst."""
_EVENT_TYPES: Final = frozenset({"EVENT_DETECTOR", "PM_THRESHOLD_DETECTOR"})
_CONTAINERS: Final = frozenset(
    {
        "alarm-condition-detector-detail",
        "legacy-properties",
        "detected-condition",
        "detector-info",
        "simple-detector",
    }
)
_IDENTITY: Final = re.compile(
    r"(?:[\w-]+:)?(?:ALARM_DETECTOR_STATE_|SIMPLE_DETECTOR_STATE_|PERCEIVED_SEVERITY_TYPE_"
    r"|PERCEIVED_SEVERITY_|CONDITION_DETECTOR_TYPE_|SPREAD_|SOURCE_PRECISION_"
    r"|[A-Z]+_OBJECT_TYPE_)?(.*)",
    re.DOTALL,
)
_USUAL_NAME_CHARS: Final = 128


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


class ApproximateTime(msgspec.Struct, frozen=True, gc=False):
    """An `approximate-date-and-time` (TR-548 3.10, 4.8), in microseconds since 1970."""

    at_us: int
    """The primary time-stamp; where none is stated, the append time."""
    from_us: int | None = None
    """The start time-stamp: with the spread BETWEEN, where the interval begins."""
    spread: str | None = None
    """AT, BEFORE, AFTER or BETWEEN. BEFORE, too, where the append time stands for it (4.8)."""
    precision: str | None = None
    """UNKNOWN, FREE_RUNNING or SYNCHRONIZED."""


class Detector(msgspec.Struct, frozen=True, gc=False):
    """A condition-detector as one statement has it. None: not stated."""

    state: str = "ACTIVE"
    event: bool = False
    """It reports what happened, and never clears (3.9.2.5): an event detector that states no
    state.
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


def detector_of(record: Record, normalized: Mapping[str, str]) -> Detector:
    """Read a statement; what cannot be read is not stated. `normalized` gives the normalized name
    of native ones where the provider states none (4.9).
    """
    address = _parent_address(record)
    return _usual_detector(record.body, address, normalized) or _any_detector(
        record.body, address, normalized
    )


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
    state, detector_type = _named(detail.alarm_detector_state), _named(read.condition_detector_type)
    measured_class, measured_uuid = _named(read.measured_entity_class), read.measured_entity_uuid
    if measured_uuid is not None and len(measured_uuid) > LONGEST_UUID_CHARS:
        measured_uuid = None
    info, local_id = legacy.additional_alarm_info, read.measured_entity_local_id
    return Detector(
        state=state or "ACTIVE",
        event=state is None and detector_type in _EVENT_TYPES,
        severity=_named(legacy.perceived_severity),
        service_affect=_named(legacy.service_affect),
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
    members = _members(read_json(body))
    state = _identity(members, "alarm-detector-state", "simple-detector-state")
    severity = _identity(members, "perceived-severity")
    detector_type = _identity(members, "condition-detector-type")
    measured_class = _identity(members, "measured-entity-class")
    measured_uuid = text_member(members, "measured-entity-uuid")
    if measured_uuid is not None and len(measured_uuid) > LONGEST_UUID_CHARS:
        measured_uuid = None
    native = text_member(members, "condition-native-name")
    return Detector(
        state=state or "ACTIVE",
        event=state is None and detector_type in _EVENT_TYPES,
        severity=severity,
        service_affect=_identity(members, "service-affect"),
        acknowledged=flag(members.get("is-acknowledged")),
        info=_list(members.get("additional-alarm-info")),
        condition=native,
        condition_normalized=text_member(members, "condition-normalized-name")
        or normalized.get(native or ""),
        detector_type=detector_type,
        detector_native_id=text_member(members, "detector-native-id"),
        detector_uuid=text_member(members, "detector-uuid"),
        measured_class=measured_class,
        measured_uuid=measured_uuid,
        measured_native_id=text_member(members, "measured-entity-native-id"),
        measured_local_id=_list(members.get("measured-entity-local-id")),
        node_uuid=_node(address, measured_class, measured_uuid),
    )


def same_body(before: Detector, record: Record, normalized: Mapping[str, str]) -> Detector:
    """What `detector_of` reads of a statement whose body is that of the statement `before` was read
    from: only the envelope and the normalized names may be others. The body is not read again.
    """
    if before.condition_normalized != normalized.get(before.condition or ""):
        return detector_of(record, normalized)
    address = _parent_address(record)
    node = _node(address, before.measured_class, before.measured_uuid)
    return before if node == before.node_uuid else msgspec.structs.replace(before, node_uuid=node)


def time_of(record: Record) -> ApproximateTime:
    """When it happened: the event time, flat as the YANG has it or nested as in TR-548 6.3."""
    stated = _envelope(record.envelope).get("event-time-stamp")
    members = plain_members(stated)
    members = plain_members(members.get("approx-date-and-time")) or members
    primary = stated if isinstance(stated, str) else text_member(members, "primary-time-stamp")
    at_us = time_us(primary)
    if at_us is None:
        return ApproximateTime(record.appended_at_us, spread="BEFORE")
    return ApproximateTime(
        at_us,
        time_us(text_member(members, "start-time-stamp")),
        _identity(members, "spread"),
        _identity(members, "source-precision"),
    )


def _members(value: Any) -> dict[str, Any]:
    """The members of a condition-detector, those of its containers included; the outer one counts
    where a name is there twice.
    """
    from_outer: list[dict[str, Any]] = []
    level = [value]
    for _ in range(len(_CONTAINERS) + 1):
        plain = [plain_members(one) for one in level]
        from_outer += plain
        level = [one[name] for one in plain for name in one if name in _CONTAINERS]
        if not level:
            break
    found: dict[str, Any] = {}
    for one in reversed(from_outer):
        found.update(one)
    return found


def _identity(members: dict[str, Any], *names: str) -> str | None:
    for name in names:
        value = text_member(members, name)
        if value is not None:
            return _named(value)
    return None


def _named(identity: str | None) -> str | None:
    """The name of an identity that is stated, and not empty."""
    if not identity:
        return None
    return (_usual_name if len(identity) <= _USUAL_NAME_CHARS else _name)(identity)


def _name(identity: str) -> str | None:
    """The name of an identity, without the names of its module and its base."""
    match = _IDENTITY.fullmatch(identity.strip())
    assert match is not None
    return match[1] or None


_usual_name: Final = lru_cache(maxsize=1_024)(_name)
"""YANG defines a few dozen."""


def _list(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return None
    texts = [storable_text(one) for one in value if isinstance(one, str)]
    return _encode(texts).decode()


def _read_envelope(envelope: bytes | bytearray) -> dict[str, Any]:
    return plain_members(read_json(envelope))


_envelope: Final = lru_cache(maxsize=1)(_read_envelope)
"""The time and the address of one statement are read one after the other. Nobody changes it."""


def _parent_address(record: Record) -> Any:
    return _envelope(record.envelope).get("parent-address")


def _node(address: Any, measured_class: str | None, measured_uuid: str | None) -> str | None:
    for element in address if isinstance(address, list) else ():
        if isinstance(element, str) and element.startswith("node-uuid:"):
            node = storable_text(element.removeprefix("node-uuid:"))
            if node:
                return node
            break
    return measured_uuid if measured_class == "NODE" else None
