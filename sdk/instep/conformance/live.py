"""Judges a peer while a consumer works, at a bounded cost and in bounded memory. Pure.

What comes is judged in windows. A window is all that came between two times, on all connections: so
what is found in it is as sound as what is found in a whole trace, and what lies between two windows
is not judged at all. A window ends where the budget is spent, or where it has become large. The
next one knows what was declared, and which connections are open, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from instep.conformance.budget import JudgingBudget
from instep.conformance.events import (
    ConnectionClosed,
    ConnectionOpened,
    ConnectionRefused,
    Event,
    MessageReceived,
    MessagesSkipped,
    PongSent,
    RequestAnswered,
    RequestReceived,
    ResponseReceived,
)
from instep.conformance.judging import ConformanceReport, TraceJudge
from instep.conformance.rules import RuleBook, RuleBroken
from instep.conformance.trace import TraceRing, size_of

__all__ = ["LARGEST_BYTES", "LiveJudge"]

LARGEST_BYTES: Final = 256 * 1024
"""Of a message or an answer; a larger one is not judged."""
_QUEUE_BYTES: Final = 1024 * 1024
_QUEUE_EVENTS: Final = 2_000
_WINDOW_BYTES: Final = 1024 * 1024
_WINDOW_EVENTS: Final = 2_000
_TRACE_BYTES: Final = 2 * 1024 * 1024
_CONTEXT_BYTES: Final = 512 * 1024
_CONTEXT_ANSWERS: Final = 16
_MOST_CONNECTIONS: Final = 1_000
_FIRST_COST_S: Final = 10e-6
"""What a byte is taken to cost before the first message was judged: far too much, so that no other
one is taken until then.
"""
_LEAST_COST_S: Final = 1e-12
"""The processor's clock may stand still meanwhile."""
_LEARN: Final = 0.05
"""The weight of a message in what the next ones are taken to cost; the first ones have more."""
_EVIDENCE_BYTES: Final = 2_048


class LiveJudge:
    """Judges what is taken, one event a `step`. Not safe to be shared by threads.

    Args:
        book: The rules of the protocol.
        subject: The peer.
        budget: What may be spent; shared by all of the process.
        tell: Is told of each break: the identity of the stream, empty where it is of none, the id
            of the rule, and the break.
    """

    def __init__(
        self,
        book: RuleBook,
        subject: str,
        budget: JudgingBudget,
        tell: Callable[[str, str, RuleBroken], None],
    ) -> None:
        self._judging = TraceJudge(book, subject, evidence_bytes=_EVIDENCE_BYTES, tell=self._found)
        self._budget = budget
        self._tell = tell
        self._queue: deque[Event] = deque()
        self._queued_bytes = self._queued_message_bytes = 0
        self._waiting = False
        """Whether nothing is taken until half of the budget is there again …"""
        self._waits_until_s = 0.0
        """… which takes at least until then."""
        self._gap = False
        """Whether anything came since the last event of the queue that is not in it."""
        self._cost_s = _FIRST_COST_S
        self._learned = 0
        """From how many messages that is known."""
        self._window_bytes = self._window_events = 0
        self._answers: OrderedDict[str, ResponseReceived] = OrderedDict()
        """The last answers, which the next window begins with."""
        self._open: OrderedDict[int, ConnectionOpened] = OrderedDict()
        self._asked: set[tuple[str, int | None]] = set()
        """Requests of the window that are not answered yet."""
        self._stream = ""
        """Of the event that is judged."""
        self._last = TraceRing(_TRACE_BYTES)

    # -- what comes ------------------------------------------------------------------------------

    def room(self) -> int:
        """How many bytes of messages are taken now. Whoever gives fewer than came calls `take` with
        `MessagesSkipped`.
        """
        budget = self._budget
        # Most of the time there is nothing to spend, and this is asked for each read of a socket.
        if self._waiting and budget.clock_s() < self._waits_until_s:
            return 0
        left_s = budget.left_s() - self._queued_message_bytes * self._cost_s
        enough_s = budget.most_s / 2 if self._waiting else 0.0
        if left_s <= enough_s:
            self._waiting = True
            self._waits_until_s = budget.clock_s() + budget.wait_s(budget.most_s / 2)
            return 0
        self._waiting = False
        if self._queued_bytes >= _QUEUE_BYTES or len(self._queue) >= _QUEUE_EVENTS:
            return 0
        return min(_QUEUE_BYTES - self._queued_bytes, int(left_s / self._cost_s))

    def take(self, event: Event) -> None:
        """Keep an event until it is judged; where there are too many, it is skipped."""
        if isinstance(event, MessagesSkipped):
            self._judging.skip(event.messages)
            self._end_window(event.at_us)
            return
        if self._gap and isinstance(event, PongSent):
            return  # a window for it alone would show nothing
        size = size_of(event)
        message = isinstance(event, MessageReceived | RequestReceived)
        if size > LARGEST_BYTES or self._queued_bytes + size > _QUEUE_BYTES + LARGEST_BYTES:
            if not isinstance(event, ResponseReceived):
                self._end_window(event.at_us)
            self._judging.skip(int(message))
            return
        if len(self._queue) >= 2 * _QUEUE_EVENTS:
            # What opens and closes without end: begin anew with what comes next.
            self._queue.clear()
            self._queued_bytes = self._queued_message_bytes = 0
            self._open.clear()
            self._gap = False
            self._end_window(event.at_us)
        self._gap = False
        self._queue.append(event)
        self._queued_bytes += size
        self._queued_message_bytes += size * message

    def _end_window(self, at_us: int) -> None:
        """What comes next is of another window. What the judges remember of this one is forgotten
        at once: the more objects there are, the longer a garbage collection takes.
        """
        if not self._gap:
            self._gap = True
            self._queue.append(MessagesSkipped(at_us, 0))

    # -- what is judged --------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether anything is to be judged."""
        return bool(self._queue)

    def step(self) -> None:
        """Judge one event that was taken."""
        event = self._queue.popleft()
        began_s = self._budget.processor_s()
        message = isinstance(event, MessageReceived | RequestReceived)
        size = size_of(event)
        if isinstance(event, MessagesSkipped):
            self._begin_window(event.at_us)
        else:
            self._queued_bytes -= size
            self._queued_message_bytes -= size * message
            if self._window_bytes > _WINDOW_BYTES or self._window_events > _WINDOW_EVENTS:
                self._begin_window(event.at_us)
            self._window_bytes += size
            self._window_events += 1
            self._judge(event)
        cost_s = self._budget.processor_s() - began_s
        self._budget.spend(cost_s)
        if message:
            self._learned += 1
            each_s = max(_LEAST_COST_S, cost_s / size)
            self._cost_s += (each_s - self._cost_s) * max(_LEARN, 1 / self._learned)

    def _judge(self, event: Event) -> None:
        self._last.add(event)
        self._stream = ""
        match event:
            case ResponseReceived():
                self._note_answer(event)
            case ConnectionOpened():
                self._open[event.connection] = event
                if len(self._open) > _MOST_CONNECTIONS:
                    self._open.popitem(last=False)
            case ConnectionRefused():
                self._stream = event.stream
            case MessageReceived() if opened := self._open.get(event.connection):
                self._stream = opened.stream
            case ConnectionClosed() if opened := self._open.pop(event.connection, None):
                self._stream = opened.stream
            case RequestReceived():
                self._asked.add((event.session, event.number))
            case RequestAnswered():
                if (event.session, event.number) not in self._asked:
                    return  # its request was not judged, nor what came since
                self._asked.discard((event.session, event.number))
        self._judging.observe(event)

    def _note_answer(self, answer: ResponseReceived) -> None:
        self._answers[answer.path] = answer
        self._answers.move_to_end(answer.path)
        while len(self._answers) > _CONTEXT_ANSWERS or (
            len(self._answers) > 1
            and sum(len(one.content) for one in self._answers.values()) > _CONTEXT_BYTES
        ):
            self._answers.popitem(last=False)

    def _begin_window(self, at_us: int) -> None:
        self._window_bytes = self._window_events = 0
        self._asked.clear()
        self._stream = ""
        self._last.clear()
        self._judging.begin_anew()
        for event in self._known(at_us):
            self._last.add(event)
            self._judging.remind(event)

    def _known(self, at_us: int) -> list[Event]:
        """What a window that begins now knows."""
        skipped = [MessagesSkipped(at_us, one.connection) for one in self._open.values()]
        return [MessagesSkipped(at_us, 0), *self._answers.values(), *self._open.values(), *skipped]

    def _found(self, rule: str, broken: RuleBroken) -> None:
        self._tell(self._stream, rule, broken)

    # -- what was found --------------------------------------------------------------------------

    def report(self) -> ConformanceReport:
        """What was found since the beginning."""
        return self._judging.report(whole=False)

    def copy_trace(self) -> list[Event]:
        """The last events that were judged, as a trace; no login is in it."""
        return self._last.events()
