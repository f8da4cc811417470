"""A sink: where entities and positions are kept, together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager

from instep.conformance import ConformanceReport
from instep.errors import AuditError, ConfigurationError
from instep.model.batches import Batch, CommitResult
from instep.model.freshness import StreamReport
from instep.model.position import Position
from instep.model.streams import Retirement, StreamInfo, SweepEstimate
from instep.ports.audit import AuditMarks
from instep.ports.lease import Lease
from instep.ports.lookups import EntityRows
from instep.ports.message_store import MessageStore

__all__ = ["Sink"]


class Sink(ABC):
    """Where the entities of one consumer are kept, together with the positions they came from.

    A sink inherits this class and implements the abstract methods; the other members have the
    defaults of a sink that lacks the ability. A wrapper must pass every member on, or it hides the
    abilities of the wrapped sink.

    What a sink promises (`instep.testing.check_sink` proves it):

    - `commit` is all or nothing: records, quarantine, sweep step and position. The position is
      never ahead of the data (A1).
    - A batch that does not begin at the stored position raises `FencedError` and changes nothing:
      of two processes that commit on one stream, one continues.
    - A record older than the stored one of the same lineage is ignored and not marked; any other is
      written and marked with the attempt of the batch's position (A3,
      `instep.model.ordering.supersedes`).
    - A record that `ends` removes its entity; a second end is no error (A4).
    - A sweep step removes what no attempt from `SweepStep.attempt` on has marked, but for what
      `SweepStep.holds` holds, and nothing else.

    What it does not promise: order between streams, and that a reader sees all streams in one
    snapshot.

    All methods run in the consumer's event loop and must not block it. They raise `SinkError`:
    `StoreUnavailableError` for what may work later (the consumer asks `position` again and goes
    on from there), `FencedError` where another process has taken over. Cancelling one leaves the
    store as it was or as it would have been, never between.
    """

    @property
    def latest_only(self) -> bool:
        """Whether the sink keeps current state alone. True: of several statements about an entity
        in one batch, only the last is opened and given to `commit`. Asked once a connection.
        """
        return False

    @property
    def marks_keys(self) -> bool:
        """Whether `commit` marks the entities that `Batch.unreadable` names by their keys, as
        unproven. Without it, the sweep holds all that such a record could be about (A17).
        """
        return False

    @property
    def several_processes(self) -> bool:
        """Whether several processes, each with this sink opened for the same consumer, may commit
        at once on different streams. Without it, a consumer has no worker processes.
        """
        return False

    @property
    def lease(self) -> Lease | None:
        """The right to write, where several processes are given this sink and one of them writes.
        None: this process alone. Asked before `open`; always the same object.
        """
        return None

    @abstractmethod
    async def open(self, consumer: str) -> None:
        """Connect and make ready for the consumer of this name; called before all else, and again
        after a `StoreUnavailableError`.

        Raises `SinkError`, `ConfigurationError` for a store that this sink cannot use.
        """

    @abstractmethod
    async def position(self, stream: StreamInfo) -> Position:
        """What is durable of this stream; `Position()` for one never seen.

        Called before the first commit on a stream, and again after every error of `commit`. The
        sink may keep `stream` for its readers. Raises `ConfigurationError` for a stream that it
        cannot keep (for example one of a mode that it does not support).
        """

    @abstractmethod
    async def commit(self, batch: Batch) -> CommitResult:
        """Make all of the batch durable, or nothing; return what it did, in entities.

        Batches of one stream come one after the other, those of several streams at once. Ask for
        `batch.records` in the thread that writes: they may be decoded only then. Raises
        `FencedError` where the stored ordinal is not `batch.expects_ordinal`.
        """

    @abstractmethod
    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        """Count the entities of the stream with this id, and those that no attempt from `attempt`
        on has marked (A6). Changes nothing; commits need not wait for it.
        """

    async def known_streams(self) -> Sequence[StreamInfo]:
        """The streams of this consumer that have a position, as last given to `position`.

        With it a stream is recognised after a restart, whatever name another instance of the
        provider gives it. Empty: streams are known by their ids alone.
        """
        return ()

    async def identities(self, stream: str) -> AbstractSet[int] | None:
        """What is stored of the stream, as `identity_digest` names it. With it a stream is
        recognised by what it carries (A20). None: the sink cannot tell, and a stream under another
        name is another stream.
        """
        return None

    async def mark_offered(self, stream: str, *, offered: bool) -> None:
        """Note whether the provider offers a known stream; readers are shown `Phase.NOT_OFFERED`
        where it does not, and its entities as unproven (A20). `position` notes that it does.
        """
        return

    async def retire(self, stream: str, *, proven_by: Collection[str] | None = None) -> Retirement:
        """Remove the entities of a stream that is not offered any more, as a sweep does, and the
        stream (A20).

        With `proven_by`, the ids of streams that are aligned: only the entities that one of them
        states, too, or whose class one of them has read whole since; and the stream if none is
        left. Raises `SinkError`, `ConfigurationError` for a sink that cannot.
        """
        raise ConfigurationError("this kind of store retires no streams", where=stream)

    async def is_sweep_released(self, stream: str, attempt: int) -> bool:
        """Whether another process has released the held sweep of this attempt (A6)."""
        return False

    async def report(  # noqa: B027 - a sink that keeps nothing needs none
        self, reports: Sequence[StreamReport], stale_after_s: float
    ) -> None:
        """Keep what this process says of the streams that it follows, for who reads the store
        (`StreamStatus.freshness`), and that it was heard now. The default keeps nothing.

        Called every third of `stale_after_s`, and when something has changed, beside commits.
        """

    async def report_conformance(  # noqa: B027 - a sink that keeps nothing needs none
        self, report: ConformanceReport
    ) -> None:
        """Keep which rules the peer was seen to hold since this process has started, in place of
        what was kept before. The default keeps nothing. Called after `report`, where it has
        changed.
        """

    def messages(self) -> MessageStore | None:
        """The durable inbox of the consumer, for a `Receiver`; None: the sink keeps no numbered
        messages. Asked before `open`, used after it.
        """
        return None

    def audit(self, stream: StreamInfo) -> AbstractAsyncContextManager[AuditMarks]:
        """Begin an audit of the stream (A12); its marks are removed when the context is left.

        Raises `AuditError` for a sink that cannot be audited, `SinkError` on entering.
        """
        raise AuditError("this kind of store cannot be audited", where=stream.id)

    def entity_rows(self, stream: StreamInfo) -> EntityRows | None:
        """The stored entities of a stream, for requests for single entities; with it, `commit`
        applies `Batch.proofs` (A17). None, the default: entities are not asked for one by one.
        """
        return None

    @abstractmethod
    async def close(self) -> None:
        """Wait for a commit that is under way, then disconnect. A second call does nothing."""
