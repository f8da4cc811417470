"""Takes WebSocket messages apart into log-records: TR-548 leaves the framing open.

Accepted: one bare log-record, a list of them, ``{"log-record": […]}``, ``{"stream-record": {…}}``
as the YANG notification is, and that in ``{"ietf-restconf:notification": {…}}``; every name with or
without its module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain, repeat
from operator import itemgetter, methodcaller, or_
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, overload

import msgspec

from instep_tapi.names import MAX_TEXT_CHARS, OBJECT_CLASSES, container_of, strip_module

__all__ = [
    "NO_BODY",
    "BadRecord",
    "Exact",
    "ExactBody",
    "Fields",
    "Header",
    "LogRecord",
    "NameValue",
    "SealedBody",
    "decode_fields",
    "exact_body",
    "split_exact",
    "split_fast",
    "split_liberal",
    "utf8",
]

Fields = dict[str, msgspec.Raw]
"""Members of a JSON object, values undecoded."""

NO_BODY = msgspec.Raw(b"null")

_WRAPPER_DEPTH = 5


class BadRecord(Exception):
    """A frame or record that cannot be read; the text is the reason, fit for the quarantine."""


class NameValue(msgspec.Struct, rename="kebab", gc=False):
    """An entry of full-log-record-offset-id; a number is let in and counted (TR-548 3.10)."""

    value_name: str
    value: str | int


class Header(msgspec.Struct, rename="kebab", gc=False):
    """log-record-header as the YANG and the published examples have it (TR-548 3.10)."""

    token: str
    log_append_time_stamp: str
    entity_key: str
    record_type: str
    full_log_record_offset_id: list[NameValue] = []


class LogRecord(msgspec.Struct, rename="kebab", gc=False):
    """One log-record, its body not looked into (TR-548 3.10)."""

    log_record_header: Header
    log_record_body: Fields | None = None


class _PrefixedLogRecord(msgspec.Struct, gc=False):
    log_record_header: Header = msgspec.field(name="tapi-streaming:log-record-header")
    log_record_body: Fields | None = msgspec.field(
        name="tapi-streaming:log-record-body", default=None
    )


_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS)]


class ExactHeader(msgspec.Struct, rename="kebab", gc=False):
    """A log-record-header spelled to the letter; its place in the log is undecoded."""

    token: _Text
    log_append_time_stamp: str
    entity_key: _Text
    record_type: Literal["RECORD_TYPE_CREATE_UPDATE", "RECORD_TYPE_DELETE", "RECORD_TYPE_TOMBSTONE"]
    full_log_record_offset_id: msgspec.Raw


class ExactBody(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    """A log-record-body spelled to the letter of TR-548 3.10; its parts are undecoded.

    Each class has a type of its own, told by its record-content, with the container of the class as
    `entity`.
    """

    entity_class: ClassVar[str]
    content_member: ClassVar[bytes]
    """The record-content as it stands in the envelope."""
    event_time_stamp: msgspec.Raw
    if TYPE_CHECKING:
        entity: msgspec.Raw
    parent_address: msgspec.Raw = NO_BODY


def _exact_body(entity_class: str, container: str) -> type[msgspec.Struct]:
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
        [_exact_body(name, container_of(name)) for name in OBJECT_CLASSES if container_of(name)],
    )


class ExactLogRecord(msgspec.Struct, rename="kebab", gc=False):
    """A log-record spelled to the letter of TR-548 6.3: what is known beforehand need not be
    built, which halves the cost.
    """

    log_record_header: ExactHeader
    log_record_body: _AnyExactBody | None = None


class _ExactLogHeader(msgspec.Struct, rename="kebab", gc=False):
    """The same with its body undecoded, where few bodies will be asked for."""

    log_record_header: ExactHeader
    log_record_body: msgspec.Raw = NO_BODY


_ExactItem: TypeAlias = ExactLogRecord | _ExactLogHeader

_exact = msgspec.json.Decoder(ExactLogRecord).decode
_exact_list = msgspec.json.Decoder(list[ExactLogRecord]).decode
_header = msgspec.json.Decoder(ExactHeader).decode
_header_list = msgspec.json.Decoder(list[_ExactLogHeader]).decode
_body = msgspec.json.Decoder(_AnyExactBody | None).decode
_plain = msgspec.json.Decoder(LogRecord)
_plain_list = msgspec.json.Decoder(list[LogRecord])
_prefixed_list = msgspec.json.Decoder(list[_PrefixedLogRecord])
_items = msgspec.json.Decoder(list[msgspec.Raw])
decode_fields = msgspec.json.Decoder(Fields).decode

_BARE = b'{"log-record-header":'
_is_bare = methodcaller("startswith", _BARE)
_BODY = b',"log-record-body":'
_LOG = rb'\{\s*"(?:tapi-streaming:)?log-record"\s*:\s*'
_STREAM = rb'\{\s*"(?:tapi-streaming:)?stream-record"\s*:\s*'
_NOTIFICATION = rb'\{\s*"ietf-restconf:notification"\s*:\s*\{\s*"eventTime"\s*:\s*"[^"\\]*"\s*,\s*'
_OPENING = re.compile(
    rb"\s*(?:(%b)|(%b)|(%b))?(?=\[)"
    % (_NOTIFICATION + _STREAM.removeprefix(rb"\{\s*") + _LOG, _STREAM + _LOG, _LOG)
)
_CLOSING = {1: b"}}}", 2: b"}}", 3: b"}"}
_UNDECODED = (bytes, msgspec.Raw)
_BLANKS = b" \t\r\n"


SealedBody: TypeAlias = ExactBody | bytes | msgspec.Raw | None
"""A body that is decoded, or to be decoded by `exact_body`."""


class Exact(msgspec.Struct, frozen=True):
    """Log-records spelled to the letter, in columns."""

    headers: Sequence[ExactHeader]
    bodies: Sequence[SealedBody]
    frames: Sequence[bytes]
    """Of each the frame that it came in."""


def split_exact(frames: Sequence[bytes], *, with_bodies: bool = True) -> Exact | None:
    """The records of frames that hold a list each, or a bare one each; None where not all are
    spelled to the letter. Whether a body is UTF-8 is told when it is opened, and without
    `with_bodies` all else about it too.
    """
    try:
        if frames[0].startswith(b"["):
            decode: Callable[[bytes], list[_ExactItem]]
            decode = _exact_list if with_bodies else _header_list  # type: ignore[assignment]
            lists = list(map(decode, frames))
            of = chain.from_iterable(map(repeat, frames, map(len, lists)))
            return _exact_of(list(chain.from_iterable(lists)), list(of))
        if not frames[0].startswith(_BARE):
            return None
        if not with_bodies:
            with suppress(ValueError):
                return _split_headers(frames)
        return _exact_of(list(map(_exact, frames)), frames)
    except (ValueError, RecursionError):
        return None


def _exact_of(items: Sequence[_ExactItem], frames: Sequence[bytes]) -> Exact:
    return Exact(
        [item.log_record_header for item in items],
        [item.log_record_body for item in items],
        frames,
    )


def _split_headers(frames: Sequence[bytes]) -> Exact:
    """Of bare log-records with bodies the headers only, which is where most of their time goes.

    What is one JSON object from where a header begins to where a body begins is the header. Nearly
    always all of them are as long as the first. Raises `ValueError` for anything else.
    """
    if not all(map(_is_bare, frames)):
        raise ValueError("another kind of frame among them")
    start = len(_BARE)
    try:
        end = frames[0].index(_BODY, start)
        headers = list(map(_header, map(itemgetter(slice(start, end)), frames)))
        return Exact(headers, _Bodies(frames, [end] * len(frames)), frames)
    except ValueError:
        ends = [frame.index(_BODY, start) for frame in frames]
        headers = [_header(frame[start:end]) for frame, end in zip(frames, ends, strict=True)]
        return Exact(headers, _Bodies(frames, ends), frames)


class _Bodies(Sequence[bytes]):
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
        if frame.startswith(_BODY, end) and frame.endswith(b"}"):
            return frame[end + len(_BODY) : -1]
        # What else may come there is no JSON, and is found to be none.
        return frame[end:]


def exact_body(body: SealedBody) -> ExactBody | None:
    """Decoded, if it is not yet. Raises what msgspec raises."""
    return _body(body) if isinstance(body, _UNDECODED) else body


def utf8(text: bytes) -> bytes:
    """Bodies stay bytes, and msgspec does not look into their texts. Raises `UnicodeError`."""
    if not text.isascii():
        text.decode()
    return text


def split_fast(frame: bytes) -> list[LogRecord] | list[_PrefixedLogRecord]:
    """The records of a frame in one of the usual shapes, headers decoded and bodies not.

    Raises `BadRecord`, or what msgspec raises, for another shape: then `split_liberal` reads it.
    """
    opening = None if frame.startswith(_BARE) else _OPENING.match(frame)
    if opening is None:
        return [_plain.decode(frame)]
    if opening.lastindex:
        end = frame.rfind(b"]") + 1
        if frame[end:].translate(None, _BLANKS) != _CLOSING[opening.lastindex]:
            raise BadRecord("members after the log-record list")
        frame = frame[opening.end() : end]
    try:
        return _plain_list.decode(frame)
    except msgspec.ValidationError:
        return _prefixed_list.decode(frame)


def split_liberal(frame: bytes) -> Sequence[bytes | msgspec.Raw]:
    """Each record of a frame as its own JSON, in order. Raises `BadRecord`."""
    try:
        return _split(frame, _WRAPPER_DEPTH)
    except RecursionError:
        raise BadRecord("JSON nested too deeply") from None
    except ValueError as error:  # malformed JSON, or text that is not UTF-8
        raise BadRecord(f"not JSON: {error}") from None


def _split(value: bytes, depth: int) -> Sequence[bytes | msgspec.Raw]:
    if depth == 0:
        raise BadRecord("no log-record within the wrappers")
    opening = value.lstrip(_BLANKS)[:1]
    if opening == b"[":
        return _items.decode(value)
    if opening != b"{":
        msgspec.json.decode(value, type=msgspec.Raw)
        raise BadRecord("a JSON value that is neither an object nor a list")
    members = {strip_module(name): raw for name, raw in decode_fields(value).items()}
    if "log-record-header" in members:
        return [value]
    for name in ("log-record", "stream-record", "notification"):
        if name in members:
            return _split(bytes(members[name]), depth - 1)
    return [value]
