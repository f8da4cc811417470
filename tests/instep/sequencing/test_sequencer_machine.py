"""The sequencer against a model that is a plain list: anything may happen, in any order."""

from __future__ import annotations

import os

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from instep.model.messages import MessageHeader
from instep.sequencing.effects import Decision, ReportFault, ReportLoss
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal
from tests.instep.sequencing.receiver_model_kit import FIRST, TOP, Fate, ModelReceiver
from tests.instep.sequencing.sequencer_kit import T0_US, US

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


class SequencerMachine(RuleBasedStateMachine):
    """A sender that does as it likes, a network that shuffles and repeats, a process that dies."""

    @initialize(numbers=st.permutations(range(FIRST, TOP + 1)))
    def begin(self, numbers: list[int]) -> None:
        self.now_us = T0_US
        self.sequencer = Sequencer(SETTINGS)
        self.model = ModelReceiver()
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
        # Messages that come together do not wait for each other; what is expired comes last.
        dead = [m for m in arrived if 0 < m.expires_at_us <= self.now_us]
        alive = sorted((m for m in arrived if m not in dead), key=lambda m: m.number)
        told: dict[str, list[MessageHeader]] = {"accepted": [], "duplicate": [], "refused": []}
        for message in alive + sorted(dead, key=lambda m: m.number):
            number, expires_at_us = message.number, message.expires_at_us
            verdict = self.model.receive(number, message.digest, expires_at_us, self.now_us)
            told[verdict].append(message)
            if message in alive:
                self.model.deliver()
        self.model.deliver()
        assert outcome.accepted == told["accepted"]
        assert sorted(outcome.duplicates, key=repr) == sorted(told["duplicate"], key=repr)
        refused = [message for message, _ in outcome.refused]
        assert sorted(refused, key=repr) == sorted(told["refused"], key=repr)
        self.carry_out(outcome)

    @rule(pair=PAIRS)
    def cancel(self, pair: tuple[int, int]) -> None:
        outcome = self.sequencer.cancel(*pair, self.now_us)
        self.model.cancel(*pair)
        self.settle(outcome)

    @rule(pair=PAIRS)
    def fill(self, pair: tuple[int, int]) -> None:
        outcome = self.sequencer.fill(*pair, self.now_us)
        self.model.fill(*pair)
        self.settle(outcome)

    # -- we ourselves ----------------------------------------------------------------------------

    @rule(number=NUMBERS)
    def fault(self, number: int) -> None:
        if self.model.fates[number] in (Fate.DELIVERED, Fate.FILLED):
            return
        self.model.expire(self.now_us)
        self.model.fault(number)
        self.settle(self.sequencer.fault(number, Refusal.UNPROCESSABLE, self.now_us))

    @rule(through=NUMBERS)
    def give_up(self, through: int) -> None:
        outcome = self.sequencer.give_up(through, self.now_us)
        self.model.expire(self.now_us)
        self.model.deliver(through=through)
        self.settle(outcome)

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
            self.sequencer = Sequencer(SETTINGS, self.sequencer.durable)
        else:
            self.sequencer.rolled_back()
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
        assert numbers == sorted(set(numbers)), "a number was doubled, or out of order"
        assert self.sequencer.next_number == self.model.next_number
        assert sorted(self.inbox) == self.model.numbers(Fate.HELD)
        assert self.sequencer.buffered_messages == len(self.inbox)
        assert self.sequencer.buffered_bytes == 10 * len(self.inbox)

    @invariant()
    def claims_are_those_of_the_last_commit(self) -> None:
        acknowledged, cancelled = self.sequencer.acknowledged(), self.sequencer.cancelled()
        received = self.durable.numbers(Fate.HELD, Fate.DELIVERED, Fate.FILLED)
        assert list(acknowledged) == received
        assert list(cancelled) == self.durable.numbers(Fate.CANCELLED)
        assert list(self.sequencer.faulted().ranges()) == self.durable.numbers(Fate.FAULTED)
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


TestSequencer = pytest.mark.hypothesis(SequencerMachine.TestCase)
TestSequencer.settings = settings(
    stateful_step_count=25,
    max_examples=20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 400,
)
