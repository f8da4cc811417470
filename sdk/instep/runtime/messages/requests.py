"""Requests queued for the next commit of the intake: messages, envelopes, openings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from instep.errors import InstepError, SinkError
from instep.model.messages import Message
from instep.ports.listener import EnvelopeReceipt, IntakeEvent, Receipt
from instep.runtime.group_commit import PendingCommit
from instep.runtime.messages.commit_group import (
    REFUSED,
    CommitGroup,
    Entry,
    EntryEvent,
    Opening,
    Scope,
)
from instep.sequencing.claims import Claims
from instep.sequencing.transitions import Refusal, SequenceRefusedError

__all__ = [
    "Envelope",
    "PendingEnvelope",
    "PendingMessage",
    "PendingRequest",
    "apply",
    "intake_ended",
    "not_keeping_up",
]


class Envelope(msgspec.Struct):
    """A request to one sequence: to open it, or to apply the events of one envelope (S11)."""

    scope: str
    opening: Opening | None = None
    events: list[EntryEvent] = []
    entries: list[Entry] = []
    """The messages among its events, in their order."""
    opens: bool = False
    """Whether the events open the sequence, as a message does."""
    claims: Claims | None = None
    """Of the commit, once it is durable."""
    error: SequenceRefusedError | None = None
    """Why it was refused."""

    @classmethod
    def of(cls, scope: str, events: Sequence[IntakeEvent]) -> Envelope:
        """An envelope of these events. Raises `ValueError` for a message of another scope."""
        taken: list[EntryEvent] = []
        entries: list[Entry] = []
        for event in events:
            if not isinstance(event, Message):
                taken.append(event)
                continue
            if event.scope != scope:
                raise ValueError(f"a message of {event.scope!r} in an envelope of {scope!r}")
            entry = Entry.of(event)
            taken.append(entry)
            entries.append(entry)
        return cls(scope, events=taken, entries=entries)

    def receipt(self) -> EnvelopeReceipt:
        """The answer, once it is durable."""
        assert self.claims is not None
        receipts = [entry.receipt for entry in self.entries]
        return EnvelopeReceipt([one for one in receipts if one is not None], self.claims)


class PendingRequest(PendingCommit[Refusal | None], kw_only=True):
    """Messages or an envelope that one caller waits for. The answer is None once they are durable,
    and FULL where there was no room or the commit took too long (S3, S8): UNAVAILABLE where the
    store is why.
    """

    entries: Sequence[Entry]
    envelope: Envelope | None = None

    def _resolve(self, result: Refusal | Exception | None) -> None:
        # Any other exception ends the intake; its callers learn no more than that.
        if isinstance(result, Exception) and not isinstance(result, InstepError):
            result = intake_ended()
        super()._resolve(result)


class PendingMessage(PendingRequest, kw_only=True):
    """One message whose sender is answered by a callback, without a task that waits."""

    answer_sender: Callable[[Receipt | InstepError], None]

    def _resolve(self, result: Refusal | Exception | None) -> None:
        if isinstance(result, Exception):
            self.answer_sender(result if isinstance(result, InstepError) else intake_ended())
        else:
            receipt = self.entries[0].receipt if result is None else REFUSED[result]
            self.answer_sender(receipt or REFUSED[Refusal.FULL])


class PendingEnvelope(PendingRequest, kw_only=True):
    """One envelope whose sender is answered by a callback, without a task that waits."""

    answer_sender: Callable[[EnvelopeReceipt | InstepError], None]

    def _resolve(self, result: Refusal | Exception | None) -> None:
        envelope = self.envelope
        assert envelope is not None
        if isinstance(result, Exception):
            self.answer_sender(result if isinstance(result, InstepError) else intake_ended())
        elif result is not None:
            self.answer_sender(not_keeping_up(result))
        else:
            self.answer_sender(envelope.error or envelope.receipt())


def not_keeping_up(refusal: Refusal) -> SequenceRefusedError:
    """The error for callers that there is no room for, or whose commit takes too long (S8)."""
    away = refusal is Refusal.UNAVAILABLE
    text = "the store is unavailable" if away else "the store is not keeping up"
    return SequenceRefusedError(refusal, text)


def intake_ended() -> SinkError:
    """The error for callers that no commit will answer any more."""
    return SinkError("the intake has ended", hint="see what the consumer says")


def apply(
    requests: Iterable[PendingRequest], group: CommitGroup, scopes: Mapping[str, Scope]
) -> None:
    """Apply requests to the group, in order. Messages of one scope that have no envelope between
    them are received together.
    """
    waiting: dict[str, list[Entry]] = {}
    for request in requests:
        envelope = request.envelope
        if envelope is None:
            for entry in request.entries:
                assert entry.message is not None
                waiting.setdefault(entry.message.scope, []).append(entry)
            continue
        scope = scopes[envelope.scope]
        if entries := waiting.pop(envelope.scope, None):
            group.receive(scope, entries)
        envelope.error = None
        try:
            if envelope.opening is None:
                group.apply(scope, envelope.events, opens=envelope.opens)
            else:
                group.open(scope, envelope.opening)
        except SequenceRefusedError as error:
            envelope.error = error
    for name, entries in waiting.items():
        group.receive(scopes[name], entries)
