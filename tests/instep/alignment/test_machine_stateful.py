"""The alignment against a model of a log: anything may happen, in any order."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from instep import Phase, RecordType
from instep.model.streams import StreamState
from tests.instep.alignment.driver_kit import KEYS, Driver
from tests.instep.alignment.model_log_kit import TOMBSTONE_RETENTION_S, US, ModelLog
from tests.properties_kit import few

LOST_S = TOMBSTONE_RETENTION_S + 60
SPANS_S = st.sampled_from([LOST_S, 1.0, 15.0, 50.0, 300.0, 700.0, 3600.0, LOST_S])
COUNTS = st.integers(1, 8)
PARTITIONS = st.integers(0, 2)


class Change(NamedTuple):
    """An entity is stated, or ended by these records, which may share their place."""

    key: str
    ends: tuple[RecordType, ...] = ()
    shares: bool = False


BOTH = (RecordType.DELETE, RecordType.TOMBSTONE)
CHANGES = st.lists(
    st.sampled_from(
        [Change(key, (RecordType.TOMBSTONE,)) for key in KEYS]
        + [Change(key) for key in KEYS]
        + [
            Change(key, ends, shares)
            for key in KEYS
            for ends, shares in [(BOTH, False), (BOTH, True)]
        ]
        + [Change(key, (RecordType.DELETE,)) for key in KEYS]
    ),
    max_size=5,
)
Changes = list[Change]


def connected(machine: AlignmentMachine) -> bool:
    return machine.driver.feed is not None


class AlignmentMachine(RuleBasedStateMachine):
    """An unpredictable provider, a network that fails, a process that dies."""

    driver: Driver

    @initialize(
        partitions=st.integers(1, 3),
        offsets=st.sampled_from([True, True, False]),
        anchored=st.booleans(),
        aligned=st.sampled_from([True, True, False]),
    )
    def begin(self, partitions: int, offsets: bool, anchored: bool, aligned: bool) -> None:
        # Without offsets partitions cannot be distinguished, so there is one.
        self.driver = Driver(ModelLog(partitions if offsets else 1, offsets, anchored))
        for key in KEYS:
            self.driver.log.now_us += US
            self.driver.log.put(key)
        if aligned:
            self.driver.settle()

    # -- the provider ----------------------------------------------------------------------------

    @rule(changes=CHANGES)
    def change(self, changes: Changes) -> None:
        log = self.driver.log
        for key, ends, shares in changes:
            if not ends:
                log.put(key)
            elif key in log.alive:
                log.end(key, *ends, shares=shares)

    @rule(elsewhere=st.booleans(), dies=st.booleans())
    def lose_log(self, elsewhere: bool, dies: bool) -> None:
        self.lose_connection(dies)
        self.driver.log.lose(elsewhere=elsewhere)

    @rule(state=st.sampled_from([StreamState.ACTIVE, StreamState.PAUSED]))
    def hold_back(self, state: StreamState) -> None:
        self.driver.log.state = state

    # -- the network and the process -------------------------------------------------------------

    @precondition(lambda self: not connected(self))
    @rule(rewind=st.sampled_from([0, 0, 0, 1, 3, 100]), restart=st.booleans(), refuse=st.booleans())
    def connect(self, rewind: int, restart: bool, refuse: bool) -> None:
        self.driver.open(rewind=rewind, restart=restart, refuse=refuse)

    @precondition(connected)
    @rule(dies=st.booleans())
    def lose_connection(self, dies: bool) -> None:
        """Lose the connection by the network, or because the process died."""
        if dies:
            self.driver.crash()
        elif self.driver.feed is not None:
            self.driver.close()

    @rule(before=CHANGES, seconds=SPANS_S, after=CHANGES, dies=st.booleans())
    def be_away(self, before: Changes, seconds: float, after: Changes, dies: bool) -> None:
        """Lose the connection for a while; meanwhile entities change, and the log compacts what it
        may.
        """
        self.lose_connection(dies)
        self.change(before)
        self.driver.log.now_us += int(seconds * US)
        self.driver.log.compact()
        self.change(after)
        self.driver.open()

    @precondition(connected)
    @rule(most=COUNTS, prefer=PARTITIONS)
    def deliver(self, most: int, prefer: int) -> None:
        self.driver.deliver(most, prefer)

    @precondition(connected)
    @rule(most=COUNTS, prefer=PARTITIONS, durable=st.booleans(), dies=st.booleans())
    def fail_in_commit(self, most: int, prefer: int, durable: bool, dies: bool) -> None:
        """A batch is decided on and committed, or not; the alignment is not informed which."""
        driver = self.driver
        chunk = driver.read(most, prefer)
        if chunk is None:
            return
        batch = driver.core.receive(chunk, driver.log.now_us)
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
            self.driver.log.compact()

    @precondition(connected)
    @rule(before=CHANGES, seconds=SPANS_S, after=CHANGES, most=COUNTS, prefer=PARTITIONS)
    def read_late(
        self, before: Changes, seconds: float, after: Changes, most: int, prefer: int
    ) -> None:
        """The consumer is busy meanwhile: it neither reads nor ticks."""
        self.change(before)
        self.driver.log.now_us += int(seconds * US)
        self.driver.log.compact()
        self.change(after)
        self.driver.deliver(most, prefer)

    @precondition(connected)
    @rule()
    def realign(self) -> None:
        self.driver.core.realign("the operator asks for it")
        self.driver.carry_out()

    @precondition(lambda self: self.driver.core.position.phase is Phase.SWEEP_HELD)
    @rule()
    def release(self) -> None:
        self.driver.core.release_sweep()

    # -- what holds after each step ----------------------------------------------------------------

    @invariant()
    def position_is_not_ahead(self) -> None:
        if hasattr(self, "driver"):
            self.driver.check_position()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.converges()


TestAlignment = pytest.mark.hypothesis(AlignmentMachine.TestCase)
# Short runs: what went wrong is seen at their end, unless another attempt mended it on the way.
TestAlignment.settings = few(150, stateful_step_count=12)
