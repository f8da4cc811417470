"""The sequencer, rule by rule (S1 to S6) and by the specifications' own numbers."""

from __future__ import annotations

import pytest

from instep.sequencing.effects import ReportFault
from instep.sequencing.events import Cancel, Fault, Fill, Last, Reset, Terminate
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, IncompleteBehavior, SequencerSettings
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


def claims(sequencer: Sequencer) -> tuple[str, str]:
    """Return the acknowledged and cancelled ranges that are reported to the peer."""
    return str(sequencer.claims().acknowledged()), str(sequencer.claims().cancelled())


# -- receiving -----------------------------------------------------------------------------------


def test_s1_a_copy_is_acknowledged_again_and_not_delivered_again() -> None:
    sequencer = Sequencer()
    assert received(sequencer, 1, 3).deliver == [1]
    for copy in (1, 3):
        outcome = received(sequencer, copy)
        assert [message.number for message in outcome.duplicates] == [copy]
        assert (outcome.accepted, outcome.deliver, outcome.deviations) == ([], [], [])
        assert copy in sequencer.claims().acknowledged()


def test_s1_of_two_copies_that_come_together_the_first_counts() -> None:
    first, second = numbered(1)[0], numbered(1, content=b"other")[0]
    outcome = Sequencer().receive([first, second], T0_US)
    assert outcome.accepted[0] is first
    assert outcome.duplicates[0] is second
    assert outcome.deviations[0] is second


def test_s2_delivery_is_in_order_without_skipping() -> None:
    sequencer = Sequencer()
    assert received(sequencer, 5, 4, 2).deliver == []
    assert received(sequencer, 1).deliver == [1, 2]
    assert received(sequencer, 6).deliver == []
    assert received(sequencer, 3).deliver == [3, 4, 5, 6]
    assert (sequencer.buffered_messages, sequencer.buffered_bytes) == (0, 0)


def test_s2_no_number_is_skipped_but_one_that_needs_no_message() -> None:
    sequencer = Sequencer()
    sequencer.apply([Cancel([(3, 3)])], T0_US)
    assert received(sequencer, 5, 4).deliver == []
    assert received(sequencer, 1).deliver == [1]
    assert received(sequencer, 2).deliver == [2, 4, 5]


def test_s3_received_is_claimed_only_after_the_commit() -> None:
    sequencer = Sequencer()
    sequencer.receive(numbered(1, 2, 4), T0_US)
    decide(sequencer, Cancel([(3, 3)]))
    assert claims(sequencer) == ("", "")
    state = sequencer.checkpoint()
    sequencer.receive(numbered(5), T0_US)
    sequencer.committed(state)
    assert claims(sequencer) == ("1-2,4", "3")


def test_s3_a_commit_that_failed_is_as_if_nothing_had_come() -> None:
    sequencer = Sequencer()
    received(sequencer, 1, 3)
    before = sequencer.checkpoint()
    sequencer.receive(numbered(2, 5), T0_US)
    decide(sequencer, Cancel([(4, 4)]))
    sequencer.roll_back()
    assert sequencer.checkpoint() == before
    assert received(sequencer, 2).deliver == [2, 3]


def test_numbers_begin_where_the_protocol_says() -> None:
    sequencer = Sequencer(SequencerSettings(first_number=0, max_number=9))
    assert received(sequencer, 0).deliver == [0]
    outcome = Sequencer(SequencerSettings(max_number=9)).receive(numbered(0, -1, 10), T0_US)
    assert refusals(outcome) == [
        (10, Refusal.OUT_OF_RANGE),
        (-1, Refusal.OUT_OF_RANGE),
        (0, Refusal.OUT_OF_RANGE),
    ]


# -- WS-RM cancellation proposal -------------------------------------------------------------------


def test_s5_cancel_3_to_5() -> None:
    """Proposal 2 and 3: message 4 was received, so only 3 and 5 are cancelled, for ever."""
    sequencer = Sequencer()
    received(sequencer, 1, 2, 4)
    assert decide(sequencer, Cancel([(3, 5)])).deliver == [4]
    committed(sequencer)
    assert claims(sequencer) == ("1-2,4", "3,5")
    outcome = received(sequencer, 3, 5, 6)
    assert refusals(outcome) == [(3, Refusal.CANCELLED), (5, Refusal.CANCELLED)]
    assert outcome.deliver == [6]
    assert claims(sequencer) == ("1-2,4,6", "3,5")


def test_s5_cancellations_are_cumulative() -> None:
    """Proposal 3: the ranges MUST be cumulative of all cancelled messages in the sequence."""
    sequencer = Sequencer()
    decide(sequencer, Cancel([(1, 2)]))
    decide(sequencer, Cancel([(7, 9)]))
    assert claims(committed(sequencer)) == ("", "1-2,7-9")
    assert received(sequencer, 3).deliver == [3]


def test_closing_a_sequence_with_8_and_9_cancelled() -> None:
    """Proposal 4: 1-7 and 10 are acknowledged, 8-9 cancelled, and the sequence is complete."""
    sequencer = Sequencer()
    assert received(sequencer, *range(1, 8), 10).deliver == list(range(1, 8))
    decide(sequencer, Last(10))
    assert decide(sequencer, Cancel([(8, 9)])).deliver == [10]
    committed(sequencer)
    assert claims(sequencer) == ("1-7,10", "8-9")
    assert sequencer.phase is SequencePhase.COMPLETE
    assert not decide(sequencer, Terminate()).effects
    assert refusals(received(sequencer, 8, 11)) == [
        (11, Refusal.TERMINATED),
        (8, Refusal.TERMINATED),
    ]


def test_s5_fill_7_to_9() -> None:
    """Proposal 5: the gap joins the acknowledged ranges, which are compact again."""
    sequencer = Sequencer()
    received(sequencer, *range(1, 7), 10)
    decide(sequencer, Cancel([(8, 8)]))
    assert decide(sequencer, Fill([(7, 9)])).deliver == [10]
    assert claims(committed(sequencer)) == ("1-10", "")
    outcome = received(sequencer, 8)
    assert [message.number for message in outcome.duplicates] == [8]
    assert not outcome.deviations
    decide(sequencer, Cancel([(7, 9)]))
    assert claims(committed(sequencer)) == ("1-10", "")


def test_a_fill_ahead_takes_nothing_from_what_is_held() -> None:
    """Proposal 5: the ranges MAY overlap with what is acknowledged; that is still delivered."""
    sequencer = Sequencer()
    received(sequencer, 3)
    assert decide(sequencer, Fill([(2, 5)])).deliver == []
    assert received(sequencer, 1, 6).deliver == [1, 3, 6]


# -- WS-Reliability: expiry and faults -------------------------------------------------------------


def test_s6_an_undelivered_message_is_faulted_at_its_deadline_though_acknowledged() -> None:
    """Rel16: fault for what was not delivered, "even if the Acknowledgement messages were
    returned before".
    """
    sequencer = Sequencer(SequencerSettings(first_number=0))
    received(sequencer, 0)
    sequencer.receive(numbered(2, 3, 5, expires_at_us=T0_US + US), T0_US)
    assert str(committed(sequencer).claims().acknowledged()) == "0,2-3,5"
    assert sequencer.due_us() == T0_US + US
    assert not sequencer.tick(T0_US + US - 1).effects
    outcome = sequencer.tick(T0_US + US)
    assert outcome.effects == [ReportFault([(2, 3), (5, 5)], Refusal.EXPIRED)]
    assert outcome.dropped == [2, 3, 5]
    committed(sequencer)
    assert (str(sequencer.claims().acknowledged()), str(sequencer.claims().faulted())) == (
        "0",
        "2-3 (expired),5 (expired)",
    )
    assert received(sequencer, 1, 4, 6).deliver == [1, 4, 6]


def test_s6_an_expired_message_is_never_delivered_even_before_a_tick() -> None:
    sequencer = Sequencer()
    sequencer.receive(numbered(2, 3, expires_at_us=T0_US + US), T0_US)
    outcome = sequencer.receive(numbered(1), T0_US + US)
    assert (outcome.deliver, outcome.dropped) == ([1], [2, 3])
    late = sequencer.receive(numbered(5, expires_at_us=T0_US), T0_US + US)
    assert refusals(late) == [(5, Refusal.EXPIRED)]


def test_s6_an_ordered_group_may_be_aborted_by_an_expiry() -> None:
    aborts = SequencerSettings(fault_policy=FaultPolicy.FAIL, incomplete=IncompleteBehavior.FAULT)
    sequencer = Sequencer(aborts)
    sequencer.receive(numbered(2, expires_at_us=T0_US + US) + numbered(3), T0_US)
    outcome = sequencer.tick(T0_US + US)
    assert sequencer.phase is SequencePhase.FAILED
    assert outcome.dropped == [2, 3]
    assert outcome.effects[:2] == [
        ReportFault([(2, 2)], Refusal.EXPIRED),
        ReportFault([(3, 3)], Refusal.FAILED),
    ]
    assert refusals(received(sequencer, 1)) == [(1, Refusal.FAILED)]
    assert str(sequencer.claims().acknowledged()) == ""


def test_acknowledgement_may_wait_for_the_delivery() -> None:
    """WS-Reliability 1.1 acknowledges a message when it is made available to the consumer."""
    sequencer = Sequencer(SequencerSettings(acknowledge_buffered=False))
    received(sequencer, 1, 3)
    assert str(sequencer.claims().acknowledged()) == "1"
    received(sequencer, 2)
    assert str(sequencer.claims().acknowledged()) == "1-3"


# -- SDPi: MessageNumber ---------------------------------------------------------------------------


def test_r0800_the_first_message_of_a_session_is_number_1() -> None:
    sequencer = Sequencer()
    assert received(sequencer, 1).deliver == [1]
    decide(sequencer, Reset())
    assert received(sequencer, 1).deliver == [1]
    assert sequencer.epoch == 1


def test_r0801_a_repetition_is_no_gap_and_no_new_message() -> None:
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=0))
    assert not received(sequencer, 1, 1).effects
    assert not received(sequencer, 1).effects
    assert received(sequencer, 2).deliver == [2]


@pytest.mark.parametrize("held", [True, False])
def test_r0802_other_content_without_a_fault_is_a_deviation(held: bool) -> None:
    sequencer = Sequencer()
    number = 2 if held else 1
    received(sequencer, number)
    outcome = sequencer.receive(numbered(number, content=b"other"), T0_US)
    assert outcome.deviations == outcome.duplicates == numbered(number, content=b"other")
    assert not sequencer.receive(numbered(number), T0_US).deviations, "the first content counts"


@pytest.mark.parametrize("policy", [FaultPolicy.SKIP, FaultPolicy.WAIT])
@pytest.mark.parametrize("held", [True, False])
def test_r0802_after_a_fault_the_new_content_counts(policy: FaultPolicy, held: bool) -> None:
    sequencer = Sequencer(SequencerSettings(fault_policy=policy))
    if held:
        received(sequencer, 2)
    outcome = decide(sequencer, Fault(2, Refusal.UNPROCESSABLE))
    assert outcome.dropped == ([2] if held else [])
    assert str(committed(sequencer).claims().faulted()) == "2 (unprocessable)"
    again = sequencer.receive(numbered(2, content=b"shorter"), T0_US)
    assert again.accepted == numbered(2, content=b"shorter")
    assert (again.duplicates, again.deviations) == ([], [])
    assert received(sequencer, 1).deliver == [1, 2]
    assert (str(sequencer.claims().acknowledged()), str(sequencer.claims().faulted())) == (
        "1-2",
        "",
    )
    assert not sequencer.receive(numbered(2, content=b"shorter"), T0_US).deviations
    assert sequencer.receive(numbered(2), T0_US).deviations == numbered(2)


def test_a_faulted_number_is_passed_over_or_waited_for() -> None:
    for policy, delivered in ((FaultPolicy.SKIP, [1, 3]), (FaultPolicy.WAIT, [1])):
        sequencer = Sequencer(SequencerSettings(fault_policy=policy))
        decide(sequencer, Fault(2, Refusal.UNPROCESSABLE))
        assert received(sequencer, 3, 1).deliver == delivered
