"""The alignment against a model of a log: anything may happen, in any order (DESIGN 9)."""

from __future__ import annotations

import os

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from instep import Kind, Phase
from instep.records import StreamState
from tests.instep.logdriver import Driver
from tests.instep.logmodel import TOMBSTONE_RETENTION_S, US, ModelLog

LOST_S = TOMBSTONE_RETENTION_S + 60
KEYS = [f"key-{number}" for number in range(6)]
ENDS: list[tuple[Kind, ...]] = [(Kind.DELETE,), (Kind.TOMBSTONE,), (Kind.DELETE, Kind.TOMBSTONE)]
SPANS_S = st.sampled_from([1.0, 15.0, 50.0, 300.0, 700.0, 3600.0, LOST_S, LOST_S])
COUNTS = st.integers(1, 8)
PARTITIONS = st.integers(0, 2)
CHANGES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([(), (), *ENDS]), st.booleans()), max_size=8
)
"""Keys with the records that end them (none: the entity is stated), which may share a token."""
Changes = list[tuple[str, tuple[Kind, ...], bool]]


class AlignmentMachine(RuleBasedStateMachine):
    """A provider that does as it likes, a network that fails, a process that dies."""

    driver: Driver

    @initialize(
        partitions=st.integers(1, 3),
        offsets=st.booleans(),
        anchored=st.booleans(),
        changes=CHANGES,
        aligned=st.booleans(),
    )
    def begin(
        self, partitions: int, offsets: bool, anchored: bool, changes: Changes, aligned: bool
    ) -> None:
        # Without offsets nothing tells partitions apart, so there is one.
        self.driver = Driver(ModelLog(partitions if offsets else 1, offsets, anchored))
        self.change(changes)
        if aligned:
            self.heal()

    # -- the provider ----------------------------------------------------------------------------

    @rule(changes=CHANGES)
    def change(self, changes: Changes) -> None:
        log = self.driver.log
        for key, ends, shares in changes:
            if not ends:
                log.put(key)
            elif key in log.alive:
                log.end(key, *ends, shares=shares)

    @rule()
    def compact(self) -> None:
        self.driver.log.compact()

    @rule(elsewhere=st.booleans(), dies=st.booleans())
    def lose_log(self, elsewhere: bool, dies: bool) -> None:
        self.crash() if dies else self.disconnect()
        self.driver.log.lose(elsewhere=elsewhere)

    @rule(state=st.sampled_from([StreamState.ACTIVE, StreamState.PAUSED]))
    def hold_back(self, state: StreamState) -> None:
        self.driver.log.state = state

    # -- the network and the process -------------------------------------------------------------

    @precondition(lambda self: self.driver.feed is None)
    @rule(rewind=st.sampled_from([0, 0, 0, 1, 3, 100]), restart=st.booleans(), refuse=st.booleans())
    def connect(self, rewind: int, restart: bool, refuse: bool) -> None:
        self.driver.open(rewind=rewind, restart=restart, refuse=refuse)

    @rule()
    def disconnect(self) -> None:
        if self.driver.feed is not None:
            self.driver.close()

    @rule()
    def crash(self) -> None:
        self.driver.crash()

    @rule(before=CHANGES, seconds=SPANS_S, after=CHANGES, dies=st.booleans())
    def be_away(self, before: Changes, seconds: float, after: Changes, dies: bool) -> None:
        """Meanwhile things change, and the log forgets what it may."""
        self.crash() if dies else self.disconnect()
        self.change(before)
        self.driver.log.now_us += int(seconds * US)
        self.compact()
        self.change(after)
        self.driver.open()

    @rule(most=COUNTS, prefer=PARTITIONS)
    def deliver(self, most: int, prefer: int) -> None:
        self.driver.deliver(most, prefer)

    @rule(most=COUNTS, prefer=PARTITIONS, durable=st.booleans(), dies=st.booleans())
    def fail_in_commit(self, most: int, prefer: int, durable: bool, dies: bool) -> None:
        """A batch is decided on and committed, or not; nobody hears which of it."""
        driver = self.driver
        delivery = driver.read(most, prefer)
        if delivery is None:
            return
        batch = driver.core.receive(delivery, driver.log.now_us)
        if batch is not None and durable:
            driver.store_commit(batch)
        if dies or durable:
            driver.crash()
        else:
            driver.close()

    @rule(seconds=SPANS_S, compacts=st.booleans())
    def wait(self, seconds: float, compacts: bool) -> None:
        self.driver.wait(seconds)
        if compacts:
            self.compact()

    @rule(before=CHANGES, seconds=SPANS_S, after=CHANGES, most=COUNTS, prefer=PARTITIONS)
    def read_late(
        self, before: Changes, seconds: float, after: Changes, most: int, prefer: int
    ) -> None:
        """The consumer is busy meanwhile: it neither reads nor ticks."""
        self.change(before)
        self.driver.log.now_us += int(seconds * US)
        self.compact()
        self.change(after)
        self.driver.deliver(most, prefer)

    @precondition(lambda self: self.driver.feed is not None)
    @rule()
    def realign(self) -> None:
        self.driver.core.realign("the operator asks for it")
        self.driver.carry_out()

    @precondition(lambda self: self.driver.core.position.phase is Phase.SWEEP_HELD)
    @rule()
    def release(self) -> None:
        self.driver.core.release_sweep()

    @rule()
    def heal(self) -> None:
        driver = self.driver
        driver.settle()
        assert driver.store.bodies == driver.log.bodies

    # -- what holds after each step ----------------------------------------------------------------

    @invariant()
    def position_is_not_ahead(self) -> None:
        if hasattr(self, "driver"):
            self.driver.check_position()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.heal()


TestAlignment = pytest.mark.hypothesis(AlignmentMachine.TestCase)
# Short runs: what went wrong is seen at their end, unless another attempt mended it on the way.
TestAlignment.settings = settings(
    stateful_step_count=12,
    max_examples=20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 400,
)
