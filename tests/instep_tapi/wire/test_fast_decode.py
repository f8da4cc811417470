"""Read fast or by the reference, a frame gives the same records, refusals and deviations."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.wire.fast_decode import split_exact, split_fast
from tests.instep_tapi.log_record_kit import log_record
from tests.instep_tapi.wire.frames_kit import Way, chunks_of_frames, read_by, usual_frames

_FAST_WAYS: list[Way] = ["columns", "columns of headers", "structs"]


def _check_equal(way: Way, frames: list[bytes], *, with_uuid: bool = False) -> None:
    found = read_by(way, frames, with_uuid=with_uuid)
    expected = read_by("reference", frames, with_uuid=with_uuid)
    assert list(found.records) == list(expected.records)
    assert list(found.unreadable) == list(expected.unreadable)
    assert found.deviations == expected.deviations
    assert found.size_bytes == expected.size_bytes
    assert found.whole == expected.whole


@pytest.mark.parametrize("way", _FAST_WAYS)
@given(frames=chunks_of_frames(), with_uuid=st.booleans())
def test_fast_is_as_the_reference(way: Way, frames: list[bytes], with_uuid: bool) -> None:
    _check_equal(way, frames, with_uuid=with_uuid)


def _dumped(record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


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


@pytest.mark.parametrize("way", _FAST_WAYS)
@pytest.mark.parametrize("frame", _ONCE_READ_OTHERWISE.values(), ids=_ONCE_READ_OTHERWISE)
def test_what_was_once_read_otherwise(way: Way, frame: bytes) -> None:
    _check_equal(way, [frame])


@given(frames=usual_frames())
def test_structs_decline_no_usual_frame(frames: list[bytes]) -> None:
    for frame in frames:
        assert split_fast(frame, [])


@given(frames=usual_frames())
def test_columns_decline_no_exact_frame(frames: list[bytes]) -> None:
    if frames[0][:1] == b"[" or frames[0].startswith(b'{"log-record-header"'):
        exact = split_exact(frames, with_bodies=False)
        assert exact is not None
        assert len(exact.headers) == len(read_by("reference", frames).records)
