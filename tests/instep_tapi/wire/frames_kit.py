"""Frames in any spelling, and the two ways to read them: by a template, and plainly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from hypothesis import settings
from hypothesis import strategies as st

from instep.model.records import RecordChunk
from instep_tapi.facts.names import CONDITION_DETECTOR, LogRecordType
from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi_provider.log import LogRecord
from instep_tapi_provider.records import (
    IdentityStyle,
    RecordEncoder,
    RecordStyle,
    Statement,
    Wrapper,
)
from tests.fuzz.seeds import WORDS

__all__ = ["WAYS", "Way", "chunks_of_frames", "few_in_ci", "places", "read_by", "usual_frames"]

few_in_ci = settings() if settings().max_examples > 100 else settings(max_examples=20)
"""For what `make properties` tries for long."""
Way = Literal["template", "template of headers", "plain"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)


def read_by(way: Way, frames: Sequence[bytes], *, with_uuid: bool = False) -> RecordChunk:
    """These frames read in one way; what a template declines is read plainly."""
    decoder = FrameDecoder("s", with_uuid=with_uuid)
    if way == "plain":
        decoder._lessons = -1_000_000
    if way == "template of headers":
        decoder._scanned_records, decoder._opened_records = 10, 1  # few bodies were needed
    return decoder.read(frames)


@dataclass
class _Object:
    """A JSON object as it is written: names and values are JSON texts, a name may come twice."""

    members: list[tuple[bytes, _Node]]


_Node = _Object | list[Any] | bytes
"""A list holds nodes; bytes are the JSON text of anything else."""

_ODD_VALUES: Final = [
    *(b"null", b"0", b"7", b"-1", b"1.5", b"1e3", b"true", b"{}", b"[]", b'""', b'" "', b"{", b""),
    *(b'"5"', b'"05"', b'" 5"', b'"1e3"', b'"x"', b'"a\\u0000"', b'"\\ud800"', b'"\xff"', b'"\n"'),
    *('"é\N{SNOWMAN}"'.encode(), b'"' + b"x" * 5_000 + b'"', b'"DELETE"', b'"NO\\u0044E"'),
    *(b'"RECORD_TYPE_TOMBSTONE"', b'"CHANGE"', b'"CLEAR"', b'{"alarm-detector-state":"CLEAR"}'),
    *(b'"2021-04-28T14:14:28Z"', b'"20210428141428.0Z"', b'"2021-04-28"', b'{"uuid":"u"}'),
    *(
        b'[{"value-name":"offset","value":"8"}]',
        b'"ANY_CLASS"',
        b'"NODE"',
        b'"9223372036854775808"',
        b'["topology-uuid:t","node-uuid:n"]',
        b'["node-uuid:n","topology-uuid:t"]',
        b'[{"node-uuid":"n"}]',
        b'"node=n"',
    ),
]
_NAMES: Final = [
    *("token", "entity-key", "record-type", "log-append-time-stamp", "full-log-record-offset-id"),
    *("log-record-header", "log-record-body", "record-authenticity-token", "log-record", "x"),
    *(
        "record-content",
        "event-time-stamp",
        "parent-address",
        "node",
        "condition-detector",
        "value",
    ),
    *("value-name", "stream-record", "uuid"),
]
_PREFIXES: Final = ["", "", "tapi-streaming:", "other:"]
_OBJECTS: Final = [
    (CONDITION_DETECTOR, b'{"detector-uuid":"b","alarm-detector-state":"ACTIVE"}'),
    (CONDITION_DETECTOR, b'{"alarm-condition-detector-detail":{"alarm-detector-state":"CLEAR"}}'),
    ("NODE", b'{ "uuid" : "u","x":1.00}'),
    ("LINK", '{"uuid":"\\u00e9","name":"é"}'.encode()),
    ("TAPI_CONTEXT", b"{}"),
    ("OF_NO_STANDARD", b'{"a":1}'),
]
_NOT_IN_TR_548: Final = b'"event-source":"RESOURCE_OPERATION",'
_KINDS: Final = [LogRecordType.CREATE_UPDATE, *LogRecordType]
_BLANKS: Final = [b"", b"", b"", b" ", b"\n\t\r", b"\x0b"]


def _name(draw: st.DrawFn) -> bytes:
    return json.dumps(draw(st.sampled_from(_PREFIXES)) + draw(st.sampled_from(_NAMES))).encode()


def _escaped(draw: st.DrawFn, text: bytes) -> bytes:
    """The same JSON text with one of its characters written as an escape."""
    at = draw(st.integers(1, max(len(text) - 2, 1)))
    if not (text.startswith(b'"') and text[at : at + 1].isalnum()) or b"\\" in text:
        return text
    return b"%b\\u%04x%b" % (text[:at], text[at], text[at + 1 :])


def _reorder(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    members.insert(draw(st.integers(0, len(members) - 1)), members.pop(at))


def _remove(_draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    members.pop(at)


def _rename(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    name, value = members[at]
    prefix = draw(st.sampled_from(_PREFIXES[2:]))
    members[at] = (b'"' + prefix.encode() + name[1:], value)


def _add(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    members.insert(at, (_name(draw), draw(st.sampled_from(_ODD_VALUES))))


def _repeat(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    name, value = members[at]
    other = draw(st.sampled_from([value, *_ODD_VALUES]))
    members.insert(draw(st.integers(0, len(members))), (name, other))


def _replace(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    members[at] = (members[at][0], draw(st.sampled_from(_ODD_VALUES)))


def _escape_name(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    members[at] = (_escaped(draw, members[at][0]), members[at][1])


def _escape_value(draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    name, value = members[at]
    if isinstance(value, bytes):
        members[at] = (name, _escaped(draw, value))


def _unquote(_draw: st.DrawFn, members: list[tuple[bytes, _Node]], at: int) -> None:
    name, value = members[at]
    if isinstance(value, bytes):
        members[at] = (name, value.strip(b'"'))


_CHANGES: Final[list[Callable[[st.DrawFn, list[tuple[bytes, _Node]], int], None]]] = [
    *(_reorder, _remove, _rename, _add, _repeat, _replace, _escape_name, _escape_value, _unquote)
]


def _objects(node: _Node) -> list[_Object]:
    """All objects that have a member, from the outermost inwards."""
    if isinstance(node, bytes):
        return []
    inner = node if isinstance(node, list) else [value for _, value in node.members]
    own = [node] if isinstance(node, _Object) and node.members else []
    return own + [one for value in inner for one in _objects(value)]


def _parsed(text: bytes) -> _Node:
    return _node(json.loads(text, object_pairs_hook=_Pairs))


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, to tell them from a list."""


def _node(value: Any) -> _Node:
    if isinstance(value, _Pairs):
        return _Object([(_text(name), _node(one)) for name, one in value])
    return [_node(one) for one in value] if isinstance(value, list) else _text(value)


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _written(node: _Node, blank: bytes) -> bytes:
    if isinstance(node, bytes):
        return node
    comma = b"," + blank
    if isinstance(node, list):
        return b"[" + comma.join(_written(one, blank) for one in node) + b"]"
    pairs = (name + b":" + blank + _written(value, blank) for name, value in node.members)
    return b"{" + blank + comma.join(pairs) + b"}"


_STYLES = st.builds(
    RecordStyle,
    wrapper=st.sampled_from(Wrapper),
    identities=st.sampled_from([IdentityStyle.NAME, *IdentityStyle]),
    prefixed_members=st.booleans(),
    nested_time=st.booleans(),
    yang_time=st.booleans(),
    numeric_offsets=st.booleans(),
    sign=st.sampled_from([None, lambda _: "signed"]),
)
_USUAL_STYLES = st.builds(
    RecordStyle,
    wrapper=st.sampled_from([Wrapper.BARE, Wrapper.LIST, *Wrapper]),
    nested_time=st.booleans(),
)


@st.composite
def _records(draw: st.DrawFn, style: RecordStyle) -> list[bytes]:
    """Log-records as the provider encodes them; half the time without its additional member."""
    encoder = RecordEncoder(style)
    exact = draw(st.booleans())
    offset, texts = draw(st.integers(0, 12)), []
    for _ in range(draw(st.integers(1, 4))):
        offset += draw(st.sampled_from([1, 1, 1, 90, 0]))
        partition = draw(st.sampled_from([0, 0, 0, 0, 1]))
        kind = draw(st.sampled_from(_KINDS))
        name, content = draw(st.sampled_from(_OBJECTS))
        key = draw(st.sampled_from(["a", "b", "é"]))
        record = LogRecord(offset, key, kind, partition, offset, 1.5e9 + offset, f"t{offset}")
        address = draw(st.sampled_from([(), ("topology-uuid:a",)]))
        text = encoder.record(record, Statement(key, name, content, address, 1.4e9))
        if exact:
            text = text.replace(_NOT_IN_TR_548, b"")
        texts.append(text)
    return texts


@st.composite
def _frames_of_the_provider(draw: st.DrawFn) -> list[bytes]:
    style = draw(_STYLES)
    per_frame = 1 if style.wrapper is Wrapper.BARE else draw(st.integers(1, 3))
    style = replace(style, records_per_frame=per_frame)
    return list(RecordEncoder(style).frames(draw(_records(style)), 1.5e9))


@st.composite
def usual_frames(draw: st.DrawFn) -> list[bytes]:
    """Frames of a provider that keeps to the letter of TR-548, in each wrapper."""
    style = draw(_USUAL_STYLES)
    texts = []
    for offset in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from([LogRecordType.CREATE_UPDATE, LogRecordType.TOMBSTONE]))
        name, content = draw(st.sampled_from(_OBJECTS[:4]))
        record = LogRecord(offset, "k", kind, 0, offset, 1.5e9 + offset, f"t{offset}")
        text = RecordEncoder(style).record(record, Statement("k", name, content, (), 1.4e9))
        texts.append(text.replace(_NOT_IN_TR_548, b""))
    per_frame = 1 if style.wrapper is Wrapper.BARE else draw(st.integers(1, 3))
    style = replace(style, records_per_frame=per_frame)
    return list(RecordEncoder(style).frames(texts, 1.5e9))


@st.composite
def chunks_of_frames(draw: st.DrawFn) -> list[bytes]:
    """Frames in every spelling of the provider, some then spelled oddly, or cut off."""
    frames = draw(usual_frames() | _frames_of_the_provider())
    for change in draw(st.lists(st.sampled_from(_HABITS), max_size=3, unique=True)):
        frames = _changed(draw, change, frames)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(frames) - 1))
        frames[at] = _respelled(draw, frames[at])
    if draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(frames) - 1))
        frames[at] = _broken(draw, frames[at])
    return frames


def _log_records(node: _Node) -> list[_Object]:
    named = (b'"log-record-header"', b'"tapi-streaming:log-record-header"')
    return [one for one in _objects(node) if any(name in named for name, _ in one.members)]


def _with_prefixes(_seed: int, frame: _Node) -> _Node:
    for record in _log_records(frame):
        for part in (record, *(value for _, value in record.members)):
            if isinstance(part, _Object):
                part.members = [(b'"tapi-streaming:' + name[1:], one) for name, one in part.members]
    return frame


def _with_prefixed_parts(_seed: int, frame: _Node) -> _Node:
    for record in _log_records(frame):
        record.members = [(b'"tapi-streaming:' + name[1:], one) for name, one in record.members]
    return frame


def _with_vendor_member(seed: int, frame: _Node) -> _Node:
    """In header or body, mostly of one name."""
    member = [b'"x-vendor"', b'"tapi-streaming:y"', b'"v:z"', '"é"'.encode(), b'"a"'][seed % 5]
    for record in _log_records(frame):
        part = record.members[seed // 5 % len(record.members)][1]
        if isinstance(part, _Object):
            at = seed // 10 % (len(part.members) + 1)
            part.members.insert(at, (member, _ODD_VALUES[seed // 10 % 8]))
    return frame


def _without_offsets(_seed: int, frame: _Node) -> _Node:
    for record in _log_records(frame):
        for _, part in record.members:
            if isinstance(part, _Object):
                part.members = [one for one in part.members if b"offset-id" not in one[0]]
    return frame


def _of_one_record(_seed: int, frame: _Node) -> _Node:
    """`{"log-record": r}` where it was a list of one."""
    if isinstance(frame, list) and len(frame) == 1:
        return _Object([(b'"log-record"', frame[0])])
    for one in _objects(frame):
        one.members = [
            (
                name,
                value[0] if isinstance(value, list) and b"log-record" in name and value else value,
            )
            for name, value in one.members
        ]
    return frame


_HABITS: Final[list[Callable[[int, _Node], _Node]]] = [
    *(_with_prefixes, _with_prefixed_parts, _with_vendor_member, _without_offsets, _of_one_record)
]
"""What a provider does to all of its frames."""


def _changed(
    draw: st.DrawFn, change: Callable[[int, _Node], _Node], frames: list[bytes]
) -> list[bytes]:
    seed = draw(st.integers(0, 99))
    return [_written(change(seed, _parsed(frame)), b"") for frame in frames]


def _respelled(draw: st.DrawFn, frame: bytes) -> bytes:
    """With one member of one object spelled oddly, and blanks between all of them."""
    try:
        tree = _parsed(frame)
    except ValueError:
        return frame  # it was spelled oddly before
    objects = _objects(tree)
    if objects:
        members = draw(st.sampled_from(objects)).members
        draw(st.sampled_from(_CHANGES))(draw, members, draw(st.integers(0, len(members) - 1)))
    return _written(tree, draw(st.sampled_from(_BLANKS)))


def _broken(draw: st.DrawFn, frame: bytes) -> bytes:
    first, last = sorted(draw(st.tuples(*[st.integers(0, len(frame))] * 2)))
    return draw(
        st.sampled_from(
            [frame[:first], frame[first:], frame[:first] + frame[last:], frame + frame[first:]]
        )
        | st.sampled_from(WORDS).map(lambda word: frame[:first] + word + frame[last:])
        | st.sampled_from(WORDS).map(lambda word: frame[:first] + word + frame[first:])
    )


@st.composite
def places(draw: st.DrawFn) -> list[bytes]:
    """full-log-record-offset-ids of one log, some spelled oddly; more than are searched at once."""
    size = draw(st.sampled_from([2, 5, 201, 401]))
    first = draw(st.sampled_from([0, 1, 9, 95, 1_000]))
    usual = [_place("0", str(first + at)) for at in range(size)]
    for at in draw(st.lists(st.sampled_from([0, 1, 199, 200, size - 1]), max_size=2)):
        if at >= size:
            continue
        partition = draw(st.sampled_from(["0", "1", "10"]))
        right = str(first + at)
        value = draw(st.sampled_from([right] * 5 + ["05", " 5", "1_0", "5,6", "-1", "x", ""]))
        usual[at] = _place(partition, value)
        if draw(st.booleans()):
            usual[at] = _respelled(draw, usual[at])
    every = draw(st.sampled_from([lambda text: text, _spaced, _with_last_member]))
    return [every(text) for text in usual]


def _place(partition: str, offset: str) -> bytes:
    members = [
        {"value-name": "partition", "value": partition},
        {"value-name": "offset", "value": offset},
    ]
    return json.dumps(members, separators=(",", ":")).encode()


def _spaced(text: bytes) -> bytes:
    return text.replace(b",", b" , ")


def _with_last_member(text: bytes) -> bytes:
    return text.replace(b"}]", b',"more":"%d"}]' % len(text))
