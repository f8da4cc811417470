"""The durable inbox and outbox of numbered messages, which a sink may offer.

Such a sink returns it from `Sink.messages`; only `instep.runtime.messages` uses it. A handler gets
the transaction of its message as a `HandlerConnection`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from instep.model.messages import Message
from instep.sequencing.effects import OwedEffect
from instep.sequencing.ends import EndedNumbers
from instep.sequencing.operator_actions import OperatorAction
from instep.sequencing.outbox import OutboxState
from instep.sequencing.state import SequencerState

__all__ = [
    "Deliver",
    "DeliveryResult",
    "DeliveryStoppedError",
    "DueSequences",
    "FailedDelivery",
    "Handler",
    "HandlerConnection",
    "HandlerFailure",
    "MessageGroup",
    "MessageStore",
    "Obligation",
    "OperatorAction",
    "OperatorRequest",
    "OutboxStore",
    "SenderUsage",
    "SequenceChange",
    "StoredReply",
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
        """Run a SQLAlchemy statement, or SQL text with `:named` parameters; returns its result,
        already fetched.
        """
        ...

    async def run_sync(self, work: Callable[[Any], T]) -> T:
        """Call `work` in the store's thread with SQLAlchemy's own `Connection`; returns its
        result.
        """
        ...


Handler = Callable[[Message, HandlerConnection], Awaitable[bytes | None]]
"""`async def handle(message, connection)`: runs in the transaction that marks the message
delivered. It may run again for the same message after a failure, never twice with effect.

Bytes that it returns are the reply, for a protocol that replies (`Intake.reply`); they are stored
in the same transaction.
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
        """The stored state of an `Outbox`; None for a scope never seen."""
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
        """Number → body of the messages still kept; those acknowledged meanwhile are missing."""
        ...


class StoredSequence(msgspec.Struct, frozen=True):
    """A scope as it was last committed."""

    state: SequencerState
    waiting: int = 0
    """Messages released for the handler and not yet delivered."""
    peer: str = ""
    """As in the last `SequenceChange`; empty: its name tells the peer."""
    dead_messages: int = 0
    """Messages of it in the dead letter, without those that may be discarded …"""
    dead_bytes: int = 0
    """… and bytes of them."""


class StoredReply(msgspec.Struct, frozen=True):
    """What a handler has replied to a message."""

    body: bytes | None
    """None: nothing, or it is not kept any more."""
    pending: bool = False
    """Whether the handler has not handled the message yet."""


class SenderUsage(msgspec.Struct):
    """The sequences and buffered messages of one peer in the store (S8)."""

    sequences: int = 0
    messages: int = 0
    """Messages buffered behind gaps …"""
    size_bytes: int = 0
    """… and bytes of them."""
    dead_messages: int = 0
    """Messages in the dead letter, without those that may be discarded (S13) …"""
    dead_bytes: int = 0
    """… and bytes of them."""
    dead_since_us: int = 0
    """Since when the oldest of them is there, in microseconds since 1970; 0: there is none."""


class Obligation(msgspec.Struct, frozen=True):
    """An effect that a peer must receive, stored with the decision that emitted it (S12)."""

    number: int
    """Unique within the consumer, and growing."""
    scope: str
    peer: str
    effect: OwedEffect


class OperatorRequest(msgspec.Struct, frozen=True):
    """What an operator wants done about a sequence; the process that receives does it."""

    id: int
    scope: str
    action: OperatorAction
    number: int | None = None
    """GIVE_UP: the last number given up; None: the highest known. RESET: the next number; None: the
    first. REPLAY: the id in the dead letter."""
    refused: str = ""
    """REPLAY: why the store cannot do it; empty: it can."""
    replayed: int | None = None
    """REPLAY: the number of the message, where it has one …"""
    counted: bool = False
    """… and whether it is of the present count of its sequence."""


class SequenceChange(msgspec.Struct, gc=False):
    """The change of one group to one scope: applied in the order of the fields, in one transaction
    (S3).

    Numbers are given with their epoch, because one group may contain a reset.
    """

    scope: str
    state: SequencerState
    due_us: int | None
    """When the sequence needs a tick or may be forgotten, in microseconds since 1970; None:
    neither.
    """
    peer: str = ""
    held_messages: int = 0
    """Messages buffered behind a gap after this change …"""
    held_bytes: int = 0
    """… and bytes of them."""
    # Tuples, which are shared: an empty list for each scope, in each member, runs the garbage
    # collector twice as often.
    ended: Sequence[tuple[EndedNumbers, int]] = ()
    """Numbers to record, with the number of the obligation that tells the sender, or 0. Buffered
    messages in a range whose end is one of `UNDELIVERED` go to the dead letter (S13).
    """
    dead: Sequence[tuple[Message, EndedNumbers]] = ()
    """New messages that were accepted and go to the dead letter at once."""
    keep: Sequence[tuple[int, Message]] = ()
    """New messages to buffer: (epoch, message)."""
    release_buffered: Sequence[tuple[int, int]] = ()
    """All buffered messages up to this number are released: (epoch, number)."""
    release: list[tuple[int, Message]] = []
    """New messages to release: (epoch, message), in order. Together with `release_buffered` they
    are delivered by number.
    """
    unsequenced: list[Message] = []
    """New messages without a number: released at once."""


class MessageGroup(msgspec.Struct):
    """One transaction of the intake."""

    now_us: int
    changes: list[SequenceChange]
    handled: bool
    """Whether released messages wait for a handler; else they are delivered to the store."""
    deviations: dict[str, int]
    """Departures of the peers from their specification: kind → count."""
    settled: dict[int, bool] = {}
    """Obligations to forget: number → whether it was sent; else it was given up …"""
    owed: list[Obligation] = []
    """… and new ones to keep."""
    done: dict[int, str] = {}
    """Requests of operators that were carried out or refused: id → what became of it."""
    replay: list[int] = []
    """Ids in the dead letter of messages to deliver: an operator wants it. Where one is gone, the
    group is not committed."""
    discards_kept: tuple[int, int] | None = None
    """How many discarded messages the dead letter may keep, and bytes of them: older ones are
    trimmed. None: nothing is added to it."""


class DueSequences(msgspec.Struct, frozen=True):
    """The scopes that need a tick."""

    scopes: list[str]
    """Scopes due by now, the longest due first, at most `limit`."""
    next_us: int | None
    """When the next scopes are due, in microseconds since 1970; None: none is."""


class HandlerFailure(msgspec.Struct, frozen=True):
    """The decision about a message whose handler failed: retry or quarantine."""

    reason: str
    retry_at_us: int | None
    """When it is tried again, in microseconds since 1970; None: it goes to quarantine."""
    blocks: bool
    """With quarantine: whether its sequence waits until it is replayed or dropped."""


class FailedDelivery(msgspec.Struct, frozen=True):
    """One message whose handler failed, with the decision that was stored."""

    scope: str
    number: int
    id: str
    failure: HandlerFailure


class DeliveryResult(msgspec.Struct):
    """The result of one transaction of deliveries."""

    delivered: dict[str, int] = {}
    """Scope → messages that no longer wait."""
    failed: list[FailedDelivery] = []
    blocked: list[str] = []
    """Scopes that wait for a decision about a message in quarantine; the first hundred."""
    next_us: int | None = None
    """When there is more to deliver, in microseconds since 1970; None: after the next release."""


class DeliveryStoppedError(Exception):
    """Raised by a `Deliver` that takes no more messages. What it took before is committed; this
    message and those after it stay as they are.
    """


Deliver = Callable[[Message, int, HandlerConnection], Awaitable[HandlerFailure | bytes | None]]
"""Called with a message, how often it was tried before, and its transaction. Returns None, or a
reply to keep, where the message was delivered. Raises `DeliveryStoppedError` to end the transaction
before this message.
"""


class MessageStore(OutboxStore, Protocol):
    """The durable inbox of one consumer. Raises `SinkError`.

    Promised: reads return committed state only. Of two processes that use it for one consumer, the
    later one to `open` it continues, and the other gets `FencedError`.
    """

    async def open(self, kind: str, *, handled: bool) -> None:
        """Take the inbox over; `kind` is the source plug-in of the messages. Without a handler,
        messages that still wait for one are delivered to the store.
        """
        ...

    async def load(self, scopes: Collection[str]) -> dict[str, StoredSequence]:
        """Scope → its committed sequence, for those of the scopes that are stored."""
        ...

    async def scopes(self, prefix: str, limit: int) -> list[str]:
        """The stored scopes whose names begin with this text, at most `limit`."""
        ...

    async def find_seen(self, messages: Sequence[Message]) -> set[tuple[str, str]]:
        """The (scope, id) of those of these unsequenced messages that were received before."""
        ...

    async def commit(self, group: MessageGroup) -> None:
        """Commit all of the group in one transaction, or nothing; also when cancelled (S3)."""
        ...

    async def find_due(self, now_us: int, limit: int) -> DueSequences:
        """The scopes that need a tick by `now_us`, at most `limit`."""
        ...

    async def reclaim(self, scopes: Collection[str], now_us: int) -> set[str]:
        """Forget these sequences: state and identifiers (S10). Messages delivered to the store
        stay, and so does the record of their numbers; buffered ones go to the dead letter (S13).
        Returns the scopes that are unknown from now on.

        A sequence that still has messages for the handler, in quarantine too, stays and is due
        later.
        """
        ...

    async def reply(self, scope: str, number: int) -> StoredReply:
        """The handler's reply to a message of a sequence."""
        ...

    async def usage(self) -> dict[str, SenderUsage]:
        """Peer → its sequences, and its messages that are buffered or dead (S8, S13)."""
        ...

    async def obligations(self) -> list[Obligation]:
        """The obligations that are not forgotten, the oldest first (S12)."""
        ...

    async def operator_requests(self) -> list[OperatorRequest]:
        """What operators want done, the oldest first; see `MessageGroup.done`."""
        ...

    async def digests(self, numbers: Mapping[str, Collection[int]]) -> dict[tuple[str, int], bytes]:
        """(scope, number) → digest of these messages, or its first eight bytes at least, where it
        is still kept (S7). `numbers`: scope → numbers.
        """
        ...

    async def deliver(self, deliver: Deliver, now_us: int, limit_messages: int) -> DeliveryResult:
        """Call `deliver` for waiting messages, in order within each scope, and mark them
        delivered, in one transaction with the handler's own statements.

        The statements of a failed handler are rolled back; other messages are not affected. So is
        it where `deliver` raises `DeliveryStoppedError`, which also ends the transaction.
        Cancelling rolls the whole transaction back.
        """
        ...
