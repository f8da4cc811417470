"""Records that a template has read: headers in columns, bodies decoded when they are asked for.

tests/instep_tapi/wire/test_frame_template.py holds them equal to what the plain way reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import ClassVar, Final, NamedTuple, TypeAlias, cast

import msgspec

from instep.model.columns import HeaderArrays, HeaderColumns, RecordColumns
from instep.model.records import Record, RecordHeader, RecordType
from instep_tapi.facts.containment import CONTAINED_CLASSES
from instep_tapi.facts.detector import (
    STATE_UNKNOWN,
    all_active,
    may_end,
    states_end,
    unknown_states,
)
from instep_tapi.facts.names import CONDITION_DETECTOR
from instep_tapi.wire.framing import NO_BODY, BadRecord
from instep_tapi.wire.parent_address import canonical_address
from instep_tapi.wire.record_body import (
    NESTED_TIME,
    NESTED_TIME_WITHIN_BYTES,
    PARENT_MISSING,
    Buffer,
    uuid_of,
)

__all__ = [
    "DecodeContext",
    "LazyBody",
    "LazyColumns",
    "LazyRecord",
    "LogRecordBody",
    "open_records",
]

_UPDATE: Final = RecordType.CREATE_UPDATE
_TIME: Final = b'{"event-time-stamp":'
_BRACE: Final = ord("{")
# The driver of SQLite binds a `bytearray` as it is; for `bytes` it looks for an adapter each time.
_join: Final = bytearray().join
_entity: Final = attrgetter("entity")
_first_byte: Final = itemgetter(0)
_deviations: Final = attrgetter("deviations")
_parent_address: Final = attrgetter("parent_address")
_BODIES_AT_ONCE: Final = 64
_BETWEEN: Final = b"\0"
"""Joins bodies: no JSON text has it."""
_join_few: Final = _BETWEEN.join


class LogRecordBody(msgspec.Struct, gc=False):
    """A log-record-body with its parts undecoded; `frame_template` makes a type for each class."""

    entity_class: ClassVar[str]
    content_member: ClassVar[bytes]
    """The record-content as it stands in the envelope."""
    optional: ClassVar[tuple[tuple[bytes, str], ...]]
    """The members that follow there: what is written before each value, and its attribute."""
    deviations: ClassVar[tuple[str, ...]]
    """Those of each body of the type."""
    prefixed: ClassVar[tuple[str, ...]]
    """Attributes that are a deviation more where they are stated."""
    has_parent: ClassVar[bool] = False
    """Whether a parent-address may be stated."""
    is_usual: ClassVar[bool] = True
    """Whether no body of the type has a deviation but for its time."""
    event_time: ClassVar[msgspec.Raw]
    entity: ClassVar[msgspec.Raw] = NO_BODY
    parent_address: ClassVar[msgspec.Raw] = NO_BODY

    def envelope(self) -> bytearray:
        """As `open_body` makes it."""
        if not self.optional:
            return _join((_TIME, self.event_time, self.content_member, b"}"))
        parts = [_TIME, self.event_time, self.content_member]
        for name, attribute in self.optional:
            value = getattr(self, attribute)
            if value is not NO_BODY:
                parts += name, value
        parts.append(b"}")
        return _join(parts)


class _NoBody(LogRecordBody):
    """That of a record without one."""

    entity_class = ""
    optional = ()
    deviations = prefixed = ()

    def envelope(self) -> bytearray:
        return bytearray()


_NOTHING: Final = _NoBody()

LazyBody: TypeAlias = LogRecordBody | bytes | msgspec.Raw
"""A body that is decoded, or to be decoded by `DecodeContext.decode_body`; `NO_BODY` for none."""


class DecodeContext(NamedTuple):
    """What is needed to open the body of a record later."""

    decode_body: Callable[[bytes | msgspec.Raw], LogRecordBody]
    """Raises what msgspec raises."""
    deviations: tuple[str, ...] = ()
    """Those of its header."""

    def with_deviations(self, *more: str) -> DecodeContext:
        return DecodeContext(self.decode_body, (*self.deviations, *more))


_NO_CONTEXT: Final = DecodeContext(msgspec.json.Decoder(_NoBody).decode)


class LazyRecord(RecordHeader, frozen=True, gc=False):
    """A record whose body was not needed yet, with the frame that it came in."""

    body: LazyBody = NO_BODY
    rest: bytes = b""
    """Members of its header that are kept in the envelope, as JSON without braces."""
    context: DecodeContext = _NO_CONTEXT
    frame: bytes = b""


class LazyColumns(HeaderColumns[LazyRecord]):
    """Consecutive records, in columns, bodies unopened."""

    more = ("bodies", "rests", "contexts", "frames")

    def __init__(
        self,
        headers: HeaderArrays,
        bodies: Sequence[LazyBody],
        rests: Sequence[bytes],
        contexts: Sequence[DecodeContext],
        frames: Sequence[bytes],
    ) -> None:
        super().__init__(headers)
        self.bodies = bodies
        self.rests = rests
        self.contexts = contexts
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
            self.rests[index],
            self.contexts[index],
            self.frames[index],
        )

    def opened(self, deviations: list[str], *, with_uuid: bool, whole: bool) -> RecordColumns:
        """All of them, their bodies looked into. Raises what bad input raises."""
        parts = (self.kinds, self.bodies, self.rests, self.contexts)
        opened = _open(*parts, deviations, with_uuid=with_uuid)
        return RecordColumns(self.headers, *opened, whole=whole)


def open_records(
    records: Sequence[LazyRecord], deviations: list[str], *, with_uuid: bool, whole: bool
) -> Iterable[Record]:
    """These records, their bodies looked into. Raises what bad input raises."""
    columns = zip(*map(msgspec.structs.astuple, records), strict=True)
    *headers, bodies, rests, contexts, _ = columns
    classes, contents, envelopes, ends, uuids = _open(
        headers[2], bodies, rests, contexts, deviations, with_uuid=with_uuid
    )
    return map(
        Record,
        *headers,
        classes,
        map(bytes, contents),
        map(bytes, envelopes),
        ends,
        uuids,
        repeat(whole),
    )


_Opened: TypeAlias = tuple[
    Sequence[str], Sequence[Buffer], Sequence[Buffer], Sequence[bool], Sequence[str]
]
"""Classes, contents, envelopes, whether the entity ends, and uuids."""


def _open(
    kinds: Sequence[RecordType],
    bodies: Sequence[LazyBody],
    rests: Sequence[bytes],
    contexts: Sequence[DecodeContext],
    deviations: list[str],
    *,
    with_uuid: bool,
) -> _Opened:
    """As `entity_of`, for all bodies at once. Raises what decoding raises, and `BadRecord` for
    what only the plain way can judge.
    """
    stated = _decoded(bodies, contexts)
    types: set[type[LogRecordBody]] = set(map(type, stated))
    if any(one.has_parent for one in types):
        stated = _with_canonical_addresses(stated, deviations)
    contents = list(map(bytearray, map(_entity, stated)))
    if set(map(_first_byte, contents)) != {_BRACE}:
        contents = list(map(_content_of, kinds, stated))
    envelopes = [body.envelope() for body in stated]
    detects, active = any(one.entity_class == CONDITION_DETECTOR for one in types), True
    # Few at once: their text, which is a copy, then takes the same memory again and again.
    for at in range(0, len(stated), _BODIES_AT_ONCE):
        some = envelopes[at : at + _BODIES_AT_ONCE]
        around, text = _join_few(some), _join_few(contents[at : at + _BODIES_AT_ONCE])
        deviations += ["event-time-nested"] * _nested_times(some, around)
        if detects and active:
            active = all_active(text)
        if not (around.isascii() and text.isascii()):
            # msgspec does not check raw bytes.
            around.decode()
            text.decode()
    if any(rests):
        _join_few(rests).decode()
        envelopes = list(map(_with_rest, envelopes, rests))
    if not all(one.is_usual for one in types):
        _count_deviations(kinds, stated, deviations)
    if contexts.count(contexts[0]) == len(contexts):
        deviations += contexts[0].deviations * len(contexts)
    else:
        deviations += chain.from_iterable(map(_deviations, contexts))
    classes = [body.entity_class for body in stated]
    ends = _ends(kinds, classes, contents, deviations, active=active)
    uuids = [""] * len(stated)
    if with_uuid:
        uuids = [
            uuid_of(content, envelope) if content else ""
            for content, envelope in zip(contents, envelopes, strict=True)
        ]
    return classes, contents, envelopes, ends, uuids


def _decoded(
    bodies: Sequence[LazyBody], contexts: Sequence[DecodeContext]
) -> Sequence[LogRecordBody]:
    if all(issubclass(one, LogRecordBody) for one in set(map(type, bodies))):
        return cast("Sequence[LogRecordBody]", bodies)
    return [
        body
        if isinstance(body, LogRecordBody)
        else _NOTHING
        if body is NO_BODY
        else context.decode_body(body)
        for body, context in zip(bodies, contexts, strict=True)
    ]


def _ends(
    kinds: Sequence[RecordType],
    classes: Sequence[str],
    contents: Sequence[bytearray],
    deviations: list[str],
    *,
    active: bool,
) -> list[bool]:
    """Whether after each record its entity has ended. `active`: no content states that."""
    ends = [False] * len(kinds)
    if kinds.count(_UPDATE) < len(kinds):
        ends = [kind is not _UPDATE for kind in kinds]
    if active:
        return ends
    text = b"".join(contents)
    deviations += [STATE_UNKNOWN] * unknown_states(text)
    if not may_end(text):
        return ends
    return [
        end or (name == CONDITION_DETECTOR and states_end(content, deviations))
        for end, name, content in zip(ends, classes, contents, strict=True)
    ]


def _nested_times(envelopes: Sequence[bytearray], text: bytes) -> int:
    """How many of these begin with a time that is nested. `text`: all of them, joined."""
    if NESTED_TIME not in text:
        return 0
    # A provider states its times in one way: then the beginning of the first is that of each.
    end = envelopes[0].find(NESTED_TIME, 0, NESTED_TIME_WITHIN_BYTES)
    if end >= 0 and text.count(_BETWEEN + envelopes[0][:end]) == len(envelopes) - 1:
        return len(envelopes)
    places = (one.find(NESTED_TIME, 0, NESTED_TIME_WITHIN_BYTES) for one in envelopes)
    return sum(place >= 0 for place in places)


def _with_canonical_addresses(
    bodies: Sequence[LogRecordBody], deviations: list[str]
) -> Sequence[LogRecordBody]:
    stated = list(map(bytes, map(_parent_address, bodies)))
    # The entities of one parent state one address.
    read = {one: canonical_address(one) for one in set(stated)}
    if not any(found for _, found in read.values()):
        return bodies
    deviations += chain.from_iterable(read[one][1] for one in stated)
    return [
        msgspec.structs.replace(body, parent_address=msgspec.Raw(read[one][0]))
        if read[one][1]
        else body
        for body, one in zip(bodies, stated, strict=True)
    ]


def _content_of(kind: RecordType, body: LogRecordBody) -> bytearray:
    if body.entity is not NO_BODY:
        content = bytearray(body.entity)
        if content[0] != _BRACE:
            raise BadRecord("what is no object is judged by the plain way")
        return content
    others = [bytes(getattr(body, attribute)) for _, attribute in body.optional]
    if kind is _UPDATE or any(other.startswith(b"{") for other in others):
        raise BadRecord("which member is the entity is judged by the plain way")
    return bytearray()


def _with_rest(envelope: bytearray, rest: bytes) -> bytearray:
    """As `with_header`."""
    if rest:
        comma = b"," if envelope else b"{"
        envelope[-1:] = b'%b"log-record-header":{%b}}' % (comma, rest)
    return envelope


def _count_deviations(
    kinds: Sequence[RecordType], bodies: Sequence[LogRecordBody], deviations: list[str]
) -> None:
    deviations += chain.from_iterable(map(_deviations, bodies))
    deviations += [
        "needless-prefix"
        for body in bodies
        for attribute in body.prefixed
        if getattr(body, attribute) is not NO_BODY
    ]
    deviations += [
        PARENT_MISSING
        for kind, body in zip(kinds, bodies, strict=True)
        if kind is _UPDATE
        and body.parent_address is NO_BODY
        and body.entity_class in CONTAINED_CLASSES
    ]
