"""The phases of an alignment and what moves them, as data. Whatever is not listed is illegal.

The diagrams of the documentation are drawn from this table.
"""

from __future__ import annotations

from enum import StrEnum

from instep.model.position import Phase
from instep.model.state_machine import next_state

__all__ = ["TRANSITIONS", "AlignmentEvent", "phase_after"]


class AlignmentEvent(StrEnum):
    """What moves an alignment from one phase to another."""

    ATTEMPT_OPENED = "attempt opened"
    """The stream was opened from its oldest record (TR-548 ST-2.1 step 1, ST-2.2 step 4)."""
    BASELINE_OPENED = "baseline opened"
    """The stream was opened and is held, current state is about to be read."""
    BASELINE_READ = "baseline read"
    """Current state was read whole and committed."""
    SWEEP_BEGUN = "sweep begun"
    """Enough was seen, and the guard lets the sweep pass (ST-2.2 step 7)."""
    SWEEP_HELD = "sweep held"
    """Enough was seen, and the guard holds the sweep (A6)."""
    SWEPT = "swept"
    """Nothing unmarked is left (ST-2.2 step 8)."""
    DOUBTED = "doubted"
    """Nothing proves that the stream goes on where it was left (A2)."""
    PROVEN = "proven"
    """It goes on where it was left, and the store was aligned then."""
    PROVEN_IN_ATTEMPT = "proven in an attempt"
    """It goes on where it was left, and so does the attempt that was open then."""
    LOG_FILLED = "log filled"
    """A record came after all, of a log that looked empty when the sweep was held (A19)."""
    LOST = "lost"
    """Records were read after the tombstones beside them had left the log, and realigning in a row
    did not help (A8)."""


_OPENINGS = {
    AlignmentEvent.ATTEMPT_OPENED: Phase.ALIGNING,
    AlignmentEvent.BASELINE_OPENED: Phase.BASELINING,
}

TRANSITIONS: dict[Phase, dict[AlignmentEvent, Phase]] = {
    Phase.UNALIGNED: _OPENINGS,
    Phase.ALIGNING: {
        **_OPENINGS,
        AlignmentEvent.SWEEP_BEGUN: Phase.SWEEPING,
        AlignmentEvent.SWEEP_HELD: Phase.SWEEP_HELD,
        AlignmentEvent.DOUBTED: Phase.CONFIRMING,
        AlignmentEvent.LOST: Phase.LOST,
    },
    Phase.BASELINING: {**_OPENINGS, AlignmentEvent.BASELINE_READ: Phase.ALIGNING},
    Phase.SWEEPING: {
        **_OPENINGS,
        AlignmentEvent.SWEPT: Phase.ALIGNED,
        AlignmentEvent.DOUBTED: Phase.CONFIRMING,
        AlignmentEvent.LOST: Phase.LOST,
    },
    Phase.SWEEP_HELD: {
        **_OPENINGS,
        AlignmentEvent.SWEEP_BEGUN: Phase.SWEEPING,
        AlignmentEvent.SWEEP_HELD: Phase.SWEEP_HELD,
        AlignmentEvent.LOG_FILLED: Phase.ALIGNING,
        AlignmentEvent.DOUBTED: Phase.CONFIRMING,
        AlignmentEvent.LOST: Phase.LOST,
    },
    Phase.ALIGNED: {
        **_OPENINGS,
        AlignmentEvent.DOUBTED: Phase.CONFIRMING,
        AlignmentEvent.LOST: Phase.LOST,
    },
    Phase.CONFIRMING: {
        **_OPENINGS,
        AlignmentEvent.DOUBTED: Phase.CONFIRMING,
        AlignmentEvent.PROVEN: Phase.ALIGNED,
        AlignmentEvent.PROVEN_IN_ATTEMPT: Phase.ALIGNING,
        AlignmentEvent.LOST: Phase.LOST,
    },
    Phase.LOST: _OPENINGS,
}


def phase_after(phase: Phase, event: AlignmentEvent) -> Phase:
    """The phase that follows. Raises `IllegalTransition`, which leaves everything as it was."""
    return next_state(TRANSITIONS, phase, event)
