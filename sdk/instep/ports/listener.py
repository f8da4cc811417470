"""The border between an adapter of numbered messages and the core: listener, intake, receipts.

An adapter (DIDComm, WS-RM, …) is a `Listener`: it listens, reads its protocol, and passes the
messages to an `Intake`, which answers once they are durable. Effects for the peer (a request to
resend, a fault) come back through `Listener.carry_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

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
    "ReconfigurableListener",
]


class ReceiptOutcome(StrEnum):
    """The outcome of a message: accepted, duplicate or refused (S1)."""

    ACCEPTED = "accepted"
    """It is durable, and will be delivered once, when its number is next."""
    DUPLICATE = "duplicate"
    """It was received before: acknowledge again, it is not delivered again (S1)."""
    REFUSED = "refused"
    """It is not kept; `Receipt.refusal` is the reason, which the adapter maps to its protocol."""


class Receipt(msgspec.Struct, frozen=True):
    """The answer to a message, given only after its outcome is durable (S3)."""

    outcome: ReceiptOutcome
    deviation: bool = False
    """A duplicate with other content than before, without a fault between them (S7)."""
    refusal: Refusal | None = None
    """Why it was refused; `FULL` may be sent again as it is."""


IntakeEvent = Message | NumberRequest | EndRequest
"""A part of an envelope: a message, or a request of `instep.sequencing.events`."""


class EnvelopeReceipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to an envelope, with the state of the commit that made it durable (S11)."""

    receipts: list[Receipt]
    """One for each message, in their order."""
    claims: Claims
    """Acknowledged, cancelled, faulted and missing numbers, the highest, and whether it is
    final."""


class Intake(Protocol):
    """Takes the messages of a listener and makes them durable. One task or a thousand may call it
    at once: calls that arrive together are committed together.

    Promised: a call returns only when its answer is durable (S3). Cancelling one loses nothing: the
    message may be committed or not, and sending it again is safe. Requests raise
    `SequenceRefusedError` and change nothing where the sequence does not allow them. A full queue,
    or a store that is unavailable for too long, refuses with `Refusal.FULL` (S8).
    """

    @property
    def outbox(self) -> OutboxStore:
        """The store of our own messages until they are acknowledged (S12)."""
        ...

    async def receive(self, message: Message, settings: SequencerSettings | None = None) -> Receipt:
        """Make a message durable, and return its outcome (S1, S3).

        `settings` are those that its protocol declares: they become those of a sequence that was
        opened implicitly and has none of its own yet, instead of `Listener.settings_of` (S9).
        """
        ...

    def submit(
        self,
        message: Message,
        answer: Callable[[Receipt | InstepError], None],
        settings: SequencerSettings | None = None,
    ) -> None:
        """Queue one message without waiting for its commit. `answer` is called once, perhaps before
        this returns, with the receipt or with the error that ended the intake. It must not raise.
        `settings`: see `receive`.
        """
        ...

    async def open(
        self,
        scope: str,
        settings: SequencerSettings,
        attributes: bytes = b"",
        expires_at_us: int = 0,
        peer: str = "",
    ) -> None:
        """Open a sequence explicitly (CreateSequence, Subscribe). It is durable when this returns.
        Its `settings` apply instead of `Listener.settings_of` (S9).

        `attributes` are the adapter's own; `expires_at_us` is in microseconds since 1970, 0 for
        never; `peer` is who opens it, where `Listener.peer_of` cannot tell it from the name.

        Raises `SequenceRefusedError`: `EXISTS` where the name is in use, `EXPIRED` where the time
        has passed, `FULL` where there is no room.
        """
        ...

    async def apply(self, scope: str, events: Sequence[IntakeEvent]) -> EnvelopeReceipt:
        """Apply the events of one envelope to one sequence, in their order, decided and committed
        as one (S11).

        A message that is not accepted refuses nothing else; its receipt has the reason. Raises
        `SequenceRefusedError` with `UNKNOWN` where the sequence was never opened, unless a message
        among the events opens it implicitly (S9).
        """
        ...

    def submit_envelope(
        self,
        scope: str,
        events: Sequence[IntakeEvent],
        answer: Callable[[EnvelopeReceipt | InstepError], None],
    ) -> None:
        """`apply` without waiting for the commit. `answer` is called once, perhaps before this
        returns, with the receipt or with the error that `apply` raises. It must not raise.
        """
        ...

    async def count(self, scope: str, number: int) -> None:
        """Count a number as received though the sequence does not deliver its message, which has no
        content or no order. It opens the sequence as a message does. Durable when this returns.

        Raises `SequenceRefusedError`.
        """
        ...

    async def scopes(self, prefix: str, limit: int) -> list[str]:
        """The known sequences whose names begin with this text, at most `limit`."""
        ...

    async def state(self, scope: str) -> SequencerState | None:
        """The committed state of a sequence; None: it is unknown. Reading opens nothing (S9)."""
        ...

    async def claims(self, scope: str) -> Claims | None:
        """The claims towards the peer of the durable state (S3); None: the sequence is unknown."""
        ...

    async def missing(self, scope: str) -> list[tuple[int, int]]:
        """The lowest ranges still wanted (`Claims.missing`); none of an unknown sequence."""
        ...

    async def attributes(self, scope: str) -> bytes | None:
        """The attributes that the sequence was opened with (S9); None: it is unknown."""
        ...

    async def reply(self, scope: str, number: int, timeout_s: float) -> bytes | None:
        """Wait for the handler's reply to a message of a sequence, which may have been received
        long ago. Returns None where it gave none, has failed for good, or where there is no
        handler. Raises `SinkError`, and `TimeoutError` where it has not handled the message within
        `timeout_s`.
        """
        ...

    def report_deviation(self, kind: str) -> None:
        """Count a departure of the peer from its specification; kept with the next commit."""
        ...

    def show_refusals(self, counts: Mapping[str, int]) -> None:
        """Show in the health what the listener refuses before it reaches the intake: reason →
        count. The listener goes on counting in this mapping.
        """
        ...


@runtime_checkable
class ReconfigurableListener(Protocol):
    """What a listener has besides that takes over changed options while it listens."""

    def reconfigure(self, options: Mapping[str, Any], where: str) -> Collection[str]:
        """Take over changed options, which were checked, without closing a connection. Returns the
        keys of those that it does not take over.
        """
        ...


@runtime_checkable
class Listener(Protocol):
    """A source of numbered messages, which the peers connect to. `SourcePlugin.build` returns one
    instead of a `Source`.

    One that connects to a broker itself has `last_error` besides: why it cannot receive now, for
    the health; empty while it can. Its `address` is then that of the broker, empty while it is not
    connected.
    """

    @property
    def kind(self) -> str:
        """The source plug-in that it comes from."""
        ...

    @property
    def address(self) -> str:
        """The URL that it listens on, with the real port; empty until it listens."""
        ...

    @property
    def opens_implicitly(self) -> bool:
        """Whether the first message of an unknown scope opens it (S9). Else it has to be opened
        with `Intake.open`, and messages to an unknown scope are refused with `Refusal.UNKNOWN`.
        """
        ...

    def settings_of(self, scope: str) -> SequencerSettings:
        """The settings of a scope that was opened implicitly: first number, policies, bounds. The
        same scope must always give the same settings.
        """
        ...

    def peer_of(self, scope: str) -> str:
        """The peer that sends in this scope. Buffered messages and obligations are bounded by peer,
        and a peer that does not answer delays no other (S8, S12). The same scope must always give
        the same peer. Not asked where the scope was opened with its peer (`Intake.open`).
        """
        ...

    async def serve(self, intake: Intake) -> None:
        """Listen and receive until cancelled. Raises `SourceError`.

        Cancelling ends it in order: no new message is taken, those that were taken are answered.
        """
        ...

    async def carry_out(self, scope: str, effect: SequenceEffect) -> bool | None:
        """Carry an effect out: send a request to resend, a fault, a report. Calls for several
        peers, and for one peer, run at the same time. Returns False where there is no way to send
        it, which the record of the numbers says (S13). Raises `SourceError` where it could not be
        sent.

        A fault, a failure and an end are stored until this returns, and are carried out again after
        an error or a restart, so a peer may receive one twice. An open gap emits its request to
        resend again (S12).
        """
        ...

    async def close(self) -> None:
        """Release the resources that are left. `serve` has ended before."""
        ...
