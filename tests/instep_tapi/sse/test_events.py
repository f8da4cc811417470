"""Server-sent events: what the specification shows, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.sse.events import EventParser, EventTooBig


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: one\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (b": a comment\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n", None),
        (b"data\n\ndata\ndata\n\ndata:", [b"", b"\n"]),
        (b"data:test\n\ndata: test\n\n", [b"test", b"test"]),
        (b"\xef\xbb\xbfdata: x\r\n\r\ndata: y\r\rdata: z\n\n", [b"x", b"y", b"z"]),
        (b"event: other\nid: 7\n\n", []),
        (b'data: {"a": "\xc2\x85 \xe2\x80\xa8"}\n\n', [b'{"a": "\xc2\x85 \xe2\x80\xa8"}']),
        (b"data: a\n:sign of life\ndata: b\n\n", [b"a\nb"]),
        (b"datum: x\n\nDATA: x\n\n", []),
        (b"data: unfinished\n", []),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 3, 1_000])
def test_events(text: bytes, events: list[bytes] | None, piece: int) -> None:
    parser = EventParser(1_000)
    found = [
        event for at in range(0, len(text), piece) for event in parser.feed(text[at : at + piece])
    ]
    assert found == ([b"first", b"second"] if events is None else events)


@given(
    st.lists(st.tuples(st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.booleans())),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 200), max_size=10),
)
def test_cut_anywhere_the_events_are_the_same(
    events: list[tuple[list[bytes], bool]], end: bytes, cuts: list[int]
) -> None:
    text, expected = b"", []
    for lines, comment in events:
        plain = [line.replace(b"\n", b"n").replace(b"\r", b"r") for line in lines]
        text += b": ping" + end if comment else b""
        text += b"".join(b"data: " + line + end for line in plain) + end
        expected.append(b"\n".join(plain))
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parser = EventParser(1_000)
    found: list[bytes] = []
    for first, last in pairwise(places):
        found += parser.feed(text[first:last])
    assert found == expected
    assert parser.unfinished_bytes == 0


def test_the_wait_that_the_peer_wants() -> None:
    parser = EventParser(100)
    assert parser.retry_s is None
    parser.feed(b"retry: 2500\n\nretry: soon\n\nretry: 99999999999999\n\n")
    assert parser.retry_s == 2.5


@pytest.mark.parametrize("text", [b"data: " + b"x" * 101, b"data: xxxxxxxxx\n" * 11, b"x" * 101])
def test_what_is_unfinished_is_bounded(text: bytes) -> None:
    with pytest.raises(EventTooBig):
        EventParser(100).feed(text)
    parser, rest = EventParser(100), iter(text)
    with pytest.raises(EventTooBig):
        sum(len(parser.feed(bytes([one]))) for one in rest)


def test_an_unfinished_event_is_known() -> None:
    parser = EventParser(100)
    parser.feed(b"data: x\n")
    assert parser.unfinished_bytes > 0
    parser.feed(b": ping\n")
    assert parser.unfinished_bytes > 0
    parser.feed(b"\n: ping\n\n")
    assert parser.unfinished_bytes == 0
