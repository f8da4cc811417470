"""The shape of a frame: the names of its members as they are written, and what each one is.

A shape is learned from a frame, by the rules of the plain way (`framing`, `record_header`,
`record_body`). `frame_template` reads other frames of the same shape by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Final, NamedTuple, TypeAlias

import msgspec

from instep_tapi.facts.names import STREAMING_MODULE, strip_module
from instep_tapi.wire.framing import (
    WRAPPER_DEPTH,
    Fields,
    decode_fields,
    decode_items,
    inner_member,
    is_list,
)
from instep_tapi.wire.record_body import is_without_module, read_class

__all__ = ["MODULE", "MORE", "FrameShape", "Names", "shape_of"]

MODULE: Final = f"{STREAMING_MODULE}:"
MORE: Final = "more"
"""The role of a member that TR-548 does not name."""
_RECORD_ROLES: Final = {"log-record-header": "header", "log-record-body": "body"}
_HEADER_ROLES: Final = {
    "token": "token",
    "log-append-time-stamp": "stamp",
    "entity-key": "key",
    "record-type": "record_type",
    "full-log-record-offset-id": "place",
    "record-authenticity-token": "unread",
}
_MANDATORY: Final = {"token", "stamp", "key", "record_type"}
_BODY_ROLES: Final = {"event-time-stamp": "event_time", "parent-address": "parent_address"}
_MAX_NAMES: Final = 24
"""Most names in one object."""
_MAX_BODIES: Final = 128
_USUAL_NAME: Final = re.compile(r'[^"\\\x00-\x1f:]{1,128}(?::[^"\\\x00-\x1f:]{1,128})?').fullmatch

Names: TypeAlias = tuple[tuple[str, str], ...]
"""The names in an object, each with its role, as they came: msgspec finds them fastest in that
order. A role other than `MORE` has one name.
"""

_text: Final = msgspec.json.Decoder(str).decode


class FrameShape(NamedTuple):
    """The names in the frames of a stream."""

    wrappers: tuple[Names, ...]
    """Those of the objects around the records, from the outermost one; "inner" holds the next."""
    in_list: bool
    """Whether the records are in a list."""
    has_place: bool
    """Whether offsets are stated."""
    record: Names
    """Those of header and body, and of the member "content" that names the body's class."""
    header: Names
    record_types: tuple[str, ...]
    bodies: tuple[tuple[str, Names], ...]
    """Those of the body of each class that was seen, by the text of its record-content."""

    @property
    def is_document(self) -> bool:
        """Whether a record is a whole text: its members must name their module (RFC 7951 4)."""
        return not (self.wrappers or self.in_list)

    def joined(self, other: FrameShape) -> FrameShape:
        """The shape of frames of both. Raises `ValueError` where there is none."""
        kinds = {(len(one.wrappers), one.in_list, one.has_place) for one in (self, other)}
        if len(kinds) > 1:
            raise ValueError("a list beside single records, or offsets beside none")
        bodies = dict(self.bodies)
        for content, names in other.bodies:
            bodies[content] = _joined(bodies.get(content, names), names)
        record_types = tuple(dict.fromkeys((*self.record_types, *other.record_types)))
        if len(bodies) > _MAX_BODIES or len(record_types) > _MAX_NAMES:
            raise ValueError("too many classes, or record-types")
        return FrameShape(
            tuple(map(_joined, self.wrappers, other.wrappers)),
            self.in_list,
            self.has_place,
            _joined(self.record, other.record),
            _joined(self.header, other.header),
            record_types,
            tuple(bodies.items()),
        )


def shape_of(frame: bytes) -> FrameShape:
    """The shape of a frame. Raises `ValueError` where it cannot be learned, and what the plain way
    raises.
    """
    wrappers: list[Names] = []
    for _ in range(WRAPPER_DEPTH):
        if is_list(frame):
            # Mostly all records have one shape.
            shapes = dict.fromkeys(
                _shape_of_record(wrappers, decode_fields(one), in_list=True)
                for one in decode_items(frame)
            )
            if not shapes:
                raise ValueError("a list without a record")
            return reduce(FrameShape.joined, shapes)
        members = decode_fields(frame)
        inner = inner_member(members)
        if inner is None:
            return _shape_of_record(wrappers, members, in_list=False)
        wrappers.append(_names(members, {inner: "inner"}))
        frame = bytes(members[inner])
    raise ValueError("too many wrappers")


def _shape_of_record(wrappers: Sequence[Names], members: Fields, *, in_list: bool) -> FrameShape:
    record = _names(members, _by_local_name(members, _RECORD_ROLES))
    named = dict(record)
    if MORE in named or "header" not in named:
        raise ValueError("not a log-record, or more than one")
    stated = decode_fields(members[named["header"]])
    header = _names(stated, _by_local_name(stated, _HEADER_ROLES))
    named |= dict(header)
    if not named.keys() >= _MANDATORY:
        raise ValueError("a mandatory member is missing")
    record_types = (_text(stated[named["record_type"]]),)
    bodies: tuple[tuple[str, Names], ...] = ()
    if "body" in named:
        content, names = _shape_of_body(decode_fields(members[named["body"]]))
        record += (("content", dict(names)["content"]),)
        bodies = ((content, tuple(one for one in names if one[0] != "content")),)
    has_place = "place" in named
    return FrameShape(tuple(wrappers), in_list, has_place, record, header, record_types, bodies)


def _shape_of_body(body: Fields) -> tuple[str, Names]:
    """The text of its record-content, and its names."""
    without_module = is_without_module(body)
    own = {name.removeprefix(MODULE) if without_module else name: name for name in body}
    if f"{MODULE}parent-address" in own or not {"record-content", "event-time-stamp"} <= own.keys():
        raise ValueError("the plain way judges it")
    stated = bytes(body[own["record-content"]])
    _, container, _ = read_class(stated)
    if container is None:
        raise ValueError("the member of the entity depends on the values")
    entity = own.get(container)
    if entity is None:
        entity = next((name for name in body if strip_module(name) == container), None)
    roles = {own[name]: role for name, role in _BODY_ROLES.items() if name in own}
    roles[own["record-content"]] = "content"
    if entity is not None:
        roles[entity] = "entity"
    return _text(stated), _names(body, roles)


def _by_local_name(members: Iterable[str], roles: Mapping[str, str]) -> dict[str, str]:
    local = {name: strip_module(name) for name in members}
    return {name: roles[own] for name, own in local.items() if own in roles}


def _names(members: Iterable[str], roles: Mapping[str, str]) -> Names:
    return _checked(tuple((roles.get(name, MORE), name) for name in members))


def _joined(one: Names, other: Names) -> Names:
    return _checked(tuple(dict.fromkeys((*one, *other))))


@lru_cache(maxsize=64)
def _checked(names: Names) -> Names:
    """Raises `ValueError` where one role has two names, or a name is unusual."""
    roles = {(role, strip_module(name) if role == MORE else "") for role, name in names}
    if len(roles) < len(names) or len(names) > _MAX_NAMES:
        raise ValueError("two members of one role, or too many")
    if not all(_USUAL_NAME(name) for _, name in names):
        raise ValueError("an unusual name")
    return names
