"""Without order: once each, at once (AtMostOnce and ExactlyOnce without InOrder)."""

from __future__ import annotations

import pytest

from instep.sequencing.effects import AskResend, ReportLoss, SequenceFailed
from instep.sequencing.events import Cancel, Last
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal, SequencePhase
from tests.instep.sequencing.sequencer_kit import (
    T0_US,
    US,
    committed,
    decide,
    numbered,
    received,
    refusals,
)

UNORDERED = SequencerSettings(
    ordered=False, gap_attempts=1, gap_last_resort=LastResort.SKIP, limit_messages=0
)


def test_a_message_is_released_at_once_and_once() -> None:
    sequencer = Sequencer(UNORDERED)
    assert received(sequencer, 5, 2).deliver == [2, 5]
    assert received(sequencer, 2, 5, 1, 3).deliver == [1, 3]
    outcome = received(sequencer, 3, 4, 5)
    assert (outcome.deliver, outcome.duplicates) == ([4], numbered(3, 5))
    assert (sequencer.next_number, sequencer.buffered_messages) == (6, 0)
    assert str(sequencer.claims().acknowledged()) == "1-5"
    assert sequencer.due_us() is None
    assert sequencer.take_next(numbered(6), T0_US) == [6], "the quick way is open again"


def test_what_was_released_ahead_survives_a_crash() -> None:
    sequencer = Sequencer(UNORDERED)
    received(sequencer, 3)
    restarted = Sequencer(UNORDERED, committed(sequencer).durable)
    assert received(restarted, 3).duplicates == numbered(3)
    assert received(restarted, 1, 2).deliver == [1, 2]
    assert restarted.next_number == 4


def test_s4_a_gap_is_asked_for_and_given_up_though_nothing_waits_for_it() -> None:
    sequencer = Sequencer(UNORDERED)
    received(sequencer, 1, 4)
    assert sequencer.due_us() == T0_US + 5 * US
    assert sequencer.tick(T0_US + 5 * US).effects == [AskResend([(2, 3)])]
    outcome = sequencer.tick(T0_US + 10 * US)
    assert outcome.effects == [ReportLoss([(2, 3)], "did not come in time")]
    assert (outcome.deliver, sequencer.next_number) == ([], 5)
    assert refusals(received(sequencer, 2)) == [(2, Refusal.GIVEN_UP)]
    assert sequencer.due_us() is None


def test_cancelled_and_expired_numbers_are_refused_out_of_order_too() -> None:
    sequencer = Sequencer(UNORDERED)
    decide(sequencer, Cancel([(3, 3)]))
    outcome = sequencer.receive(numbered(3, 5) + numbered(4, expires_at_us=T0_US), T0_US)
    assert refusals(outcome) == [(3, Refusal.CANCELLED), (4, Refusal.EXPIRED)]
    assert outcome.deliver == [5]


def test_s8_gaps_are_bounded() -> None:
    sequencer = Sequencer(
        SequencerSettings(ordered=False, limit_gaps=10, gap_policy=GapPolicy.RESEND)
    )
    outcome = sequencer.receive(numbered(*range(2, 30, 2)), T0_US)
    assert isinstance(outcome.effects[-1], SequenceFailed)
    assert sequencer.phase is SequencePhase.FAILED


@pytest.mark.parametrize("last", [4, 5])
def test_the_end_needs_all_numbers_in_any_order(last: int) -> None:
    sequencer = Sequencer(UNORDERED)
    received(sequencer, 4, 2)
    decide(sequencer, Last(last))
    assert str(sequencer.phase) == "ending"
    received(sequencer, *range(last, 0, -1))
    assert str(sequencer.phase) == "complete"
