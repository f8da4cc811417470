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
from instep.ports.message_store import OutboxStore
from instep.sequencing.claims import Claims
from instep.sequencing.effects import SequenceEffect
from instep.sequencing.events import EndRequest, NumberRequest
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal

__all__ = [
    "EnvelopeReceipt",
    "Intake",
    "IntakeEvent",
    "Listener",
    "Receipt",
    "ReceiptOutcome",
]


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


IntakeEvent = Message | NumberRequest | EndRequest
"""A part of an envelope: a message, or a request of `instep.sequencing.events`."""


class EnvelopeReceipt(msgspec.Struct, frozen=True):
    """The answer to an envelope: the state of the very commit that made it durable (S11)."""

    receipts: list[Receipt]
    """One for each message, in their order."""
    claims: Claims
    """Acknowledged, cancelled, faulted and missing numbers, the highest, and whether it is
    final."""


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

    async def open(
        self,
        scope: str,
        settings: SequencerSettings,
        attributes: bytes = b"",
        expires_at_us: int = 0,
    ) -> None:
        """Open a sequence explicitly (CreateSequence, Subscribe), with what came over the wire: it
        is durable when this returns, and holds instead of `Listener.settings_of` (S9).

        `attributes` are the adapter's own; `expires_at_us` is in microseconds since 1970, 0 for
        never. Refused with `EXISTS` where the name is in use, with `EXPIRED`, and with `FULL`.
        """
        ...

    async def apply(self, scope: str, events: Sequence[IntakeEvent]) -> EnvelopeReceipt:
        """What one envelope says of one sequence, in its order: decided and committed as one (S11).

        A message that is not accepted refuses nothing else; its receipt says why. `UNKNOWN` where
        nobody opened the sequence, unless a message among the events opens it implicitly.
        """
        ...

    async def state(self, scope: str) -> SequencerState | None:
        """The committed state of a sequence; None: it is unknown. Asking makes none (S9)."""
        ...

    async def claims(self, scope: str) -> Claims | None:
        """What may be claimed towards the peer: durable (S3); None: the sequence is unknown."""
        ...

    async def missing(self, scope: str) -> list[tuple[int, int]]:
        """The lowest ranges still wanted (`Claims.missing`); none of an unknown sequence."""
        ...

    async def attributes(self, scope: str) -> bytes | None:
        """What the sequence was opened with (S9); None: it is unknown."""
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

    @property
    def opens_implicitly(self) -> bool:
        """Whether the first message of an unknown scope opens it (S9). Else it has to be opened
        with `Intake.open`, and messages to an unknown scope are refused with `Refusal.UNKNOWN`.
        """
        ...

    def settings_of(self, scope: str) -> SequencerSettings:
        """How a scope is sequenced that was opened implicitly: first number, policies, bounds.
        Always the same answer.
        """
        ...

    def peer_of(self, scope: str) -> str:
        """Who sends in this scope. What is held and what is owed is bounded by peer, and a peer
        that does not answer holds up no other (S8, S12). Always the same answer.
        """
        ...

    async def serve(self, intake: Intake) -> None:
        """Listen and receive until cancelled. Raises `SourceError`.

        Cancelling ends it in order: no new message is taken, those that were taken are answered.
        """
        ...

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        """Do what a sequence asks for: a resend, a fault, a report. Called for several peers, and
        for one peer, at the same time. Raises `SourceError` where it could not be sent.

        A fault, a failure and an end are owed to the peer: they are stored until this returns, and
        carried out again after an error or a restart, so a peer may get one twice. A resend is
        asked for again by the gap (S12).
        """
        ...

    async def close(self) -> None:
        """Let go of what is left. `serve` has ended before."""
        ...
