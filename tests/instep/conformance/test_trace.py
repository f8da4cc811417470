"""Traces as files and as a ring: what was observed comes back as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    MessageReceived,
    MessagesSkipped,
    RequestAnswered,
    RequestReceived,
    ResponseReceived,
    TraceRing,
    event_line,
    read_events,
)
from instep.errors import ConfigurationError

TIMES = st.integers(0, 2**53)
EVENTS = st.one_of(
    st.builds(ConnectionOpened, TIMES, st.integers(0, 9), st.text(), st.text()),
    st.builds(MessageReceived, TIMES, st.integers(0, 9), st.binary()),
    st.builds(MessageReceived, TIMES, st.integers(0, 9), st.text().map(str.encode)),
    st.builds(ConnectionClosed, TIMES, st.integers(0, 9), st.text(), by_us=st.booleans()),
    st.builds(MessagesSkipped, TIMES, st.integers(0, 9)),
    st.builds(ResponseReceived, TIMES, st.text(), st.integers(100, 599), st.binary(), TIMES),
    st.builds(
        RequestReceived, TIMES, st.text(), st.none() | st.integers(0, 99), st.text(), st.binary()
    ),
    st.builds(RequestAnswered, TIMES, st.text(), st.none() | st.integers(0, 99), st.booleans()),
)


@given(st.lists(EVENTS, max_size=5))
def test_a_file_gives_back_what_was_written(events: list[Event]) -> None:
    lines = [event_line(event) for event in events]
    assert list(read_events(lines)) == events
    assert all(line.count(b"\n") == 1 for line in lines)


def test_text_is_written_as_text() -> None:
    assert json.loads(event_line(MessageReceived(1, 2, b'{"a":1}')))["content_text"] == '{"a":1}'


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"type":"other"}', b'{"type":"frame"}'])
def test_what_is_no_event_is_named_with_its_line(line: bytes) -> None:
    lines = [event_line(ConnectionClosed(1, 1)), b"\n", line]
    with pytest.raises(ConfigurationError, match="no event of a trace") as error:
        list(read_events(lines, "here"))
    assert error.value.where == "here:3"


@given(st.lists(st.binary(max_size=300), max_size=30), st.integers(0, 2_000))
def test_a_ring_keeps_the_last_events_within_its_bound(
    contents: list[bytes], most_bytes: int
) -> None:
    ring = TraceRing(most_bytes)
    events = [MessageReceived(n, 1, content) for n, content in enumerate(contents)]
    for event in events:
        ring.add(event)
    kept = ring.events()
    assert ring.size_bytes <= most_bytes
    assert kept == events[len(events) - len(kept) :]


def test_a_line_that_is_cut_ends_the_trace_and_is_told() -> None:
    whole = event_line(ConnectionClosed(1, 1))
    notes: list[str] = []
    assert list(read_events([whole, whole[:9]], "here", notes.append)) == [ConnectionClosed(1, 1)]
    assert notes == ["the trace ends within line 2, which was not judged"]
    # What is no trace at all, or is broken in its middle, is none.
    for lines in ([whole[:9]], [whole, b"{\n", whole]):
        with pytest.raises(ConfigurationError, match="no event of a trace"):
            list(read_events(lines, "here", notes.append))
