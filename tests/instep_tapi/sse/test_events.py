"""Server-sent events: what the specification shows, cut anywhere."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

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
    parser = EventParser(1_000)
    assert fed(parser, text, cuts) == expected
    assert parser.unfinished_bytes == 0


def fed(parser: EventParser, text: bytes, cuts: list[int]) -> list[bytes]:
    """The events of a stream that comes cut at these places, some pieces empty."""
    places = sorted([0, len(text), *(min(cut, len(text)) for cut in cuts)])
    return [event for a, b in pairwise(places) for event in parser.feed(text[a:b])]


def plainly(text: bytes) -> list[bytes]:
    """The events of a whole stream, as the specification describes them."""
    events, data = list[bytes](), list[bytes]()
    *lines, _ = re.split(rb"\r\n|\n|\r", text.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        name, _, value = line.partition(b":")
        if not line and data:
            events.append(b"\n".join(data))
        if not line:
            data = []
        elif name == b"data":
            data.append(value.removeprefix(b" "))
    return events


_WORDS = [
    b"\n",
    b"\r",
    b"\r\n",
    b"data",
    b":",
    b" ",
    b"x",
    b"\xef\xbb\xbf",
    b"\xef",
    b"\xbb",
    b"id",
]


@given(
    st.lists(st.sampled_from(_WORDS), max_size=40).map(b"".join),
    st.lists(st.integers(0, 60), max_size=20),
)
def test_any_stream_is_read_as_the_specification_says(text: bytes, cuts: list[int]) -> None:
    assert fed(EventParser(1_000), text, cuts) == plainly(text)


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


class Counted(bytes):
    """Bytes that count how many of them are looked at or copied, also in what is made of them."""

    handled = 0

    def __add__(self, other: Any) -> Counted:
        return self._note(super().__add__(other))

    def __radd__(self, before: Any) -> Counted:
        if isinstance(before, bytearray):
            Counted.handled += len(self)
            return NotImplemented  # it is appended in place
        return self._note(before + bytes(self))

    def splitlines(self, keepends: bool = False) -> list[bytes]:
        Counted.handled += len(self)
        return [Counted(line) for line in super().splitlines(keepends)]

    def removeprefix(self, prefix: Any, /) -> Counted:
        return self._note(super().removeprefix(prefix))

    def rstrip(self, chars: Any = None, /) -> Counted:
        return self._note(super().rstrip(chars))

    def partition(self, sep: Any, /) -> tuple[bytes, bytes, bytes]:
        Counted.handled += len(self)
        return super().partition(sep)

    def find(self, *args: Any) -> int:
        Counted.handled += len(self)
        return super().find(*args)

    def _note(self, found: bytes) -> Counted:
        Counted.handled += max(len(self), len(found))
        return Counted(found)


@pytest.mark.parametrize("size", [1, 16, 1_460])
@pytest.mark.parametrize("prefix", [b"data: ", b": ", b"x"])
def test_each_byte_is_handled_a_few_times_however_small_the_pieces(
    prefix: bytes, size: int
) -> None:
    text = prefix + b"x" * 60_000 + b"\n\n"
    parser, Counted.handled = EventParser(len(text)), 0
    for at in range(0, len(text), size):
        parser.feed(Counted(text[at : at + size]))
    assert Counted.handled < 8 * len(text)


def test_what_is_over_the_bound_is_refused_at_the_bound() -> None:
    parser, Counted.handled = EventParser(10_000), 0
    for _ in range(1_000):
        parser.feed(Counted(b"x" * 10))
    with pytest.raises(EventTooBig):
        parser.feed(Counted(b"x"))
    assert Counted.handled < 8 * 10_000


def test_an_unfinished_event_is_known() -> None:
    parser = EventParser(100)
    parser.feed(b"data: x\n")
    assert parser.unfinished_bytes > 0
    parser.feed(b": ping\n")
    assert parser.unfinished_bytes > 0
    parser.feed(b"\n: ping\n\n")
    assert parser.unfinished_bytes == 0
