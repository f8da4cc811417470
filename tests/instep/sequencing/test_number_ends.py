"""How numbers end, and what an operator does about it (S13)."""

from __future__ import annotations

import pytest

from instep.model.ranges import Ranges
from instep.sequencing.effects import Decision
from instep.sequencing.ends import NumberEnd, RecordedEnd, resolve_ends
from instep.sequencing.events import (
    Cancel,
    Close,
    Fill,
    GiveUp,
    Realigned,
    Receive,
    Replayed,
    Reset,
    Resume,
)
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.operator_actions import OperatorAction, why_not
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, IncompleteBehavior, SequencerSettings
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

FAILING = SequencerSettings(gap_policy=GapPolicy.FAIL, gap_deadline_s=1)


def ends(outcome: Decision) -> list[tuple[int, int, str]]:
    return [(one.low, one.high, one.end.value) for one in outcome.ended]


def resolved(sequencer: Sequencer, *outcomes: Decision) -> str:
    """What became of each number, as a driver's record says it."""
    recorded = [
        RecordedEnd(
            low=one.low, high=one.high, end=one.end, reason=one.reason, by=one.by, epoch=one.epoch
        )
        for outcome in outcomes
        for one in outcome.ended
    ]
    state = sequencer.checkpoint()
    held = Ranges.of_numbers(one.number for one in state.buffered)
    found = resolve_ends(state, held, recorded)
    return " ".join(f"{Ranges.of((one.low, one.high))}:{one.end}" for one in found)


def failed_with(*numbers: int) -> Sequencer:
    sequencer = Sequencer(FAILING)
    received(sequencer, *numbers)
    sequencer.tick(T0_US + US)
    assert sequencer.phase is SequencePhase.FAILED
    return committed(sequencer)


@pytest.mark.parametrize(
    ("kept", "refused", "recorded"),
    [(2, 3, [(2, 2, "failed"), (1, 1, "lost")]), (3, 2, [(3, 3, "failed"), (1, 2, "lost")])],
)
def test_s13_what_comes_with_the_close_is_refused_and_has_an_end_where_delivery_passes_it(
    kept: int, refused: int, recorded: list[tuple[int, int, str]]
) -> None:
    sequencer = Sequencer(SequencerSettings(incomplete=IncompleteBehavior.DISCARD))
    received(sequencer, kept)
    committed(sequencer)
    closing = sequencer.apply([Receive(numbered(refused)), Close()], T0_US)
    assert [message.number for message, _ in closing.refused] == [refused]
    assert ends(closing) == recorded
    assert sequencer.next_number - 1 == kept


def test_s13_each_number_has_an_end() -> None:
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=100))
    told = [
        received(sequencer, 1, 4),
        sequencer.receive(numbered(6, expires_at_us=T0_US + US), T0_US),
        decide(sequencer, Cancel([(2, 2)])),
        decide(sequencer, Fill([(3, 3)])),
        sequencer.tick(T0_US + US),
        decide(sequencer, GiveUp(5)),
        sequencer.receive(numbered(9, expires_at_us=T0_US), T0_US + US),
        received(sequencer, 8, now_us=T0_US + US),
    ]
    assert resolved(sequencer, *told) == (
        "1:delivered 2:cancelled 3:filled 4:delivered 5:lost 6:expired 9:expired"
    )
    assert sum(len(outcome.ended) for outcome in told) == 5, "a delivery needs no record"


def test_s13_what_expired_is_not_lost_as_well() -> None:
    for policy in FaultPolicy.WAIT, FaultPolicy.SKIP:
        sequencer = Sequencer(SequencerSettings(gap_deadline_s=100, fault_policy=policy))
        received(sequencer, 1, 4)
        told = [sequencer.receive(numbered(3, expires_at_us=T0_US + US), T0_US)]
        told += [sequencer.tick(T0_US + US), decide(sequencer, GiveUp(3))]
        assert resolved(sequencer, *told) == "1:delivered 2:lost 3:expired 4:delivered"


def test_s13_what_is_replayed_counts_as_received() -> None:
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=100, fault_policy=FaultPolicy.WAIT))
    received(sequencer, 1, 3)
    sequencer.receive(numbered(2, expires_at_us=T0_US), T0_US)
    assert decide(sequencer, Replayed(2)).deliver == [3]
    assert sequencer.next_number == 4
    assert [one.number for one in received(sequencer, 2).duplicates] == [2]
    state = sequencer.checkpoint()
    assert decide(sequencer, Replayed(9)).deliver == []
    assert sequencer.checkpoint() == state, "what was not faulted stays as it is"


def recorded(low: int, high: int, end: NumberEnd, **changes: str) -> RecordedEnd:
    return RecordedEnd(low=low, high=high, end=end, **changes)  # type: ignore[arg-type]


def told(ends: list[RecordedEnd]) -> str:
    return " ".join(f"{Ranges.of((one.low, one.high))}:{one.end}" for one in ends)


def test_s13_what_an_operator_delivered_stays_delivered() -> None:
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=100, fault_policy=FaultPolicy.WAIT))
    sequencer.receive(numbered(1, expires_at_us=T0_US), T0_US)
    decide(sequencer, Close())
    rows = [
        recorded(1, 1, NumberEnd.EXPIRED),
        recorded(1, 1, NumberEnd.DELIVERED, by="operator"),
    ]
    assert ends(decide(sequencer, Cancel([(1, 2)]))) == [(1, 2, "cancelled")]
    rows.append(recorded(1, 2, NumberEnd.CANCELLED, by="sender"))
    assert told(resolve_ends(sequencer.checkpoint(), Ranges(), rows)) == "1:delivered 2:cancelled"


def test_s13_what_is_trimmed_is_told_as_such_and_as_nothing_else() -> None:
    """Not as delivered, where it counts as received; and not where numbers are missing still."""
    sequencer = Sequencer(SequencerSettings(gap_deadline_s=100))
    decide(sequencer, Fill([(1, 2)]))
    received(sequencer, 3)
    decide(sequencer, Cancel([(4, 4), (7, 7)]))
    received(sequencer, 9)
    rows = [recorded(9, 9, NumberEnd.LOST), recorded(1, 7, NumberEnd.TRIMMED)]
    held = Ranges.of((9, 9))
    found = resolve_ends(sequencer.checkpoint(), held, rows)
    assert told(found) == "1-4:trimmed 7:trimmed"
    rows.append(recorded(2, 2, NumberEnd.LOST))
    found = resolve_ends(sequencer.checkpoint(), held, rows)
    assert told(found) == "1:trimmed 2:lost 3-4:trimmed 7:trimmed"
    assert told(resolve_ends(None, Ranges(), rows)) == "1:trimmed 2:lost 3-7:trimmed 9:lost"


def test_s13_what_is_dropped_has_an_end_with_its_reason() -> None:
    sequencer = Sequencer(SequencerSettings(incomplete=IncompleteBehavior.DISCARD))
    received(sequencer, 1, 3)
    outcome = decide(sequencer, Close(4))
    assert ends(outcome) == [(3, 3, "failed"), (2, 2, "lost"), (4, 4, "lost")]
    assert (outcome.dropped, outcome.ended[0].discarded) == ([3], True)
    faulting = Sequencer(SequencerSettings(incomplete=IncompleteBehavior.FAULT))
    received(faulting, 1, 3)
    outcome = decide(faulting, Close())
    assert ends(outcome) == [(3, 3, "failed"), (2, 2, "lost")]
    assert [one.told for one in outcome.ended] == [True, False]


def test_s13_content_after_a_fault_has_an_end_of_its_own() -> None:
    sequencer = Sequencer(SequencerSettings(fault_policy=FaultPolicy.WAIT, gap_deadline_s=100))
    first = sequencer.receive(numbered(2, expires_at_us=T0_US + US), T0_US)
    expired = sequencer.tick(T0_US + US)
    assert resolved(sequencer, first, expired) == "2:expired"
    again = received(sequencer, 2, now_us=T0_US + US)
    assert resolved(sequencer, first, expired, again) == "", "it is held"
    last = received(sequencer, 1, now_us=T0_US + US)
    assert resolved(sequencer, first, expired, again, last) == "1-2:delivered"


def test_s13_a_copy_that_has_expired_adds_nothing_to_the_record() -> None:
    sequencer = Sequencer()
    for count in (1, 0, 0):
        outcome = sequencer.receive(numbered(2, expires_at_us=T0_US), T0_US)
        assert len(outcome.ended) == count


def test_s13_a_reset_keeps_what_became_of_the_old_numbers() -> None:
    sequencer = Sequencer()
    received(sequencer, 1, 3)
    told = decide(sequencer, Reset())
    assert (told.dropped, told.dropped_bytes) == ([3], {3: 10})
    again = received(sequencer, 1)
    assert resolved(sequencer, told, again) == "1:delivered 2:lost 3:failed 1:delivered"


def test_s13_what_was_obtained_in_another_way_is_filled() -> None:
    sequencer = Sequencer()
    received(sequencer, 1, 3)
    assert ends(decide(sequencer, Realigned(3))) == [(2, 2, "filled"), (3, 3, "failed")]


def test_a_failed_sequence_is_frozen_and_resumes() -> None:
    sequencer = failed_with(1, 3, 4)
    assert (sequencer.buffered_messages, sequencer.reason) == (2, "messages 2 did not come in time")
    assert refusals(received(sequencer, 2)) == [(2, Refusal.FAILED)]
    assert [m.number for m in received(sequencer, 3).duplicates] == [3]
    decide(sequencer, Resume(), T0_US + 9 * US)
    assert (sequencer.phase, sequencer.reason) == (SequencePhase.OPEN, "")
    assert sequencer.due_us() == T0_US + 10 * US, "the gap has its whole time again"
    assert received(sequencer, 2, now_us=T0_US + 9 * US).deliver == [2, 3, 4]


def test_a_sequence_whose_last_number_is_known_resumes_to_its_end() -> None:
    sequencer = failed_with(1, 3)
    sequencer.last_number = 3
    decide(sequencer, Resume())
    phases = [sequencer.phase]
    received(sequencer, 2)
    phases.append(sequencer.phase)
    assert phases == [SequencePhase.ENDING, SequencePhase.COMPLETE]


def test_giving_up_delivers_what_a_failed_sequence_kept() -> None:
    sequencer = failed_with(1, 3, 4, 7)
    outcome = decide(sequencer, GiveUp(4))
    assert (outcome.deliver, ends(outcome)) == ([3, 4], [(2, 2, "lost")])
    assert sequencer.phase is SequencePhase.FAILED
    outcome = decide(sequencer, GiveUp(100))
    assert (outcome.deliver, ends(outcome)) == ([7], [(5, 6, "lost")])
    assert refusals(received(sequencer, 9)) == [(9, Refusal.FAILED)]


def test_what_is_frozen_expires() -> None:
    sequencer = Sequencer(FAILING)
    received(sequencer, 1, 3)
    sequencer.receive(numbered(4, expires_at_us=T0_US + 9 * US), T0_US)
    sequencer.tick(T0_US + US)
    assert sequencer.due_us() == T0_US + 9 * US
    outcome = sequencer.tick(T0_US + 9 * US)
    assert (outcome.dropped, ends(outcome)) == ([4], [(4, 4, "expired")])
    assert decide(sequencer, GiveUp(9), T0_US + 9 * US).deliver == [3]


def test_only_a_failed_sequence_resumes() -> None:
    sequencer = Sequencer()
    received(sequencer, 1)
    decide(sequencer, Close())
    with pytest.raises(SequenceRefusedError):
        decide(sequencer, Resume())


ACTIONS = {
    SequencePhase.OPEN: {OperatorAction.RESUME: "it has not failed"},
    SequencePhase.FAILED: {OperatorAction.CLOSE: "`give-up` delivers what it kept"},
    SequencePhase.CLOSED: {
        OperatorAction.GIVE_UP: "`reset` begins anew",
        OperatorAction.RESUME: "`reset` begins anew",
        OperatorAction.CLOSE: "it accepts nothing already",
    },
}


@pytest.mark.parametrize("phase", ACTIONS)
def test_what_a_phase_does_not_allow_is_refused_with_what_works(phase: SequencePhase) -> None:
    sequencer = Sequencer(FAILING)
    received(sequencer, 1, 3)
    if phase is SequencePhase.FAILED:
        sequencer.tick(T0_US + US)
    elif phase is SequencePhase.CLOSED:
        decide(sequencer, Close())
    for action in OperatorAction:
        if action in (OperatorAction.REPLAY, OperatorAction.RECOUNT):
            continue
        why = why_not(sequencer.checkpoint(), FAILING, action, None)
        expected = ACTIONS[phase].get(action, "")
        assert (expected in why) if expected else not why, (phase, action, why)


def test_giving_up_nothing_is_refused() -> None:
    sequencer = Sequencer()
    assert "nothing is missing" in why_not(
        sequencer.checkpoint(), sequencer.settings, OperatorAction.GIVE_UP, None
    )
    received(sequencer, 1)
    for number in (None, 1):
        why = why_not(committed(sequencer).durable, FAILING, OperatorAction.GIVE_UP, number)
        assert "nothing is missing" in why
    assert not why_not(sequencer.durable, FAILING, OperatorAction.GIVE_UP, 5)
    assert "not within" in why_not(sequencer.durable, FAILING, OperatorAction.RESET, 0)


def test_an_end_of_a_forgotten_sequence_is_what_was_recorded() -> None:
    recorded = [
        RecordedEnd(low=2, high=2, end=NumberEnd.FILLED, by="sender"),
        RecordedEnd(low=1, high=3, end=NumberEnd.DELIVERED),
        RecordedEnd(low=4, high=5, end=NumberEnd.EXPIRED),
        RecordedEnd(low=4, high=4, end=NumberEnd.DELIVERED, by="operator"),
    ]
    found = resolve_ends(None, Ranges(), recorded)
    assert [(one.low, one.high, one.end.value, one.by) for one in found] == [
        (1, 1, "delivered", ""),
        (2, 2, "filled", "sender"),
        (3, 3, "delivered", ""),
        (4, 4, "delivered", "operator"),
        (5, 5, "expired", ""),
    ]
