"""Reads log-record-bodies: class, content verbatim, envelope and uuid (TR-548 3.10)."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import msgspec

from instep.model.records import RecordType
from instep_tapi.facts.containment import CONTAINED_CLASSES, local_identity
from instep_tapi.facts.detector import STATE_UNKNOWN, states_end, unknown_states
from instep_tapi.facts.names import (
    ANY_CLASS,
    CLASSES_WITHOUT_CONTAINER,
    CONDITION_DETECTOR,
    MAX_NAME_CHARS,
    OBJECT_CLASSES,
    class_named,
    class_of,
    container_of,
)
from instep_tapi.facts.names import strip_module as plain
from instep_tapi.wire.framing import BadRecord, Fields
from instep_tapi.wire.parent_address import canonical_address
from instep_tapi.wire.record_header import check_text

__all__ = [
    "BACKSLASH",
    "PARENT_MISSING",
    "Buffer",
    "decode_body",
    "entity_of",
    "is_without_module",
    "open_body",
    "parent_address_of",
    "read_class",
    "uuid_of",
    "with_header",
]


Buffer: TypeAlias = bytes | bytearray
"""Content for a database is a `bytearray`: the driver takes that as it is, and looks up an adapter
for each `bytes`.
"""


_MAX_IDENTITY_BYTES = 256


_MODULE = "tapi-streaming:"


_ENVELOPE = ("event-time-stamp", "record-content", "parent-address")


NESTED_TIME = b"approx-date"


NESTED_TIME_WITHIN_BYTES = (
    50  # bytes: the time comes first, so searching the rest costs more than it finds
)


_text = msgspec.json.Decoder(str)


_encode = msgspec.json.Encoder().encode


BACKSLASH = ord("\\")
"""As a number: searching for a text of one byte takes five times as long."""


def open_body(body: Fields, deviations: list[str]) -> tuple[str, bytes, bytes]:
    """Class, content of the class container (empty if none) and envelope (TR-548 3.10).

    Content is the provider's own bytes. Deviations are added to `deviations`. Raises `BadRecord`.
    """
    if is_without_module(body):
        body = _without_module(body, deviations)
    entity_class, container = "", None
    if "record-content" in body:
        stated = bytes(body["record-content"])
        if len(stated) > _MAX_IDENTITY_BYTES:
            raise BadRecord("a record-content that is too long to be a class")
        entity_class, container, spelling = read_class(stated)
        if spelling:
            deviations += spelling
        if BACKSLASH in stated:
            # Without escapes, as a template has it: a repeated statement is no change.
            body["record-content"] = msgspec.Raw(_encode(_text.decode(stated)))
    else:
        deviations.append("record-content-missing")
    if container is not None and container in body:
        content = _object(bytes(body.pop(container)), container)
    else:
        entity_class, content = _other_container(body, entity_class, container, deviations)
    if "parent-address" in body:
        address, found = canonical_address(bytes(body["parent-address"]))
        if found:
            deviations += found
            body["parent-address"] = msgspec.Raw(address)
    # In one order, whatever the provider's order: a repeated statement is no change.
    first = {name: body[name] for name in _ENVELOPE if name in body}
    envelope = _encode(first | dict(sorted(body.items())))
    if "event-time-stamp" not in body:
        deviations.append("event-time-missing")
    elif envelope.find(NESTED_TIME, 0, NESTED_TIME_WITHIN_BYTES) >= 0:
        deviations.append("event-time-nested")
    return entity_class, content, envelope


def _object(content: bytes, container: str) -> bytes:
    """The content of a container, empty for null. Raises `BadRecord` for any other value."""
    if content == b"null":
        return b""
    if not content.startswith(b"{"):
        raise BadRecord(f"its {container} is no object")
    return content


@lru_cache(maxsize=1024)
def read_class(stated: bytes) -> tuple[str, str | None, tuple[str, ...]]:
    """Class, container member and deviations of the JSON text of a record-content."""
    text = _text.decode(stated)
    name = class_named(text)
    if len(name) > MAX_NAME_CHARS or "\0" in name:
        raise BadRecord(f"{name[:64]!r} with {len(name)} characters is no class")
    deviations = ("identity-blanks",) if text != text.strip() else ()
    if name not in OBJECT_CLASSES:
        deviations = (*deviations, "class-unknown")
    return name, container_of(name), deviations


def is_without_module(body: Fields) -> bool:
    """Whether the members of this body are taken without the prefix of their module."""
    return "record-content" not in body or "event-time-stamp" not in body


def _without_module(body: Fields, deviations: list[str]) -> Fields:
    members: Fields = {}
    for name, raw in body.items():
        if name.startswith(_MODULE):
            deviations.append("needless-prefix")
        members[name.removeprefix(_MODULE)] = raw
    return members


def _other_container(
    body: Fields, entity_class: str, container: str | None, deviations: list[str]
) -> tuple[str, bytes]:
    """The entity under another module's prefix, or under a name that its class does not have."""
    objects = [
        member
        for member, raw in body.items()
        if member not in ("event-time-stamp", "parent-address") and bytes(raw)[:1] == b"{"
    ]
    exact = [member for member in objects if plain(member) == container]
    found = exact or objects
    if len(found) != 1:
        return entity_class, b""
    content = bytes(body.pop(found[0]))
    if entity_class in ("", ANY_CLASS):
        return class_of(found[0]), content
    if plain(found[0]) != entity_class.lower().replace("_", "-") and not exact:
        deviations.append("container-other")
    return entity_class, content


decode_body = msgspec.json.Decoder(Fields | None).decode


_PARENT = {"parent-address", f"{_MODULE}parent-address"}


PARENT_MISSING = "parent-address-missing"


_MAY_BE_EMPTY = CLASSES_WITHOUT_CONTAINER - {ANY_CLASS}


class _Identified(msgspec.Struct, gc=False, rename="kebab"):
    uuid: str = ""
    local_id: str = ""
    detector_uuid: str = ""


class _Placed(msgspec.Struct, gc=False, rename="kebab"):
    parent_address: list[str] = []


_OF_TAPI_FM = b"detected-condition"
_identified = msgspec.json.Decoder(_Identified)
_placed = msgspec.json.Decoder(_Placed)


def entity_of(
    kind: RecordType, body: Fields | None, record_type: str, deviations: list[str]
) -> tuple[str, bytes, bytes, bool]:
    """Class, content, envelope, and whether the statement ends its entity."""
    entity_class, content, envelope = open_body(body, deviations) if body else ("", b"", b"")
    if kind.ends_entity:
        return entity_class if entity_class != ANY_CLASS else "", content, envelope, True
    if content:
        placed = body is not None and not body.keys().isdisjoint(_PARENT)
        if not placed and entity_class in CONTAINED_CLASSES:
            deviations.append(PARENT_MISSING)
        ends = entity_class == CONDITION_DETECTOR and states_end(content, deviations)
        if entity_class == CONDITION_DETECTOR:
            deviations += [STATE_UNKNOWN] * unknown_states(content)
        return entity_class, content, envelope, ends
    if entity_class not in _MAY_BE_EMPTY:
        raise BadRecord(f"{record_type.strip()} without the entity that it states (TR-548 3.10)")
    deviations.append("container-missing")
    return entity_class, b"{}", envelope, False


def with_header(envelope: bytes, header: Fields) -> bytes:
    """An envelope that keeps these members of the log-record-header."""
    kept = b'"log-record-header":%b}' % _encode(header)
    return b"%b,%b" % (envelope[:-1], kept) if len(envelope) > len(b"{}") else b"{" + kept


def parent_address_of(envelope: Buffer) -> list[str]:
    """The parent-address that an envelope states, highest ancestor first; empty where it states
    none. Raises `msgspec.MsgspecError`.
    """
    return _placed.decode(envelope).parent_address


def uuid_of(content: Buffer, envelope: Buffer) -> str:
    """The entity's own uuid; of a local class its place, from the nearest uuid down. Empty where
    neither is stated. Raises `BadRecord`.
    """
    try:
        stated = _identified.decode(content)
        uuid = stated.uuid
        if not uuid and stated.local_id:
            uuid = local_identity(parent_address_of(envelope), stated.local_id)
        if not uuid and stated.detector_uuid and _OF_TAPI_FM in content:
            # So an active-condition of a GET may name it (v3.2 4.5).
            uuid = stated.detector_uuid
    except msgspec.MsgspecError:
        return ""
    if uuid:
        check_text("uuid", uuid)
    return uuid
