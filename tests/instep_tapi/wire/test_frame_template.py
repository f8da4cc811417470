"""Read by a template or plainly, a frame gives the same records, refusals and deviations."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model.records import Record
from instep_tapi.wire.decoder import FrameDecoder
from tests.instep_tapi.log_record_kit import log_record
from tests.instep_tapi.wire.frames_kit import Way, chunks_of_frames, few_in_ci, read_by

_BY_TEMPLATE: list[Way] = ["template", "template of headers"]


_raw = attrgetter("raw")


def _check_equal(way: Way, frames: list[bytes], *, with_uuid: bool = False) -> None:
    found = read_by(way, frames, with_uuid=with_uuid)
    expected = read_by("plain", frames, with_uuid=with_uuid)
    assert list(found.records) == list(expected.records)
    # Those whose header can be read come last.
    assert sorted(found.unreadable, key=_raw) == sorted(expected.unreadable, key=_raw)
    assert found.deviations == expected.deviations
    assert found.size_bytes == expected.size_bytes
    assert found.whole == expected.whole


@pytest.mark.parametrize("way", _BY_TEMPLATE)
@few_in_ci
@given(frames=chunks_of_frames(), with_uuid=st.booleans())
def test_a_template_reads_as_the_plain_way(way: Way, frames: list[bytes], with_uuid: bool) -> None:
    _check_equal(way, frames, with_uuid=with_uuid)


def _dumped(record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _bare(record: dict[str, Any]) -> Any:
    return record


def _listed(record: dict[str, Any]) -> Any:
    return [record]


def _inner(record: dict[str, Any]) -> Any:
    return {"log-record": record}


def _prefixed(members: dict[str, Any]) -> Any:
    return {f"tapi-streaming:{name}": value for name, value in members.items()}


def _deleted(**members: object) -> dict[str, object]:
    record = log_record(**{"record-type": "RECORD_TYPE_DELETE", "body": None})
    return {**record, **members}


_NODE = {
    "record-content": "NODE",
    "event-time-stamp": "2021-04-28T14:14:20Z",
    "node": {"uuid": "u"},
}
_LIST = _dumped([log_record()])
_PREFIXED = [{f"tapi-streaming:{name}": part for name, part in log_record().items()}]
_PLACE = log_record()["log-record-header"]["full-log-record-offset-id"]
_NO_ENTITY = {**_NODE, "parent-address": {"uuid": "p"}}
del _NO_ENTITY["node"]

_ONCE_READ_OTHERWISE = {
    "a body under a prefix": _dumped(_deleted(**{"tapi-streaming:log-record-body": _NODE})),
    "a body of another module": _dumped([_deleted(**{"other:log-record-body": _NODE})]),
    "offsets under a prefix": _dumped(
        log_record(
            **{
                "full-log-record-offset-id": None,
                "tapi-streaming:full-log-record-offset-id": _PLACE,
            }
        )
    ),
    "prefixes in a list": _dumped(_PREFIXED),
    "a prefixed member more": _dumped(log_record(**{"tapi-streaming:more": 1})),
    "a member that is not UTF-8": _dumped(log_record(more="?")).replace(b"?", b"\xff"),
    "a blank that is none in JSON": b'{\x0b"log-record":' + _LIST + b"}",
    "a control character in the wrapper": b'{"ietf-restconf:notification":{"eventTime":"\n",'
    b'"stream-record":{"log-record":' + _LIST + b"}}}",
    **{
        f"the time {stamp}": _dumped(log_record(**{"log-append-time-stamp": stamp}))
        for stamp in (
            "20211111102220Z",
            "20211111102220-0500",
            "2021111110222Z",
            "20211111T1022Z",
            "2021-11-11T10:22:20.777777.z6Z",
            "",
        )
    },
    "a class with an escape": _dumped(log_record(body=_NODE)).replace(b"NODE", b"N\\u004fDE"),
    "a parent that is an object": _dumped(_deleted(**{"log-record-body": _NO_ENTITY})),
}


@pytest.mark.parametrize("way", _BY_TEMPLATE)
@pytest.mark.parametrize("frame", _ONCE_READ_OTHERWISE.values(), ids=_ONCE_READ_OTHERWISE)
def test_what_was_once_read_otherwise(way: Way, frame: bytes) -> None:
    _check_equal(way, [frame])


_BODY = {
    "event-time-stamp": "2021-04-28T14:14:20Z",
    "record-content": "NODE",
    "node": {"uuid": "u"},
}


def _frame(offset: int, key: str = "a", /, **changes: Any) -> dict[str, Any]:
    place = [
        {"value-name": "partition", "value": "0"},
        {"value-name": "offset", "value": str(offset)},
    ]
    stated = {"token": f"t:{offset:06}", "entity-key": key, "full-log-record-offset-id": place}
    return log_record(**{**stated, "body": _BODY, **changes})


_BYTES = [*b'"\\,:{}[]0129 \n\0\x7f\xc3\xa9\xffTZatu/']
_CHANGES = st.tuples(st.integers(0, 5), st.integers(0, 1_000), st.sampled_from(_BYTES))


@pytest.mark.parametrize("way", _BY_TEMPLATE)
@few_in_ci
@given(
    changes=st.lists(_CHANGES, min_size=1, max_size=4),
    same=st.booleans(),
    shape=st.sampled_from([_bare, _inner, _listed]),
)
def test_with_any_byte_changed_a_template_reads_as_the_plain_way(
    way: Way, changes: list[tuple[int, int, int]], same: bool, shape: Callable[[Any], Any]
) -> None:
    frames = [bytearray(_dumped(shape(_frame(10 + at, "ab"[at % 2])))) for at in range(6)]
    for at, place, byte in changes:
        for frame in frames if same else [frames[at]]:
            frame[place % len(frame)] = byte
    _check_equal(way, [bytes(frame) for frame in frames])


_SHAPES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bare": _bare,
    "one in log-record": _inner,
    "a list of one": _listed,
    "in log-record": lambda record: {"log-record": [record]},
    "in log-record of the module": lambda record: {"tapi-streaming:log-record": [record]},
    "a notification": lambda record: {
        "ietf-restconf:notification": {
            "eventTime": "2021-04-28T14:14:29Z",
            "tapi-streaming:stream-record": {"log-record": [record]},
        }
    },
    "prefixed parts": _prefixed,
    "prefixed members": lambda record: _prefixed(
        {name: _prefixed(part) for name, part in record.items()}
    ),
    "a vendor's member in the header": lambda record: {
        **record,
        "log-record-header": {"x-vendor": 1, **record["log-record-header"]},
    },
    "a vendor's member in the body": lambda record: {
        **record,
        "log-record-body": {**record["log-record-body"], "x-vendor": {"a": [1]}},
    },
    "no offset": lambda record: {
        **record,
        "log-record-header": {
            name: value
            for name, value in record["log-record-header"].items()
            if name != "full-log-record-offset-id"
        },
    },
}


@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES)
def test_the_frames_of_a_stream_are_read_by_one_template(
    shape: Callable[[dict[str, Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FrameDecoder._decode_plainly
    times = 0

    def count(decoder: FrameDecoder, *arguments: Any) -> None:
        nonlocal times
        times += 1
        plain(decoder, *arguments)

    frames = [_dumped(shape(_frame(offset))) for offset in range(50)]
    _check_equal("template", frames)
    monkeypatch.setattr(FrameDecoder, "_decode_plainly", count)
    decoder = FrameDecoder("s")
    assert len(decoder.read(frames).records) == 50
    assert len(decoder.read(frames).records) == 50
    assert times == 1, "the first one, to compare what was learned"


def test_what_a_template_does_not_know_yet_it_learns() -> None:
    decoder = FrameDecoder("s")
    tombstone = _frame(2, "a", body=None, **{"record-type": "RECORD_TYPE_TOMBSTONE"})
    link = {**_BODY, "record-content": "LINK", "link": {"uuid": "u"}}
    known = [
        _frame(1),
        tombstone,
        _frame(3, body={**link, "node": 1}),
        _frame(4, "a", **{"x-v": 1}),
    ]
    assert len(decoder.read([_dumped(one) for one in known]).records) == 4
    assert len(decoder._templates) == 1
    later = [_frame(5, "a", **{"x-v": 2}), _frame(6, body=link), tombstone, _frame(7)]
    chunk = decoder.scan([_dumped(one) for one in later])
    assert not any(isinstance(one, Record) for one in chunk.records)
    assert [one.entity_class for one in chunk.decode().records] == ["NODE", "LINK", "", "NODE"]


def test_a_list_is_learned_whole() -> None:
    decoder = FrameDecoder("s")
    link = {**_BODY, "record-content": "LINK", "link": {"uuid": "u"}}
    mixed = [
        _frame(1),
        _frame(2, body=link),
        _frame(3, "a", body=None, **{"record-type": "DELETE"}),
    ]
    [first, *_] = decoder.scan([_dumped(mixed)]).records
    assert not isinstance(first, Record)
    _check_equal("template", [_dumped(mixed)])


def test_what_was_read_plainly_is_not_opened_again() -> None:
    chunk = FrameDecoder("s").scan([_dumped(_frame(1)), _dumped(_frame(2, token=5))])
    [lazy, plain] = chunk.records
    assert isinstance(plain, Record)
    assert not isinstance(lazy, Record)
    assert list(chunk.decode([plain]).records) == [plain]
    assert not chunk.decode([plain]).unreadable


def test_a_class_that_first_comes_while_bodies_are_left_is_learned() -> None:
    decoder = FrameDecoder("s")
    decoder.scan([_dumped(_frame(1))])
    link = {**_BODY, "record-content": "LINK", "link": {"uuid": "u"}, "parent-address": []}
    chunk = decoder.scan([_dumped(_frame(at, body=link)) for at in (2, 3)])
    assert decoder.leaves_bodies
    assert [one.entity_class for one in chunk.decode().records] == ["LINK", "LINK"]
    assert dict(decoder._templates[0].shape.bodies).keys() == {"NODE", "LINK"}


def test_a_stream_that_never_has_a_shape_twice_is_seldom_learned() -> None:
    decoder = FrameDecoder("s")
    for number in range(3_000):
        decoder.read([_dumped(_frame(number, "a", **{f"x-{number}": 1}))])
    assert decoder._lessons < 64
    assert len(decoder._templates) <= 4
