"""The durable state of a sequence: one value, stored in the transaction of its messages."""

from __future__ import annotations

from typing import Final

import msgspec

from instep.model.ranges import RangeMap, Ranges
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal, SequencePhase

__all__ = ["BufferedMessage", "SequencerState", "decode_state"]


class BufferedMessage(msgspec.Struct, array_like=True, gc=False):
    """A message buffered until its number is next; its body is in the store's inbox."""

    number: int
    digest: bytes
    size_bytes: int
    expires_at_us: int
    buffered_at_us: int


class SequencerState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A sequence as committed. Its size is constant without gaps and O(g) with g gaps, plus the
    buffered messages.

    It is replaced whole, never edited. A field that a later version adds has a default, so that it
    reads what this one has stored.
    """

    next_number: int
    """The next expected number: all below it are accounted for."""
    phase: SequencePhase = SequencePhase.OPEN
    received: Ranges = msgspec.field(default_factory=Ranges)
    """Received or filled."""
    cancelled: Ranges = msgspec.field(default_factory=Ranges)
    """Never to be accepted (S5)."""
    faulted: RangeMap[Refusal] = msgspec.field(default_factory=RangeMap[Refusal])
    """Answered with a fault, and not replaced since (S6, S7): why, by number."""
    buffered: list[BufferedMessage] = []
    """In the order of arrival."""
    last_number: int | None = None
    announced: int | None = None
    """The highest number that the sender has used and that was not received."""
    announced_at_us: int = 0
    asked_to: list[int] = []
    """For each time that a gap's policy acted on `next_number`: the highest number known."""
    acted_at_us: int = 0
    """When a gap's policy last acted."""
    recent: list[tuple[int, bytes]] = []
    """Numbers and digests of the messages last accepted, oldest first."""
    epoch: int = 0
    """Counts the resets: numbers compare only within one epoch."""
    settings: SequencerSettings | None = None
    """The settings that the sequence was opened with (S9); None: those of its listener apply."""
    attributes: bytes = b""
    """What the adapter keeps of the opening (where to acknowledge, …); opaque (S9)."""
    highest_seen: int = -1
    """The highest number that arrived and is no longer in `received`; see `Claims.highest`."""
    expires_at_us: int = 0
    """When the sequence ends by itself (S10); 0: never."""
    active_at_us: int = 0
    """When the peer last sent something; kept only where the sequence may be idle too long."""
    ended_at_us: int = 0
    """When the sequence entered a phase that accepts nothing; 0: it accepts."""
    copies_until_us: int = 0
    """The latest deadline of a message: until then, copies may arrive."""
    reason: str = ""
    """Why the sequence has failed; empty: it has not."""
    resumed_at_us: int = 0
    """When an operator let it go on after a failure: gaps that were known then count from there."""
    content_changed: int = 0
    """How often a copy came with other content, without a fault between (S7)."""


decode_state: Final = msgspec.json.Decoder(SequencerState).decode
"""A state from its JSON. Raises `msgspec.DecodeError` where it is none."""
