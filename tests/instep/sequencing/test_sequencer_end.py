"""The end of a sequence: last number, close, terminate, fail, reset; what is illegal changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.model.state_machine import IllegalTransition
from instep.sequencing.effects import ReportFault, ReportLoss
from instep.sequencing.events import (
    Announce,
    Cancel,
    Close,
    Fault,
    Fill,
    GiveUp,
    Last,
    Reset,
    Resume,
    Terminate,
)
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, IncompleteBehavior, SequencerSettings
from instep.sequencing.transitions import (
    REFUSALS,
    SEQUENCE_TRANSITIONS,
    Refusal,
    SequenceEvent,
    SequencePhase,
    SequenceRefusedError,
    phase_after,
    phase_after_request,
)
from tests.instep.sequencing.sequencer_kit import (
    T0_US,
    committed,
    decide,
    numbered,
    received,
    refusals,
)


def in_phase(phase: SequencePhase) -> Sequencer:
    """A sequence that came to a phase, with 1 delivered, and 3 held where that is possible."""
    sequencer = Sequencer(SequencerSettings(fault_policy=FaultPolicy.FAIL))
    received(sequencer, 1)
    if phase is SequencePhase.COMPLETE:
        received(sequencer, 2, 3)
    else:
        received(sequencer, 3)
    if phase in (SequencePhase.ENDING, SequencePhase.COMPLETE):
        decide(sequencer, Last(3))
    elif phase is SequencePhase.CLOSED:
        decide(sequencer, Close())
    elif phase is SequencePhase.FAILED:
        decide(sequencer, Fault(2, Refusal.EXPIRED))
    elif phase is SequencePhase.TERMINATED:
        decide(sequencer, Terminate())
    assert sequencer.phase is phase
    return committed(sequencer)


EVENTS: dict[SequenceEvent, Callable[[Sequencer], object]] = {
    SequenceEvent.LAST_KNOWN: lambda sequencer: decide(sequencer, Last(3)),
    SequenceEvent.CLOSE: lambda sequencer: decide(sequencer, Close()),
    SequenceEvent.TERMINATE: lambda sequencer: decide(sequencer, Terminate()),
    SequenceEvent.RESET: lambda sequencer: decide(sequencer, Reset()),
}


@pytest.mark.parametrize("phase", SequencePhase)
@pytest.mark.parametrize("event", EVENTS)
def test_an_event_moves_the_phase_as_the_table_says_or_is_refused(
    phase: SequencePhase, event: SequenceEvent
) -> None:
    sequencer = in_phase(phase)
    before = sequencer.checkpoint()
    if event in SEQUENCE_TRANSITIONS[phase]:
        EVENTS[event](sequencer)
        assert sequencer.phase is SEQUENCE_TRANSITIONS[phase][event]
    else:
        with pytest.raises(SequenceRefusedError) as caught:
            EVENTS[event](sequencer)
        assert caught.value.refusal is REFUSALS[phase]
        assert sequencer.checkpoint() == before


@pytest.mark.parametrize("phase", REFUSALS)
def test_a_phase_that_has_ended_accepts_nothing_new_and_repeats_its_acknowledgement(
    phase: SequencePhase,
) -> None:
    sequencer = in_phase(phase)
    before = sequencer.checkpoint()
    outcome = sequencer.receive(numbered(1, 4), T0_US)
    copies = [message.number for message in outcome.duplicates]
    if phase is SequencePhase.TERMINATED:
        assert refusals(outcome) == [(4, Refusal.TERMINATED), (1, Refusal.TERMINATED)]
        assert copies == []
    else:
        assert refusals(outcome) == [(4, REFUSALS[phase])]
        assert copies == [1]
    assert (outcome.accepted, outcome.deliver) == ([], [])
    if phase is not SequencePhase.FAILED:
        assert not decide(sequencer, GiveUp(9)).effects
    with pytest.raises(SequenceRefusedError):
        decide(sequencer, Fault(9, Refusal.UNPROCESSABLE))
    assert sequencer.checkpoint() == before


@pytest.mark.parametrize(
    "phase", [SequencePhase.CLOSED, SequencePhase.FAILED, SequencePhase.TERMINATED]
)
def test_a_final_acknowledgement_is_never_changed(phase: SequencePhase) -> None:
    sequencer = in_phase(phase)
    before = sequencer.checkpoint()
    with pytest.raises(SequenceRefusedError, match=f"the sequence is {phase}"):
        decide(sequencer, Fill([(2, 2)]))
    if phase is SequencePhase.CLOSED:
        acknowledged = sequencer.claims().acknowledged()
        decide(sequencer, Cancel([(1, 5)]))
        committed(sequencer)
        assert (sequencer.claims().acknowledged(), str(sequencer.claims().cancelled())) == (
            acknowledged,
            "2,4-5",
        )
    else:
        with pytest.raises(SequenceRefusedError, match=f"the sequence is {phase}"):
            decide(sequencer, Cancel([(2, 2)]))
        assert sequencer.checkpoint() == before


def test_lower_numbers_are_accepted_after_the_last_one() -> None:
    """WS-RM 1.0 LastMessage; a group is not complete while lower numbers are missing."""
    sequencer = Sequencer(SequencerSettings(first_number=0))
    received(sequencer, 0, 3)
    decide(sequencer, Last(3))
    assert refusals(received(sequencer, 4)) == [(4, Refusal.BEYOND_LAST)]
    assert received(sequencer, 2, 1).deliver == [1, 2, 3]
    assert sequencer.phase is SequencePhase.COMPLETE
    assert refusals(received(sequencer, 4)) == [(4, Refusal.BEYOND_LAST)]


@pytest.mark.parametrize("number", [4, 2])
def test_a_last_number_that_cannot_be_is_refused(number: int) -> None:
    sequencer = in_phase(SequencePhase.ENDING)
    before = sequencer.checkpoint()
    reason = f"{number} cannot be the last: 3 is"
    with pytest.raises(SequenceRefusedError, match=reason):
        decide(sequencer, Last(number))
    with pytest.raises(SequenceRefusedError, match=reason):
        decide(sequencer, Close(number))
    decide(sequencer, Last(3))
    assert sequencer.checkpoint() == before, "saying the same again is no harm"


def test_a_last_number_below_one_received_is_refused() -> None:
    sequencer = Sequencer()
    received(sequencer, 1, 5)
    before = sequencer.checkpoint()
    with pytest.raises(SequenceRefusedError, match="4 cannot be the last: 5 was used"):
        decide(sequencer, Last(4))
    assert sequencer.checkpoint() == before


def test_after_the_last_number_nothing_is_filled_or_announced() -> None:
    sequencer = in_phase(SequencePhase.ENDING)
    with pytest.raises(SequenceRefusedError, match="2-4 reaches beyond the last, 3") as caught:
        decide(sequencer, Fill([(2, 4)]))
    assert caught.value.refusal is Refusal.BEYOND_LAST
    with pytest.raises(SequenceRefusedError, match="4 is beyond the last, 3"):
        decide(sequencer, Announce(4))


def test_closing_delivers_what_is_held_and_reports_what_is_lost() -> None:
    """WS-RM 1.1 NoDiscard, with the LastMsgNumber of CloseSequence."""
    sequencer = Sequencer()
    received(sequencer, 1, 3, 6)
    outcome = decide(sequencer, Close(8))
    assert outcome.deliver == [3, 6]
    assert outcome.effects == [
        ReportLoss([(2, 2), (4, 5), (7, 8)], "the sequence was closed"),
    ]
    assert str(committed(sequencer).claims().acknowledged()) == "1,3,6"
    assert refusals(received(sequencer, 2)) == [(2, Refusal.CLOSED)]
    assert not decide(sequencer, Terminate()).effects


def test_closing_may_discard_what_follows_the_first_gap() -> None:
    """WS-RM 1.1 DiscardFollowingFirstGap; the final acknowledgement still covers what was
    received.
    """
    sequencer = Sequencer(SequencerSettings(incomplete=IncompleteBehavior.DISCARD))
    received(sequencer, 1, 3, 6)
    outcome = decide(sequencer, Terminate())
    assert (outcome.deliver, outcome.dropped) == ([], [3, 6])
    assert outcome.effects == [ReportLoss([(2, 6)], "the sequence was terminated")]
    assert str(committed(sequencer).claims().acknowledged()) == "1,3,6"


def test_what_the_close_discards_is_not_acknowledged_where_delivery_is() -> None:
    """WS-Reliability 1.1: an acknowledgement says that the message was delivered."""
    settings = SequencerSettings(incomplete=IncompleteBehavior.DISCARD, acknowledge_buffered=False)
    sequencer = Sequencer(settings)
    received(sequencer, 1, 3)
    assert decide(sequencer, Close()).dropped == [3]
    assert str(committed(sequencer).claims().acknowledged()) == "1"


@pytest.mark.parametrize("acknowledge_buffered", [True, False])
def test_s6_the_close_faults_what_it_leaves_undelivered_though_acknowledged(
    acknowledge_buffered: bool,
) -> None:
    settings = SequencerSettings(
        incomplete=IncompleteBehavior.FAULT, acknowledge_buffered=acknowledge_buffered
    )
    sequencer = Sequencer(settings)
    received(sequencer, 1, 3, 4)
    outcome = decide(sequencer, Close())
    assert (outcome.deliver, outcome.dropped) == ([], [3, 4])
    assert outcome.effects == [ReportFault([(3, 4)], Refusal.CLOSED)]
    committed(sequencer)
    assert (str(sequencer.claims().acknowledged()), str(sequencer.claims().faulted())) == (
        "1",
        "3-4 (closed)",
    )


def test_a_reset_forgets_the_old_numbers_and_reports_what_it_drops() -> None:
    sequencer = in_phase(SequencePhase.ENDING)
    outcome = decide(sequencer, Reset())
    assert outcome.dropped == [3]
    assert outcome.effects == [ReportLoss([(3, 3)], "the sequence began to count anew")]
    assert sequencer.receive(numbered(1, content=b"new"), T0_US).deliver == [1]
    assert str(committed(sequencer).claims().acknowledged()) == "1"
    assert (sequencer.epoch, sequencer.last_number) == (1, None)


def test_what_comes_with_the_failure_is_refused_and_not_kept() -> None:
    aborts = SequencerSettings(fault_policy=FaultPolicy.FAIL, incomplete=IncompleteBehavior.FAULT)
    sequencer = Sequencer(aborts)
    received(sequencer, 1, 3)
    outcome = sequencer.receive(numbered(4) + numbered(5, expires_at_us=T0_US), T0_US)
    assert refusals(outcome) == [(4, Refusal.FAILED), (5, Refusal.EXPIRED)]
    assert (outcome.accepted, outcome.dropped) == ([], [3])
    committed(sequencer)
    assert (str(sequencer.claims().acknowledged()), str(sequencer.claims().faulted())) == (
        "1",
        "3-4 (failed),5 (expired)",
    )


def test_s7_a_copy_of_what_came_anew_after_a_fault_is_compared_with_that() -> None:
    fails = SequencerSettings(
        fault_policy=FaultPolicy.WAIT,
        gap_policy=GapPolicy.FAIL,
        incomplete=IncompleteBehavior.FAULT,
    )
    sequencer = Sequencer(fails)
    sequencer.receive(numbered(2, content=b"old"), T0_US)
    sequencer.tick(sequencer.due_us() or 0)
    decide(sequencer, Resume())
    assert sequencer.receive(numbered(1, 2, content=b"new"), T0_US).deliver == [1, 2]
    assert sequencer.receive(numbered(2, content=b"new"), T0_US).deviations == []
    assert sequencer.receive(numbered(2, content=b"old"), T0_US).deviations != []


def test_new_content_may_come_with_the_event_that_drops_the_old() -> None:
    """The order of an outcome: forget first, then keep."""
    sequencer = Sequencer()
    sequencer.receive(numbered(2, expires_at_us=T0_US + 1), T0_US)
    outcome = sequencer.receive(numbered(2, content=b"new"), T0_US + 1)
    assert (outcome.dropped, outcome.accepted) == ([2], numbered(2, content=b"new"))


def test_what_was_delivered_or_filled_cannot_be_faulted() -> None:
    sequencer = Sequencer()
    received(sequencer, 1)
    decide(sequencer, Fill([(5, 5)]))
    before = sequencer.checkpoint()
    for number in (1, 5):
        with pytest.raises(SequenceRefusedError, match=f"message {number} is settled"):
            decide(sequencer, Fault(number, Refusal.UNPROCESSABLE))
    assert sequencer.checkpoint() == before


def test_the_table_names_every_phase() -> None:
    assert set(SEQUENCE_TRANSITIONS) == set(SequencePhase)


@pytest.mark.parametrize("phase", SequencePhase)
@pytest.mark.parametrize("event", SequenceEvent)
def test_what_is_not_listed_is_a_refusal_of_the_peer_and_a_mistake_of_the_driver(
    phase: SequencePhase, event: SequenceEvent
) -> None:
    """No pair raises anything else: COMPLETED while open, say, which no peer can ask for."""
    if event in SEQUENCE_TRANSITIONS[phase]:
        assert phase_after(phase, event) is phase_after_request(phase, event)
        return
    with pytest.raises(IllegalTransition, match=f"{event} is not possible while {phase}"):
        phase_after(phase, event)
    if phase in REFUSALS:
        with pytest.raises(SequenceRefusedError, match=f"{event} is not possible while") as caught:
            phase_after_request(phase, event)
        assert caught.value.refusal is REFUSALS[phase]
    else:
        with pytest.raises(IllegalTransition):
            phase_after_request(phase, event)


@pytest.mark.parametrize("policy", FaultPolicy)
def test_s13_what_a_failed_sequence_kept_may_expire_after_its_end(policy: FaultPolicy) -> None:
    sequencer = Sequencer(SequencerSettings(fault_policy=policy, gap_policy=GapPolicy.FAIL))
    due_us = T0_US + 3_600_000_000
    sequencer.receive([*numbered(1), *numbered(3, expires_at_us=due_us + 1_000_000)], T0_US)
    sequencer.tick(due_us)
    phases = [sequencer.phase]
    sequencer.apply([Terminate()], due_us)
    committed(sequencer)
    decision = sequencer.tick(due_us + 1_000_000)
    phases.append(sequencer.phase)
    assert phases == [SequencePhase.FAILED, SequencePhase.TERMINATED]
    assert decision.effects == [ReportFault([(3, 3)], Refusal.EXPIRED)]
    assert decision.dropped == [3]
