"""Read access to a store, beside the consumer that writes it. Used by the command line and by
subscribers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from instep.coordination.lease import LeaseState
from instep.model.records import RecordChunk

if TYPE_CHECKING:
    from instep.model.streams import SweepEstimate
from instep.model.entities import Change, Quarantined, StoredEntity, StreamStatus
from instep.model.messages import StoredMessage
from instep.sequencing.state import SequencerState

__all__ = [
    "SequenceStatus",
    "StoreReader",
    "SupportsLeaseHandover",
    "SupportsMessageReading",
    "SupportsSweepRelease",
]


class StoreReader(Protocol):
    """Read access to a store, beside the consumer that writes it. Raises `SinkError`."""

    async def streams(self) -> list[StreamStatus]: ...

    def entities(
        self, *, stream: str | None = None, entity_class: str | None = None
    ) -> AsyncIterator[StoredEntity]:
        """Entities in a stable order, read in pages: memory does not grow with the store."""
        ...

    def changes(
        self, cursor: int = 0, *, stream: str | None = None, follow: bool = False
    ) -> AsyncIterator[Change]:
        """The journal after `cursor`, in order of commit; with `follow` it waits for more."""
        ...

    def quarantine(
        self, *, stream: str | None = None, id: int | None = None
    ) -> AsyncIterator[Quarantined]: ...

    async def replay(self, id: int, chunk: RecordChunk) -> int:
        """Commit what a quarantined record turned out to say, by rule A3, and mark it replayed;
        returns entities changed.
        """
        ...

    async def drop(self, ids: Sequence[int] | None = None, *, stream: str | None = None) -> int:
        """Forget records in quarantine for good: these, or all (of a stream); returns how many."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class SupportsSweepRelease(Protocol):
    """A reader through which a held sweep can be looked at and released (A6)."""

    async def estimate_sweep(self, consumer: str, stream: str, attempt: int) -> SweepEstimate:
        """What the sweep of this attempt would remove."""
        ...

    async def release_sweep(self, consumer: str, stream: str, attempt: int) -> None:
        """Durably let the sweep of this attempt go on, whichever process consumes."""
        ...


@runtime_checkable
class SupportsLeaseHandover(Protocol):
    """A reader that tells which process consumes, of those that could."""

    async def leases(self) -> dict[str, LeaseState]:
        """By consumer; consumers without a lease are not in it."""
        ...

    async def ask_to_hand_over(self, consumer: str) -> LeaseState:
        """Let the holder give its lease up at its next beat; returns the lease as it was. Raises
        `SinkError` where nobody holds it.
        """
        ...


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
class SupportsMessageReading(Protocol):
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
