"""Gaps: their deadlines, their policies, and what giving up means (S4)."""

from __future__ import annotations

import pytest

from instep.sequencing.effects import (
    AskResend,
    RealignSequence,
    ReportLoss,
    SequenceFailed,
)
from instep.sequencing.events import Announce, Cancel, Fill, GiveUp, Last
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
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

DEADLINE_S = 5.0
DEADLINE_US = int(DEADLINE_S) * US


def sequencer_with(policy: GapPolicy, last_resort: LastResort = LastResort.FAIL) -> Sequencer:
    return Sequencer(
        SequencerSettings(
            gap_policy=policy,
            gap_deadline_s=DEADLINE_S,
            gap_repeat_s=DEADLINE_S,
            gap_attempts=2,
            gap_last_resort=last_resort,
        )
    )


def test_s4_without_a_gap_nothing_is_due() -> None:
    sequencer = sequencer_with(GapPolicy.SKIP)
    received(sequencer, 1, 2)
    assert sequencer.due_us() is None
    assert not sequencer.tick(T0_US + 1000 * DEADLINE_US).effects


def test_s4_resend_asks_for_all_gaps_and_then_takes_the_last_resort() -> None:
    sequencer = sequencer_with(GapPolicy.RESEND, LastResort.SKIP)
    received(sequencer, 2, 5, 8)
    for attempt in (1, 2):
        assert sequencer.due_us() == T0_US + attempt * DEADLINE_US
        assert not sequencer.tick(T0_US + attempt * DEADLINE_US - 1).effects
        outcome = sequencer.tick(T0_US + attempt * DEADLINE_US)
        assert outcome.effects == [AskResend([(1, 1), (3, 4), (6, 7)])]
    received(sequencer, 3, now_us=T0_US + 2 * DEADLINE_US)
    # Every gap was asked for twice, so the deadline that comes is the last for all of them.
    outcome = sequencer.tick(T0_US + 3 * DEADLINE_US)
    assert outcome.deliver == [2, 3, 5, 8]
    assert outcome.effects == [
        ReportLoss([(low, high)], "did not come in time") for low, high in [(1, 1), (4, 4), (6, 7)]
    ]
    assert refusals(received(sequencer, 4)) == [(4, Refusal.GIVEN_UP)]
    assert str(sequencer.claims().acknowledged()) == "2-3,5,8"


def test_s4_a_gap_that_was_never_asked_for_is_asked_for_first() -> None:
    sequencer = sequencer_with(GapPolicy.RESEND, LastResort.SKIP)
    received(sequencer, 2)
    sequencer.tick(T0_US + DEADLINE_US)
    sequencer.tick(T0_US + 2 * DEADLINE_US)
    received(sequencer, 4, now_us=T0_US + 2 * DEADLINE_US)
    outcome = sequencer.tick(T0_US + 3 * DEADLINE_US)
    assert outcome.deliver == [2]
    assert outcome.effects == [
        ReportLoss([(1, 1)], "did not come in time"),
        AskResend([(3, 3)]),
    ]


def test_s4_wait_is_bounded_too() -> None:
    sequencer = sequencer_with(GapPolicy.WAIT, LastResort.FAIL)
    received(sequencer, 2, 3)
    assert not sequencer.tick(T0_US + DEADLINE_US).effects
    assert not sequencer.tick(T0_US + 2 * DEADLINE_US).effects
    outcome = sequencer.tick(T0_US + 3 * DEADLINE_US)
    assert outcome.effects == [SequenceFailed("messages 1 did not come in time")]
    assert (outcome.dropped, sequencer.buffered_messages) == ([], 2)
    assert sequencer.due_us() is None


def test_s4_realign_is_asked_for_again_until_it_is_done() -> None:
    sequencer = sequencer_with(GapPolicy.REALIGN)
    received(sequencer, 3)
    for attempt in (1, 2, 3):
        outcome = sequencer.tick(T0_US + attempt * DEADLINE_US)
        assert outcome.effects == [RealignSequence([(1, 2)])]
    assert decide(sequencer, GiveUp(2, "realigned"), T0_US + 4 * DEADLINE_US).deliver == [3]
    assert sequencer.due_us() is None


def test_r1031_a_gap_may_ask_for_realignment_at_once() -> None:
    """SDPi R1031: a number that is skipped means reconnect or fail-safe, without waiting."""
    sequencer = Sequencer(SequencerSettings(gap_policy=GapPolicy.REALIGN, gap_deadline_s=0))
    assert received(sequencer, 1, 3).effects == [RealignSequence([(2, 2)])]
    assert sequencer.due_us() == T0_US + 5 * US, "and again, but not in a busy loop"


def test_s4_a_gap_that_closes_is_forgotten_and_the_next_has_its_own_deadline() -> None:
    sequencer = sequencer_with(GapPolicy.SKIP)
    received(sequencer, 2)
    received(sequencer, 4, now_us=T0_US + 3 * US)
    received(sequencer, 1, now_us=T0_US + 4 * US)
    assert sequencer.due_us() == T0_US + 3 * US + DEADLINE_US


def test_s4_time_away_is_not_held_against_the_sender() -> None:
    sequencer = sequencer_with(GapPolicy.SKIP)
    received(sequencer, 2)
    restarted = Sequencer(sequencer.settings, sequencer.durable)
    restarted.resume(T0_US + 1000 * US)
    assert not restarted.tick(T0_US + 1000 * US).effects
    assert restarted.due_us() == T0_US + 1000 * US + DEADLINE_US


def test_deadlines_and_attempts_survive_a_crash() -> None:
    sequencer = sequencer_with(GapPolicy.RESEND)
    sequencer.receive(numbered(2), T0_US)
    sequencer.tick(T0_US + DEADLINE_US)
    sequencer.tick(T0_US + 2 * DEADLINE_US)
    restarted = Sequencer(sequencer.settings, committed(sequencer).durable)
    assert restarted.due_us() == T0_US + 3 * DEADLINE_US
    restarted.tick(T0_US + 3 * DEADLINE_US)
    assert restarted.phase is SequencePhase.FAILED


def test_a_tail_that_was_announced_is_missing_too() -> None:
    """WS-RM 1.0 MaxMessageNumberUsed: nothing is held, and yet messages are missing."""
    sequencer = sequencer_with(GapPolicy.RESEND)
    received(sequencer, 1)
    decide(sequencer, Announce(3))
    decide(sequencer, Announce(4), T0_US + US)
    outcome = sequencer.tick(T0_US + DEADLINE_US)
    assert outcome.effects == [AskResend([(2, 4)])]
    received(sequencer, 2, 3, 4)
    assert sequencer.due_us() is None


def test_what_is_cancelled_or_filled_is_not_asked_for() -> None:
    sequencer = sequencer_with(GapPolicy.RESEND)
    received(sequencer, 9)
    decide(sequencer, Cancel([(3, 4)]))
    decide(sequencer, Fill([(6, 7)]))
    outcome = sequencer.tick(T0_US + DEADLINE_US)
    assert outcome.effects == [AskResend([(1, 2), (5, 5), (8, 8)])]


def test_give_up_delivers_what_is_held_up_to_there_and_refuses_the_rest() -> None:
    sequencer = Sequencer()
    received(sequencer, 2, 5, 9)
    outcome = decide(sequencer, GiveUp(6, "the operator said so"))
    assert outcome.deliver == [2, 5]
    assert outcome.effects == [ReportLoss([(1, 1), (3, 4), (6, 6)], "the operator said so")]
    late = received(sequencer, 1, 3, 6, 7)
    assert refusals(late) == [(n, Refusal.GIVEN_UP) for n in (1, 3, 6)]
    assert [message.number for message in late.accepted] == [7]
    assert str(sequencer.durable.received) == "2,5,7,9"


@pytest.mark.parametrize("number", [0, 1 << 63])
def test_what_cannot_be_announced_is_refused(number: int) -> None:
    sequencer = Sequencer()
    for event in (Announce(number), GiveUp(number), Last(number)):
        before = sequencer.checkpoint()
        with pytest.raises(SequenceRefusedError, match="is not within the numbers 1-"):
            decide(sequencer, event)
        assert sequencer.checkpoint() == before


def test_no_time_passes_for_a_gap_while_its_request_waits_to_be_sent() -> None:
    """It counts when it was sent, however long that takes (S12)."""
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=5, gap_repeat_s=5, gap_attempts=1))
    received(sequencer, 2)
    assert sequencer.tick(T0_US + 5 * US).effects == [AskResend([(1, 1)])]
    sequencer.note_request_queued()
    for second in range(6, 100):
        due_us = sequencer.due_us()
        assert due_us is not None
        # It is looked at again, and not at once: a timer in the store neither ends nor spins.
        now_us = T0_US + second * US
        assert sequencer.tick(now_us).effects == []
        assert now_us < (sequencer.due_us() or 0) <= now_us + 5 * US
    sequencer.note_request_sent(T0_US + 100 * US)
    assert sequencer.due_us() == T0_US + 105 * US
    assert sequencer.tick(T0_US + 104 * US).effects == []
    failed = sequencer.tick(T0_US + 105 * US).effects
    assert any(isinstance(effect, SequenceFailed) for effect in failed)


def test_a_request_that_is_sent_at_once_needs_no_word() -> None:
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=5, gap_repeat_s=5))
    received(sequencer, 2)
    sequencer.tick(T0_US + 5 * US)
    sequencer.note_request_sent(T0_US + 9 * US)
    assert sequencer.due_us() == T0_US + 10 * US
