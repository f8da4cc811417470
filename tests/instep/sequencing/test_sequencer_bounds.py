"""Nothing grows without bound, and nothing accepted is lost by it (S8)."""

from __future__ import annotations

import msgspec
import pytest

from instep.model.messages import MessageHeader
from instep.model.ranges import Ranges
from instep.sequencing.effects import SequenceFailed
from instep.sequencing.events import Cancel, Fault, Fill, GiveUp
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal, SequencePhase, SequenceRefusedError
from tests.instep.sequencing.sequencer_kit import (
    T0_US,
    US,
    committed,
    decide,
    numbered,
    received,
    refusals,
)


def size_bytes(sequencer: Sequencer) -> int:
    return len(msgspec.msgpack.encode(committed(sequencer).durable))


def test_s8_full_by_messages_refuses_and_loses_nothing() -> None:
    sequencer = Sequencer(SequencerSettings(limit_messages=2))
    outcome = received(sequencer, 3, 4, 5, 2)
    assert refusals(outcome) == [(4, Refusal.FULL), (5, Refusal.FULL)]
    assert str(sequencer.claims().acknowledged()) == "2-3"
    # The message that the others wait for is never refused: it makes room.
    assert received(sequencer, 1).deliver == [1, 2, 3]
    assert received(sequencer, 5, 4).deliver == [4, 5]


def test_s8_full_by_bytes() -> None:
    sequencer = Sequencer(SequencerSettings(limit_bytes=25))
    outcome = sequencer.receive(numbered(2, 3, 4), T0_US)
    assert refusals(outcome) == [(4, Refusal.FULL)]
    assert sequencer.buffered_bytes == 20
    assert received(sequencer, 1).deliver == [1, 2, 3]
    assert sequencer.buffered_bytes == 0


def test_s7_after_a_refusal_other_content_is_no_deviation() -> None:
    sequencer = Sequencer(SequencerSettings(limit_messages=0))
    assert refusals(sequencer.receive(numbered(2), T0_US)) == [(2, Refusal.FULL)]
    received(sequencer, 1)
    outcome = sequencer.receive(numbered(2, content=b"shorter"), T0_US)
    assert outcome.deliver == [2]
    assert not outcome.deviations


def test_a_million_messages_without_a_gap_leave_the_state_constant() -> None:
    sequencer = Sequencer()

    def receive_to(last: int) -> int:
        for start in range(sequencer.next_number, last, 1000):
            batch = [
                MessageHeader(number, b"digest", 1300) for number in range(start, start + 1000)
            ]
            sequencer.receive(batch, T0_US)
            committed(sequencer)
        return size_bytes(sequencer)

    # From 65,536 on numbers take as many bytes as at a million.
    assert receive_to(100_000) == receive_to(1_000_000)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(sequencer.durable), type=SequencerState)
    assert state == sequencer.durable
    assert state.received == Ranges.of((1, 1_000_000))


def test_a_million_messages_with_gaps_leave_a_range_for_each() -> None:
    sizes = []
    for gaps in (100, 1000):
        sequencer, spacing = Sequencer(), 1_000_000 // gaps
        for start in range(1, 1_000_000, spacing):
            decide(sequencer, GiveUp(start))
            numbers = range(start + 1, start + spacing)
            sequencer.receive([MessageHeader(number, b"digest", 1300) for number in numbers], T0_US)
            committed(sequencer)
        assert sequencer.next_number == 1_000_001
        assert len(sequencer.durable.received.lows) == gaps
        assert not sequencer.durable.buffered
        sizes.append(size_bytes(sequencer))
    few, many = sizes
    assert 8 * few < many < 11 * few


def test_state_grows_with_gaps_and_held_messages_only() -> None:
    sizes = []
    for gaps in (100, 1000):
        sequencer = Sequencer()
        received(sequencer, *range(2, 2 * gaps + 2, 2))
        sizes.append(size_bytes(sequencer))
        decide(sequencer, GiveUp(2 * gaps))
        sizes.append(size_bytes(sequencer))
    buffered, lost, more_buffered, more_lost = sizes
    # Ten times the gaps, and longer numbers.
    assert more_buffered < 15 * buffered
    assert more_lost < 15 * lost
    assert lost < buffered


def test_shuffled_messages_leave_no_trace() -> None:
    sequencer = Sequencer()
    for start in range(1, 100_001, 100):
        received(sequencer, *range(start + 99, start - 1, -1))
    assert sequencer.next_number == 100_001
    assert size_bytes(sequencer) < 400


def test_deadlines_of_what_was_delivered_are_forgotten() -> None:
    sequencer = Sequencer()
    far_us = T0_US + 3600 * US
    for number in range(1, 10_000, 2):
        sequencer.receive(numbered(number + 1, expires_at_us=far_us), T0_US)
        sequencer.receive(numbered(number, expires_at_us=far_us), T0_US)
    assert sequencer.next_number == 10_001
    assert len(sequencer._window._expiries) < 100


def test_too_many_lost_messages_fail_the_sequence() -> None:
    sequencer = Sequencer(
        SequencerSettings(gap_policy=GapPolicy.SKIP, gap_deadline_s=0, limit_gaps=10)
    )
    for number in range(2, 22, 2):
        assert received(sequencer, number).deliver == [number]
    outcome = received(sequencer, 22)
    assert outcome.effects[-1] == SequenceFailed("the sequence has more than 10 gaps")
    assert sequencer.phase is SequencePhase.FAILED


@pytest.mark.parametrize("event", [Cancel, Fill])
def test_a_request_over_the_bound_is_refused_and_changes_nothing(
    event: type[Cancel | Fill],
) -> None:
    sequencer = Sequencer(SequencerSettings(limit_gaps=10))
    for number in range(2, 22, 2):
        decide(sequencer, event([(number, number)]))
    before = sequencer.checkpoint()
    with pytest.raises(SequenceRefusedError, match="more than 10 gaps") as caught:
        decide(sequencer, event([(22, 22)]))
    assert caught.value.refusal is Refusal.TOO_MANY_GAPS
    assert sequencer.checkpoint() == before
    # What closes a gap, or widens one, is always welcome.
    decide(sequencer, event([(3, 3)]))


def test_a_number_far_ahead_costs_nothing() -> None:
    sequencer = Sequencer(
        SequencerSettings(
            limit_jump=0, gap_policy=GapPolicy.WAIT, gap_attempts=0, gap_last_resort=LastResort.SKIP
        )
    )
    top = sequencer.settings.max_number
    assert received(sequencer, top).deliver == []
    assert len(msgspec.json.encode(sequencer.checkpoint())) < 500
    assert sequencer.tick(T0_US + 3600 * US).deliver == [top]
    assert refusals(received(sequencer, top + 1)) == [(top + 1, Refusal.OUT_OF_RANGE)]


def test_s6_what_was_delivered_or_came_anew_does_not_expire_by_its_first_deadline() -> None:
    sequencer = Sequencer(SequencerSettings(fault_policy=FaultPolicy.WAIT))
    sequencer.receive(numbered(2, 4, expires_at_us=T0_US + US), T0_US)
    sequencer.receive(numbered(1), T0_US)
    decide(sequencer, Fault(4, Refusal.UNPROCESSABLE))
    sequencer.receive(numbered(4, expires_at_us=T0_US + 3 * US), T0_US)
    outcome = sequencer.tick(T0_US + 2 * US)
    assert (outcome.dropped, outcome.ended) == ([], [])
    assert sequencer.tick(T0_US + 3 * US).dropped == [4]
