"""What waits for the next commit of the reception: bounded, refused when full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from instep.errors import InstepError, SinkError
from instep.messages import Receipt
from instep.reception_group import REFUSED, Entry, Group, Scope
from instep.sequence_effects import Outcome
from instep.sequence_transitions import Refusal, SequenceRefusedError
from instep.sequencer import Sequencer
from instep.settings import ReceptionSettings

__all__ = ["Act", "Call", "CallQueue", "Submitted", "apply", "fail"]

Act = Callable[[Sequencer, int], Outcome]
"""A request to a sequencer, at a time in microseconds."""


class Call:
    """What one caller waits for: messages, or a request to one sequence."""

    __slots__ = ("act", "answered", "entries", "error", "late_s", "over", "scope", "size_bytes")

    def __init__(self, entries: list[Entry], scope: str = "", act: Act | None = None) -> None:
        self.entries = entries
        self.scope = scope
        self.act = act
        self.error: SequenceRefusedError | None = None
        self.size_bytes = sum([entry.size_bytes for entry in entries])
        self.late_s = 0.0
        """When it takes too long, in the loop's time."""
        self.over = False
        """It is durable, took too long, or its caller has left."""
        self.answered: asyncio.Future[bool] | None = None

    def answer(self, *, durable: bool) -> None:
        """Tell the caller, if it still waits."""
        if not self.over:
            self.over = True
            self._tell(durable=durable)

    def fail(self, error: InstepError) -> None:
        """The same where nothing more will be committed."""
        if not self.over:
            self.over = True
            self._tell(error=error)

    def _tell(self, *, durable: bool = False, error: InstepError | None = None) -> None:
        if self.answered is None or self.answered.done():
            return
        if error is not None:
            self.answered.set_exception(error)
        else:
            self.answered.set_result(durable)


class Submitted(Call):
    """One message whose sender does not wait for it in a task of its own: it is called."""

    __slots__ = ("_tell_sender",)

    def __init__(self, entry: Entry, answer: Callable[[Receipt | InstepError], None]) -> None:
        super().__init__([entry])
        self._tell_sender = answer

    def _tell(self, *, durable: bool = False, error: InstepError | None = None) -> None:
        receipt = self.entries[0].receipt if durable else None
        self._tell_sender(error or receipt or REFUSED[Refusal.FULL])


class CallQueue:
    """Calls in the order in which they came."""

    def __init__(self, limits: ReceptionSettings) -> None:
        self._limits = limits
        self._calls: deque[Call] = deque()
        self._bytes = 0
        self._open: deque[Call] = deque()
        """The calls that may have to be told that it takes too long; the oldest is not over."""
        self._watch: asyncio.TimerHandle | None = None
        self.messages = 0
        """Messages that wait."""
        self.refused = 0
        """Messages that found no room, or waited too long."""
        self.came = asyncio.Event()
        """Set while there is something to commit."""

    async def put(self, call: Call) -> bool:
        """Queue a call and wait for its commit; False: there is no room, or it takes too long."""
        call.answered = asyncio.get_running_loop().create_future()
        if not self.offer(call):
            return False
        try:
            return await call.answered
        finally:
            call.over = True

    def offer(self, call: Call) -> bool:
        """Queue a call, which will be told; False: there is no room."""
        limits, size = self._limits, len(call.entries) or 1
        if self._calls and (
            self.messages + size > limits.queue_messages
            or self._bytes + call.size_bytes > limits.queue_bytes
        ):
            self.refused += len(call.entries)
            return False
        self._calls.append(call)
        self.messages += size
        self._bytes += call.size_bytes
        if not self.came.is_set():
            self.came.set()
        loop = asyncio.get_running_loop()
        call.late_s = loop.time() + limits.answer_within_s
        # One timer looks after them all: most are answered long before, and a timer each is dear.
        waiting = self._open
        while waiting and waiting[0].over:
            waiting.popleft()
        waiting.append(call)
        if self._watch is None:
            self._watch = loop.call_at(call.late_s, self._look)
        return True

    def take(self) -> list[Call]:
        """What has gathered, up to the bound of a group; one call at least, none in pieces."""
        taken: list[Call] = []
        messages = 0
        while self._calls and messages < self._limits.group_messages:
            call = self._calls.popleft()
            self.messages -= len(call.entries) or 1
            self._bytes -= call.size_bytes
            if not call.over:
                taken.append(call)
                messages += len(call.entries)
        if not self._calls:
            self.came.clear()
        return taken

    def fail(self, error: BaseException) -> None:
        """Nothing more will be committed."""
        fail(self._calls, error)
        self._calls.clear()
        self._open.clear()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        """Tell those that have waited too long; look again when the next ones have."""
        self._watch = None
        loop, waiting = asyncio.get_running_loop(), self._open
        while waiting and (waiting[0].over or waiting[0].late_s <= loop.time()):
            call = waiting.popleft()
            if not call.over:
                self.refused += len(call.entries)
                call.answer(durable=False)
        if waiting:
            self._watch = loop.call_at(waiting[0].late_s, self._look)


def apply(calls: Iterable[Call], group: Group, scopes: Mapping[str, Scope]) -> None:
    """Give each scope what came for it: messages that no request parts, together."""
    waiting: dict[str, list[Entry]] = {}
    for call in calls:
        for entry in call.entries:
            assert entry.message is not None
            waiting.setdefault(entry.message.scope, []).append(entry)
        if call.act is not None:
            scope = scopes[call.scope]
            if entries := waiting.pop(call.scope, None):
                group.receive(scope, entries)
            call.error = None
            try:
                group.request(scope, call.act)
            except SequenceRefusedError as error:
                call.error = error
    for name, entries in waiting.items():
        group.receive(scopes[name], entries)


def fail(calls: Iterable[Call], error: BaseException) -> None:
    """Nobody waits for ever: whoever still does is told."""
    if not isinstance(error, InstepError):
        error = SinkError("the reception has ended", hint="see what the consumer says")
    for call in calls:
        call.fail(error)
