"""One envelope with several events is one decision, all or nothing, and its claims (S11)."""

from __future__ import annotations

import pytest

from instep.sequencing.effects import RealignSequence, ReportFault, ReportLoss, SequenceFailed
from instep.sequencing.events import (
    Announce,
    Cancel,
    Changed,
    Close,
    Fault,
    Fill,
    GiveUp,
    Last,
    Realigned,
    Receive,
    Reset,
    SequencerInput,
    Terminate,
)
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import (
    ChangedContentPolicy,
    FaultPolicy,
    IncompleteBehavior,
    SequencerSettings,
)
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


def test_s11_message_10_the_last_with_8_and_9_cancelled() -> None:
    """Proposal 4: one SOAP header; the answer is of that very checkpoint, before it is claimed."""
    sequencer = Sequencer()
    received(sequencer, *range(1, 8))
    outcome = sequencer.apply([Receive(numbered(10)), Last(10), Cancel([(8, 9)])], T0_US)
    assert outcome.deliver == [10]
    assert sequencer.phase is SequencePhase.COMPLETE
    claims = sequencer.claims(sequencer.checkpoint())
    assert (str(claims.acknowledged()), str(claims.cancelled())) == ("1-7,10", "8-9")
    assert str(sequencer.claims().acknowledged()) == "1-7", "the commit is still to come (S3)"


def test_s11_several_ranges_in_one_request() -> None:
    sequencer = Sequencer()
    received(sequencer, 4)
    sequencer.apply([Cancel([(1, 2), (6, 9), (4, 6)])], T0_US)
    assert str(committed(sequencer).claims().cancelled()) == "1-2,5-9"
    assert sequencer.apply([Fill([(8, 8), (1, 3), (2, 2)])], T0_US).deliver == [4]
    committed(sequencer)
    claims = str(sequencer.claims().acknowledged()), str(sequencer.claims().cancelled())
    assert claims == ("1-4,8", "5-7,9")


IMPOSSIBLE: list[SequencerInput] = [
    Cancel([(2, 3), (0, 1)]),
    Fill([(2, 3), (5, 4)]),
    Fault(1, Refusal.UNPROCESSABLE),
    Announce(2_000_000),
    Last(2),
    Close(2_000_000),
    GiveUp(0),
    Realigned(0),
]


@pytest.mark.parametrize("impossible", IMPOSSIBLE, ids=lambda event: type(event).__name__)
def test_s11_all_or_nothing(impossible: SequencerInput) -> None:
    sequencer = Sequencer()
    received(sequencer, 1, 4)
    sequencer.receive(numbered(6, expires_at_us=T0_US + US), T0_US)
    before = sequencer.checkpoint()
    with pytest.raises(SequenceRefusedError):
        sequencer.apply([Receive(numbered(2, 9)), Cancel([(3, 3)]), impossible], T0_US + US)
    assert sequencer.checkpoint() == before
    assert sequencer.due_us() == T0_US + US, "what expires is still known"
    assert sequencer.receive(numbered(2, 3), T0_US).deliver == [2, 3, 4]


def test_s11_a_cancelled_gap_holds_nothing_back_from_the_close_behind_it() -> None:
    sequencer = Sequencer(SequencerSettings(incomplete=IncompleteBehavior.DISCARD))
    outcome = sequencer.apply([Receive(numbered(3)), Cancel([(1, 2)]), Close()], T0_US)
    assert (outcome.deliver, outcome.dropped, outcome.effects) == ([3], [], [])


def test_s11_a_gap_that_the_envelope_closes_is_no_gap() -> None:
    sequencer = Sequencer(SequencerSettings(gap_policy=GapPolicy.REALIGN, gap_deadline_s=0))
    outcome = sequencer.apply([Receive(numbered(3)), Fill([(1, 2)])], T0_US)
    assert (outcome.deliver, outcome.effects) == ([3], [])


def test_what_comes_behind_a_gap_with_the_close_is_refused_and_not_acknowledged() -> None:
    sequencer = Sequencer(SequencerSettings(incomplete=IncompleteBehavior.DISCARD))
    received(sequencer, 3)
    outcome = sequencer.apply([Receive(numbered(5)), Close()], T0_US)
    assert refusals(outcome) == [(5, Refusal.CLOSED)]
    assert (outcome.accepted, outcome.dropped) == ([], [3])
    claims = committed(sequencer).claims()
    assert (str(claims.acknowledged()), claims.highest) == ("3", 5)


def test_a_message_and_its_fault_in_one_envelope() -> None:
    sequencer = Sequencer()
    outcome = sequencer.apply([Receive(numbered(2)), Fault(2, Refusal.UNPROCESSABLE)], T0_US)
    assert refusals(outcome) == [(2, Refusal.UNPROCESSABLE)]
    assert (outcome.accepted, outcome.dropped) == ([], [])


def test_after_the_failure_the_rest_of_the_envelope_is_moot_and_the_failure_stands() -> None:
    sequencer = Sequencer(SequencerSettings(fault_policy=FaultPolicy.FAIL))
    messages = numbered(1, expires_at_us=T0_US)
    outcome = sequencer.apply([Receive(messages), Last(9), Receive(numbered(2))], T0_US)
    assert sequencer.phase is SequencePhase.FAILED
    assert refusals(outcome) == [(1, Refusal.EXPIRED), (2, Refusal.FAILED)]
    assert isinstance(outcome.effects[-1], SequenceFailed)
    with pytest.raises(SequenceRefusedError, match="last known is not possible"):
        sequencer.apply([Last(9)], T0_US)


def test_a_reset_and_message_1_of_the_new_numbers_are_one_decision() -> None:
    sequencer = Sequencer()
    received(sequencer, 1, 3)
    outcome = sequencer.apply([Reset(), Receive(numbered(1, content=b"new"))], T0_US)
    assert (outcome.dropped, outcome.deliver, sequencer.epoch) == ([3], [1], 1)
    before = sequencer.checkpoint()
    with pytest.raises(AssertionError, match="first event"):
        sequencer.apply([Receive(numbered(2)), Reset()], T0_US)
    assert sequencer.checkpoint() == before


# -- realignment -----------------------------------------------------------------------------------


@pytest.mark.parametrize("deliver", [True, False])
def test_s4_realigned_settles_without_a_loss(deliver: bool) -> None:
    sequencer = Sequencer(SequencerSettings(gap_policy=GapPolicy.REALIGN))
    received(sequencer, 1, 3, 6)
    outcome = sequencer.apply([Realigned(5, deliver_buffered=deliver)], T0_US)
    assert outcome.effects == []
    assert (outcome.deliver, outcome.dropped) == (([3, 6], []) if deliver else ([6], [3]))
    assert str(committed(sequencer).claims().acknowledged()) == "1-6"
    assert sequencer.due_us() is None
    late = received(sequencer, 2, 5, 7)
    assert (late.duplicates, late.deliver) == (numbered(2, 5), [7])
    assert sequencer.buffered_bytes == 0


def test_realigned_beyond_what_came_and_over_what_was_cancelled() -> None:
    sequencer = Sequencer()
    decide(sequencer, Cancel([(2, 3)]))
    sequencer.apply([Realigned(9)], T0_US)
    assert (str(committed(sequencer).claims().acknowledged()), sequencer.next_number) == (
        "1,4-9",
        10,
    )
    assert str(sequencer.claims().cancelled()) == "2-3"
    assert sequencer.claims().highest == 9
    sequencer.apply([Realigned(4)], T0_US)
    assert sequencer.next_number == 10, "what was settled stays"


def test_a_message_that_the_state_contains_already_is_a_duplicate() -> None:
    outcome = Sequencer().apply([Receive(numbered(3)), Realigned(4)], T0_US)
    assert (outcome.accepted, outcome.duplicates, outcome.dropped) == ([], numbered(3), [])


# -- other content ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compared_here", [True, False])
@pytest.mark.parametrize("policy", ChangedContentPolicy)
def test_s7_other_content_without_a_fault_of_ours_is_handled_as_chosen(
    policy: ChangedContentPolicy, compared_here: bool
) -> None:
    """A layer before us may have answered with the fault (R0802)."""
    sequencer = Sequencer(SequencerSettings(on_changed=policy, remembered_contents=1))
    received(sequencer, 1, 2)
    number = 2 if compared_here else 1
    copies = numbered(number, content=b"other")
    outcome = sequencer.receive(copies, T0_US)
    assert outcome.duplicates == copies
    if compared_here:
        assert (outcome.deviations, outcome.uncompared) == (copies, [])
    else:
        assert (outcome.deviations, outcome.uncompared) == ([], copies)
        assert outcome.effects == []
        outcome = sequencer.apply([Changed(number)], T0_US)
    assert (
        outcome.effects
        == {
            ChangedContentPolicy.IGNORE: [],
            ChangedContentPolicy.REALIGN: [RealignSequence([(number, number)])],
            ChangedContentPolicy.FAIL: [
                SequenceFailed(f"messages {number} came again with other content")
            ],
        }[policy]
    )
    failed = policy is ChangedContentPolicy.FAIL
    assert (sequencer.phase is SequencePhase.FAILED) is failed


def test_s7_after_a_fault_the_new_content_counts() -> None:
    sequencer = Sequencer(SequencerSettings(fault_policy=FaultPolicy.WAIT))
    received(sequencer, 2)
    sequencer.apply([Fault(2, Refusal.UNPROCESSABLE)], T0_US)
    committed(sequencer)
    assert str(sequencer.claims().faulted()) == "2 (unprocessable)"
    outcome = sequencer.receive(numbered(2, content=b"other"), T0_US)
    assert (outcome.deviations, outcome.uncompared) == ([], [])
    committed(sequencer)
    claims = sequencer.claims()
    assert (str(claims.acknowledged()), str(claims.faulted())) == ("2", "")


def test_s7_a_sequence_that_has_ended_does_not_fail_by_a_copy() -> None:
    sequencer = Sequencer(SequencerSettings(on_changed=ChangedContentPolicy.FAIL))
    received(sequencer, 1)
    for end in (Last(1), Close(), Terminate()):
        sequencer.apply([end], T0_US)
        assert not sequencer.receive(numbered(1, content=b"other"), T0_US).effects
        assert not sequencer.apply([Changed(1)], T0_US).effects


def test_s7_more_contents_are_compared_where_more_are_remembered() -> None:
    sequencer = Sequencer(SequencerSettings(remembered_contents=20))
    received(sequencer, *range(1, 31))
    outcome = sequencer.receive(numbered(*range(1, 31), content=b"other"), T0_US)
    assert [m.number for m in outcome.deviations] == list(range(11, 31))
    assert [m.number for m in outcome.uncompared] == list(range(1, 11))


# -- what was seen, and how far ahead --------------------------------------------------------------


def test_the_highest_number_seen_never_goes_back() -> None:
    """`last` of received_orders: neither an expiry nor a failure lowers it."""
    sequencer = Sequencer(SequencerSettings(fault_policy=FaultPolicy.WAIT))
    received(sequencer, 1)
    sequencer.receive(numbered(9, expires_at_us=T0_US + US), T0_US)
    sequencer.receive(numbered(4), T0_US)
    sequencer.tick(T0_US + US)
    assert committed(sequencer).claims().highest == 9
    assert sequencer.claims().missing() == [(2, 3), (5, 9)]
    assert sequencer.claims().missing(1) == [(2, 3)]
    decide(sequencer, Cancel([(9, 9)]), T0_US + US)
    sequencer.tick(T0_US + 10**6 * US)
    for _ in range(5):
        sequencer.tick(sequencer.due_us() or 0)
    assert sequencer.phase is SequencePhase.FAILED
    assert committed(sequencer).claims().highest == 9
    assert str(sequencer.claims().acknowledged()) == "1,4", "no acknowledgement is taken back"
    assert sequencer.claims().missing() == []


def test_missing_is_answered_on_demand() -> None:
    sequencer = Sequencer()
    assert sequencer.claims().missing() == []
    received(sequencer, 1, 4)
    decide(sequencer, Cancel([(2, 2)]))
    decide(sequencer, Announce(6))
    assert committed(sequencer).claims().missing() == [(3, 3), (5, 6)]


def test_a_number_too_far_ahead_is_refused_and_nothing_is_given_up_for_it() -> None:
    sequencer = Sequencer(
        SequencerSettings(limit_jump=10, gap_policy=GapPolicy.SKIP, gap_deadline_s=0)
    )
    outcome = received(sequencer, 1, 12, 10_001, 10_002, 2**62)
    assert refusals(outcome) == [
        (12, Refusal.TOO_FAR_AHEAD),
        (10_001, Refusal.TOO_FAR_AHEAD),
        (10_002, Refusal.OUT_OF_REACH),
        (2**62, Refusal.OUT_OF_REACH),
    ]
    assert (outcome.deliver, outcome.effects) == ([1], [])
    for claim in (Announce(12), Last(12), Close(12)):
        with pytest.raises(SequenceRefusedError, match="more than 10 numbers ahead") as caught:
            sequencer.apply([claim], T0_US)
        assert caught.value.refusal is Refusal.TOO_FAR_AHEAD
    with pytest.raises(SequenceRefusedError) as caught:
        sequencer.apply([Announce(2**62)], T0_US)
    assert caught.value.refusal is Refusal.OUT_OF_REACH
    assert received(sequencer, 11).effects == [ReportLoss([(2, 10)], "did not come in time")]


def test_reasons_of_faults_are_kept_by_range() -> None:
    sequencer = Sequencer()
    sequencer.receive(numbered(2, 3, expires_at_us=T0_US + US), T0_US)
    outcome = sequencer.apply([Fault(5, Refusal.UNPROCESSABLE)], T0_US + US)
    assert outcome.effects == [
        ReportFault([(2, 3)], Refusal.EXPIRED),
        ReportFault([(5, 5)], Refusal.UNPROCESSABLE),
    ]
    faulted = committed(sequencer).claims().faulted()
    assert list(faulted.items()) == [(2, 3, Refusal.EXPIRED), (5, 5, Refusal.UNPROCESSABLE)]
    assert received(sequencer, 3, now_us=T0_US + US).accepted == numbered(3)
    assert str(sequencer.claims().faulted()) == "2 (expired),5 (unprocessable)"
