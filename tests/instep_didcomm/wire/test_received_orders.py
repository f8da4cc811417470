"""Gap detectors: what is made of the numbers received says the same when it is read."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from instep.model.messages import MessageHeader
from instep.model.ranges import Ranges
from instep.sequencing import Outbox, Sequencer, SequencerSettings
from instep_didcomm.wire.received_orders import (
    GAPS_LIMIT,
    GapDetector,
    ReceivedOrdersError,
    detect,
    reported,
)
from tests.instep.sequencing.sequencer_kit import T0_US, US, received

NUMBERS = st.sets(st.integers(1, 30))


@given(NUMBERS, st.integers(0, 10))
def test_a_report_read_by_the_sender_tells_what_was_received(numbers: set[int], more: int) -> None:
    sent_last = max(numbers, default=0) + more
    detector = detect("did:ex:alice", Ranges.of_numbers(numbers), Ranges(), 1)
    seen, missing = reported(detector, sent_last)
    assert list(seen) == sorted(numbers)
    assert list(missing) == [n for n in range(1, sent_last + 1) if n not in numbers]


@given(NUMBERS, NUMBERS)
def test_gaps_rise_and_leave_out_what_is_not_wanted(numbers: set[int], other: set[int]) -> None:
    unwanted = other - numbers
    detector = detect("did:ex:alice", Ranges.of_numbers(numbers), Ranges.of_numbers(unwanted), 1)
    last = max(numbers, default=0)
    assert detector.last == last
    assert detector.gaps == [n for n in range(1, last) if n not in numbers | unwanted]


def test_nothing_received_is_last_0() -> None:
    assert detect("did:ex:bob", Ranges(), Ranges(), 1) == GapDetector("did:ex:bob", 0)
    assert reported(GapDetector("did:ex:bob", 0), 0) == (Ranges(), Ranges())
    assert reported(GapDetector("did:ex:bob", 0), 2) == (Ranges(), Ranges.of((1, 2)))


def test_a_list_as_long_as_the_limit_is_concluded_from_to_its_end_only() -> None:
    top = GAPS_LIMIT + 2
    detector = detect("did:ex:alice", Ranges.of((top, top)), Ranges(), 1)
    assert len(detector.gaps) == GAPS_LIMIT
    assert reported(detector, top + 1) == (Ranges(), Ranges.of((1, GAPS_LIMIT)))


def gap_detector(sequencer: Sequencer, party: str) -> GapDetector:
    state = sequencer.durable
    return detect(party, state.received, state.cancelled, sequencer.settings.first_number)


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
    assert [sent.number for sent in outcome.resend] == list(range(2, 1002))
