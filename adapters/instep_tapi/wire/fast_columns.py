"""A short cut from exact headers to columns of records, bodies decoded only when asked for; the
plain reference is `record_header` with `record_body`.

It declines records of several partitions or without growing offsets, times that are not RFC 3339
or go back, and bodies whose class or entity needs a closer look.

Processor time for each record of 1.3 KB, as the benchmark sends them, 50 bare ones at once: 1.4 µs
for columns whose bodies nobody asks for, 3.3 µs for columns with their bodies; 6.2 µs for one
record after the other by structs, and 16.8 µs by the reference.
tests/instep_tapi/wire/test_fast_decode.py holds all of these equal, test_fast_columns.py says when
bodies are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter, methodcaller
from typing import Final, TypeAlias, cast

import msgspec

from instep.model.columns import HeaderArrays, HeaderColumns, RecordColumns, in_order
from instep.model.records import Record, RecordHeader, RecordType
from instep_tapi.wire.containment import CONTAINED_CLASSES
from instep_tapi.wire.fast_decode import ExactBody, ExactRecords, LazyBody, decode_exact_body
from instep_tapi.wire.fast_offsets import read_offset_columns
from instep_tapi.wire.framing import NO_BODY, BadRecord
from instep_tapi.wire.names import (
    CONDITION_DETECTOR,
)
from instep_tapi.wire.parent_address import canonical_address
from instep_tapi.wire.record_body import (
    BACKSLASH,
    CLEAR,
    NESTED_TIME,
    NESTED_TIME_WITHIN_BYTES,
    PARENT_MISSING,
    Buffer,
    states_clear,
    uuid_of,
)
from instep_tapi.wire.record_header import MAX_OFFSET

__all__ = ["LazyColumns", "LazyRecord", "decoded", "lazy_columns", "open_exact_body"]


EXACT_RECORD_TYPES: Final = {
    "RECORD_TYPE_CREATE_UPDATE": RecordType.CREATE_UPDATE,
    "RECORD_TYPE_DELETE": RecordType.DELETE,
    "RECORD_TYPE_TOMBSTONE": RecordType.TOMBSTONE,
}


class LazyRecord(RecordHeader, frozen=True, gc=False):
    """A record whose body was not needed yet, with the frame that it came in."""

    body: LazyBody = None
    frame: bytes = b""


class LazyColumns(HeaderColumns[LazyRecord]):
    """Log-records in the exact spelling, in columns, bodies undecoded; made by `lazy_columns`."""

    more = ("bodies", "frames")

    def __init__(
        self, headers: HeaderArrays, bodies: Sequence[LazyBody], frames: Sequence[bytes]
    ) -> None:
        super().__init__(headers)
        self.bodies = bodies
        self.frames = frames

    def at(self, index: int) -> LazyRecord:
        return LazyRecord(
            self.stream,
            self.keys[index],
            self.kinds[index],
            self.tokens[index],
            self.appended_at_us[index],
            self.partition,
            self.offsets[index],
            self.bodies[index],
            self.frames[index],
        )

    def opened(self, deviations: list[str], *, with_uuid: bool, whole: bool) -> RecordColumns:
        """All of them, their bodies looked into. Raises what bad input raises."""
        entities = _entities_at_once(self.kinds, self.bodies, deviations)
        if entities is None:
            entities = _entities_one_by_one(self.kinds, self.bodies, deviations)
        classes, bodies, envelopes, ends = entities
        uuids = [""] * len(bodies)
        if with_uuid:
            uuids = [
                uuid_of(body, envelope) if body else ""
                for body, envelope in zip(bodies, envelopes, strict=True)
            ]
        return RecordColumns(self.headers, classes, bodies, envelopes, ends, uuids, whole=whole)


_EntityColumns: TypeAlias = tuple[Sequence[str], Sequence[Buffer], Sequence[Buffer], Sequence[bool]]
"""Classes, contents, envelopes, and whether the entity ends."""


def _entities_one_by_one(
    kinds: Sequence[RecordType], bodies: Sequence[LazyBody], deviations: list[str]
) -> _EntityColumns:
    parts = [exact_entity(kind, body, deviations) for kind, body in zip(kinds, bodies, strict=True)]
    classes, contents, envelopes, ends = zip(*parts, strict=True)
    return classes, contents, envelopes, ends


def _entities_at_once(
    kinds: Sequence[RecordType], bodies: Sequence[LazyBody], deviations: list[str]
) -> _EntityColumns | None:
    """The same, column by column, for updates that state an object; None for others. It takes
    0.7 µs less for each record. Raises what decoding raises.
    """
    if kinds.count(RecordType.CREATE_UPDATE) < len(kinds):
        return None
    decoded_bodies = list(map(decode_exact_body, bodies))
    if None in decoded_bodies:
        return None
    stated = cast("Sequence[ExactBody]", decoded_bodies)
    contents = list(map(bytearray, map(_entity, stated)))
    if not (all(contents) and set(map(_first_byte, contents)) == {_BRACE}):
        return None
    classes = [body.entity_class for body in stated]
    if any(canonical_address(bytes(one))[1] for one in _some_addresses(stated)):
        return None
    envelopes = list(map(_envelope, stated))
    text = b"".join(contents)
    if not (text.isascii() and all(map(bytearray.isascii, envelopes))):
        for part in chain(contents, envelopes):
            part.decode()
    nested = list(map(_find_nested, envelopes))
    ends = [False] * len(contents)
    # From the end, which takes half as long.
    if CONDITION_DETECTOR in classes and (text.rfind(CLEAR) >= 0 or BACKSLASH in text):
        ends = [
            name == CONDITION_DETECTOR and states_clear(content, deviations)
            for name, content in zip(classes, contents, strict=True)
        ]
    deviations += ["event-time-nested"] * (len(nested) - nested.count(-1))
    bare = [body.entity_class for body in stated if body.parent_address is NO_BODY]
    deviations += [PARENT_MISSING] * sum(map(CONTAINED_CLASSES.__contains__, bare))
    return classes, contents, envelopes, ends


def _some_addresses(bodies: Sequence[ExactBody]) -> Iterable[msgspec.Raw]:
    """The parent-addresses that are looked at: all of few, else some and one of each class. A
    provider spells those of a class alike, and to look at all costs 0.2 µs for each record.
    """
    of_classes = {body.entity_class: body.parent_address for body in bodies}
    step = -(-len(bodies) // _LOOKED_AT)
    return chain(map(_parent_address, bodies[::step]), of_classes.values())


def lazy_columns(
    stream: str,
    exact: ExactRecords,
    times_us: Callable[[Sequence[str]], list[int]],
) -> LazyColumns | None:
    """Return these records as columns, if they have one shape and need no closer check.

    Raises what `times_us` raises, and `ValueError` for an offset that is no number.
    """
    headers = exact.headers
    place = read_offset_columns([header.full_log_record_offset_id for header in headers])
    if place is None:
        return None
    partition, offsets = place
    appended_at_us = times_us([header.log_append_time_stamp for header in headers])
    if not in_order(offsets, appended_at_us) or offsets[-1] > MAX_OFFSET:
        return None
    keys = [header.entity_key for header in headers]
    tokens = [header.token for header in headers]
    if "\0" in "".join(keys) or "\0" in "".join(tokens):
        return None
    kinds = [EXACT_RECORD_TYPES[header.record_type] for header in headers]
    read = HeaderArrays(stream, partition, keys, offsets, appended_at_us, kinds, tokens)
    return LazyColumns(read, exact.bodies, exact.frames)


def decoded(
    statement: RecordHeader, deviations: list[str], *, with_uuid: bool, whole: bool
) -> Record:
    """Return the record of a statement, decoded if it was not. Raises as decoding bad input
    does.
    """
    if not isinstance(statement, LazyRecord):
        return cast("Record", statement)
    kind = statement.kind
    entity_class, content, envelope, ends = exact_entity(kind, statement.body, deviations)
    return Record(
        statement.stream,
        statement.key,
        kind,
        statement.token,
        statement.appended_at_us,
        statement.partition,
        statement.offset,
        entity_class,
        bytes(content),
        bytes(envelope),
        ends,
        uuid_of(content, envelope) if with_uuid and content else "",
        whole,
    )


def exact_entity(
    kind: RecordType, body: LazyBody, deviations: list[str]
) -> tuple[str, Buffer, Buffer, bool]:
    """As `entity_of`, for a body in the exact spelling. Raises the same errors."""
    stated = decode_exact_body(body)
    if stated is None or stated.entity is NO_BODY:
        if kind is RecordType.CREATE_UPDATE:
            raise BadRecord("whether its class may be empty is judged by the liberal way")
        if stated is None:
            return "", b"", b"", True
    if stated.entity is NO_BODY and bytes(stated.parent_address).startswith(b"{"):
        raise BadRecord("which member is the entity is judged by the reference")
    entity_class, content, envelope = open_exact_body(stated, deviations)
    # Inlined: for new keys, this runs once for each record.
    if not (content.isascii() and envelope.isascii()):
        content.decode()
        envelope.decode()
    updates = kind is RecordType.CREATE_UPDATE
    if updates and stated.parent_address is NO_BODY and entity_class in CONTAINED_CLASSES:
        deviations.append(PARENT_MISSING)
    ends = not updates or (entity_class == CONDITION_DETECTOR and states_clear(content, deviations))
    return entity_class, content, envelope, ends


_LOOKED_AT: Final = 500


_TIME = b'{"event-time-stamp":'


_PARENT = b',"parent-address":'


# The driver of SQLite binds a `bytearray` as it is; for `bytes` it looks for an adapter each time.
_joined: Final = bytearray().join


_BRACE = ord("{")


_entity: Final = attrgetter("entity")


_parent_address: Final = attrgetter("parent_address")


_first_byte: Final = itemgetter(0)


_find_nested: Final = methodcaller("find", NESTED_TIME, 0, NESTED_TIME_WITHIN_BYTES)


def _envelope(body: ExactBody) -> bytearray:
    return _envelope_of(body, body.parent_address)


def _envelope_of(body: ExactBody, parent: bytes | msgspec.Raw) -> bytearray:
    time = body.event_time_stamp
    if parent is NO_BODY:
        return _joined((_TIME, time, body.content_member, b"}"))
    return _joined((_TIME, time, body.content_member, _PARENT, parent, b"}"))


def open_exact_body(body: ExactBody, deviations: list[str]) -> tuple[str, Buffer, Buffer]:
    """The same of a body spelled to the letter."""
    parent: bytes | msgspec.Raw = body.parent_address
    if parent is not NO_BODY:
        parent, found = canonical_address(bytes(parent))
        deviations += found
    envelope = _envelope_of(body, parent)
    if envelope.find(NESTED_TIME, 0, NESTED_TIME_WITHIN_BYTES) >= 0:
        deviations.append("event-time-nested")
    content = b"" if body.entity is NO_BODY else bytearray(body.entity)
    if content and content[0] != _BRACE:
        raise BadRecord("what is no object is judged by the reference")
    return body.entity_class, content, envelope
