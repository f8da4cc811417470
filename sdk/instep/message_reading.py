"""What a store shows of numbered sequences: their state, and the messages delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

import msgspec

from instep.sequence_state import SequencerState

__all__ = ["ReadsMessages", "SequenceStatus", "StoredMessage"]


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered message; reading goes on after its `cursor`."""

    cursor: int
    """Grows in the order of delivery."""
    stream: str
    """The scope: one numbered sequence."""
    number: int
    """-1: it belongs to no sequence."""
    id: str
    sender: str
    received_at_us: int
    delivered_at_us: int
    body: bytes
    attributes: bytes = b"{}"
    consumer: str = ""


class SequenceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence of one consumer, as durable in the store."""

    consumer: str
    stream: str
    state: SequencerState
    """Without what is held, which is counted."""
    held: int
    """Messages behind a gap."""
    waiting: int
    """Messages whose turn has come, and that the handler has not taken."""
    blocked: bool
    """It waits for a decision about a message in quarantine."""
    error: str
    """Why the handler failed last; empty when it has not."""
    updated_at_us: int


@runtime_checkable
class ReadsMessages(Protocol):
    """A reader of a store that keeps messages. Raises `SinkError`."""

    def sequences(self, *, stream: str | None = None) -> AsyncIterator[SequenceStatus]:
        """Sequences in the order in which they first came, read in pages."""
        ...

    def messages(
        self, cursor: int = 0, *, stream: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Messages delivered to the store after `cursor`, in the order of delivery."""
        ...

    async def deliver_again(self, id: int) -> bool:
        """Let the handler try a message in quarantine again, and mark it replayed there; False for
        what is not a message. The consumer, running now or later, delivers it.
        """
        ...
