"""What waits for the next commit of the reception: bounded, refused when full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from instep.errors import InstepError, SinkError
from instep.reception_group import Entry
from instep.sequence_effects import Outcome
from instep.sequence_transitions import SequenceRefusedError
from instep.sequencer import Sequencer
from instep.settings import ReceptionSettings

__all__ = ["Act", "Call", "CallQueue", "fail"]

Act = Callable[[Sequencer, int], Outcome]
"""A request to a sequencer, at a time in microseconds."""


class Call:
    """What one caller waits for: messages, or a request to one sequence."""

    __slots__ = ("act", "answered", "entries", "error", "scope", "size_bytes")

    def __init__(self, entries: list[Entry], scope: str = "", act: Act | None = None) -> None:
        self.entries = entries
        self.scope = scope
        self.act = act
        self.error: SequenceRefusedError | None = None
        self.size_bytes = sum(entry.size_bytes for entry in entries)
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Done when the call is durable, took too long (False), or its caller has left."""

    def answer(self, *, durable: bool) -> None:
        """Tell the caller, if it still waits."""
        if not self.answered.done():
            self.answered.set_result(durable)


class CallQueue:
    """Calls in the order in which they came."""

    def __init__(self, limits: ReceptionSettings) -> None:
        self._limits = limits
        self._calls: deque[Call] = deque()
        self._bytes = 0
        self.messages = 0
        """Messages that wait."""
        self.came = asyncio.Event()
        """Set while there is something to commit."""

    async def put(self, call: Call) -> bool:
        """Queue a call and wait for its commit; False: there is no room, or it takes too long."""
        limits, size = self._limits, len(call.entries) or 1
        if self._calls and (
            self.messages + size > limits.queue_messages
            or self._bytes + call.size_bytes > limits.queue_bytes
        ):
            return False
        self._calls.append(call)
        self.messages += size
        self._bytes += call.size_bytes
        self.came.set()
        # Not `asyncio.timeout`, which costs three times as much, and this is for each message.
        loop = call.answered.get_loop()
        late = loop.call_later(limits.answer_within_s, partial(call.answer, durable=False))
        try:
            return await call.answered
        finally:
            late.cancel()

    def take(self) -> list[Call]:
        """What has gathered, up to the bound of a group; one call at least, none in pieces."""
        taken: list[Call] = []
        messages = 0
        while self._calls and messages < self._limits.group_messages:
            call = self._calls.popleft()
            self.messages -= len(call.entries) or 1
            self._bytes -= call.size_bytes
            if not call.answered.done():
                taken.append(call)
                messages += len(call.entries)
        if not self._calls:
            self.came.clear()
        return taken

    def fail(self, error: BaseException) -> None:
        """Nothing more will be committed."""
        fail(self._calls, error)
        self._calls.clear()


def fail(calls: Iterable[Call], error: BaseException) -> None:
    """Nobody waits for ever: whoever still does is told."""
    if not isinstance(error, InstepError):
        error = SinkError("the reception has ended", hint="see what the consumer says")
    for call in calls:
        if not call.answered.done():
            call.answered.set_exception(error)
