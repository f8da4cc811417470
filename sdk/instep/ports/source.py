"""A source: a provider of streams, and a feed, one open connection to one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from instep.errors import BaselineError
from instep.model.entities import StoredEntity
from instep.model.freshness import ProviderMonitor
from instep.model.lookups import LookupAnswer
from instep.model.position import Position
from instep.model.records import Record, RecordChunk
from instep.model.streams import Start, StreamInfo, StreamState

__all__ = ["Feed", "Source"]


class Feed(ABC):
    """One open connection to one stream, from one place of its log on.

    A feed inherits this class; `Source.feed` makes it. Members that are not abstract have the
    default of a connection that lacks the information. Promised: every record after the place of
    the opening is returned once and in the order of its partition, until `receive` raises. Memory
    is bounded: not reading is back-pressure, not loss. Not promised: order between partitions, and
    offsets without gaps.
    """

    clock_offset_us: int = 0
    """The provider's clock minus ours (`instep.runtime.clock.steady_now`), as last seen; 0 where
    unknown. Read when the feed is opened.
    """
    clock_error_us: int = 0
    """How far `clock_offset_us` may be wrong. The rows of a baseline are dated that much earlier,
    so that no record appended since the opening looks older (A14). No sweep rests on a record that
    may have been appended before the opening (A5).
    """

    detects_dead_peer: bool = False
    """Whether `receive` raises by itself where the peer is gone and the connection half open. Then
    an aligned stream is asked less often, the longer it is silent.
    """
    heard_within_s: float | None = None
    """From which `silent_s` on a peer that was read all the time is gone; None where that is not
    known: then silence says nothing of the peer.
    """
    peer_waits: bool = False
    """Whether the peer waits for `committed` before it sends on: then nothing is gained by waiting
    for more records.
    """

    @abstractmethod
    async def receive(self) -> RecordChunk:
        """Wait for records, and return what has arrived, in order, up to the feed's own bound.

        It does not wait for more: one record is a chunk, too. A chunk is buffered and committed
        whole, so it should have a few thousand records at most.

        A feed that has detected that the stream must be realigned sets `RecordChunk.realign`.
        Only one task calls it at a time. Cancelling it loses nothing: the next call returns what
        this one would have. Raises `SourceError` when the connection is over, and not before all
        that arrived was returned; the feed is then only closed.
        """

    def committed(self, position: Position) -> None:  # noqa: B027
        """Report that all records up to this position are durable: those of each partition up to
        its offset.

        For a feed whose peer waits for an answer: it answers only then (a 2xx of a push protocol,
        an acknowledgement; S3). Called after each commit made over this connection, in their order,
        also where no record was in it; from `Phase.BASELINING` on to another phase, the baseline is
        durable as a whole. Of consumers that share the connection it is the position that all of
        them have passed; its token is None where theirs differ. Called between two batches: it must
        not block or raise.
        """

    @property
    def unheard_s(self) -> float:
        """Seconds since the last sign of life of the peer; all that it sent before was received.
        What comes within a message that is not complete yet is no such sign.

        Silence counts as the end of the log only up to the last sign of life (A5). The default 0.0
        attributes every silence to the provider: a connection that can be half open must return
        the real time.
        """
        return 0.0

    @property
    def silent_s(self) -> float:
        """Seconds since anything came from the peer, also within a message. The default is
        `unheard_s`.
        """
        return self.unheard_s

    @property
    def under_way_s(self) -> float:
        """Seconds between the last sign of life before the records that `receive` returned last,
        and their return. These records may have been under way for so long.

        The silence before them counts only up to that sign of life (A5). The default 0.0 is for a
        connection on which records arrive at once.
        """
        return 0.0

    async def ping(self) -> None:  # noqa: B027 - a feed without it has nothing to ask
        """Ask the peer for a sign of life, and do not wait for it. Never raises."""


class Source(ABC):
    """A provider of streams. It owns login, discovery and connections.

    A source inherits this class. Promised (`instep.testing.check_source` proves it): a feed opened
    at `Start.OLDEST` returns the log from its oldest record; one opened after a token continues
    after it, repeats that record first (at-least-once), or starts from the oldest record where the
    token is lost (TR-548 5.2.9), or raises `TokenRefusedError`; entity-keys and tokens are
    the same on every connection. Deviations of a provider are counted in the chunks, never raised
    (A10); what cannot be read is given as `Unreadable`, never dropped (A11).

    All methods run in the consumer's event loop and must not block it. Each may be cancelled at any
    await; nothing stays open then. Errors are `SourceError`s whose `retriable` is right: the
    consumer retries those and ends with the others. `suggests_restart` is set where an error shows
    that the provider may have been restarted: the offset right behind ours proves nothing then.
    """

    @abstractmethod
    async def discover(self) -> Sequence[StreamInfo]:
        """Log in, and return the streams to follow, each id once (TR-548 ST-0.1, ST-0.2).

        Called at the start, when a stream cannot be opened, and from time to time, since streams
        may appear. Raises `NoStreamError` where
        nothing fits, `AuthenticationError`, `DiscoveryError`, `UnreachableError`.
        """

    def reconfigure(self, options: Mapping[str, Any], where: str) -> Collection[str]:
        """Take over changed options, which were checked, without closing a connection.

        Returns the keys that it does not take over, the empty one for all: they need a restart. The
        default takes over nothing.
        """
        return ("",)

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        """The stream as the provider declares it now, under the same id.

        It is asked for before the stream is opened again, because retentions may change while it
        lives (TR-548 3.7.1). It is also asked for before the sweep of a baseline whose records are
        compared by their times, for the clock of the provider (A14).

        The default is the stream as it was discovered. Raises `SourceError`; the stream is then
        opened as it is known. `StreamGoneError`: it is not offered under its uuid, so a discovery
        looks for it first (A2, A20).
        """
        return stream

    @abstractmethod
    def feed(self, stream: StreamInfo, start: str | Start) -> AbstractAsyncContextManager[Feed]:
        """Open a stream after the record with this token, or from `Start` (TR-548 ST-0.3).

        The connection is open when the context is entered, and is closed when it is left, in the
        same task. Several may be open at once, of one stream too. Raises on entering:
        `TokenRefusedError` (for `Start.LATEST`, too, where the provider does not know it),
        `StreamGoneError` (discover again), `UnreachableError`.
        """

    def probe(self, stream: StreamInfo) -> AbstractAsyncContextManager[Feed]:
        """Open a stream at its oldest record for a moment, beside the connection that is open
        (A2).

        Raises as `feed` does: `data["status"]` states that the provider has refused. The default is
        `feed`. A source that draws conclusions from an opening that fails draws none from this one.
        """
        return self.feed(stream, Start.OLDEST)

    def baseline(
        self, stream: StreamInfo, opened_at_us: int
    ) -> AsyncIterator[list[Record] | RecordChunk]:
        """Read the current state of a stream in `Mode.BASELINE`, in pages of records without token,
        appended at `opened_at_us`. A page is a `RecordChunk` where an element of it cannot be read:
        then its class is unproven, and the rest counts (A17).

        Ends only when every class of `stream.readable` was read whole, but for such elements, else
        raises `BaselineError`.
        A source whose logs all contain the whole state keeps the default.
        """
        raise BaselineError("this source reads no current state", where=stream.id)

    async def state(self, stream: StreamInfo) -> StreamState:
        """The stream's state now. It is asked for while the stream is silent. Raises `SourceError`.

        The default is UNKNOWN. Silence then proves less: a quiet stream is aligned only after
        `AlignmentSettings.unreached_quiet_s` (A5).
        """
        return StreamState.UNKNOWN

    async def monitor(self, stream: StreamInfo) -> ProviderMonitor | None:
        """What the provider says of our reading of the stream, asked from time to time while it is
        read; None: it says nothing, as by default. Raises `SourceError`.
        """
        return None

    async def look_up(self, stream: StreamInfo, entity: StoredEntity) -> LookupAnswer | None:
        """Ask for one entity, of a class in `stream.shown`; None: it cannot be asked for, as where
        nobody has stated what it stands in.

        Only an answer that says that there is no such entity is `ABSENT`; one that cannot be read,
        that refuses, or that is about something else is `UNKNOWN`. Raises `SourceError` where the
        provider is away. A source without such requests keeps the default, and `shown` empty.
        """
        return None

    @abstractmethod
    async def close(self) -> None:
        """Close all that is open. Feeds were left before; a second call does nothing."""
