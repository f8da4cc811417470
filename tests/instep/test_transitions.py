"""The table of phases: what it does not list raises and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from instep import CommitResult, Phase, Position
from instep.alignment import Alignment
from instep.ports import Census
from instep.records import Batch
from instep.transitions import TRANSITIONS, Event, IllegalTransition, after
from tests.instep.logdriver import SETTINGS
from tests.instep.logmodel import T0_US, ModelLog

PAIRS = [(phase, event) for phase in Phase for event in Event]
LEGAL = {(phase, event) for phase, events in TRANSITIONS.items() for event in events}


@pytest.mark.parametrize(("phase", "event"), PAIRS)
def test_what_is_not_listed_raises(phase: Phase, event: Event) -> None:
    if (phase, event) in LEGAL:
        assert after(phase, event) is TRANSITIONS[phase][event]
        return
    with pytest.raises(IllegalTransition) as raised:
        after(phase, event)
    assert (raised.value.phase, raised.value.event) == (phase, event)


def test_every_phase_is_listed_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(Phase)
    reached = {phase for events in TRANSITIONS.values() for phase in events.values()}
    assert reached == set(Phase) - {Phase.UNALIGNED}


def test_an_attempt_can_be_opened_from_every_phase() -> None:
    for phase in Phase:
        assert after(phase, Event.ATTEMPT_OPENED) is Phase.ALIGNING
        assert after(phase, Event.BASELINE_OPENED) is Phase.BASELINING


def _swept(core: Alignment) -> None:
    batch = Batch("model", core.position, 0)
    core.committed(batch, CommitResult())
    core._move(Event.SWEPT)


CALLS: dict[Event, Callable[[Alignment], None]] = {
    Event.BASELINE_READ: lambda core: core.baseline_read(T0_US),
    Event.SWEEP_BEGUN: lambda core: core.release_sweep(),
    Event.SWEEP_HELD: lambda core: core.census(Census(1_000, 999)),
    Event.SWEPT: _swept,
}


@pytest.mark.parametrize(
    ("phase", "event"), [pair for pair in PAIRS if pair not in LEGAL and pair[1] in CALLS]
)
def test_an_illegal_event_leaves_the_state_unchanged(phase: Phase, event: Event) -> None:
    position = Position(phase=phase, attempt=3, token="0:1", offsets={"0": 1}, ordinal=7)
    core = Alignment(ModelLog().info, position, SETTINGS)
    with pytest.raises(IllegalTransition):
        CALLS[event](core)
    assert core.position == position
    assert core.durable == position
    assert core.effects() == []
    assert not core.restless or phase is Phase.SWEEPING
    assert msgspec.structs.asdict(core.position) == msgspec.structs.asdict(position)
