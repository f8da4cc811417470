"""Gap detectors: what is made of the numbers received says the same when it is read."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from instep.model.messages import MessageHeader
from instep.model.ranges import Ranges
from instep.sequencing import Claims, Outbox, Sequencer, SequencerSettings, SequencerState
from instep_didcomm.wire.received_orders import (
    GAPS_LIMIT,
    GapDetector,
    ReceivedOrdersError,
    detect,
    reported,
)
from tests.instep.sequencing.sequencer_kit import T0_US, US, received


def claimed(received: Ranges, unwanted: Ranges | None = None) -> Claims:
    """Claims of a state with these numbers."""
    state = SequencerState(next_number=1, received=received, cancelled=unwanted or Ranges())
    return Claims(state, SequencerSettings())


NUMBERS = st.sets(st.integers(1, 30))


@given(NUMBERS, st.integers(0, 10))
def test_a_report_read_by_the_sender_tells_what_was_received(numbers: set[int], more: int) -> None:
    sent_last = max(numbers, default=0) + more
    detector = detect("did:ex:alice", claimed(Ranges.of_numbers(numbers)))
    seen, missing = reported(detector, sent_last)
    assert list(seen) == sorted(numbers)
    assert list(missing) == [n for n in range(1, sent_last + 1) if n not in numbers]


@given(NUMBERS, NUMBERS)
def test_gaps_rise_and_leave_out_what_is_not_wanted(numbers: set[int], other: set[int]) -> None:
    unwanted = other - numbers
    claims = claimed(Ranges.of_numbers(numbers), Ranges.of_numbers(unwanted))
    detector = detect("did:ex:alice", claims)
    last = max(numbers, default=0)
    assert detector.last == last
    assert detector.gaps == [n for n in range(1, last) if n not in numbers | unwanted]


def test_nothing_received_is_last_0() -> None:
    assert detect("did:ex:bob", claimed(Ranges())) == GapDetector("did:ex:bob", 0)
    assert reported(GapDetector("did:ex:bob", 0), 0) == (Ranges(), Ranges())
    assert reported(GapDetector("did:ex:bob", 0), 2) == (Ranges(), Ranges.of((1, 2)))


def test_a_list_as_long_as_the_limit_is_concluded_from_to_its_end_only() -> None:
    top = GAPS_LIMIT + 2
    detector = GapDetector("did:ex:alice", top, list(range(1, GAPS_LIMIT + 1)))
    assert reported(detector, top + 1) == (Ranges(), Ranges.of((1, GAPS_LIMIT)))


@given(st.sets(st.integers(1, 3 * GAPS_LIMIT), max_size=20))
def test_a_list_is_cut_together_with_last(numbers: set[int]) -> None:
    """A peer that knows of no limit takes all that is not listed up to `last` for received."""
    detector = detect("did:ex:alice", claimed(Ranges.of_numbers(numbers)))
    assert len(detector.gaps) <= GAPS_LIMIT
    seen = set(range(1, detector.last + 1)) - set(detector.gaps)
    assert seen <= numbers
    assert detector.last == 0 or detector.last in numbers
    if len(set(range(1, max(numbers, default=0))) - numbers) <= GAPS_LIMIT:
        assert detector.last == max(numbers, default=0)


def test_last_does_not_go_back_when_the_highest_expires() -> None:
    sequencer = Sequencer()
    received(sequencer, 1)
    sequencer.receive([MessageHeader(4, expires_at_us=T0_US + US)], T0_US)
    sequencer.committed(sequencer.checkpoint())
    assert gap_detector(sequencer, "did:a") == GapDetector("did:a", 4, [2, 3])
    sequencer.tick(T0_US + US)
    sequencer.committed(sequencer.checkpoint())
    assert str(sequencer.claims().acknowledged()) == "1"
    assert gap_detector(sequencer, "did:a") == GapDetector("did:a", 4, [2, 3])


def gap_detector(sequencer: Sequencer, party: str) -> GapDetector:
    return detect(party, sequencer.claims())


def test_received_orders_of_bob_and_alice() -> None:
    """The auctioneer "sees bids 1 and 2 from Bob, and bid 1 and 4 from Alice"."""
    bob, alice = Sequencer(), Sequencer()
    received(bob, 1, 2)
    received(alice, 1, 4)
    orders = [gap_detector(bob, "did:ex:bob"), gap_detector(alice, "did:ex:alice")]
    assert orders == [GapDetector("did:ex:bob", 2), GapDetector("did:ex:alice", 4, [2, 3])]
    assert msgspec.json.encode(orders) == (
        b'[{"id":"did:ex:bob","last":2,"gaps":[]},{"id":"did:ex:alice","last":4,"gaps":[2,3]}]'
    )


@pytest.mark.parametrize(
    ("detector", "message"),
    [
        (GapDetector("did:a", 5), r"received_orders of did:a: last is 5.*sent are 1-4"),
        (GapDetector("did:a", -1), "last is -1"),
        (GapDetector("did:a", 3, [3]), "gaps reach out of 1-2"),
        (GapDetector("did:a", 3, [0]), "gaps reach out of 1-2"),
    ],
)
def test_a_report_that_cannot_be_is_refused(detector: GapDetector, message: str) -> None:
    with pytest.raises(ReceivedOrdersError, match=message):
        reported(detector, 4)


def test_an_outbox_and_a_sequencer_agree_over_a_lossy_link() -> None:
    """Both directions of the gap detector: every message arrives once, in order."""
    dice = random.Random(548)
    outbox, sequencer = Outbox(), Sequencer(SequencerSettings(gap_attempts=100))
    for number in range(1, 201):
        outbox.append(f"id-{number}", 100, ["did:b"], T0_US)
    now_us = T0_US
    delivered: list[int] = []
    in_flight = outbox.checkpoint().sent
    for _ in range(100):
        arriving = [sent.number for sent in in_flight if dice.random() > 0.3]
        dice.shuffle(arriving)
        delivered += received(sequencer, *arriving, *arriving[:3], now_us=now_us).deliver
        now_us += 5 * US
        if dice.random() > 0.3:
            ranges = reported(gap_detector(sequencer, "did:a"), outbox.last_number)
            outbox.acknowledge("did:b", *ranges, now_us - 1)
        in_flight = outbox.tick(now_us).resend
        if not outbox.checkpoint().sent:
            break
    assert delivered == list(range(1, 201))
    assert outbox.checkpoint().sent == []


def test_a_list_of_gaps_that_was_cut_short_acknowledges_nothing_behind_its_end() -> None:
    sequencer, outbox = Sequencer(), Outbox()
    sequencer.receive([MessageHeader(2500), MessageHeader(1)], T0_US)
    sequencer.committed(sequencer.checkpoint())
    for number in range(1, 2501):
        outbox.append(f"id-{number}", 100, ["did:b"], T0_US)
    ranges = reported(gap_detector(sequencer, "did:a"), outbox.last_number)
    outcome = outbox.acknowledge("did:b", *ranges, T0_US + 5 * US)
    assert outcome.acknowledged == [1]
    assert [sent.number for sent in outcome.resend][:1_000] == list(range(2, 1_002))
