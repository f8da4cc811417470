"""The shortcuts decide what the plain reference decides, for whatever comes in whatever order."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from instep.model.messages import MessageHeader
from instep.sequencing.effects import Decision
from instep.sequencing.events import Cancel, Fill, Last, SequencerInput
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.transitions import SequenceRefusedError
from tests.instep.sequencing.sequencer_kit import T0_US, US
from tests.properties_kit import few


class PlainSequencer(Sequencer):
    """A sequencer without the fast path: it takes one message after the other."""

    def take_next(self, messages: Sequence[MessageHeader], now_us: int) -> list[int]:  # noqa: ARG002
        return []

    def _receive(self, messages: Sequence[MessageHeader], outcome: Decision, now_us: int) -> None:
        self._lifetime.note_deadlines(self._one_by_one(messages, outcome, now_us))


NUMBERS = st.integers(0, 14)
DEADLINES = st.sampled_from([0, 0, 0, T0_US + US, T0_US + 9 * US])
SETTINGS = st.builds(
    SequencerSettings,
    ordered=st.booleans(),
    gap_policy=st.sampled_from([GapPolicy.RESEND, GapPolicy.SKIP]),
    fault_policy=st.sampled_from(FaultPolicy),
    limit_messages=st.sampled_from([2, 100]),
    limit_bytes=st.sampled_from([35, 1_000]),
    limit_jump=st.sampled_from([0, 4, 100]),
    max_number=st.sampled_from([10, 100]),
    idle_timeout_s=st.sampled_from([0.0, 8.0]),
)
MESSAGES = st.lists(
    st.builds(
        MessageHeader,
        NUMBERS,
        st.sampled_from([b"one", b"two"]),
        st.just(10),
        DEADLINES,
    ),
    max_size=6,
)
IN_ORDER = st.tuples(st.integers(1, 6), st.integers(1, 6), DEADLINES).map(
    lambda drawn: [
        MessageHeader(n, b"one", 10, drawn[2]) for n in range(max(1, drawn[0] - 3), sum(drawn[:2]))
    ]
)
PAIRS = st.tuples(NUMBERS, NUMBERS).map(sorted).map(lambda pair: [(pair[0], pair[1])])
EVENTS = st.one_of(PAIRS.map(Cancel), PAIRS.map(Fill), NUMBERS.map(Last))
STEPS = st.lists(
    st.tuples(st.one_of(MESSAGES, IN_ORDER, IN_ORDER, EVENTS), st.integers(0, 6)), max_size=12
)


def decided(
    sequencer: Sequencer, step: list[MessageHeader] | SequencerInput, now_us: int
) -> Decision | str:
    if isinstance(step, list):
        return sequencer.receive(step, now_us)
    try:
        return sequencer.apply([step], now_us)
    except SequenceRefusedError as error:
        return str(error)


@few(60)
@given(SETTINGS, STEPS)
def test_the_shortcuts_decide_what_the_reference_decides(
    sequence: SequencerSettings, steps: list[tuple[list[MessageHeader] | SequencerInput, int]]
) -> None:
    quick, plain = Sequencer(sequence), PlainSequencer(sequence)
    now_us = T0_US
    for step, seconds in steps:
        now_us += seconds * US
        assert decided(quick, step, now_us) == decided(plain, step, now_us)
        assert quick.checkpoint() == plain.checkpoint()
        assert quick.due_us() == plain.due_us()
        quick.committed(quick.checkpoint())
        plain.committed(plain.checkpoint())


def test_the_shortcuts_are_taken() -> None:
    """Else the property above proves nothing."""
    sequencer = Sequencer()
    assert sequencer.take_next([MessageHeader(1), MessageHeader(2)], T0_US) == [1, 2]
    in_time = MessageHeader(3, expires_at_us=T0_US + 1)
    assert sequencer.take_next([in_time], T0_US + 1) == []
    assert sequencer.take_next([in_time], T0_US) == [3]
    assert sequencer.receive([MessageHeader(6), MessageHeader(5)], T0_US).accepted == [
        MessageHeader(5),
        MessageHeader(6),
    ]
    assert sequencer.take_next([MessageHeader(4)], T0_US) == []
