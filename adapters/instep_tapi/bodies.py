"""Opens log-record-bodies: which class, its content verbatim, and the rest as one object."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import msgspec

from instep_tapi.frames import NO_BODY, BadRecord, ExactBody, Fields
from instep_tapi.names import (
    ANY_CLASS,
    MAX_NAME_CHARS,
    OBJECT_CLASSES,
    class_of,
    container_of,
    short_identity,
)
from instep_tapi.names import strip_module as plain

__all__ = ["Buffer", "class_named", "open_body", "open_exact_body"]

Buffer: TypeAlias = bytes | bytearray
"""What is bound for a database is a `bytearray`: its driver takes that as it is, and looks for an
adapter for each `bytes`.
"""

_MAX_IDENTITY_BYTES = 256
_MODULE = "tapi-streaming:"
_ENVELOPE = ("event-time-stamp", "record-content", "parent-address")
_TIME = b'{"event-time-stamp":'
_PARENT = b',"parent-address":'
_NESTED_TIME = b"approx-date"
_NESTED_TIME_WITHIN = 50  # bytes: the time comes first; to search all costs more than it tells
_nothing = bytearray()
_KNOWN_CLASSES = frozenset(OBJECT_CLASSES)
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


def class_named(identity: str) -> str:
    """The class of a record-content in any spelling; from TAPI 2.4 on classes are identities."""
    return short_identity(identity).rpartition("OBJECT_TYPE_")[2]


def open_body(body: Fields, odd: list[str]) -> tuple[str, bytes, bytes]:
    """Class, content of the class container (empty if none) and envelope (TR-548 3.10).

    Content is the provider's own bytes. Deviations are added to `odd`. Raises `BadRecord`.
    """
    if "record-content" not in body or "event-time-stamp" not in body:
        body = _without_module(body, odd)
    entity_class, container = "", None
    if "record-content" in body:
        stated = bytes(body["record-content"])
        if len(stated) > _MAX_IDENTITY_BYTES:
            raise BadRecord("a record-content that is too long to be a class")
        entity_class, container, spelling = _read_class(stated)
        if spelling:
            odd += spelling
    else:
        odd.append("record-content-missing")
    if container is not None and container in body:
        content = bytes(body.pop(container))
    else:
        entity_class, content = _other_container(body, entity_class, container, odd)
    # In one order, whatever the provider's: a statement that says the same again is no change.
    envelope = _encode({name: body[name] for name in _ENVELOPE if name in body} | body)
    if "event-time-stamp" not in body:
        odd.append("event-time-missing")
    elif envelope.find(_NESTED_TIME, 0, _NESTED_TIME_WITHIN) >= 0:
        odd.append("event-time-nested")
    return entity_class, content, envelope


def open_exact_body(body: ExactBody, odd: list[str]) -> tuple[str, Buffer, Buffer]:
    """The same of a body spelled to the letter."""
    time, parent = body.event_time_stamp, body.parent_address
    if parent is NO_BODY:
        envelope = _nothing.join((_TIME, time, body.content_member, b"}"))
    else:
        envelope = _nothing.join((_TIME, time, body.content_member, _PARENT, parent, b"}"))
    if envelope.find(_NESTED_TIME, 0, _NESTED_TIME_WITHIN) >= 0:
        odd.append("event-time-nested")
    content = b"" if body.entity is NO_BODY else bytearray(body.entity)
    return body.entity_class, content, envelope


@lru_cache(maxsize=1024)
def _read_class(stated: bytes) -> tuple[str, str | None, tuple[str, ...]]:
    """Class, container member and deviations of the JSON text of a record-content."""
    text = _text.decode(stated)
    name = class_named(text)
    if len(name) > MAX_NAME_CHARS or "\0" in name:
        raise BadRecord(f"{name[:64]!r} with {len(name)} characters is no class")
    odd = ("identity-blanks",) if text != text.strip() else ()
    if name not in _KNOWN_CLASSES:
        odd = (*odd, "class-unknown")
    return name, container_of(name), odd


def _without_module(body: Fields, odd: list[str]) -> Fields:
    members: Fields = {}
    for name, raw in body.items():
        if name.startswith(_MODULE):
            odd.append("needless-prefix")
        members[name.removeprefix(_MODULE)] = raw
    return members


def _other_container(
    body: Fields, entity_class: str, container: str | None, odd: list[str]
) -> tuple[str, bytes]:
    """The entity under another module's prefix, or under a name that its class does not have."""
    objects = [
        member
        for member, raw in body.items()
        if member != "event-time-stamp" and bytes(raw)[:1] == b"{"
    ]
    exact = [member for member in objects if plain(member) == container]
    found = exact or objects
    if len(found) != 1:
        return entity_class, b""
    content = bytes(body.pop(found[0]))
    if entity_class in ("", ANY_CLASS):
        return class_of(found[0]), content
    if plain(found[0]) != entity_class.lower().replace("_", "-") and not exact:
        odd.append("container-other")
    return entity_class, content
