"""What a sink must be able to do to keep numbered messages: the durable inbox and outbox.

A sink that can returns it from `Sink.messages`; only `instep.runtime.messages` uses it. A handler
gets the transaction of its message as a `HandlerConnection`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from instep.model.messages import Message
from instep.sequencing.effects import OwedEffect
from instep.sequencing.outbox import OutboxState
from instep.sequencing.state import SequencerState

__all__ = [
    "Deliver",
    "DeliveryResult",
    "DueSequences",
    "FailedDelivery",
    "Handler",
    "HandlerConnection",
    "HandlerFailure",
    "MessageGroup",
    "MessageStore",
    "Obligation",
    "OutboxStore",
    "SenderUsage",
    "SequenceChange",
    "StoredSequence",
]


T = TypeVar("T")


class HandlerConnection(Protocol):
    """The transaction in which a message is delivered, for statements of the user's own.

    Statements run in the thread of the store; awaiting them does not stop the loop. What they did
    and that the message was delivered is one commit: both are durable or neither. Do not commit, do
    not keep the connection, and keep the handler short: no other transaction runs meanwhile.
    """

    async def execute(
        self,
        statement: Any,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """Run a SQLAlchemy statement, or SQL text with `:named` parameters; its buffered result."""
        ...

    async def run_sync(self, work: Callable[[Any], T]) -> T:
        """`work(connection)` in the store's thread, with SQLAlchemy's own `Connection`."""
        ...


Handler = Callable[[Message, HandlerConnection], Awaitable[None]]
"""`async def handle(message, connection)`: runs in the transaction that marks the message
delivered. It may run again for the same message after a failure, never twice with effect.
"""


class OutboxStore(Protocol):
    """Where the messages that we send are kept until they are acknowledged
    (`instep.sequencing.outbox`).

    Raises `SinkError`.
    """

    async def outboxes(self) -> Sequence[str]:
        """The scopes that have an outbox with unacknowledged messages."""
        ...

    async def load_outbox(self, scope: str) -> OutboxState | None:
        """What `Outbox` goes on from; None for a scope never seen."""
        ...

    async def save_outbox(
        self,
        scope: str,
        state: OutboxState,
        before: OutboxState,
        bodies: Mapping[int, bytes] | None = None,
    ) -> None:
        """Store a checkpoint in one transaction, all or nothing.

        `before` is `Outbox.durable`: only what differs is written. `bodies`: number → the message
        to keep for a resend, for each number that is new. Bodies of numbers no longer in `state`
        are forgotten.
        """
        ...

    async def outbox_bodies(self, scope: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        """The bodies kept under these numbers; one that was acknowledged meanwhile is not there."""
        ...


class StoredSequence(msgspec.Struct, frozen=True):
    """A scope as it was last committed."""

    state: SequencerState
    waiting: int = 0
    """Messages released and not yet delivered, because the handler has to be called, or failed."""


class SenderUsage(msgspec.Struct):
    """What one peer has in the store (S8)."""

    sequences: int = 0
    messages: int = 0
    """Messages held behind gaps …"""
    size_bytes: int = 0
    """… and bytes of them."""


class Obligation(msgspec.Struct, frozen=True):
    """Something that is owed to a peer, durable with the decision that made it (S12)."""

    number: int
    """Unique within the consumer, and growing."""
    scope: str
    peer: str
    effect: OwedEffect


class SequenceChange(msgspec.Struct, gc=False):
    """What one group does to one scope. Done in the order of the fields, in one transaction (S3).

    Numbers are given with their epoch, for one group may hold a reset.
    """

    scope: str
    state: SequencerState
    due_us: int | None
    """When the sequence wants a tick, or may be forgotten; None: neither."""
    peer: str = ""
    held_messages: int = 0
    """Messages behind a gap after this …"""
    held_bytes: int = 0
    """… and bytes of them."""
    forget: list[tuple[int, int, int]] = []
    """Of what is held: (epoch, low, high)."""
    keep: list[tuple[int, Message]] = []
    """New, to be held: (epoch, message)."""
    release_buffered: list[tuple[int, int]] = []
    """Everything held up to this number has its turn: (epoch, number)."""
    release: list[tuple[int, Message]] = []
    """New, and its turn has come: (epoch, message), in order. With what was held: by number."""
    unsequenced: list[Message] = []
    """Unsequenced, never seen before: their turn is always now."""


class MessageGroup(msgspec.Struct):
    """One transaction of the intake."""

    now_us: int
    changes: list[SequenceChange]
    handled: bool
    """Whether released messages wait for a handler; else they are delivered to the store."""
    deviations: dict[str, int]
    """Departures of the peers from their specification: kind → count."""
    settled: list[int] = []
    """Numbers of obligations to forget: they were carried out, or given up …"""
    owed: list[Obligation] = []
    """… and new ones to keep."""


class DueSequences(msgspec.Struct, frozen=True):
    """Which scopes want a tick."""

    scopes: list[str]
    """Due by now, the longest due first, no more than asked for."""
    next_us: int | None
    """When the next ones are due; None: none is."""


class HandlerFailure(msgspec.Struct, frozen=True):
    """What is to become of a message that its handler failed on."""

    reason: str
    retry_at_us: int | None
    """When it is tried again; None: it goes to quarantine."""
    blocks: bool
    """With quarantine: whether its sequence waits until it is replayed or dropped."""


class FailedDelivery(msgspec.Struct, frozen=True):
    """One message that a handler failed on, as it was stored."""

    scope: str
    number: int
    id: str
    failure: HandlerFailure


class DeliveryResult(msgspec.Struct):
    """What one transaction of deliveries has done."""

    delivered: dict[str, int] = {}
    """Scope → messages that no longer wait."""
    failed: list[FailedDelivery] = []
    blocked: list[str] = []
    """Scopes that wait for a decision about a message in quarantine; the first hundred."""
    next_us: int | None = None
    """When there is more to deliver; None: when more is released."""


Deliver = Callable[[Message, int, HandlerConnection], Awaitable[HandlerFailure | None]]
"""Called with a message, how often it was tried before, and its transaction. None: delivered."""


class MessageStore(OutboxStore, Protocol):
    """The durable inbox of one consumer. Raises `SinkError`.

    What is read here is as committed. Of two processes that use it for one consumer, the later one
    to `open` it goes on, and the other gets `FencedError`.
    """

    async def open(self, kind: str, *, handled: bool) -> None:
        """Take over; `kind` is the source plug-in whose messages these are. Without a handler, what
        still waits for one is delivered to the store.
        """
        ...

    async def load(self, scopes: Collection[str]) -> dict[str, StoredSequence]:
        """Those of the scopes that are stored."""
        ...

    async def seen(self, messages: Sequence[Message]) -> set[tuple[str, str]]:
        """Of these unsequenced messages, (scope, id) of those that were received before."""
        ...

    async def commit(self, group: MessageGroup) -> None:
        """All of the group in one transaction, or nothing. Cancelling does not tear it."""
        ...

    async def due(self, now_us: int, limit: int) -> DueSequences:
        """The scopes that want a tick by now."""
        ...

    async def reclaim(self, scopes: Collection[str], now_us: int) -> set[str]:
        """Forget these sequences: state, held messages, identifiers (S10). Messages delivered to
        the store stay. Returns those that are unknown from now on.

        One that still has messages for the handler, in quarantine too, stays and is due later.
        """
        ...

    async def usage(self) -> dict[str, SenderUsage]:
        """What each peer has in the store."""
        ...

    async def obligations(self) -> list[Obligation]:
        """What is owed, the oldest first."""
        ...

    async def digests(self, numbers: Mapping[str, Collection[int]]) -> dict[tuple[str, int], bytes]:
        """Scope → numbers: the digests of these messages, by scope and number, where they are
        still kept.
        """
        ...

    async def deliver(self, deliver: Deliver, now_us: int, limit_messages: int) -> DeliveryResult:
        """Hand messages that wait for it to the handler, in order within each scope, and mark
        those delivered, in one transaction with what the handler does.

        What a failed handler did is undone; the other messages are not touched by it. Cancelling
        undoes all.
        """
        ...
