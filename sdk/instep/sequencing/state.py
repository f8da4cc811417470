"""What must survive of a sequence: one value, stored in the transaction of its messages."""

from __future__ import annotations

import msgspec

from instep.model.ranges import Ranges
from instep.sequencing.transitions import SequencePhase

__all__ = ["REMEMBERED_DIGESTS", "BufferedMessage", "SequencerState"]

REMEMBERED_DIGESTS = 8
"""Contents that are still compared with a repetition after delivery (SDPi R0802: the last one)."""


class BufferedMessage(msgspec.Struct, array_like=True, gc=False):
    """A message that waits for its turn; its body is in the store's inbox."""

    number: int
    digest: bytes
    size_bytes: int
    expires_at_us: int
    buffered_at_us: int


class SequencerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A sequence as committed. Constant in size without gaps, O(g) with g gaps, plus what is held.

    It is replaced whole, never edited.
    """

    next_number: int
    """The number whose turn it is: all below it are settled."""
    phase: SequencePhase = SequencePhase.OPEN
    received: Ranges = msgspec.field(default_factory=Ranges)
    """Received or filled."""
    cancelled: Ranges = msgspec.field(default_factory=Ranges)
    """Never to be accepted (S5)."""
    faulted: Ranges = msgspec.field(default_factory=Ranges)
    """Answered with a fault, and not replaced since (S6, S7)."""
    buffered: list[BufferedMessage] = []
    """In the order of arrival."""
    last_number: int | None = None
    announced: int | None = None
    """The highest number that the sender is known to have used without our having it."""
    announced_at_us: int = 0
    asked_to: list[int] = []
    """For each time that a gap's policy acted on our turn: the highest number known."""
    acted_at_us: int = 0
    """When a gap's policy last acted."""
    recent: list[tuple[int, bytes]] = []
    """Digests of what was last accepted, oldest first."""
    epoch: int = 0
    """Counts the resets: numbers compare only within one epoch."""
