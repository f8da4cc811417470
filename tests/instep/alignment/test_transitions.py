"""The table of phases: what it does not list raises and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from instep import Phase, Position
from instep.alignment.machine import Alignment
from instep.alignment.transitions import TRANSITIONS, AlignmentEvent, phase_after
from instep.model import CommitResult
from instep.model.batches import Batch
from instep.model.state_machine import IllegalTransition
from instep.model.streams import SweepEstimate
from tests.instep.alignment.driver_kit import SETTINGS
from tests.instep.alignment.model_log_kit import T0_US, ModelLog

PHASES = [phase for phase in Phase if phase is not Phase.NOT_OFFERED]
"""The last one is no state of the machine."""
PAIRS = [(phase, event) for phase in PHASES for event in AlignmentEvent]
LEGAL = {(phase, event) for phase, events in TRANSITIONS.items() for event in events}


@pytest.mark.parametrize(("phase", "event"), PAIRS)
def test_what_is_not_listed_raises(phase: Phase, event: AlignmentEvent) -> None:
    if (phase, event) in LEGAL:
        assert phase_after(phase, event) is TRANSITIONS[phase][event]
        return
    with pytest.raises(IllegalTransition) as raised:
        phase_after(phase, event)
    assert (raised.value.state, raised.value.event) == (phase, event)


def test_every_phase_is_listed_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(PHASES)
    reached = {phase for events in TRANSITIONS.values() for phase in events.values()}
    assert reached == set(PHASES) - {Phase.UNALIGNED}


def test_an_attempt_can_be_opened_from_every_phase() -> None:
    for phase in PHASES:
        assert phase_after(phase, AlignmentEvent.ATTEMPT_OPENED) is Phase.ALIGNING
        assert phase_after(phase, AlignmentEvent.BASELINE_OPENED) is Phase.BASELINING


def _swept(core: Alignment) -> None:
    batch = Batch("model", core.position, 0)
    core.committed(batch, CommitResult())
    core._move(AlignmentEvent.SWEPT)


CALLS: dict[AlignmentEvent, Callable[[Alignment], None]] = {
    AlignmentEvent.BASELINE_READ: lambda core: core.baseline_read(T0_US),
    AlignmentEvent.SWEEP_BEGUN: lambda core: core.release_sweep(),
    AlignmentEvent.SWEEP_HELD: lambda core: core.sweep_estimated(SweepEstimate(1_000, 999)),
    AlignmentEvent.SWEPT: _swept,
}


@pytest.mark.parametrize(
    ("phase", "event"), [pair for pair in PAIRS if pair not in LEGAL and pair[1] in CALLS]
)
def test_an_illegal_event_leaves_the_state_unchanged(phase: Phase, event: AlignmentEvent) -> None:
    position = Position(phase=phase, attempt=3, token="0:1", offsets={"0": 1}, ordinal=7)
    core = Alignment(ModelLog().info, position, SETTINGS)
    with pytest.raises(IllegalTransition):
        CALLS[event](core)
    assert core.position == position
    assert core.durable == position
    assert core.effects() == []
    assert not core.has_pending_commit or phase is Phase.SWEEPING
    assert msgspec.structs.asdict(core.position) == msgspec.structs.asdict(position)
