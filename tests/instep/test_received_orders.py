"""Gap detectors: what is made of the numbers received says the same when it is read."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from instep.ranges import Ranges
from instep.received_orders import GAPS_LIMIT, GapDetector, detect, reported

NUMBERS = st.sets(st.integers(1, 30))


@given(NUMBERS, st.integers(0, 10))
def test_a_report_read_by_the_sender_tells_what_was_received(received: set[int], more: int) -> None:
    sent_last = max(received, default=0) + more
    detector = detect("did:ex:alice", Ranges.of_numbers(received), Ranges(), 1)
    seen, missing = reported(detector, sent_last)
    assert list(seen) == sorted(received)
    assert list(missing) == [n for n in range(1, sent_last + 1) if n not in received]


@given(NUMBERS, NUMBERS)
def test_gaps_rise_and_leave_out_what_is_not_wanted(received: set[int], other: set[int]) -> None:
    unwanted = other - received
    detector = detect("did:ex:alice", Ranges.of_numbers(received), Ranges.of_numbers(unwanted), 1)
    last = max(received, default=0)
    assert detector.last == last
    assert detector.gaps == [n for n in range(1, last) if n not in received | unwanted]


def test_nothing_received_is_last_0() -> None:
    assert detect("did:ex:bob", Ranges(), Ranges(), 1) == GapDetector("did:ex:bob", 0)
    assert reported(GapDetector("did:ex:bob", 0), 0) == (Ranges(), Ranges())
    assert reported(GapDetector("did:ex:bob", 0), 2) == (Ranges(), Ranges.of((1, 2)))


def test_a_list_as_long_as_the_limit_is_concluded_from_to_its_end_only() -> None:
    top = GAPS_LIMIT + 2
    detector = detect("did:ex:alice", Ranges.of((top, top)), Ranges(), 1)
    assert len(detector.gaps) == GAPS_LIMIT
    assert reported(detector, top + 1) == (Ranges(), Ranges.of((1, GAPS_LIMIT)))
