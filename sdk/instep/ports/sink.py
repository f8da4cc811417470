"""A sink: where entities and positions are kept, together, and what a sink may support besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from instep.model.batches import Batch, CommitResult
from instep.model.position import Position
from instep.model.records import RecordHeader
from instep.model.streams import StreamInfo, SweepEstimate
from instep.ports.lease import Lease

__all__ = ["LatestOnly", "Sink", "SupportsLease", "SupportsStreamCatalog", "SupportsSweepApproval"]


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

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        """Count entities, and those that no attempt from `attempt` on has marked."""
        ...

    async def has_older_entity(self, stream: str, record: RecordHeader, lineage: int) -> bool:
        """Whether an entity of this lineage is stored whose record lies before this one in its
        partition.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class SupportsStreamCatalog(Protocol):
    """What a sink can tell besides: a stream is then recognised after a restart, too, whatever
    name another instance of the provider gives it.
    """

    async def known_streams(self) -> Sequence[StreamInfo]:
        """The streams of this consumer that have a position, as last discovered."""
        ...


@runtime_checkable
class SupportsSweepApproval(Protocol):
    """What a sink can tell besides: that another process let a held sweep go on (A6)."""

    async def sweep_released(self, stream: str, attempt: int) -> bool:
        """Whether the sweep of this attempt was released."""
        ...


@runtime_checkable
class LatestOnly(Protocol):
    """What a sink can tell besides: whether it takes note of every statement, or keeps current
    state alone. Then what a batch states of an entity before its last word is not even opened.
    """

    latest_only: bool


@runtime_checkable
class SupportsLease(Protocol):
    """What a sink can do besides: be given to several processes, of which one writes."""

    @property
    def lease(self) -> Lease | None:
        """None: not asked for."""
        ...
