"""What waits for the next commit of the intake: bounded, refused when full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from instep.errors import InstepError, SinkError
from instep.ports.listener import Receipt
from instep.runtime.messages.commit_group import REFUSED, CommitGroup, Entry, Scope
from instep.runtime.settings import IntakeSettings
from instep.sequencing.effects import Decision
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.transitions import Refusal, SequenceRefusedError

__all__ = ["Act", "PendingMessage", "PendingRequest", "RequestQueue", "apply", "fail"]

Act = Callable[[Sequencer, int], Decision]
"""A request to a sequencer, at a time in microseconds."""


class PendingRequest:
    """What one caller waits for: messages, or a request to one sequence."""

    __slots__ = ("act", "answered", "deadline_s", "done", "entries", "error", "scope", "size_bytes")

    def __init__(self, entries: list[Entry], scope: str = "", act: Act | None = None) -> None:
        self.entries = entries
        self.scope = scope
        self.act = act
        self.error: SequenceRefusedError | None = None
        self.size_bytes = sum([entry.size_bytes for entry in entries])
        self.deadline_s = 0.0
        """When it takes too long, in the loop's time."""
        self.done = False
        """It is durable, took too long, or its caller has left."""
        self.answered: asyncio.Future[bool] | None = None

    def answer(self, *, durable: bool) -> None:
        """Tell the caller, if it still waits."""
        if not self.done:
            self.done = True
            self._resolve(durable=durable)

    def fail(self, error: InstepError) -> None:
        """The same where nothing more will be committed."""
        if not self.done:
            self.done = True
            self._resolve(error=error)

    def _resolve(self, *, durable: bool = False, error: InstepError | None = None) -> None:
        if self.answered is None or self.answered.done():
            return
        if error is not None:
            self.answered.set_exception(error)
        else:
            self.answered.set_result(durable)


class PendingMessage(PendingRequest):
    """One message whose sender does not wait for it in a task of its own: it is called."""

    __slots__ = ("_answer_sender",)

    def __init__(self, entry: Entry, answer: Callable[[Receipt | InstepError], None]) -> None:
        super().__init__([entry])
        self._answer_sender = answer

    def _resolve(self, *, durable: bool = False, error: InstepError | None = None) -> None:
        receipt = self.entries[0].receipt if durable else None
        self._answer_sender(error or receipt or REFUSED[Refusal.FULL])


class RequestQueue:
    """Calls in the order in which they came."""

    def __init__(self, limits: IntakeSettings) -> None:
        self._limits = limits
        self._requests: deque[PendingRequest] = deque()
        self._bytes = 0
        self._unanswered: deque[PendingRequest] = deque()
        """The calls that may have to be told that it takes too long; the oldest is not over."""
        self._deadline_timer: asyncio.TimerHandle | None = None
        self.messages = 0
        """Messages that wait."""
        self.refused = 0
        """Messages that found no room, or waited too long."""
        self.has_work = asyncio.Event()
        """Set while there is something to commit."""

    async def put(self, request: PendingRequest) -> bool:
        """Queue a call and wait for its commit; False: there is no room, or it takes too long."""
        request.answered = asyncio.get_running_loop().create_future()
        if not self.offer(request):
            return False
        try:
            return await request.answered
        finally:
            request.done = True

    def offer(self, request: PendingRequest) -> bool:
        """Queue a call, which will be told; False: there is no room."""
        limits, size = self._limits, len(request.entries) or 1
        if self._requests and (
            self.messages + size > limits.queue_messages
            or self._bytes + request.size_bytes > limits.queue_bytes
        ):
            self.refused += len(request.entries)
            return False
        self._requests.append(request)
        self.messages += size
        self._bytes += request.size_bytes
        if not self.has_work.is_set():
            self.has_work.set()
        loop = asyncio.get_running_loop()
        request.deadline_s = loop.time() + limits.answer_within_s
        # One timer looks after them all: most are answered long before, and a timer each is dear.
        waiting = self._unanswered
        while waiting and waiting[0].done:
            waiting.popleft()
        waiting.append(request)
        if self._deadline_timer is None:
            self._deadline_timer = loop.call_at(request.deadline_s, self._expire_late)
        return True

    def take(self) -> list[PendingRequest]:
        """What has gathered, up to the bound of a group; one call at least, none in pieces."""
        taken: list[PendingRequest] = []
        messages = 0
        while self._requests and messages < self._limits.group_messages:
            request = self._requests.popleft()
            self.messages -= len(request.entries) or 1
            self._bytes -= request.size_bytes
            if not request.done:
                taken.append(request)
                messages += len(request.entries)
        if not self._requests:
            self.has_work.clear()
        return taken

    def fail(self, error: BaseException) -> None:
        """Nothing more will be committed."""
        fail(self._requests, error)
        self._requests.clear()
        self._unanswered.clear()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def _expire_late(self) -> None:
        """Tell those that have waited too long; look again when the next ones have."""
        self._deadline_timer = None
        loop, waiting = asyncio.get_running_loop(), self._unanswered
        while waiting and (waiting[0].done or waiting[0].deadline_s <= loop.time()):
            request = waiting.popleft()
            if not request.done:
                self.refused += len(request.entries)
                request.answer(durable=False)
        if waiting:
            self._deadline_timer = loop.call_at(waiting[0].deadline_s, self._expire_late)


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


def fail(requests: Iterable[PendingRequest], error: BaseException) -> None:
    """Nobody waits for ever: whoever still does is told."""
    if not isinstance(error, InstepError):
        error = SinkError("the intake has ended", hint="see what the consumer says")
    for request in requests:
        request.fail(error)
