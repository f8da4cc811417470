"""Read access to a store, beside the consumer that writes it. Used by the command line and by
subscribers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from instep.conformance import ConformanceReport
from instep.coordination.lease import LeaseState
from instep.errors import ConfigurationError
from instep.model.entities import (
    Change,
    ChangeKind,
    EntityCount,
    JournalEnd,
    Quarantined,
    StoredEntity,
    StreamStatus,
)
from instep.model.freshness import Freshness
from instep.model.messages import Attachment, StoredMessage
from instep.model.ranges import Ranges
from instep.model.records import RecordChunk
from instep.model.streams import Retirement, SweepEstimate
from instep.sequencing.ends import RecordedEnd
from instep.sequencing.operator_actions import OperatorAction
from instep.sequencing.state import SequencerState

__all__ = [
    "DeadMessage",
    "Follower",
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
    held_numbers: Ranges = msgspec.field(default_factory=Ranges)
    """The numbers of the messages that are buffered."""
    record: tuple[RecordedEnd, ...] = ()
    """How numbers ended otherwise than by delivery, in the order of the decisions (S13):
    `instep.sequencing.resolve_ends` says what became of each.
    """


class DeadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was accepted and is not delivered, with what became of its number (S13)."""

    id: int
    consumer: str
    stream: str
    number: int
    message_id: str
    sender: str
    received_at_us: int
    end: str
    """A `NumberEnd`."""
    reason: str
    by: str
    """A `DecidedBy`."""
    dead_at_us: int
    told: str = ""
    """Whether its sender was told by a fault: `owed`, `sent` or `not-sent`; empty: nothing is sent
    about it.
    """
    frozen: bool = False
    """It waits in a sequence that has failed, which may yet deliver it."""
    discarded: bool = False
    """Its specification lets us discard it: it is trimmed first."""
    body: bytes
    attributes: bytes = b"{}"
    attachments: tuple[Attachment, ...] = ()

    def why_not_replayed(self, *, although_told: bool) -> str:
        """Why it is not to be replayed, with what works; empty: it may be."""
        if self.frozen:
            return (
                "its sequence has failed and keeps it: `instep sequences give-up` delivers it, "
                "`resume` lets the sequence go on"
            )
        if self.told and not although_told:
            return (
                f"its sender was told, or may have been, that it is {self.end}: --although-told "
                "delivers it all the same"
            )
        return ""


class SequenceCounts(msgspec.Struct, frozen=True):
    """The sequences of one consumer, counted."""

    sequences: int
    held: int
    """Messages buffered behind gaps, in all sequences together."""
    blocked: int
    """Sequences that wait for a decision about a message in quarantine."""
    dead: int = 0
    """Messages in the dead letter …"""
    dead_bytes: int = 0
    """… and bytes of them."""
    dead_since_us: int = 0
    """Since when the oldest is there, in microseconds since 1970; 0: there is none."""
    ended: dict[str, int] = {}
    """How many numbers ended otherwise than by delivery, ever: end → count (S13)."""
    deviations: dict[str, int] = {}
    """Departures of the peers from their specification: kind → count."""


class Follower(msgspec.Struct, frozen=True):
    """The process that follows the streams of a consumer, or receives its messages."""

    heard_s: float
    """How long ago it was heard, in seconds."""
    stale_after_s: float
    """From which silence on it has ended or hangs."""


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

    async def freshness(self) -> list[Freshness]:
        """How fresh what is stored of each stream is, of all consumers. It may be asked often."""
        return [one.freshness for one in await self.streams()]

    async def followers(self) -> dict[str, Follower]:
        """Consumer → the process heard last; none of a store that keeps no reports."""
        return {}

    @abstractmethod
    def entities(
        self,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        key: str | None = None,
        unproven: bool = False,
    ) -> AsyncIterator[StoredEntity]:
        """Entities (of this consumer, this stream, this class, with this key) in a stable order;
        with `unproven` only those of which it is not known whether they exist as stored (A22).

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
        epoch: str = "",
    ) -> AsyncIterator[Change]:
        """The journal after `cursor` (of this consumer, this stream, this class, this kind), in the
        order of commit; 0 begins with the oldest kept.

        `epoch` is that of the change with this cursor; empty: it is not known. With `follow` it
        waits for more and never ends by itself. Raises `JournalOffError` where no journal is kept,
        `ChangesTrimmedError` where changes that are due are no longer kept, and
        `JournalDivergedError` where the cursor is beyond the newest change, or its epoch shows that
        it is of another journal.
        """

    async def wait_for_change(self, seen: int, poll_s: float) -> int:
        """Wait until more may have been committed; it is looked for every so many seconds.

        `seen` is what the call before returned, at first -1: what was committed between two calls
        ends the second at once. The default looks at nothing and waits so long.
        """
        await asyncio.sleep(poll_s)
        return seen + 1

    async def join_followers(self) -> None:  # noqa: B027 - most stores need nothing
        """Called once by each who is about to follow the journal: from now on `recent_changes` may
        know what is new. The default does nothing.
        """

    def recent_changes(self, at: JournalEnd) -> tuple[Sequence[Change], JournalEnd] | None:
        """The changes after this one where they are in memory, for all subscribers of this reader,
        and the newest change; None: read `changes`.
        """
        return None

    async def conformance(self) -> dict[str, ConformanceReport]:
        """Which rules the peer of each consumer was seen to hold, by the name of the consumer, as
        its process has told it last. The default has none.
        """
        return {}

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

    async def accept(self, consumer: str, digest: str) -> int:
        """Accept that the quarantined records of this digest are lost: from the next attempt on
        they hold no entity (A17). Returns how many there are. Raises `ConfigurationError` for a
        store that cannot.
        """
        raise ConfigurationError("this kind of store accepts no unreadable records")

    @abstractmethod
    async def close(self) -> None:
        """Disconnect. A second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

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

    async def journal_end(self) -> JournalEnd:
        """The newest change, with its epoch. Raises as `newest_cursor`."""
        return JournalEnd(await self.newest_cursor())

    # -- publishers ------------------------------------------------------------------------------

    async def published(self, name: str) -> JournalEnd | None:
        """Up to which change the publisher of this name has come; None: it is new. Raises
        `ConfigurationError` for a store that keeps no such thing.
        """
        raise ConfigurationError("this kind of store keeps no cursors of publishers")

    async def keep_published(self, name: str, at: JournalEnd) -> None:
        """Keep durably up to which change the publisher of this name has come."""
        raise ConfigurationError("this kind of store keeps no cursors of publishers")

    # -- what is derived -------------------------------------------------------------------------

    def derived(
        self,
        name: str,
        query: str = "",
        /,
        **filters: Any,
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The rows of what is derived under this name (`instep.ports.derivation`), as one of its
        queries has them; filters that are None are left out. Beside each derivation there are
        functions that give the rows types.

        Raises `DerivationOffError` where it is not kept, `ConfigurationError` for a store that
        cannot keep it, and for a derivation or a query that does not exist.
        """
        raise ConfigurationError("this kind of store keeps nothing derived")


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
        those with messages buffered behind a gap, a block, or a handler that failed last, those
        that have failed, and those with numbers that were lost, failed or expired.
        """

    @abstractmethod
    async def count_sequences(self) -> dict[str, SequenceCounts]:
        """Consumer → the counts of its sequences; consumers without sequences are missing."""

    async def consumers_of_messages(self) -> list[str]:
        """The consumers that have, or had, sequences."""
        return sorted(await self.count_sequences())

    @abstractmethod
    def messages(
        self, cursor: int = 0, *, consumer: str | None = None, stream: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Messages delivered to the store after `cursor`, in the order of delivery."""

    @abstractmethod
    async def request_action(
        self, consumer: str, stream: str, action: OperatorAction, number: int | None = None
    ) -> int:
        """Have something done about a sequence by the process that receives, now or later (see
        `OperatorRequest`); returns the id of the request, 0 for an unknown sequence.
        """

    @abstractmethod
    async def action_outcome(self, id: int) -> str:
        """What became of a request, for a day; empty: nobody has done it yet."""

    @abstractmethod
    async def numbers(self, consumer: str, stream: str) -> list[RecordedEnd]:
        """What became of each number of a sequence, also of one that was forgotten: by epoch and
        number (S13). Numbers that have not ended are left out.
        """

    @abstractmethod
    async def forgotten_sequences(self) -> list[tuple[str, str]]:
        """Consumer and name of sequences that are known no more, while the record of their numbers
        is kept (S13).
        """

    @abstractmethod
    def dead_messages(
        self, *, consumer: str | None = None, stream: str | None = None, id: int | None = None
    ) -> AsyncIterator[DeadMessage]:
        """What was accepted and is not delivered, the oldest first (S13): the dead letter, and what
        waits in sequences that have failed.
        """

    @abstractmethod
    async def drop_dead(self, ids: Sequence[int]) -> int:
        """Forget messages of the dead letter for good; returns how many."""

    @abstractmethod
    async def deliver_again(self, id: int) -> bool:
        """Let the handler try a message in quarantine again, and mark it replayed; returns False
        where the entry is not a message. The consumer, running now or later, delivers it.
        """
