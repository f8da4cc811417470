"""The phases of a numbered sequence and their transitions, as data. All others are illegal.

The diagrams of the documentation are drawn from these tables.
"""

from __future__ import annotations

from enum import StrEnum

from instep.errors import InstepError
from instep.model.state_machine import IllegalTransition, next_state

__all__ = [
    "FINAL",
    "REFUSALS",
    "SEQUENCE_TRANSITIONS",
    "Refusal",
    "SequenceEvent",
    "SequencePhase",
    "SequenceRefusedError",
    "phase_after",
    "phase_after_request",
]


class SequencePhase(StrEnum):
    """The phase of a sequence, from open to terminated."""

    OPEN = "open"
    ENDING = "ending"
    """The last number is known, lower ones are still accepted."""
    COMPLETE = "complete"
    """Every number up to the last one is accounted for."""
    CLOSED = "closed"
    """Nothing new is accepted; the acknowledgement is final."""
    FAILED = "failed"
    """Given up by a policy. It accepts nothing, and what is buffered stays as it is."""
    TERMINATED = "terminated"


class SequenceEvent(StrEnum):
    """An event that moves a sequence from one phase to another."""

    LAST_KNOWN = "last known"
    """LastMessage (WS-RM 1.0), `last="true"` (WS-Reliability)."""
    COMPLETED = "completed"
    CLOSE = "close"
    """CloseSequence (WS-RM 1.1)."""
    EXPIRED = "expired"
    """The sequence's own deadline passed (WS-RM Expires, WS-Reliability groupExpiryTime; S10)."""
    IDLE = "idle"
    """Nothing arrived for too long (InactivityTimeout, groupMaxIdleDuration; S10)."""
    FAIL = "fail"
    RESUME = "resume"
    """An operator lets a sequence that has failed go on."""
    TERMINATE = "terminate"
    RESET = "reset"
    """The sender numbers from the start again: a new subscription or sequence of this name."""


class Refusal(StrEnum):
    """Why a message or a request was refused; the adapter maps it to its protocol's fault."""

    FULL = "full"
    """No room behind the gap (503, 413, MessageProcessingFailure): may be sent again."""
    UNAVAILABLE = "unavailable"
    """The store cannot be reached, or commits nothing (503): may be sent again."""
    UNPROCESSABLE = "unprocessable"
    """We could not read or process it: other content may follow (MessageProcessingFailure)."""
    EXPIRED = "expired"
    """It arrived after its own deadline."""
    CANCELLED = "cancelled"
    """We promised never to accept this number."""
    GIVEN_UP = "given-up"
    """Delivery went on without this number."""
    TOO_FAR_AHEAD = "too-far-ahead"
    """Further ahead of the next number than `limit_jump` allows: it may be sent again, once those
    before it have come.
    """
    OUT_OF_REACH = "out-of-reach"
    """So far ahead that those before it will never come: a mistake, or an attack. It is final."""
    OUT_OF_RANGE = "out-of-range"
    """Before the first number, or after the highest (InvalidMessageId, MessageNumberRollover)."""
    BEYOND_LAST = "beyond-last"
    """After the last number (LastMessageNumberExceeded)."""
    TOO_MANY_GAPS = "too-many-gaps"
    """It would make the state exceed its limit of ranges (`limit_gaps`)."""
    CLOSED = "closed"
    """SequenceClosed."""
    FAILED = "failed"
    """GroupAborted, SequenceTerminated."""
    TERMINATED = "terminated"
    """SequenceTerminated, UnknownSequence."""
    EXISTS = "exists"
    """A sequence of this name is open already (S9)."""
    UNKNOWN = "unknown"
    """This sequence was never opened, or it was reclaimed (UnknownSequence; S9, S10)."""


class SequenceRefusedError(InstepError):
    """A request of the peer is not possible; nothing has changed. `refusal` is the reason."""

    code = "sequence-refused"

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message, refusal=refusal.value)
        self.refusal = refusal


_E, _P = SequenceEvent, SequencePhase
_ENDS = {_E.TERMINATE: _P.TERMINATED, _E.RESET: _P.OPEN}
_LIVE = {
    **_ENDS,
    _E.CLOSE: _P.CLOSED,
    _E.EXPIRED: _P.CLOSED,
    _E.IDLE: _P.CLOSED,
    _E.FAIL: _P.FAILED,
    _E.LAST_KNOWN: _P.ENDING,
}

SEQUENCE_TRANSITIONS: dict[SequencePhase, dict[SequenceEvent, SequencePhase]] = {
    _P.OPEN: _LIVE,
    _P.ENDING: {**_LIVE, _E.COMPLETED: _P.COMPLETE},
    _P.COMPLETE: {**_ENDS, _E.CLOSE: _P.CLOSED, _E.LAST_KNOWN: _P.COMPLETE},
    _P.CLOSED: {**_ENDS, _E.CLOSE: _P.CLOSED},
    _P.FAILED: {**_ENDS, _E.RESUME: _P.OPEN},
    _P.TERMINATED: _ENDS,
}

REFUSALS: dict[SequencePhase, Refusal] = {
    _P.COMPLETE: Refusal.BEYOND_LAST,
    _P.CLOSED: Refusal.CLOSED,
    _P.FAILED: Refusal.FAILED,
    _P.TERMINATED: Refusal.TERMINATED,
}
"""Phases that accept no new message, and the refusal that each returns."""

FINAL = frozenset({_P.CLOSED, _P.FAILED, _P.TERMINATED})
"""Phases in which the acknowledged numbers no longer change."""


def phase_after(phase: SequencePhase, event: SequenceEvent) -> SequencePhase:
    """The phase after an event of the sequence's own. Raises `IllegalTransition`."""
    return next_state(SEQUENCE_TRANSITIONS, phase, event)


def phase_after_request(phase: SequencePhase, event: SequenceEvent) -> SequencePhase:
    """The phase after a request of the peer, whose mistakes become refusals.

    Raises `SequenceRefusedError` where the phase refuses the event; nothing has changed then.
    Raises `IllegalTransition` for an event that no peer can request.
    """
    try:
        return phase_after(phase, event)
    except IllegalTransition:
        if phase not in REFUSALS:
            raise
        raise SequenceRefusedError(
            REFUSALS[phase], f"{event!s} is not possible while the sequence is {phase!s}"
        ) from None
