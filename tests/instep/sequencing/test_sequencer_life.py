"""Opening, settings of the wire, expiry, idle time, and being forgotten (S9, S10)."""

from __future__ import annotations

import msgspec
import pytest

from instep.model.ranges import RangeMap, Ranges
from instep.sequencing.effects import ReportLoss, SequenceEnded
from instep.sequencing.events import Close, Last, Receive, Renew, Reset, Terminate
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import (
    IncompleteBehavior,
    SequencerSettings,
    TimeoutBehavior,
)
from instep.sequencing.state import BufferedMessage, SequencerState, decode_state
from instep.sequencing.transitions import (
    Refusal,
    SequenceEvent,
    SequencePhase,
    SequenceRefusedError,
)
from tests.instep.sequencing.sequencer_kit import (
    T0_US,
    US,
    committed,
    decide,
    numbered,
    received,
    refusals,
)

HOUR_US = 3600 * US


def reopened(sequencer: Sequencer) -> Sequencer:
    """The same after a crash, from what a store would hold."""
    stored = msgspec.json.encode(committed(sequencer).durable)
    return Sequencer(SequencerSettings(), decode_state(stored))


def test_s9_what_came_over_the_wire_is_durable_before_message_1() -> None:
    settings = SequencerSettings(first_number=0, incomplete=IncompleteBehavior.DISCARD)
    sequencer = Sequencer.open(
        settings, T0_US, attributes=b'{"acks_to":"http://a"}', expires_at_us=T0_US + HOUR_US
    )
    sequencer = reopened(sequencer)
    assert sequencer.settings == settings
    assert sequencer.durable.attributes == b'{"acks_to":"http://a"}'
    assert sequencer.due_us() == T0_US + HOUR_US
    assert received(sequencer, 0).deliver == [0]
    sequencer = reopened(sequencer)
    assert (sequencer.settings, sequencer.next_number) == (settings, 1)
    decide(sequencer, Reset())
    assert reopened(sequencer).durable.attributes == b'{"acks_to":"http://a"}'
    assert sequencer.due_us() is None, "a reset begins a new life"


def test_s10_a_sequence_that_was_reset_and_gets_nothing_more_is_idle() -> None:
    sequencer = Sequencer.open(SequencerSettings(idle_timeout_s=60.0), T0_US)
    decide(sequencer, Reset(), T0_US + 30 * US)
    assert sequencer.due_us() == T0_US + 90 * US
    outcome = reopened(sequencer).tick(T0_US + 90 * US)
    assert outcome.effects == [SequenceEnded(SequenceEvent.IDLE)]


def test_a_sequence_that_would_have_expired_is_not_opened() -> None:
    with pytest.raises(SequenceRefusedError) as caught:
        Sequencer.open(SequencerSettings(), T0_US, expires_at_us=T0_US)
    assert caught.value.refusal is Refusal.EXPIRED


def test_s10_a_sequence_expires_and_its_peer_is_notified() -> None:
    sequencer = Sequencer.open(SequencerSettings(), T0_US, expires_at_us=T0_US + HOUR_US)
    received(sequencer, 1, 3)
    assert sequencer.due_us() == T0_US + 5 * US, "the gap comes first"
    outcome = sequencer.tick(T0_US + HOUR_US)
    assert sequencer.phase is SequencePhase.CLOSED
    assert outcome.deliver == [3]
    assert outcome.effects == [
        ReportLoss([(2, 2)], "the sequence is expired"),
        SequenceEnded(SequenceEvent.EXPIRED),
    ]
    assert not sequencer.tick(T0_US + 2 * HOUR_US).effects
    assert sequencer.due_us() is None
    late = received(sequencer, 1, 2, now_us=T0_US + 2 * HOUR_US)
    assert refusals(late) == [(2, Refusal.CLOSED)]
    assert late.duplicates == numbered(1)


@pytest.mark.parametrize("shortcut", [True, False])
def test_s10_nothing_is_accepted_after_the_expiry_even_before_a_tick(shortcut: bool) -> None:
    sequencer = Sequencer.open(SequencerSettings(), T0_US, expires_at_us=T0_US + HOUR_US)
    messages = numbered(1)
    if shortcut:
        assert sequencer.take_next(messages, T0_US + HOUR_US) == []
    outcome = sequencer.receive(messages, T0_US + HOUR_US)
    assert refusals(outcome) == [(1, Refusal.CLOSED)]
    assert outcome.effects == [SequenceEnded(SequenceEvent.EXPIRED)]


def test_s10_a_sequence_may_be_renewed_until_it_has_ended() -> None:
    sequencer = Sequencer.open(SequencerSettings(), T0_US, expires_at_us=T0_US + HOUR_US)
    sequencer.apply([Renew(T0_US + 3 * HOUR_US)], T0_US)
    assert not sequencer.tick(T0_US + 2 * HOUR_US).effects
    assert sequencer.due_us() == T0_US + 3 * HOUR_US
    sequencer.tick(T0_US + 3 * HOUR_US)
    with pytest.raises(SequenceRefusedError, match="the sequence is closed"):
        sequencer.apply([Renew(0)], T0_US + 3 * HOUR_US)


def test_s10_idle_time_begins_again_with_each_sign_of_the_peer() -> None:
    settings = SequencerSettings(idle_timeout_s=60, on_timeout=TimeoutBehavior.TERMINATE)
    sequencer = Sequencer.open(settings, T0_US)
    for step in range(3):
        now_us = T0_US + 50 * US * step
        received(sequencer, 1, now_us=now_us)  # the shortcut, then copies
        assert sequencer.due_us() == now_us + 60 * US
        assert reopened(sequencer).due_us() == now_us + 60 * US
    outcome = sequencer.tick(T0_US + 160 * US)
    assert outcome.effects == [SequenceEnded(SequenceEvent.IDLE)]
    assert sequencer.phase is SequencePhase.TERMINATED
    assert refusals(received(sequencer, 1)) == [(1, Refusal.TERMINATED)], "no duplicate any more"


def test_s10_time_away_is_no_silence_of_the_peer() -> None:
    sequencer = Sequencer.open(SequencerSettings(idle_timeout_s=60), T0_US)
    sequencer.resume(T0_US + HOUR_US)
    assert not sequencer.tick(T0_US + HOUR_US).effects
    assert sequencer.due_us() == T0_US + HOUR_US + 60 * US


def test_s10_an_ended_sequence_is_remembered_while_copies_may_come() -> None:
    sequencer = Sequencer(SequencerSettings(keep_ended_s=60, keep_copies_s=7200))
    sequencer.receive(numbered(1, expires_at_us=T0_US + HOUR_US), T0_US)
    assert sequencer.reclaimable_at_us is None
    decide(sequencer, Close(), T0_US + US)
    restarted = Sequencer(sequencer.settings, committed(sequencer).durable)
    assert restarted.reclaimable_at_us == T0_US + HOUR_US
    decide(sequencer, Terminate(), T0_US + 2 * HOUR_US)
    decide(sequencer, Terminate(), T0_US + 3 * HOUR_US)
    assert sequencer.reclaimable_at_us == T0_US + 2 * HOUR_US + 60 * US


def test_no_deadline_of_a_peer_keeps_a_sequence_for_ever() -> None:
    sequencer = Sequencer(SequencerSettings(keep_ended_s=60, keep_copies_s=7200))
    sequencer.receive(numbered(1, 3, expires_at_us=T0_US + 10**6 * HOUR_US), T0_US)
    decide(sequencer, Close())
    assert sequencer.reclaimable_at_us == T0_US + 2 * HOUR_US


def test_a_complete_sequence_is_forgotten_too() -> None:
    sequencer = Sequencer(SequencerSettings(keep_ended_s=60))
    received(sequencer, 1)
    decide(sequencer, Last(1))
    assert sequencer.phase is SequencePhase.COMPLETE
    assert sequencer.reclaimable_at_us == T0_US + 60 * US
    assert not sequencer.tick(T0_US + 60 * US).effects


def test_a_state_without_the_fields_that_have_a_default_goes_on() -> None:
    """As a later version reads what this one has stored."""
    stored = b'{"next_number":2,"received":[[1,4],[1,4]],"recent":[[1,"YQ=="],[4,"YQ=="]]}'
    sequencer = Sequencer(None, decode_state(stored))
    assert sequencer.claims().highest == 4
    assert received(sequencer, 2).deliver == [2]
    assert sequencer.reclaimable_at_us is None
    ended = decode_state(b'{"next_number":2,"phase":"failed"}')
    sequencer = Sequencer(None, ended)
    sequencer.apply([Receive([])], T0_US)
    assert sequencer.reclaimable_at_us == T0_US + 7 * 24 * HOUR_US, (
        "its time begins when it is seen"
    )


def test_a_checkpoint_is_the_state_that_the_sequencer_began_with() -> None:
    """Each field has a value of its own, so none can stand in the place of another."""
    state = SequencerState(
        next_number=7,
        phase=SequencePhase.ENDING,
        received=Ranges.of((1, 3), (9, 9)),
        cancelled=Ranges.of((4, 4)),
        faulted=RangeMap([5], [6], [Refusal.EXPIRED]),
        buffered=[BufferedMessage(9, b"nine", 11, 12, 13)],
        last_number=20,
        announced=19,
        announced_at_us=21,
        asked_to=[18],
        acted_at_us=22,
        recent=[(3, b"three")],
        epoch=2,
        settings=SequencerSettings(idle_timeout_s=60),
        attributes=b"where to acknowledge",
        highest_seen=10,
        expires_at_us=T0_US,
        active_at_us=T0_US - 1,
        ended_at_us=T0_US - 2,
        copies_until_us=T0_US - 3,
        reason="it has failed before",
        resumed_at_us=23,
        content_changed=24,
    )
    default = SequencerState(next_number=0)
    for field in state.__struct_fields__:
        assert getattr(state, field) != getattr(default, field), field
    assert Sequencer(None, state).checkpoint() == state
