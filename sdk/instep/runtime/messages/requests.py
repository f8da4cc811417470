"""What waits for the next commit of the intake: messages, and requests to a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from instep.errors import InstepError, SinkError
from instep.ports.listener import Receipt
from instep.runtime.group_commit import PendingCommit
from instep.runtime.messages.commit_group import REFUSED, CommitGroup, Entry, Scope
from instep.sequencing.effects import Decision
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.transitions import Refusal, SequenceRefusedError

__all__ = ["Act", "PendingMessage", "PendingRequest", "apply", "intake_ended"]

Act = Callable[[Sequencer, int], Decision]
"""A request to a sequencer, at a time in microseconds."""


class PendingRequest(PendingCommit[Refusal | None]):
    """What one caller waits for: messages, or a request to one sequence. Answered with None once
    it is durable, with FULL when there was no room or it took too long.
    """

    __slots__ = ("act", "entries", "error", "scope", "size_bytes")

    def __init__(self, entries: list[Entry], scope: str = "", act: Act | None = None) -> None:
        super().__init__()
        self.entries = entries
        self.scope = scope
        self.act = act
        self.error: SequenceRefusedError | None = None
        self.size_bytes = sum([entry.size_bytes for entry in entries])

    def _resolve(self, result: Refusal | Exception | None) -> None:
        # What is no error of ours ends the intake; its callers need not know more than that.
        if isinstance(result, Exception) and not isinstance(result, InstepError):
            result = intake_ended()
        super()._resolve(result)


class PendingMessage(PendingRequest):
    """One message whose sender does not wait for it in a task of its own: it is called."""

    __slots__ = ("_answer_sender",)

    def __init__(self, entry: Entry, answer: Callable[[Receipt | InstepError], None]) -> None:
        super().__init__([entry])
        self._answer_sender = answer

    def _resolve(self, result: Refusal | Exception | None) -> None:
        if isinstance(result, Exception):
            self._answer_sender(result if isinstance(result, InstepError) else intake_ended())
        else:
            receipt = self.entries[0].receipt if result is None else REFUSED[result]
            self._answer_sender(receipt or REFUSED[Refusal.FULL])


def intake_ended() -> SinkError:
    """The error for those whom no commit will answer any more."""
    return SinkError("the intake has ended", hint="see what the consumer says")


def apply(
    requests: Iterable[PendingRequest], group: CommitGroup, scopes: Mapping[str, Scope]
) -> None:
    """Give each scope what came for it: messages that no request parts, together."""
    waiting: dict[str, list[Entry]] = {}
    for request in requests:
        for entry in request.entries:
            assert entry.message is not None
            waiting.setdefault(entry.message.scope, []).append(entry)
        if request.act is not None:
            scope = scopes[request.scope]
            if entries := waiting.pop(request.scope, None):
                group.receive(scope, entries)
            request.error = None
            try:
                group.request(scope, request.act)
            except SequenceRefusedError as error:
                request.error = error
    for name, entries in waiting.items():
        group.receive(scopes[name], entries)
