"""Headers of fixed width, cut at the same places, are what the plain way reads."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi.wire.lazy_columns import LazyColumns
from tests.instep_tapi.wire.frames_kit import few_in_ci, read_by

_BODY = {
    "event-time-stamp": "2021-04-28T14:14:20Z",
    "record-content": "NODE",
    "node": {"uuid": "u"},
}


def _frame(
    offset: int, key: str, kind: str = "CREATE_UPDATE", second: int = 20, *, turned: bool = False
) -> bytes:
    """`turned`: with the members of the header in another order, and one more."""
    header: dict[str, Any] = {
        "token": f"t:{offset:06}",
        "log-append-time-stamp": f"2021-11-11T10:22:{second:02}Z",
        "entity-key": key,
        "record-type": f"RECORD_TYPE_{kind}",
        "full-log-record-offset-id": [
            {"value-name": "partition", "value": "0"},
            {"value-name": "offset", "value": str(offset)},
        ],
    }
    if turned:
        header = {"x-vendor": 7, **dict(reversed(header.items()))}
    record = {"log-record-header": header, "log-record-body": _BODY}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def _read(frames: list[bytes]) -> LazyColumns | None:
    """What the short cut makes of these frames; None where it declines."""
    decoder = FrameDecoder("s")
    decoder.read([_frame(1, "aa"), _frame(2, "aa", turned=True)])
    for template in decoder._templates:
        try:
            return template._read_fixed_width("s", frames)
        except ValueError:
            continue
    return None


_KEYS = st.lists(st.sampled_from(["aa", "bb", "é"]), min_size=1, max_size=6)


@given(
    keys=_KEYS,
    first=st.integers(10, 90),
    seconds=st.lists(st.integers(0, 59), min_size=6),
    turned=st.booleans(),
)
def test_fixed_width_is_as_the_plain_way(
    keys: list[str], first: int, seconds: list[int], turned: bool
) -> None:
    times = sorted(seconds)
    frames = [
        _frame(first + at, key, second=times[at], turned=turned) for at, key in enumerate(keys)
    ]
    found = _read(frames)
    assert found is not None
    assert list(found.opened([], with_uuid=False, whole=True)) == read_by("plain", frames).records


_BYTES = [*b'"\\,:{}[]0129 \n\0\x7f\xc3\xa9\xffTZatu/']
_CHANGES = st.tuples(st.integers(0, 5), st.integers(0, 1_000), st.sampled_from(_BYTES))


@few_in_ci
@example(changes=[(1, 253, 34), (3, 0, 34)], same=False, turned=False)
@given(changes=st.lists(_CHANGES, min_size=1, max_size=4), same=st.booleans(), turned=st.booleans())
def test_with_any_byte_changed_it_is_as_the_plain_way(
    changes: list[tuple[int, int, int]], same: bool, turned: bool
) -> None:
    frames = [bytearray(_frame(10 + at, "ab"[at % 2], turned=turned)) for at in range(6)]
    for at, place, byte in changes:
        for frame in frames if same else [frames[at]]:
            frame[place % len(frame)] = byte
    read = [bytes(frame) for frame in frames]
    found, expected = read_by("template of headers", read), read_by("plain", read)
    assert list(found.records) == list(expected.records)
    # A body that cannot be read is found later, when the bodies are opened.
    raw = attrgetter("raw")
    assert sorted(found.unreadable, key=raw) == sorted(expected.unreadable, key=raw)
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
def test_what_has_another_width_or_text_is_left_to_the_plain_way(other: bytes) -> None:
    usual = [_frame(20, "ab"), _frame(22, "ab")]
    assert _read(usual) is not None
    assert _read([usual[0], other]) is None


def test_a_name_that_is_written_twice_is_left_to_the_plain_way() -> None:
    frames = [
        _frame(at, "ab").replace(b'"token":', b'"token":"t:000020","token":') for at in (20, 21)
    ]
    assert _read(frames) is None


def test_equal_keys_are_one_object() -> None:
    found = _read([_frame(20, "ab"), _frame(21, "ab")])
    assert found is not None
    assert found.keys[0] is found.keys[1]
