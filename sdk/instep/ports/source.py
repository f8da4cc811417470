"""A source: a provider of streams, and a feed, one open connection to one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from instep.model.position import Position
from instep.model.records import Record, RecordChunk
from instep.model.streams import Start, StreamInfo, StreamState

__all__ = ["Feed", "Source", "SupportsCommitted", "SupportsPing"]


class Feed(Protocol):
    """One open connection to one stream. Reading is bounded; not reading is back-pressure, not
    loss.
    """

    clock_offset_us: int
    """Provider's clock minus ours, as last seen; 0 where unknown."""

    async def receive(self) -> RecordChunk:
        """Wait for records and return all that have arrived, in order, at most the feed's own
        bound.

        A feed that has seen that the stream must be realigned says so in `RecordChunk.realign`.
        Cancelling loses nothing. Raises `SourceError`: the connection is over.
        """
        ...


@runtime_checkable
class SupportsCommitted(Protocol):
    """A feed whose peer waits for an answer: it learns what is durable, and answers only then (a
    2xx of a push protocol, an acknowledgement; S3). A feed without it is asked for nothing.
    """

    def committed(self, position: Position) -> None:
        """All up to this position is durable: of each partition, what lies up to its offset.

        Called after each commit made over this connection, in their order, also where no record was
        in it; from `Phase.BASELINING` on to another phase, the baseline is durable as a whole. Of
        consumers that share the connection it is the position that all of them have passed; its
        token is None where theirs differ. Called between two batches: it must not block or raise.
        """
        ...


@runtime_checkable
class SupportsPing(Protocol):
    """What a feed can tell besides: that its peer is there while no record comes. Silence counts
    for the end of the log only up to the last sign of life; without this, as long as it lasts.
    """

    @property
    def unheard_s(self) -> float:
        """Seconds since the last sign of life; what the peer had sent before it, was received."""
        ...

    async def ping(self) -> None:
        """Ask the peer for a sign of life, and do not wait for it. Never raises."""
        ...


class Source(Protocol):
    """A provider of streams. Owns login, discovery and connections."""

    async def discover(self) -> Sequence[StreamInfo]:
        """Log in, discover and select (TR-548 ST-0.1, ST-0.2). Raises `SourceError`."""
        ...

    def feed(self, stream: StreamInfo, start: str | Start) -> AbstractAsyncContextManager[Feed]:
        """Open a stream after a token, or from `Start` (TR-548 ST-0.3). Raises `SourceError` on
        entering.
        """
        ...

    def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        """Read current state class by class, as records without token appended at `opened_at_us`.

        Ends only when every readable class was read whole. Raises `BaselineError`.
        """
        ...

    async def state(self, stream: StreamInfo) -> StreamState:
        """The stream's state now (asked when a stream is silent). Raises `SourceError`."""
        ...

    async def close(self) -> None: ...
