"""The sequencer against a model that is a plain list: anything may happen, in any order."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from instep.model.messages import MessageHeader
from instep.sequencing.effects import Decision, ReportFault, ReportLoss
from instep.sequencing.events import (
    Announce,
    Cancel,
    Fault,
    Fill,
    GiveUp,
    Realigned,
    Receive,
    SequencerInput,
)
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal, SequenceRefusedError
from tests.instep.sequencing.receiver_model_kit import FIRST, TOP, Fate, ModelReceiver
from tests.instep.sequencing.sequencer_kit import T0_US, US
from tests.properties_kit import few

NUMBERS = st.integers(FIRST, TOP)
PAIRS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair)))
CONTENTS = st.sampled_from([b"", b"one", b"two"])
LIFETIMES_S = st.sampled_from([None, None, None, -1, 0, 3, 10])
MESSAGES = st.lists(st.tuples(NUMBERS, CONTENTS, LIFETIMES_S), min_size=1, max_size=6)
SETTINGS = SequencerSettings(
    gap_policy=GapPolicy.RESEND,
    gap_deadline_s=20.0,
    gap_attempts=2,
    gap_last_resort=LastResort.SKIP,
)


EVENTS = st.one_of(
    st.builds(Receive, st.lists(st.builds(MessageHeader, NUMBERS, CONTENTS, st.just(10)))),
    st.builds(Cancel, st.lists(PAIRS, max_size=3)),
    st.builds(Fill, st.lists(PAIRS, max_size=3)),
    st.builds(Fault, NUMBERS, st.sampled_from([Refusal.UNPROCESSABLE, Refusal.FULL])),
    st.builds(Announce, NUMBERS),
    st.builds(GiveUp, NUMBERS),
    st.builds(Realigned, NUMBERS, st.booleans()),
)


class SequencerMachine(RuleBasedStateMachine):
    """An unpredictable sender, a network that shuffles and repeats, a process that dies."""

    settings = SETTINGS

    @initialize(numbers=st.permutations(range(FIRST, TOP + 1)))
    def begin(self, numbers: list[int]) -> None:
        self.now_us = T0_US
        self.sequencer = Sequencer(self.settings)
        self.model = ModelReceiver(ordered=self.settings.ordered)
        self.durable = self.model.copy()
        self.on_the_way = numbers
        """Every number once, in a shuffled order; `lose` and `receive` do the rest."""
        self.delivered: list[tuple[int, bytes]] = []
        self.durably_delivered: list[tuple[int, bytes]] = []
        self.inbox: dict[int, bytes] = {}
        self.durable_inbox: dict[int, bytes] = {}

    # -- the sender and the network --------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        arriving, self.on_the_way = self.on_the_way[:count], self.on_the_way[count:]
        if arriving:
            self.receive([(number, b"sent %d" % number, None) for number in arriving])

    @rule(count=st.integers(1, 3))
    def lose(self, count: int) -> None:
        self.on_the_way = self.on_the_way[count:]

    @rule(messages=MESSAGES)
    def receive(self, messages: list[tuple[int, bytes, int | None]]) -> None:
        arrived = [
            MessageHeader(number, content, 10, 0 if life_s is None else self.now_us + life_s * US)
            for number, content, life_s in messages
        ]
        outcome = self.sequencer.receive(arrived, self.now_us)
        self.model.expire(self.now_us)
        self.model.deliver()
        by_verdict = self.received_by_model(arrived)
        assert outcome.accepted == by_verdict["accepted"]
        assert sorted(outcome.duplicates, key=repr) == sorted(by_verdict["duplicate"], key=repr)
        refused = [message for message, _ in outcome.refused]
        assert sorted(refused, key=repr) == sorted(by_verdict["refused"], key=repr)
        self.carry_out(outcome)

    def received_by_model(self, arrived: list[MessageHeader]) -> dict[str, list[MessageHeader]]:
        # Messages that come together do not wait for each other; what is expired comes last.
        dead = [m for m in arrived if 0 < m.expires_at_us <= self.now_us]
        alive = sorted((m for m in arrived if m not in dead), key=lambda m: m.number)
        by_verdict: dict[str, list[MessageHeader]] = {
            "accepted": [],
            "duplicate": [],
            "refused": [],
        }
        for message in alive + sorted(dead, key=lambda m: m.number):
            number, expires_at_us = message.number, message.expires_at_us
            verdict = self.model.receive(number, message.digest, expires_at_us, self.now_us)
            by_verdict[verdict].append(message)
            if message in alive:
                self.model.deliver()
        self.model.deliver()
        return by_verdict

    @rule(events=st.lists(EVENTS, min_size=1, max_size=4))
    def envelope(self, events: list[SequencerInput]) -> None:
        """Several events in one decision; one that is not possible undoes all of them."""
        before = self.model.copy()
        self.model.expire(self.now_us)
        self.model.deliver()
        if not all(self.happens_in_model(event) for event in events):
            self.model, state = before, self.sequencer.checkpoint()
            with pytest.raises(SequenceRefusedError, match="settled"):
                self.sequencer.apply(events, self.now_us)
            assert self.sequencer.checkpoint() == state
            return
        self.carry_out(self.sequencer.apply(events, self.now_us))

    def happens_in_model(self, event: SequencerInput) -> bool:
        """Whether the event is possible."""
        model = self.model
        match event:
            case Receive(messages):
                self.received_by_model(list(messages))
            case Cancel(ranges):
                for pair in ranges:
                    model.cancel(*pair)
            case Fill(ranges):
                for pair in ranges:
                    model.fill(*pair)
            case Fault(number):
                if model.fates[number] in (Fate.DELIVERED, Fate.FILLED):
                    return False
                model.fault(number)
            case GiveUp(through):
                model.deliver(through=through)
            case Realigned(through, deliver_buffered):
                model.realigned(through, deliver_buffered=deliver_buffered)
        model.deliver()
        return True

    # -- we ourselves ----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3, 10, 30]))
    def wait(self, seconds: int) -> None:
        self.now_us += seconds * US
        outcome = self.sequencer.tick(self.now_us)
        self.settle(outcome)

    @rule()
    def commit(self) -> None:
        state = self.sequencer.checkpoint()
        stored = msgspec.msgpack.encode(state)
        self.sequencer.committed(msgspec.msgpack.decode(stored, type=SequencerState))
        self.durable = self.model.copy()
        self.durably_delivered = self.delivered.copy()
        self.durable_inbox = self.inbox.copy()

    @rule(dies=st.booleans())
    def lose_what_was_not_committed(self, dies: bool) -> None:
        if dies:
            self.sequencer = Sequencer(self.settings, self.sequencer.durable)
        else:
            self.sequencer.roll_back()
        self.model = self.durable.copy()
        self.delivered = self.durably_delivered.copy()
        self.inbox = self.durable_inbox.copy()

    # -- what a driver does with an outcome, and the model with a change -------------------------

    def settle(self, outcome: Decision) -> None:
        self.model.expire(self.now_us)
        self.model.deliver()
        self.carry_out(outcome)

    def carry_out(self, outcome: Decision) -> None:
        for number in outcome.dropped:
            del self.inbox[number]
        for message in outcome.accepted:
            assert message.number not in self.inbox
            self.inbox[message.number] = message.digest
        for number in outcome.deliver:
            self.delivered.append((number, self.inbox.pop(number)))
        for effect in outcome.effects:
            if isinstance(effect, ReportLoss):
                # The policy gave up by itself: the model has no clock of its own for that.
                self.model.deliver(through=effect.lost[-1][1])
            elif isinstance(effect, ReportFault):
                assert all(low <= high for low, high in effect.faulted)

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def delivery_is_that_of_the_model(self) -> None:
        assert self.delivered == self.model.delivered
        numbers = [number for number, _ in self.delivered]
        if self.settings.ordered:
            assert numbers == sorted(set(numbers)), "a number was doubled, or out of order"
        assert len(numbers) == len(set(numbers)), "a number was doubled"
        assert self.sequencer.next_number == self.model.next_number
        assert sorted(self.inbox) == self.model.numbers(Fate.HELD)
        assert self.sequencer.buffered_messages == len(self.inbox)
        assert self.sequencer.buffered_bytes == 10 * len(self.inbox)

    @invariant()
    def claims_are_those_of_the_last_commit(self) -> None:
        acknowledged, cancelled = (
            self.sequencer.claims().acknowledged(),
            self.sequencer.claims().cancelled(),
        )
        received = self.durable.numbers(Fate.HELD, Fate.DELIVERED, Fate.FILLED)
        assert list(acknowledged) == received
        assert list(cancelled) == self.durable.numbers(Fate.CANCELLED)
        assert list(self.sequencer.claims().faulted().ranges()) == self.durable.numbers(
            Fate.FAULTED
        )
        assert self.sequencer.claims().highest == self.durable.highest
        assert acknowledged - cancelled == acknowledged, "acknowledged and cancelled overlap"

    @invariant()
    def no_gap_waits_for_ever(self) -> None:
        if self.sequencer.buffered_messages:
            assert self.sequencer.due_us() is not None

    @precondition(lambda self: self.sequencer.buffered_messages)
    @rule()
    def heal(self) -> None:
        """With time alone everything that is held is delivered or faulted."""
        for _ in range(10 * TOP):
            due_us = self.sequencer.due_us()
            if due_us is None:
                break
            self.now_us = max(self.now_us, due_us)
            self.settle(self.sequencer.tick(self.now_us))
        assert not self.inbox


class UnorderedMachine(SequencerMachine):
    """The same where each message is released at once."""

    settings = msgspec.structs.replace(SETTINGS, ordered=False)


TestSequencer = pytest.mark.hypothesis(SequencerMachine.TestCase)
TestSequencer.settings = few(150, stateful_step_count=25)
TestUnorderedSequencer = pytest.mark.hypothesis(UnorderedMachine.TestCase)
TestUnorderedSequencer.settings = few(60, stateful_step_count=25)
