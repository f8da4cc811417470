"""Headers of fixed width, cut at the same places, are what their twin and the reference read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi.wire.fast_columns import LazyColumns, lazy_columns
from instep_tapi.wire.fast_decode import split_exact
from instep_tapi.wire.fast_fixed_width import fixed_width_columns
from tests.instep_tapi.log_record_kit import log_record
from tests.instep_tapi.wire.frames_kit import read_by

_BODY = {
    "event-time-stamp": "2021-04-28T14:14:20Z",
    "record-content": "NODE",
    "node": {"uuid": "u"},
}


def _frame(offset: int, key: str, kind: str = "CREATE_UPDATE", second: int = 20) -> bytes:
    record = {
        "log-record-header": {
            "token": f"t:{offset:06}",
            "log-append-time-stamp": f"2021-11-11T10:22:{second:02}Z",
            "entity-key": key,
            "record-type": f"RECORD_TYPE_{kind}",
            "full-log-record-offset-id": [
                {"value-name": "partition", "value": "0"},
                {"value-name": "offset", "value": str(offset)},
            ],
        },
        "log-record-body": _BODY,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def _read(frames: list[bytes]) -> LazyColumns | None:
    try:
        return fixed_width_columns("s", frames, FrameDecoder("s")._times_us)
    except ValueError:
        return None


_KEYS = st.lists(st.sampled_from(["aa", "bb", "é"]), min_size=1, max_size=6)


@given(keys=_KEYS, first=st.integers(10, 90), seconds=st.lists(st.integers(0, 59), min_size=6))
def test_fixed_width_is_as_the_twin(keys: list[str], first: int, seconds: list[int]) -> None:
    times = sorted(seconds)
    frames = [_frame(first + at, key, second=times[at]) for at, key in enumerate(keys)]
    found = _read(frames)
    assert found is not None
    exact = split_exact(frames, with_bodies=False)
    assert exact is not None
    twin = lazy_columns("s", exact, FrameDecoder("s")._times_us)
    assert twin is not None
    assert list(found) == list(twin)
    assert found.headers == twin.headers


_BYTES = [*b'"\\,:{}[]0129 \n\0\x7f\xc3\xa9\xffTZatu/']
_CHANGES = st.tuples(st.integers(0, 5), st.integers(0, 1_000), st.sampled_from(_BYTES))


@given(changes=st.lists(_CHANGES, min_size=1, max_size=4), same=st.booleans())
def test_with_any_byte_changed_it_is_as_the_reference(
    changes: list[tuple[int, int, int]], same: bool
) -> None:
    frames = [bytearray(_frame(10 + at, "ab"[at % 2])) for at in range(6)]
    for at, place, byte in changes:
        for frame in frames if same else [frames[at]]:
            frame[place % len(frame)] = byte
    read = [bytes(frame) for frame in frames]
    found, expected = read_by("columns of headers", read), read_by("reference", read)
    assert list(found.records) == list(expected.records)
    assert list(found.unreadable) == list(expected.unreadable)
    assert found.deviations == expected.deviations


@pytest.mark.parametrize(
    "other",
    [
        _frame(21, "abc"),
        _frame(21, "a"),
        _frame(21, "ab", "DELETE"),
        _frame(121, "ab"),
        _frame(19, "ab"),
        _frame(21, "ab", second=19),
        _frame(21, "ab").replace(b't:000021"', b't","21"":'),
        _frame(21, "ab").replace(b"t:0", b"t\\0"),
        _frame(21, "ab").replace(b"t:0", b"t\n0"),
        _frame(21, "ab").replace(b":000021", b'","0021'),
        _frame(21, "ab").replace(b'"value":"21"', b'"value":"1,"'),
        _frame(21, "ab").replace(b'"partition","value":"0"', b'"partition","value":"1"'),
        _frame(21, "ab").replace(b'"log-record-body"', b'"log-record-Body"'),
        _frame(21, "ab").replace(b"10:22", b'10"22'),
        b"{}",
    ],
)
def test_what_has_another_width_or_text_is_left_to_the_twin(other: bytes) -> None:
    usual = [_frame(20, "ab"), _frame(22, "ab")]
    assert _read(usual) is not None
    assert _read([usual[0], other]) is None


def test_a_header_with_more_members_is_left_to_the_twin() -> None:
    record = log_record(more=1)
    assert _read([json.dumps(record, separators=(",", ":")).encode()] * 2) is None


def test_equal_keys_are_one_object() -> None:
    found = _read([_frame(20, "ab"), _frame(21, "ab")])
    assert found is not None
    assert found.keys[0] is found.keys[1]
