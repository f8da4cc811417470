"""Reads frames by their shape: as one that was read before, with other values. The plain twin is
`FrameDecoder._decode_plainly`.

A template is made of a `FrameShape`. msgspec decodes the records into types with the names of that
shape, and declines any other name; so no name is looked up. What many records share is read once: a
record-type, a time, what stands around an offset. A body stays undecoded where few bodies are
needed.

Why that is enough. What the plain way makes of a record depends on the names of its members, on the
texts of its header and on whether its entity is an object. The names are those of the shape. The
texts go through the functions of the plain way. The entity is looked at when the body is opened.
Whatever is unusual raises, and the plain way reads that frame. A template is kept only if it makes
of its first frame what the plain way makes of it (`FrameTemplates.learn`).

Two differences are meant. Only the plain way, which makes an object of each record, limits how many
records a frame may hold. And of a member that is stated twice, the last counts and the others are
left out unread: only the plain way refuses a record where one of those is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, reduce
from itertools import chain, repeat
from operator import attrgetter, itemgetter, or_
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, overload

import msgspec

from instep.model.columns import HeaderArrays, in_order
from instep.model.records import RecordType
from instep_tapi.facts.containment import CONTAINED_CLASSES
from instep_tapi.facts.names import MAX_TEXT_CHARS, strip_module
from instep_tapi.facts.times import UNBROKEN_CHARS, epoch_us, read_time
from instep_tapi.wire.fast_offsets import read_offset_columns
from instep_tapi.wire.fixed_width import cut_headers
from instep_tapi.wire.frame_shape import MODULE, MORE, FrameShape, Names
from instep_tapi.wire.framing import NO_BODY, BadRecord
from instep_tapi.wire.lazy_columns import (
    DecodeContext,
    LazyBody,
    LazyColumns,
    LazyRecord,
    LogRecordBody,
)
from instep_tapi.wire.record_body import read_class
from instep_tapi.wire.record_header import (
    MAX_OFFSET,
    PLACE_ENTRIES,
    NameValue,
    RecordTypeReading,
    partition_and_offset,
    read_record_type,
)

__all__ = ["FrameTemplate"]

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
_Never = Annotated[int, msgspec.Meta(gt=0, lt=0)]
_TYPES: Final[Mapping[str, Any]] = {
    "token": _Text,
    "stamp": str,
    "key": _Text,
    "unread": str | None,
}
"""Of attributes that are not left undecoded."""
_REQUIRED: Final = {
    "token",
    "stamp",
    "key",
    "record_type",
    "place",
    "event_time",
    "header",
    "inner",
    "never",
}
_VARYING: Final = ("token", "stamp", "key")
_Decode = Callable[[bytes | msgspec.Raw], Any]

_encode: Final = msgspec.json.Encoder().encode
_offset_id: Final = msgspec.json.Decoder(list[NameValue]).decode


class _Item(msgspec.Struct, gc=False):
    """A log-record."""

    header: ClassVar[_Header]
    body: ClassVar[LazyBody] = NO_BODY


class _Header(msgspec.Struct, gc=False):
    """A log-record-header; its place in the log is undecoded."""

    more: ClassVar[tuple[tuple[bytes, str], ...]]
    """The members that are kept: what is written before each value, and its attribute."""
    prefixed: ClassVar[tuple[str, ...]]
    """Attributes that are a deviation where they are stated."""
    token: ClassVar[str]
    stamp: ClassVar[str]
    key: ClassVar[str]
    record_type: ClassVar[str]
    place: ClassVar[msgspec.Raw]


class _Split(NamedTuple):
    """The log-records of some frames, in columns."""

    headers: Sequence[_Header]
    bodies: Sequence[LazyBody]
    frames: Sequence[bytes]
    """For each record the frame that it came in."""


class FrameTemplate:
    """Reads the frames of one shape. Raises `ValueError` for a shape that the plain way reads."""

    def __init__(self, shape: FrameShape) -> None:
        self.shape = shape
        self._types = _types_of(shape)
        names = dict(shape.record)
        required = [name for role, name in shape.header if role in _REQUIRED]
        if not shape.is_document:
            required.append(names["header"])
        prefixes = sum(name.startswith(MODULE) for name in required)
        deviations = ("needless-prefix",) * prefixes
        if not shape.has_place:
            deviations = (*deviations, "offset-missing")
        self._usual = DecodeContext(self._types.body, deviations)
        of_types = {text: read_record_type(text) for text in shape.record_types}
        self._kinds = {text: _kind_of(read) for text, read in of_types.items()}
        self._of_types = {
            text: read.deviations for text, read in of_types.items() if read.deviations
        }
        self._records_of = attrgetter(".".join(["inner"] * len(shape.wrappers)) or "header")
        opened = [b"{%b:" % _encode(dict(one)["inner"]) for one in shape.wrappers]
        self._opening = b"%b{%b:" % (b"".join(opened), _encode(names["header"]))
        self._body_mark = b",%b:" % _encode(names.get("body", ""))
        self._closing = b"}" * (len(opened) + 1)
        of_header = {role: name for role, name in shape.header if role != MORE}
        single = shape.has_place and not shape.in_list and "body" in names
        self._fixed_width = [(role, of_header[role]) for role in _VARYING] if single else []
        """The members of a header whose values differ from frame to frame, if each has one."""
        self._place_name = of_header.get("place", "")

    def read(
        self, stream: str, frames: Sequence[bytes], *, with_bodies: bool
    ) -> Sequence[LazyRecord]:
        """The records of these frames. Without `with_bodies`, bodies are not even parsed.

        Raises `ValueError`, `OverflowError`, `RecursionError` or `BadRecord` where a frame has
        another shape or unusual values.
        """
        if not with_bodies and self._fixed_width:
            with suppress(ValueError):
                return self._read_fixed_width(stream, frames)
        headers, bodies, of_frames = self._split(frames, with_bodies=with_bodies)
        if not headers:
            return []
        keys = [header.key for header in headers]
        tokens = [header.token for header in headers]
        if "\0" in "".join(keys) or "\0" in "".join(tokens):
            raise BadRecord("a NUL is left to the plain way")
        kinds = [*self._kinds.values()] * len(headers)
        if len(self._kinds) > 1:
            kinds = [self._kinds[header.record_type] for header in headers]
        # Under load many records were appended in one millisecond.
        stamps = [header.stamp for header in headers]
        times = {stamp: _read_append_time(stamp) for stamp in set(stamps)}
        times_us = {stamp: us for stamp, (us, _) in times.items()}
        appended_at_us = list(map(times_us.__getitem__, stamps))
        of_times = {stamp: (found,) for stamp, (_, found) in times.items() if found}
        contexts = self._contexts(headers, of_times)
        rests = _rests(headers)
        place = self._place_of_all(headers)
        if place is not None and in_order(place[1], appended_at_us) and place[1][-1] <= MAX_OFFSET:
            arrays = HeaderArrays(stream, place[0], keys, place[1], appended_at_us, kinds, tokens)
            return LazyColumns(arrays, bodies, rests, contexts, of_frames)
        partitions, offsets = [""] * len(headers), [-1] * len(headers)
        for at, header in enumerate(headers if self.shape.has_place else ()):
            deviations: list[str] = []
            ids = _offset_id(bytes(header.place).decode())
            partitions[at], offsets[at] = partition_and_offset(ids, deviations)
            if len(ids) > PLACE_ENTRIES:
                kept = b'"full-log-record-offset-id":' + _encode(ids)
                rests[at] = b"%b,%b" % (rests[at], kept) if rests[at] else kept
            if deviations:
                contexts[at] = contexts[at].with_deviations(*deviations)
        columns = (keys, kinds, tokens, appended_at_us, partitions, offsets)
        more = (bodies, rests, contexts, of_frames)
        return list(map(LazyRecord, repeat(stream), *columns, *more))

    # -- bytes -----------------------------------------------------------------------------------

    def _read_fixed_width(self, stream: str, frames: Sequence[bytes]) -> LazyColumns:
        """The same of frames whose headers are as long as the first, and differ in few values.
        Raises `ValueError` where they are not so.
        """
        first, start, mark = frames[0], len(self._opening), self._body_mark
        end = first.index(mark, start)
        # Mostly, where the widths differ, the last one shows it.
        if not (first.startswith(self._opening) and frames[-1].startswith(mark, end)):
            raise ValueError("another width")
        header = self._types.header(first[start:end])
        values = [(name, getattr(header, role)) for role, name in self._fixed_width]
        place = (self._place_name, bytes(header.place))
        found = cut_headers(frames, end + len(mark), values, place)
        times = {one: _read_append_time(text) for one, text in found.times.items()}
        us = {one: at_us for one, (at_us, _) in times.items()}
        appended_at_us = list(map(us.__getitem__, found.stamps))
        if any(told for _, told in times.values()) or not in_order(found.offsets, appended_at_us):
            raise ValueError("times or offsets that need a closer look")
        if found.offsets[-1] > MAX_OFFSET:
            raise ValueError("an offset that is too large")
        count = len(frames)
        arrays = HeaderArrays(
            stream,
            found.partition,
            found.keys,
            found.offsets,
            appended_at_us,
            [self._kinds[header.record_type]] * count,
            found.tokens,
        )
        bodies = _UnparsedBodies(frames, [end] * count, mark, self._closing)
        contexts = self._contexts([header], {}) * count
        return LazyColumns(arrays, bodies, _rests([header]) * count, contexts, frames)

    def _split(self, frames: Sequence[bytes], *, with_bodies: bool) -> _Split:
        if not (with_bodies or self.shape.in_list):
            with suppress(ValueError):
                return self._split_headers(frames)
        decode = self._types.records if with_bodies else self._types.headers
        records = list(map(decode, frames))
        if self.shape.wrappers:
            records = list(map(self._records_of, records))
        if self.shape.in_list:
            frames = list(chain.from_iterable(map(repeat, frames, map(len, records))))
            records = list(chain.from_iterable(records))
        return _Split([one.header for one in records], [one.body for one in records], frames)

    def _split_headers(self, frames: Sequence[bytes]) -> _Split:
        """Of one record a frame the header only, which is where most of the time goes.

        What is one JSON object from where a header begins to where a body begins is the header.
        Nearly always all of them are as long as the first. Raises `ValueError` for anything else.
        """
        opening, mark, decode = self._opening, self._body_mark, self._types.header
        if not all(map(bytes.startswith, frames, repeat(opening))):
            raise ValueError("blanks, or another order")
        start = len(opening)
        try:
            end = frames[0].index(mark, start)
            headers = list(map(decode, map(itemgetter(slice(start, end)), frames)))
            ends = [end] * len(frames)
        except ValueError:
            ends = [frame.index(mark, start) for frame in frames]
            headers = [decode(frame[start:end]) for frame, end in zip(frames, ends, strict=True)]
        return _Split(headers, _UnparsedBodies(frames, ends, mark, self._closing), frames)

    # -- what differs from header to header --------------------------------------------------------

    def _contexts(
        self, headers: Sequence[_Header], of_times: Mapping[str, tuple[str, ...]]
    ) -> list[DecodeContext]:
        """The context of each record, with the deviations of its time and its type."""
        prefixed, of_types = headers[0].prefixed, self._of_types
        if not (prefixed or of_times or of_types):
            return [self._usual] * len(headers)
        contexts: list[DecodeContext] = []
        for header in headers:
            found = of_times.get(header.stamp, ()) + of_types.get(header.record_type, ())
            stated = [one for one in prefixed if getattr(header, one) is not NO_BODY]
            found += ("needless-prefix",) * len(stated)
            contexts.append(self._usual.with_deviations(*found) if found else self._usual)
        return contexts

    def _place_of_all(self, headers: Sequence[_Header]) -> tuple[str, list[int]] | None:
        """The partition of all records, and their offsets; None where each has to be looked at."""
        if not self.shape.has_place:
            return None
        try:
            return read_offset_columns([header.place for header in headers])
        except ValueError:
            return None


def _kind_of(read: RecordTypeReading) -> RecordType:
    if read.kind is None or read.kind is RecordType.CHANGE:
        raise ValueError("a record-type that the plain way reads")
    return read.kind


def _rests(headers: Sequence[_Header]) -> list[bytes]:
    """What the envelope of each keeps of its header."""
    more = headers[0].more
    if not more:
        return [b""] * len(headers)
    stated = (
        [
            name + value
            for name, attribute in more
            if (value := getattr(header, attribute)) is not NO_BODY
        ]
        for header in headers
    )
    return [b",".join(members) for members in stated]


class _UnparsedBodies(Sequence[bytes]):
    """What comes after the headers of these frames."""

    def __init__(
        self, frames: Sequence[bytes], ends: Sequence[int], mark: bytes, closing: bytes
    ) -> None:
        self._frames = frames
        self._ends = ends
        """Of the headers."""
        self._mark = mark
        self._closing = closing

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        frame, end = self._frames[index], self._ends[index]
        if frame.startswith(self._mark, end) and frame.endswith(self._closing):
            return frame[end + len(self._mark) : -len(self._closing)]
        # Anything else at that place is no JSON, and the decoder finds that.
        return frame[end:]


# -- types ---------------------------------------------------------------------------------------


class _Types(NamedTuple):
    """Decoders of the types that are made of a shape."""

    records: _Decode
    headers: _Decode
    """Of records with bodies undecoded."""
    header: _Decode
    body: _Decode


# All types of a shape are made before one of them is used: threads may share it.
@lru_cache(maxsize=256)
def _types_of(shape: FrameShape) -> _Types:
    named = dict(shape.record)
    header = _header_type(shape)
    body: Any = _Never
    if "body" in named:
        content_name = named["content"]
        prefixed = not shape.is_document and named["body"].startswith(MODULE)
        # Beside another type, the tag of a single one is mandatory.
        other = _struct(
            LogRecordBody, [("never", "never")], {"never": _Never}, tag=(content_name, "")
        )
        types = [_body_type(*one, content_name, prefixed=prefixed) for one in shape.bodies]
        body = reduce(or_, types, other)
    return _Types(
        _decoder(_frame_type(shape, {"header": header, "body": body})),
        _decoder(_frame_type(shape, {"header": header})),
        _decoder(header),
        _decoder(body),
    )


def _frame_type(shape: FrameShape, types: Mapping[str, Any]) -> Any:
    record = [one for one in _attributes(shape.record) if one[0] != "content"]
    frame: Any = _struct(_Item, record, types)
    if shape.in_list:
        frame = list[frame]
    for names in reversed(shape.wrappers):
        frame = _struct(msgspec.Struct, _attributes(names), {"inner": frame})
    return frame


def _header_type(shape: FrameShape) -> type[msgspec.Struct]:
    attributes = _attributes(shape.header)
    more = sorted((strip_module(name), key) for key, name in attributes if key.startswith(MORE))
    return _struct(
        _Header,
        attributes,
        {**_TYPES, "record_type": Literal[shape.record_types]},
        more=tuple((b"%b:" % _encode(own), key) for own, key in more),
        prefixed=_prefixed(attributes),
    )


def _body_type(
    content: str, names: Names, content_name: str, *, prefixed: bool
) -> type[msgspec.Struct]:
    attributes, spelled = _attributes(names), dict(names)
    required = (content_name, spelled["event_time"])
    # As `open_body`: where one of these has the prefix, all may have it, and each is counted.
    without_module = required != ("record-content", "event-time-stamp")
    stated = _encode(content)
    entity_class, _, deviations = read_class(stated)
    prefixes = prefixed + without_module * sum(name.startswith(MODULE) for name in required)
    more = sorted(
        (name.removeprefix(MODULE) if without_module else name, key)
        for key, name in attributes
        if key.startswith(MORE)
    )
    if "parent_address" in spelled:
        more.insert(0, ("parent-address", "parent_address"))
    deviations += ("needless-prefix",) * prefixes
    also = _prefixed(attributes) if without_module else ()
    return _struct(
        LogRecordBody,
        attributes,
        {},
        tag=(content_name, content),
        entity_class=entity_class,
        content_member=b',"record-content":%b' % stated,
        optional=tuple((b",%b:" % _encode(own), key) for own, key in more),
        deviations=deviations,
        prefixed=also,
        has_parent="parent_address" in spelled,
        is_usual=not (deviations or also or entity_class in CONTAINED_CLASSES),
    )


def _attributes(names: Names) -> list[tuple[str, str]]:
    """The attribute of each member, and its name."""
    return [
        (f"{MORE}_{at}" if role == MORE else role, name) for at, (role, name) in enumerate(names)
    ]


def _prefixed(attributes: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(
        key for key, name in attributes if name.startswith(MODULE) and key not in _REQUIRED
    )


def _struct(
    base: type[msgspec.Struct],
    attributes: Sequence[tuple[str, str]],
    types: Mapping[str, Any],
    tag: tuple[str | None, str | None] = (None, None),
    **namespace: Any,
) -> type[msgspec.Struct]:
    """A type with these attributes, named as given; nothing else is let in."""
    fields = [
        (key, types.get(key, msgspec.Raw), msgspec.field(name=name))
        if key in _REQUIRED
        else (key, types.get(key, msgspec.Raw), msgspec.field(name=name, default=NO_BODY))
        for key, name in attributes
    ]
    return msgspec.defstruct(
        base.__name__,
        fields,
        bases=(base,),
        namespace=namespace,
        tag_field=tag[0],
        tag=tag[1],
        gc=False,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _decoder(of: Any) -> _Decode:
    return msgspec.json.Decoder(of).decode


def _read_append_time(stamp: str) -> tuple[int, str | None]:
    """As `read_time`, sooner where the spelling is the usual one."""
    # Python takes any character for the T, and between the decimals of a longer text.
    if stamp[10:11] != "T" or len(stamp) > UNBROKEN_CHARS:
        return read_time(stamp)
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return read_time(stamp)
    return read_time(stamp) if moment.tzinfo is None else (epoch_us(moment), None)
