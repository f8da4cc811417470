"""The border between an adapter of numbered messages and the core: listener, intake, receipts.

An adapter (DIDComm, WS-RM, …) is a `Listener`: it listens, reads its protocol, and gives what it
read to an `Intake`, which answers once the message is durable. What the core wants of the peer
(a resend, a fault) comes back through `Listener.carry_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from instep.errors import InstepError
from instep.model.messages import Message
from instep.model.ranges import Ranges
from instep.ports.message_store import OutboxStore
from instep.sequencing.effects import SequenceEffect
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal

__all__ = ["Intake", "Listener", "Receipt", "ReceiptOutcome"]


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


class Intake(Protocol):
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

    async def receive(self, message: Message) -> Receipt:
        """Make a message durable, and say what became of it (S1, S3)."""
        ...

    async def receive_many(self, messages: Sequence[Message]) -> list[Receipt]:
        """The same for messages that came together; one receipt each, in their order."""
        ...

    def submit(self, message: Message, answer: Callable[[Receipt | InstepError], None]) -> None:
        """The same for one message, without a task that waits: `answer` is called once, maybe at
        once, with the receipt, or with the error that ended the intake. It must not raise.
        """
        ...

    async def cancel(self, scope: str, low: int, high: int) -> None:
        """Promise that these numbers are never accepted (S5); see `Sequencer.cancel`."""
        ...

    async def fill(self, scope: str, low: int, high: int) -> None:
        """Count these numbers as received, without content (S5); see `Sequencer.fill`."""
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
        """End the sequence, whatever is missing; see `Sequencer.terminate`."""
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

    def report_deviation(self, kind: str) -> None:
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

    async def serve(self, intake: Intake) -> None:
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
