"""The two ports of a consumer: a source gives records, a sink commits them. Plug-ins implement
these.

A plug-in is found through the entry-point groups `instep.sources`, `instep.sinks` and
`instep.verifiers`; the entry point names an object with the shape of `SourcePlugin`, `SinkPlugin`
or `VerifierPlugin`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from instep.lease import LeaseState
from instep.messages import Listener
from instep.position import Position
from instep.reading import StoreReader
from instep.records import Batch, CommitResult, Delivery, Record, Statement, StreamState

__all__ = [
    "Census",
    "Feed",
    "KeepsLatest",
    "KnowsStreams",
    "Lease",
    "Mode",
    "ProvesLife",
    "ReleasesSweeps",
    "Shared",
    "Sink",
    "SinkPlugin",
    "Source",
    "SourcePlugin",
    "Start",
    "StreamInfo",
    "Verifier",
    "VerifierPlugin",
]


class Mode(StrEnum):
    """How a stream gives current state."""

    LOG = "log"
    """The log alone gives it, from the oldest record: COMPACTED, emulated compaction,
    FULL_HISTORY.
    """
    BASELINE = "baseline"
    """It is read by GET, the stream gives what changes meanwhile and after: TRUNCATED and all
    else.
    """


class Start(StrEnum):
    """Where to open a stream when not after a token (TR-548 5.10.1 `start_from`)."""

    OLDEST = "oldest"
    LATEST = "latest"


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One log that can be followed, as its provider declares it (TR-548 3.7)."""

    id: str
    """The stream's name in the store: its `stream-id` where that is unique, else its uuid."""
    origin: str
    """What identifies the log itself: another origin is another lineage."""
    kind: str
    """The source plug-in that reads it, so that its quarantined bytes can be read again."""
    uuid: str = ""
    """The provider's own uuid of the stream; another instance may give it another."""
    endpoint: str = ""
    """The instance of the provider that serves it, where there may be several."""
    mode: Mode = Mode.LOG
    classes: tuple[str, ...] = ()
    """`record-content`, short names."""
    storage_strategy: str = "COMPACTED"
    record_strategy: str = "WHOLE_ENTITY_ON_CHANGE"
    compaction_delay_s: float | None = None
    tombstone_retention_s: float | None = None
    """None: not declared; inf: FOREVER."""
    record_retention_s: float | None = None
    readable: frozenset[str] = frozenset()
    """Classes whose current state a GET can show (BASELINE only)."""
    clock_offset_us: int = 0
    """The provider's clock minus ours, as seen at discovery; 0 where unknown."""
    details: dict[str, Any] = {}
    """What the adapter wants to keep with it (addresses and so on); no secrets."""


class Census(msgspec.Struct, frozen=True):
    """Entities of a stream before a sweep (A6)."""

    total: int
    unmarked: int
    """Not marked by the attempt: what the sweep would remove."""


class Feed(Protocol):
    """One open connection to one stream. Reading is bounded; not reading is back-pressure, not
    loss.
    """

    clock_offset_us: int
    """Provider's clock minus ours, as last seen; 0 where unknown."""

    async def receive(self) -> Delivery:
        """Wait for records and return all that have arrived, in order, at most the feed's own
        bound.

        Cancelling loses nothing. Raises `SourceError`: the connection is over.
        """
        ...


@runtime_checkable
class ProvesLife(Protocol):
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


class Sink(Protocol):
    """Where entities and positions are kept, together."""

    async def open(self, consumer: str) -> None:
        """Make ready for this consumer. Raises `SinkError`."""
        ...

    async def position(self, stream: StreamInfo) -> Position:
        """What is durable; a new `Position()` for a stream never seen."""
        ...

    async def commit(self, batch: Batch) -> CommitResult:
        """All of the batch in one transaction, or nothing. Raises `SinkError`.

        Cancelling does not tear the transaction: it is whole or it is not there.
        """
        ...

    async def census(self, stream: str, attempt: int) -> Census:
        """Count entities, and those that no attempt from `attempt` on has marked."""
        ...

    async def holds_before(self, stream: str, record: Statement, lineage: int) -> bool:
        """Whether an entity of this lineage is stored whose record lies before this one in its
        partition.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class KnowsStreams(Protocol):
    """What a sink can tell besides: a stream is then recognised after a restart, too, whatever
    name another instance of the provider gives it.
    """

    async def known_streams(self) -> Sequence[StreamInfo]:
        """The streams of this consumer that have a position, as last discovered."""
        ...


@runtime_checkable
class ReleasesSweeps(Protocol):
    """What a sink can tell besides: that another process let a held sweep go on (A6)."""

    async def sweep_released(self, stream: str, attempt: int) -> bool:
        """Whether the sweep of this attempt was released."""
        ...


@runtime_checkable
class KeepsLatest(Protocol):
    """What a sink can tell besides: whether it takes note of every statement, or keeps current
    state alone. Then what a batch states of an entity before its last word is not even opened.
    """

    latest_only: bool


class Lease(Protocol):
    """The right to write for a consumer, which one process has at a time (`instep.lease`).

    All raise `SinkError`.
    """

    holder: str
    """What others call this process."""
    lease_s: float
    """Within how long of its last sign of life a holder is succeeded."""

    async def look(self) -> LeaseState:
        """The lease as it is; waits for no writer."""
        ...

    async def take(self, seen: LeaseState) -> LeaseState | None:
        """Become the holder, if epoch and beat are as seen. From then on every transaction of the
        sink carries the new epoch, and raises `LeaseLostError` once it is no longer the lease's.
        """
        ...

    async def beat(self) -> LeaseState:
        """Say that the holder lives. Raises `LeaseLostError`."""
        ...

    async def give_up(self) -> None:
        """Let others take it, after what is being committed. Raises `LeaseLostError`."""
        ...


@runtime_checkable
class Shared(Protocol):
    """What a sink can do besides: be given to several processes, of which one writes."""

    @property
    def lease(self) -> Lease | None:
        """None: not asked for."""
        ...


class SourcePlugin(Protocol):
    """What an entry point of `instep.sources` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Source | Listener:
        """Not yet connected: a provider's streams, or a listener for numbered messages."""
        ...

    def decode(self, raw: bytes, stream: StreamInfo) -> Delivery:
        """Read the bytes of one frame or record of this stream again (quarantine replay)."""
        ...


class SinkPlugin(Protocol):
    """What an entry point of `instep.sinks` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None: ...

    def build(self, options: Mapping[str, Any], where: str) -> Sink: ...

    def reads(self, url: str) -> bool:
        """Whether a `--store URL` is of this kind."""
        ...

    def reader(self, url: str) -> StoreReader:
        """Open the store of another process for reading. Raises `SinkError`."""
        ...


class Verifier(Protocol):
    """Tells whether a record comes from whom it should (TR-548 3.10)."""

    def verify(self, record: bytes, token: str) -> bool:
        """Whether this authenticity token belongs to these bytes. Never raises; does not wait."""
        ...


class VerifierPlugin(Protocol):
    """What an entry point of `instep.verifiers` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Verifier: ...
