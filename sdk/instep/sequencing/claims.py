"""The claims that a durable state allows towards the peer (S3)."""

from __future__ import annotations

from itertools import islice

from instep.model.ranges import RangeMap, Ranges
from instep.sequencing.effects import REPORTED_RANGES, Pairs
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import FINAL, REFUSALS, Refusal

__all__ = ["Claims"]


class Claims:
    """The claims towards the peer of one `SequencerState`. Results are copies for the caller.

    They are true once that state is committed: a driver answers an envelope with the claims of the
    checkpoint that it stored for it (S3, S11).
    """

    __slots__ = ("settings", "state")

    def __init__(self, state: SequencerState, settings: SequencerSettings) -> None:
        self.state = state
        self.settings = settings

    def __repr__(self) -> str:
        return f"<Claims {self.state.phase!s}, {self.acknowledged()!r}>"

    @property
    def final(self) -> bool:
        """Whether the acknowledged numbers will never change (SequenceAcknowledgement/Final)."""
        return self.state.phase in FINAL

    @property
    def highest(self) -> int | None:
        """The highest number that ever arrived or was filled; None before the first. It never goes
        back, even where the message is dropped later.
        """
        received = self.state.received.last
        highest = max(-1 if received is None else received, self.state.highest_seen)
        return None if highest < 0 else highest

    def acknowledged(self) -> Ranges:
        """The ranges to acknowledge (AcknowledgementRange), without cancelled numbers (S5)."""
        received = self.state.received.copy()
        if not self.settings.acknowledge_buffered:
            for buffered in self.state.buffered:
                received.remove(buffered.number, buffered.number)
        return received

    def cancelled(self) -> Ranges:
        """The ranges promised never to be accepted (SequenceCancelAcknowledgement; S5)."""
        return self.state.cancelled.copy()

    def faulted(self) -> RangeMap[Refusal]:
        """The ranges answered with a fault and not replaced, and why (ReplyRange/@fault; S6)."""
        return self.state.faulted.copy()

    def missing(self, limit_ranges: int = REPORTED_RANGES) -> Pairs:
        """The lowest ranges known to be missing and still wanted (Nack), up to the highest number
        that arrived or was announced; at most `limit_ranges`. Empty once the sequence accepts
        nothing.
        """
        state = self.state
        if state.phase in REFUSALS:
            return []
        ends = (self.highest, state.announced)
        highest = max((end for end in ends if end is not None), default=-1)
        settled = state.received | state.cancelled
        if self.settings.fault_policy is FaultPolicy.SKIP:
            settled.update(state.faulted.ranges())
        return list(islice(settled.gaps(state.next_number, highest), limit_ranges))
