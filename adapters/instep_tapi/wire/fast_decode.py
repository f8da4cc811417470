"""A short cut from frames to headers; the plain reference is `framing` with `record_header`.

`split_exact` decodes records that are spelled exactly as in TR-548 3.10, all frames at once; their
bodies may stay undecoded. It declines any other member, another name for a member or record type,
and every wrapper but a list. `split_fast` decodes one frame of a usual shape into structs, in any
of the wrappers. It declines members that TR-548 does not name, and mixed or unusual prefixes. Both
decline at the first surprise, and the next plainer way reads the frame.

Processor time for each record of 1.3 KB, as the benchmark sends them, 50 bare ones at once: its
header and the bounds of its body cost 0.7 µs by `split_exact` without bodies (1.1 µs with them),
2.1 µs by `split_fast`, and 9.5 µs by the reference. The whole way from frames to decoded records
costs 3.3 µs by columns, 6.2 µs by structs, and 16.8 µs by the reference.

tests/instep_tapi/wire/test_fast_decode.py holds each of these ways equal to the reference. Two
differences are meant. Only the reference, which makes an object of each record, limits how many
records a frame may hold. And of a member that is stated twice, the last counts and the others are
left out unread: only the reference refuses the record where one of those is not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain, repeat
from operator import itemgetter, or_
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, overload

import msgspec

from instep_tapi.wire.framing import (
    JSON_BLANKS,
    NO_BODY,
    BadRecord,
    Fields,
)
from instep_tapi.wire.names import MAX_TEXT_CHARS, OBJECT_CLASSES, container_of
from instep_tapi.wire.record_header import LogRecordHeader, NameValue

__all__ = [
    "BARE",
    "BODY",
    "ExactBody",
    "ExactRecords",
    "FastLogRecord",
    "HeaderText",
    "LazyBody",
    "UndecodedBodies",
    "check_utf8",
    "decode_exact_body",
    "decode_exact_header",
    "split_exact",
    "split_fast",
]


class FastHeader(LogRecordHeader, rename="kebab", gc=False, forbid_unknown_fields=True):
    """A log-record-header without a member that TR-548 3.10 does not name: that might be a
    mandatory one under another module's name, which the reference takes.
    """

    full_log_record_offset_id: list[NameValue]
    record_authenticity_token: str | None = None


class FastLogRecord(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    """One log-record with its body undecoded (TR-548 3.10)."""

    log_record_header: FastHeader
    log_record_body: Fields | None = None


class _PrefixedLogRecord(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    log_record_header: FastHeader = msgspec.field(name="tapi-streaming:log-record-header")
    log_record_body: Fields | msgspec.UnsetType | None = msgspec.field(
        name="tapi-streaming:log-record-body", default=msgspec.UNSET
    )


HeaderText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS)]


class ExactHeader(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    """A log-record-header spelled to the letter; its place in the log is undecoded."""

    token: HeaderText
    log_append_time_stamp: str
    entity_key: HeaderText
    record_type: Literal["RECORD_TYPE_CREATE_UPDATE", "RECORD_TYPE_DELETE", "RECORD_TYPE_TOMBSTONE"]
    full_log_record_offset_id: msgspec.Raw
    record_authenticity_token: str | None = None


class ExactBody(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    """A log-record-body spelled to the letter of TR-548 3.10; its parts are undecoded.

    Each class has a type of its own, tagged by record-content, with the container of the class as
    `entity`.
    """

    entity_class: ClassVar[str]
    content_member: ClassVar[bytes]
    """The record-content as it stands in the envelope."""
    event_time_stamp: msgspec.Raw
    if TYPE_CHECKING:
        entity: msgspec.Raw
    parent_address: msgspec.Raw = NO_BODY


def _exact_body_type(entity_class: str, container: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        f"{entity_class}_body",
        [("entity", msgspec.Raw, msgspec.field(name=container, default=NO_BODY))],
        bases=(ExactBody,),
        namespace={
            "entity_class": entity_class,
            "content_member": b',"record-content":"%b"' % entity_class.encode(),
        },
        tag_field="record-content",
        tag=entity_class,
        gc=False,
        forbid_unknown_fields=True,
    )


if TYPE_CHECKING:
    _AnyExactBody: TypeAlias = ExactBody
else:
    _AnyExactBody = reduce(
        or_,
        [
            _exact_body_type(name, container_of(name))
            for name in OBJECT_CLASSES
            if container_of(name)
        ],
    )


class ExactLogRecord(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    """A log-record spelled exactly as in TR-548 6.3. Members that are known beforehand are not
    built, which halves the cost.
    """

    log_record_header: ExactHeader
    log_record_body: _AnyExactBody | None = None


class _ExactLogHeader(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    """The same with its body undecoded, where few bodies will be needed."""

    log_record_header: ExactHeader
    log_record_body: msgspec.Raw = NO_BODY


_ExactItem: TypeAlias = ExactLogRecord | _ExactLogHeader


_exact = msgspec.json.Decoder(ExactLogRecord).decode


_exact_list = msgspec.json.Decoder(list[ExactLogRecord]).decode


decode_exact_header = msgspec.json.Decoder(ExactHeader).decode


_header_list = msgspec.json.Decoder(list[_ExactLogHeader]).decode


_body = msgspec.json.Decoder(_AnyExactBody | None).decode


_plain = msgspec.json.Decoder(FastLogRecord)


_plain_list = msgspec.json.Decoder(list[FastLogRecord])


_prefixed_list = msgspec.json.Decoder(list[_PrefixedLogRecord])


BARE = b'{"log-record-header":'
"""How a bare log-record begins …"""


BODY = b',"log-record-body":'
"""… and what stands between its header and its body."""


# As `JSON_BLANKS`, and a text without escapes or control characters: what is matched here, no JSON
# decoder sees again.
_LOG = rb'\{[ \t\r\n]*"(?:tapi-streaming:)?log-record"[ \t\r\n]*:[ \t\r\n]*'


_STREAM = rb'\{[ \t\r\n]*"(?:tapi-streaming:)?stream-record"[ \t\r\n]*:[ \t\r\n]*'


_NOTIFICATION = (
    rb'\{[ \t\r\n]*"ietf-restconf:notification"[ \t\r\n]*:[ \t\r\n]*\{[ \t\r\n]*'
    rb'"eventTime"[ \t\r\n]*:[ \t\r\n]*"[^"\\\x00-\x1f]*"[ \t\r\n]*,[ \t\r\n]*'
)


_OPENING = re.compile(
    rb"[ \t\r\n]*(?:(%b)|(%b)|(%b))?(?=\[)"
    % (_NOTIFICATION + _STREAM.removeprefix(rb"\{[ \t\r\n]*") + _LOG, _STREAM + _LOG, _LOG)
)


_CLOSING = {1: b"}}}", 2: b"}}", 3: b"}"}


_UNDECODED = (bytes, msgspec.Raw)


LazyBody: TypeAlias = ExactBody | bytes | msgspec.Raw | None
"""A body that is decoded, or to be decoded by `decode_exact_body`."""


class ExactRecords(msgspec.Struct, frozen=True):
    """Log-records spelled to the letter, in columns."""

    headers: Sequence[ExactHeader]
    bodies: Sequence[LazyBody]
    frames: Sequence[bytes]
    """For each record the frame that it came in."""


def split_exact(frames: Sequence[bytes], *, with_bodies: bool = True) -> ExactRecords | None:
    """The records of frames that hold a list each, or a bare one each; None where not all are
    spelled to the letter. Whether a body is UTF-8 is checked when it is decoded, and without
    `with_bodies` all else about it too.
    """
    try:
        if frames[0].startswith(b"["):
            decode: Callable[[bytes], list[_ExactItem]]
            decode = _exact_list if with_bodies else _header_list  # type: ignore[assignment]
            lists = list(map(decode, frames))
            of = chain.from_iterable(map(repeat, frames, map(len, lists)))
            return _exact_of(list(chain.from_iterable(lists)), list(of))
        if not frames[0].startswith(BARE):
            return None
        if not with_bodies:
            with suppress(ValueError):
                return _split_headers(frames)
        return _exact_of(list(map(_exact, frames)), frames)
    except (ValueError, RecursionError):
        return None


def _exact_of(items: Sequence[_ExactItem], frames: Sequence[bytes]) -> ExactRecords:
    return ExactRecords(
        [item.log_record_header for item in items],
        [item.log_record_body for item in items],
        frames,
    )


def _split_headers(frames: Sequence[bytes]) -> ExactRecords:
    """Of bare log-records with bodies the headers only, which is where most of their time goes.

    What is one JSON object from where a header begins to where a body begins is the header. Nearly
    always all of them are as long as the first. Raises `ValueError` for anything else.
    """
    if not all(map(bytes.startswith, frames, repeat(BARE))):
        raise ValueError("another kind of frame among them")
    start = len(BARE)
    try:
        end = frames[0].index(BODY, start)
        headers = list(map(decode_exact_header, map(itemgetter(slice(start, end)), frames)))
        return ExactRecords(headers, UndecodedBodies(frames, [end] * len(frames)), frames)
    except ValueError:
        ends = [frame.index(BODY, start) for frame in frames]
        headers = [
            decode_exact_header(frame[start:end]) for frame, end in zip(frames, ends, strict=True)
        ]
        return ExactRecords(headers, UndecodedBodies(frames, ends), frames)


class UndecodedBodies(Sequence[bytes]):
    """What comes after the headers of these frames."""

    def __init__(self, frames: Sequence[bytes], headers_end: Sequence[int]) -> None:
        self._frames = frames
        self._ends = headers_end

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
        if frame.startswith(BODY, end) and frame.endswith(b"}"):
            return frame[end + len(BODY) : -1]
        # Anything else at that place is no JSON, and the decoder finds that.
        return frame[end:]


def decode_exact_body(body: LazyBody) -> ExactBody | None:
    """Decoded, if it is not yet. Raises what msgspec raises."""
    return _body(body) if isinstance(body, _UNDECODED) else body


def check_utf8(text: bytes) -> bytes:
    """Check that a body is UTF-8: msgspec does not check raw bytes. Raises `UnicodeError`."""
    if not text.isascii():
        text.decode()
    return text


def split_fast(frame: bytes, deviations: list[str]) -> list[FastLogRecord]:
    """The records of a frame in one of the usual shapes, headers decoded and bodies not.

    Deviations are added to `deviations`. Raises `BadRecord`, or what msgspec raises, for another
    shape: then `split_liberal` reads it.
    """
    opening = None if frame.startswith(BARE) else _OPENING.match(frame)
    if opening is None:
        return [_plain.decode(frame)]
    if opening.lastindex:
        end = frame.rfind(b"]") + 1
        if frame[end:].translate(None, JSON_BLANKS) != _CLOSING[opening.lastindex]:
            raise BadRecord("members after the log-record list")
        frame = frame[opening.end() : end]
    try:
        return _plain_list.decode(frame)
    except msgspec.ValidationError:
        return [_without_prefixes(item, deviations) for item in _prefixed_list.decode(frame)]


def _without_prefixes(item: _PrefixedLogRecord, deviations: list[str]) -> FastLogRecord:
    deviations.append("needless-prefix")
    body = item.log_record_body
    if body is msgspec.UNSET:
        return FastLogRecord(item.log_record_header)
    deviations.append("needless-prefix")
    return FastLogRecord(item.log_record_header, body)
