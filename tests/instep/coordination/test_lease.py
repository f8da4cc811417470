"""The contenders of a pair against a model of a store: clocks go wrong, processes sleep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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

from instep.coordination.lease import (
    ROLES,
    LeaseContender,
    LeaseEvent,
    LeaseState,
    Role,
    role_after,
)
from instep.model.state_machine import IllegalTransition
from tests.properties_kit import few

LEASE_S = 6.0
CALLS = [(role, event) for role in Role for event in LeaseEvent]


def held(**changes: Any) -> LeaseState:
    return msgspec.structs.replace(
        LeaseState(epoch=1, beat=1, holder="other", lease_s=LEASE_S), **changes
    )


@pytest.mark.parametrize(("role", "event"), CALLS)
def test_what_is_not_listed_raises(role: Role, event: LeaseEvent) -> None:
    if event in ROLES[role]:
        assert role_after(role, event) is ROLES[role][event]
        return
    with pytest.raises(IllegalTransition, match=f"{event} is not possible while {role}"):
        role_after(role, event)


def test_an_illegal_event_leaves_the_contender_as_it_was() -> None:
    contender = LeaseContender("me", LEASE_S)
    for call in (contender.lost, lambda: contender.gave_up(0.0)):
        with pytest.raises(AssertionError):
            call()
    assert contender.role is Role.STANDBY


def test_a_free_lease_is_taken_at_once() -> None:
    assert LeaseContender("me", LEASE_S).saw(LeaseState(), 0.0)


def test_a_silent_holder_is_succeeded_within_its_lease_not_ours() -> None:
    contender = LeaseContender("me", 1.0)
    assert not contender.saw(held(), 0.0)
    assert not contender.saw(held(), 3.9)
    assert contender.saw(held(), 4.0)


def test_each_beat_begins_the_time_anew() -> None:
    contender = LeaseContender("me", LEASE_S)
    for second in range(60):
        assert not contender.saw(held(beat=second), float(second))


def test_a_contender_that_slept_looks_again_before_it_takes() -> None:
    contender = LeaseContender("me", LEASE_S)
    contender.saw(held(), 0.0)
    assert not contender.saw(held(beat=2), 1000.0)


def test_who_gives_up_lets_others_go_first_for_one_lease() -> None:
    contender = LeaseContender("me", LEASE_S)
    contender.took(held(holder="me"))
    contender.gave_up(10.0)
    free = held(holder="", beat=2)
    looks = [(contender.saw(free, at_s), contender.role) for at_s in (10.5, 16.0)]
    assert looks == [(False, Role.YIELDING), (True, Role.STANDBY)]


def test_who_gave_up_stands_by_for_the_successor() -> None:
    contender = LeaseContender("me", LEASE_S)
    contender.took(held(holder="me"))
    contender.gave_up(10.0)
    assert not contender.saw(held(epoch=2), 10.5)
    assert contender.role is Role.STANDBY


@dataclass
class Process:
    """A contender with a clock of its own; it can be stopped between any two steps."""

    contender: LeaseContender
    rate: float = 1.0
    ahead_s: float = 0.0
    stopped: bool = False
    wants: LeaseState | None = None
    """It decided to take this, and has not done it yet."""
    epoch: int = 0
    """What its transactions carry, once it held the lease."""

    def now_s(self, time_s: float) -> float:
        return time_s * self.rate + self.ahead_s


@dataclass
class Store:
    """A store in ten lines: a compare-and-set, and a fence."""

    state: LeaseState = field(default_factory=LeaseState)
    written: list[tuple[int, str]] = field(default_factory=list)

    def take(self, seen: LeaseState, holder: str) -> LeaseState | None:
        if (self.state.epoch, self.state.beat) != (seen.epoch, seen.beat):
            return None
        epoch, beat = seen.epoch + 1, seen.beat + 1
        self.state = LeaseState(epoch=epoch, beat=beat, holder=holder, lease_s=LEASE_S)
        return self.state

    def write(self, epoch: int, *, gives_up: bool = False) -> bool:
        """A transaction of the holder."""
        if self.state.epoch != epoch:
            return False
        self.written.append((epoch, self.state.holder))
        self.state = msgspec.structs.replace(self.state, beat=self.state.beat + 1)
        if gives_up:
            self.state = msgspec.structs.replace(self.state, epoch=epoch + 1, holder="")
        return True


NAMES = st.sampled_from(["a", "b", "c"])


class LeaseMachine(RuleBasedStateMachine):
    """Three contenders: whatever their clocks show, one writes at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.time_s = 0.0
        self.processes: dict[str, Process] = {}
        self.accepted: list[tuple[int, str]] = []

    @initialize(
        rates=st.tuples(*[st.floats(0.2, 5.0)] * 3), ahead=st.tuples(*[st.floats(0, 99)] * 3)
    )
    def begin(self, rates: tuple[float, ...], ahead: tuple[float, ...]) -> None:
        self.processes = {
            name: Process(LeaseContender(name, LEASE_S), rate, ahead_s)
            for name, rate, ahead_s in zip("abc", rates, ahead, strict=True)
        }

    @rule(seconds=st.floats(0.01, 3 * LEASE_S))
    def time_goes_by(self, seconds: float) -> None:
        self.time_s += seconds

    @rule(name=NAMES)
    def stops_or_wakes(self, name: str) -> None:
        self.processes[name].stopped = not self.processes[name].stopped

    @rule(name=NAMES, leap_s=st.floats(0.0, 3 * LEASE_S))
    def clock_leaps(self, name: str, leap_s: float) -> None:
        self.processes[name].ahead_s += leap_s

    def _look(self, process: Process) -> None:
        if process.contender.role is not Role.ACTIVE:
            now_s = process.now_s(self.time_s)
            take = process.contender.saw(self.store.state, now_s)
            process.wants = self.store.state if take else None

    def _take(self, process: Process) -> None:
        if process.wants is not None and process.contender.role is Role.STANDBY:
            taken = self.store.take(process.wants, process.contender.holder)
            if taken is not None:
                process.contender.took(taken)
                process.epoch = taken.epoch
        process.wants = None

    def _write(self, process: Process, *, gives_up: bool = False) -> None:
        if process.contender.role is Role.ACTIVE:
            if not self.store.write(process.epoch, gives_up=gives_up):
                process.contender.lost()
            else:
                self.accepted.append((process.epoch, process.contender.holder))
                if gives_up:
                    process.contender.gave_up(process.now_s(self.time_s))

    @rule(name=NAMES)
    def looks(self, name: str) -> None:
        if not self.processes[name].stopped:
            self._look(self.processes[name])

    @rule(name=NAMES)
    def takes(self, name: str) -> None:
        """Maybe long after it looked."""
        if not self.processes[name].stopped:
            self._take(self.processes[name])

    @rule(one=NAMES, other=NAMES)
    def two_see_the_same_and_take_it(self, one: str, other: str) -> None:
        both = [self.processes[name] for name in (one, other) if not self.processes[name].stopped]
        for process in both:
            self._look(process)
        for process in both:
            self._take(process)

    @rule(name=NAMES)
    def writes(self, name: str) -> None:
        if not self.processes[name].stopped:
            self._write(self.processes[name])

    @rule(name=NAMES)
    def gives_up(self, name: str) -> None:
        if not self.processes[name].stopped:
            self._write(self.processes[name], gives_up=True)

    @precondition(lambda self: self.processes)
    @rule()
    def left_alone_one_becomes_active(self) -> None:
        """Everybody wakes and no clock is slower than a fifth: then it takes some leases."""
        for process in self.processes.values():
            process.stopped = False
        for _ in range(200):
            self.time_s += LEASE_S / 12
            for process in self.processes.values():
                self._look(process)
                self._take(process)
                self._write(process)
        holders = [p for p in self.processes.values() if p.contender.role is Role.ACTIVE]
        assert [p.contender.holder for p in holders] == [self.store.state.holder]

    @invariant()
    def one_writer_an_epoch_and_epochs_in_order(self) -> None:
        assert self.accepted == self.store.written
        epochs = [epoch for epoch, _ in self.accepted]
        assert epochs == sorted(epochs)
        assert len({*self.accepted}) == len({*epochs})

    @invariant()
    def no_two_would_be_accepted(self) -> None:
        held = [
            process.contender.holder
            for process in self.processes.values()
            if process.contender.role is Role.ACTIVE and process.epoch == self.store.state.epoch
        ]
        assert len(held) <= 1


TestLease = LeaseMachine.TestCase
TestLease.settings = few(60, many=2_000, stateful_step_count=60)
