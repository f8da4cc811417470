"""The border between an adapter of numbered messages and the core: messages, receipts, handlers.

An adapter (DIDComm, WS-RM, …) is a `Listener`: it listens, reads its protocol, and gives what it
read to a `Reception`, which answers once the message is durable. What the core wants of the peer
(a resend, a fault) comes back through `Listener.carry_out`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from instep.errors import InstepError
from instep.outbox import OutboxState
from instep.ranges import Ranges
from instep.received_orders import GapDetector
from instep.sequence_effects import SequenceEffect
from instep.sequence_settings import SequencerSettings
from instep.sequence_state import SequencerState
from instep.sequence_transitions import Refusal

__all__ = [
    "UNSEQUENCED",
    "Handler",
    "HandlerConnection",
    "Listener",
    "Message",
    "OutboxStore",
    "Receipt",
    "ReceiptOutcome",
    "Reception",
]

T = TypeVar("T")

UNSEQUENCED = -1
"""The number of a message that belongs to no sequence: it passes through, once by its id."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message as received; never edited."""

    scope: str
    """One numbered sequence, as the adapter names it; unique within the consumer."""
    number: int = UNSEQUENCED
    """Its place in the scope; `UNSEQUENCED` where it has none."""
    id: str
    """The sender's own identifier; what makes an unsequenced message one within its scope."""
    body: bytes
    """The plaintext, as received."""
    received_at_us: int
    """Our clock, microseconds since 1970."""
    expires_at_us: int = 0
    """The sender's deadline for delivery; 0 for none."""
    digest: bytes = b""
    """Stands for the content (S7); empty where contents are not compared."""
    sender: str = ""
    attributes: bytes = b"{}"
    """A JSON object: whatever else the adapter wants kept (type, thread, content type …)."""


class ReceiptOutcome(StrEnum):
    """What became of a message."""

    ACCEPTED = "accepted"
    """It is durable, and will be delivered once, in its turn."""
    DUPLICATE = "duplicate"
    """It was received before: acknowledge again, it is not delivered again (S1)."""
    REFUSED = "refused"
    """It is not kept; `Receipt.refusal` says why, the adapter says it in its protocol's words."""


class Receipt(msgspec.Struct, frozen=True):
    """The answer to a message. Given only after what it says is durable (S3)."""

    outcome: ReceiptOutcome
    deviation: bool = False
    """A duplicate with other content than before, without a fault between them (S7)."""
    refusal: Refusal | None = None
    """Why it was refused; `FULL` may be sent again as it is."""


class OutboxStore(Protocol):
    """Where the messages that we send are kept until they are acknowledged (`instep.outbox`).

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


class Reception(Protocol):
    """What a listener gives its messages to. One task or a thousand may call it at once: what comes
    together is committed together.

    A call returns only when what it says is durable. Cancelling one loses nothing: the message may
    be committed or not, and sending it again is safe. Requests raise `SequenceRefusedError` and
    change nothing where the sequence does not allow them; a queue that is full or a store that is
    away for too long refuses with `Refusal.FULL` instead of waiting.
    """

    @property
    def outbox(self) -> OutboxStore:
        """Where our own messages are kept until they are acknowledged."""
        ...

    async def receive(self, message: Message) -> Receipt: ...

    async def receive_many(self, messages: Sequence[Message]) -> list[Receipt]:
        """The same for messages that came together; one receipt each, in their order."""
        ...

    def submit(self, message: Message, answer: Callable[[Receipt | InstepError], None]) -> None:
        """The same for one message, without a task that waits: `answer` is called once, maybe at
        once, with the receipt, or with the error that ended the reception. It must not raise.
        """
        ...

    async def cancel(self, scope: str, low: int, high: int) -> None:
        """SequenceCancel: see `Sequencer.cancel`."""
        ...

    async def fill(self, scope: str, low: int, high: int) -> None:
        """SequenceFill: see `Sequencer.fill`."""
        ...

    async def fault(self, scope: str, number: int, reason: Refusal) -> None:
        """We answer this number with a fault: see `Sequencer.fault`."""
        ...

    async def announce(self, scope: str, highest: int) -> None:
        """The sender has used the numbers up to here: see `Sequencer.announce`."""
        ...

    async def give_up(self, scope: str, through: int, reason: str = "given up") -> None:
        """Go on without what did not come up to here: see `Sequencer.give_up`."""
        ...

    async def last(self, scope: str, number: int) -> None:
        """The last number is known: see `Sequencer.last`."""
        ...

    async def close(self, scope: str, last_number: int | None = None) -> None:
        """Accept nothing new: see `Sequencer.close`."""
        ...

    async def terminate(self, scope: str) -> None:
        """TerminateSequence: see `Sequencer.terminate`."""
        ...

    async def reset(self, scope: str) -> None:
        """The sender counts anew: see `Sequencer.reset`."""
        ...

    async def state(self, scope: str) -> SequencerState:
        """The committed state of a scope; that of a fresh one for a scope never seen."""
        ...

    async def acknowledged(self, scope: str) -> Ranges:
        """The ranges to acknowledge: durable, and none that is cancelled (S3, S5)."""
        ...

    async def cancelled(self, scope: str) -> Ranges:
        """The ranges promised never to be accepted (S5)."""
        ...

    async def faulted(self, scope: str) -> Ranges:
        """The ranges answered with a fault and not replaced (S6)."""
        ...

    async def received_orders(self, scope: str, party: str) -> GapDetector:
        """Our element of `received_orders` for the party that sends in this scope (DIDComm)."""
        ...

    def deviated(self, kind: str) -> None:
        """Count a departure of the peer from its specification; kept with the next commit."""
        ...


@runtime_checkable
class Listener(Protocol):
    """A source of numbered messages, which the peers connect to. `SourcePlugin.build` returns one
    instead of a `Source`.
    """

    @property
    def kind(self) -> str:
        """The source plug-in that it comes from."""
        ...

    @property
    def address(self) -> str:
        """Where it listens, as a URL with the real port; empty until it does."""
        ...

    def settings_of(self, scope: str) -> SequencerSettings:
        """How this scope is sequenced: first number, policies, bounds. Always the same answer."""
        ...

    async def serve(self, reception: Reception) -> None:
        """Listen and receive until cancelled. Raises `SourceError`.

        Cancelling ends it in order: no new message is taken, those that were taken are answered.
        """
        ...

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        """Do what a sequence asks for: a resend, a fault, a report. Raises `SourceError`: it is
        told, and asked for again where the sequence still needs it.
        """
        ...

    async def close(self) -> None:
        """Let go of what is left. `serve` has ended before."""
        ...


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
