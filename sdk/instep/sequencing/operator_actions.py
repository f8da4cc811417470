"""What an operator can do about a sequence, and whether its phase allows it. Pure.

The command that asks and the process that does it read the same answer: done, or why not, with the
command that works.
"""

from __future__ import annotations

from enum import StrEnum

from instep.sequencing.claims import Claims
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import REFUSALS, SequencePhase

__all__ = ["OperatorAction", "why_not"]


class OperatorAction(StrEnum):
    """What an operator can do about a sequence that is stuck."""

    GIVE_UP = "give-up"
    """Go on without the numbers that did not arrive, up to a number: they are reported as lost.
    In a sequence that has failed, what it kept is delivered."""
    RESET = "reset"
    """Begin anew, also after a failure, at a number: messages behind a gap go to the dead letter.
    """
    CLOSE = "close"
    """Accept nothing more; in time the sequence is forgotten."""
    RESUME = "resume"
    """Accept messages again after a failure: what is missing may come, and what was kept follows.
    """
    REPLAY = "replay"
    """Deliver a message of the dead letter."""
    RECOUNT = "recount"
    """Count the dead letter anew: another process has removed some of it."""


_OVER = frozenset({SequencePhase.COMPLETE, SequencePhase.CLOSED, SequencePhase.TERMINATED})


def why_not(
    state: SequencerState,
    settings: SequencerSettings,
    action: OperatorAction,
    number: int | None,
    *,
    held: bool | None = None,
) -> str:
    """Why a sequence in this state does not take the action, with the one that works; empty: it
    does. `held`: whether messages are buffered, where the state does not have them.
    """
    phase = state.phase
    held = bool(state.buffered) if held is None else held
    top = settings.max_number
    if number is not None and not settings.first_number <= number <= top:
        return f"{number} is not within the numbers {settings.first_number}-{top}"
    match action:
        case OperatorAction.GIVE_UP:
            return _why_not_give_up(state, settings, number, held=held)
        case OperatorAction.CLOSE if phase is SequencePhase.FAILED:
            return (
                "it has failed and accepts nothing: `give-up` delivers what it kept, `resume` lets"
                " it go on, `reset` begins anew"
            )
        case OperatorAction.CLOSE if phase in (SequencePhase.CLOSED, SequencePhase.TERMINATED):
            return f"it is {phase!s}: it accepts nothing already; `reset` begins anew"
        case OperatorAction.RESUME if phase in _OVER:
            return f"it is {phase!s}, and what it acknowledged is final: `reset` begins anew"
        case OperatorAction.RESUME if phase is not SequencePhase.FAILED:
            return f"it is {phase!s}, it has not failed: `give-up` ends a gap"
        case _:
            return ""


def _why_not_give_up(
    state: SequencerState, settings: SequencerSettings, number: int | None, *, held: bool
) -> str:
    phase = state.phase
    if phase in _OVER and not held:
        return f"it is {phase!s}, and nothing waits in it: `reset` begins anew"
    if phase is SequencePhase.FAILED and not held:
        return (
            "it has failed, and kept no message that waits: `resume` lets it go on, `reset` begins"
            " anew; `instep messages dead list` shows what was not delivered"
        )
    highest = Claims(state, settings).highest
    if phase not in REFUSALS and number is None and not Claims(state, settings).missing(1):
        return "nothing is missing: --through N gives up numbers that nobody has sent"
    if number is None and highest is None:
        return "nothing is missing"
    if number is not None and number < state.next_number:
        return f"nothing is missing up to {number}: the next number is {state.next_number}"
    return ""
