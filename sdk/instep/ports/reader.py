"""Read access to a store, beside the consumer that writes it. Used by the command line and by
subscribers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Self

import msgspec

from instep.coordination.lease import LeaseState
from instep.errors import ConfigurationError
from instep.model.alarms import AlarmEpisode
from instep.model.entities import (
    Ancestor,
    Change,
    ChangeKind,
    EntityCount,
    Quarantined,
    Reference,
    Skeleton,
    StoredEntity,
    StreamStatus,
)
from instep.model.measurements import Measurement
from instep.model.messages import StoredMessage
from instep.model.records import RecordChunk
from instep.model.streams import Retirement, SweepEstimate
from instep.ports.message_store import OperatorAction
from instep.sequencing.state import SequencerState

__all__ = [
    "LeaseReader",
    "MessageReader",
    "RetirementReader",
    "SequenceCounts",
    "SequenceStatus",
    "StoreReader",
    "SweepReader",
]


class SequenceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence of one consumer, as durable in the store."""

    consumer: str
    stream: str
    state: SequencerState
    """Without the buffered messages, which `held` counts."""
    held: int
    """Messages buffered behind a gap."""
    waiting: int
    """Messages released for the handler and not yet delivered."""
    blocked: bool
    """It waits for a decision about a message in quarantine."""
    error: str
    """Why the handler failed last; empty when it has not."""
    updated_at_us: int
    due_us: int | None = None
    """When it acts by itself, in microseconds since 1970: for a gap, for a message that expires,
    because it ends or may be forgotten; None: it does not.
    """


class SequenceCounts(msgspec.Struct, frozen=True):
    """The sequences of one consumer, counted."""

    sequences: int
    held: int
    """Messages buffered behind gaps, in all sequences together."""
    blocked: int
    """Sequences that wait for a decision about a message in quarantine."""


class StoreReader(ABC):
    """Read access to a store, beside the consumer that writes it.

    A reader inherits this class and implements the abstract methods, and inherits the capabilities
    of its store, too: `SweepReader`, `LeaseReader`, `MessageReader`. Promised: reads return
    committed state, iteration is by pages (memory does not grow with the store), and no page blocks
    the consumer. Not promised: that two pages, or two calls, read the same snapshot.

    All raise `SinkError`. Cancelling a read changes nothing; cancelling one of the methods that
    write (`replay`, `drop`, `release_sweep`, `ask_to_hand_over`, `deliver_again`) leaves its
    change whole or not made. Iterators may be abandoned at any time.
    """

    @abstractmethod
    async def streams(self) -> list[StreamStatus]:
        """All streams of all consumers, each as durable in the store."""

    @abstractmethod
    def entities(
        self,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        key: str | None = None,
    ) -> AsyncIterator[StoredEntity]:
        """Entities (of this consumer, this stream, this class, with this key) in a stable order.

        An entity that is stored all the time is returned once; one that is added or removed
        meanwhile may be returned or not.
        """

    @abstractmethod
    def changes(
        self,
        cursor: int = 0,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        change: ChangeKind | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Change]:
        """The journal after `cursor` (of this consumer, this stream, this class, this kind), in the
        order of commit; 0 begins with the oldest kept.

        With `follow` it waits for more and never ends by itself. Raises `JournalOffError` where no
        journal is kept, `ChangesTrimmedError` where changes that are due are no longer kept.
        """

    async def wait_for_change(self, seen: int, within_s: float) -> int:
        """Wait until more may have been committed, at most so many seconds.

        `seen` is what the call before returned, at first -1: what was committed between two calls
        ends the second at once. The default waits as long as it may.
        """
        await asyncio.sleep(within_s)
        return 0

    @abstractmethod
    def quarantine(
        self, *, consumer: str | None = None, stream: str | None = None, id: int | None = None
    ) -> AsyncIterator[Quarantined]:
        """Records that could not be read (A11), oldest first; with `id` that one alone."""

    @abstractmethod
    async def replay(self, id: int, chunk: RecordChunk) -> int:
        """Commit the decoded content of a quarantined record (A3), and mark it replayed (A11).

        Returns how many entities changed. The consumer may be running. Raises `SinkError` where
        there is no such record, or where `chunk` still has something unreadable.
        """

    @abstractmethod
    async def drop(self, ids: Sequence[int] | None = None, *, stream: str | None = None) -> int:
        """Forget records in quarantine for good: these, or all (of a stream); returns how many."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect. A second call does nothing."""

    async def count_entities(self, *, stream: str | None = None) -> list[EntityCount]:
        """How many entities each stream (or this one) has of each class."""
        counts: Counter[tuple[str, str, str]] = Counter()
        async for one in self.entities(stream=stream):
            counts[one.consumer, one.stream, one.entity_class] += 1
        return [
            EntityCount(consumer=consumer, stream=name, entity_class=entity_class, entities=count)
            for (consumer, name, entity_class), count in sorted(counts.items())
        ]

    async def newest_cursor(self) -> int:
        """The cursor of the newest change: `changes` after it are those from now on.

        Raises `JournalOffError` where no journal is kept.
        """
        newest = 0
        async for change in self.changes():
            newest = change.cursor
        return newest

    # -- places and references -------------------------------------------------------------------

    def children(
        self,
        uuid: str,
        *,
        depth: int | None = 1,
        entity_class: str | None = None,
        consumer: str | None = None,
    ) -> AsyncIterator[StoredEntity]:
        """Entities below the one with this uuid, stored or not, by their parent-address: its
        children, or with `depth` as many levels (None: all).

        This and the methods below raise `ReferencesOffError` where they are not kept and
        `ConfigurationError` for a store that cannot keep them. Several consumers of one store may
        know one uuid: `consumer` selects one of them.
        """
        raise ConfigurationError("this kind of store keeps no references")

    async def path(self, uuid: str, *, consumer: str | None = None) -> list[Ancestor]:
        """What contains the entity with this uuid, stored or not: highest first, without itself."""
        raise ConfigurationError("this kind of store keeps no references")

    def references(
        self,
        uuid: str,
        *,
        consumer: str | None = None,
    ) -> AsyncIterator[Reference]:
        """What the entity with this uuid refers to."""
        raise ConfigurationError("this kind of store keeps no references")

    def referrers(
        self,
        uuid: str,
        *,
        entity_class: str | None = None,
        consumer: str | None = None,
    ) -> AsyncIterator[Reference]:
        """What refers to the entity with this uuid, stored or not."""
        raise ConfigurationError("this kind of store keeps no references")

    def dangling(self, *, consumer: str | None = None) -> AsyncIterator[Reference]:
        """The references whose target is not stored."""
        raise ConfigurationError("this kind of store keeps no references")

    def skeletons(self, *, consumer: str | None = None) -> AsyncIterator[Skeleton]:
        """The entities that parent-addresses name and that are not stored."""
        raise ConfigurationError("this kind of store keeps no references")

    # -- alarms ----------------------------------------------------------------------------------

    def alarms(
        self,
        *,
        standing: bool | None = None,
        events: bool = False,
        key: str | None = None,
        measured: str | None = None,
        consumer: str | None = None,
        stream: str | None = None,
    ) -> AsyncIterator[AlarmEpisode]:
        """Episodes of alarms in the order of their first commit: those that last (`standing`),
        those that have ended (`standing=False`), or both; with `events` the events instead, which
        never clear. `key` selects a detector, `measured` the uuid of a measured entity.

        Raises `AlarmsOffError` where they are not kept, `ConfigurationError` for a store that
        cannot keep them.
        """
        raise ConfigurationError("this kind of store keeps no episodes of alarms")

    # -- measurements ----------------------------------------------------------------------------

    def measurements(
        self,
        *,
        series: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        consumer: str | None = None,
        stream: str | None = None,
    ) -> AsyncIterator[Measurement]:
        """Periods of measurement, one series after another, each in the order of time: those that
        end at `since_us` or later and before `until_us`, in microseconds since 1970.

        Raises `MeasurementsOffError` where they are not kept, `ConfigurationError` for a store that
        cannot keep them.
        """
        raise ConfigurationError("this kind of store keeps no series of measurements")


class Capability(ABC):
    """What only some stores keep: a reader of such a store inherits the capability, too."""

    missing: ClassVar[str]
    """What a store without it lacks, for an error."""

    @classmethod
    def of(cls, reader: StoreReader) -> Self:
        """The reader, as one that has this capability. Raises `ConfigurationError` where it has
        not.
        """
        found: object = reader
        if isinstance(found, cls):
            return found
        raise ConfigurationError(f"this kind of store {cls.missing}")


class SweepReader(Capability):
    """Reads and releases sweeps that are held (A6)."""

    missing = "holds no sweeps"

    @abstractmethod
    async def estimate_sweep(self, consumer: str, stream: str, attempt: int) -> SweepEstimate:
        """What the sweep of this attempt would remove."""

    @abstractmethod
    async def release_sweep(self, consumer: str, stream: str, attempt: int) -> None:
        """Durably let the sweep of this attempt go on, whichever process consumes."""


class RetirementReader(Capability):
    """Retires streams that are not offered any more (A20)."""

    missing = "retires no streams"

    @abstractmethod
    async def retire(self, consumer: str, stream: str) -> Retirement:
        """Remove the stream with all its entities, whichever process consumes. Raises `SinkError`
        where it is unknown, or offered as far as is known.
        """


class LeaseReader(Capability):
    """Reads the leases of consumers, and asks their holders to hand over."""

    missing = "keeps no lease"

    @abstractmethod
    async def leases(self) -> dict[str, LeaseState]:
        """The leases by consumer; consumers without one are not in it."""

    @abstractmethod
    async def ask_to_hand_over(self, consumer: str) -> LeaseState:
        """Let the holder give its lease up at its next beat; returns the lease as it was.

        Raises `SinkError` where nobody holds it.
        """


class MessageReader(Capability):
    """Reads numbered messages and their sequences, and takes what an operator wants done."""

    missing = "keeps no messages"

    @abstractmethod
    def sequences(
        self, *, stream: str | None = None, troubled: bool = False
    ) -> AsyncIterator[SequenceStatus]:
        """All sequences, or this one, in the order of their first message; with `troubled` only
        those with messages buffered behind a gap, a block, or a handler that failed last, and those
        that have failed.
        """

    @abstractmethod
    async def count_sequences(self) -> dict[str, SequenceCounts]:
        """Consumer → the counts of its sequences; consumers without sequences are missing."""

    @abstractmethod
    def messages(
        self, cursor: int = 0, *, consumer: str | None = None, stream: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Messages delivered to the store after `cursor`, in the order of delivery."""

    @abstractmethod
    async def request_action(
        self, consumer: str, stream: str, action: OperatorAction, number: int | None = None
    ) -> bool:
        """Have something done about a sequence by the process that receives, now or later (see
        `OperatorRequest`); returns False for an unknown sequence.
        """

    @abstractmethod
    async def deliver_again(self, id: int) -> bool:
        """Let the handler try a message in quarantine again, and mark it replayed; returns False
        where the entry is not a message. The consumer, running now or later, delivers it.
        """
