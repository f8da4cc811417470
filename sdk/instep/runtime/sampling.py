"""Bounds what peers can add to a log: decisions only, with times and sizes from outside.

A stranger's request of a hundred bytes can cause a dozen events. So what peers cause is counted,
told a few times a second, and paid for by the bytes that they sent. Each kind has a rate of its
own, and half of the bytes are kept for what an operator has to act on: a flood of one kind hides no
other.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Final

import msgspec

from instep.runtime.health import ConsumerEvent

__all__ = [
    "PEER_EVENTS",
    "SUMMARY_EVERY_S",
    "EventBuffer",
    "EventSampler",
    "LeftOut",
    "LineSampler",
]

PEER_EVENTS: Final = frozenset(
    {
        "ask-resend",
        "blocked",
        "deviation",
        "fault",
        "handler-failed",
        "loss",
        "not-sent",
        "quarantined",
        "realign",
        "sequence-ended",
        "sequence-failed",
    }
)
"""The events that messages of peers cause, one for each message at worst."""
_TO_ACT_ON: Final = frozenset({"blocked", "loss", "quarantined", "sequence-failed"})
_BURST: Final = 10
_PER_S: Final = 2.0
_FREE_EVERY_S: Final = 600.0
"""A kind of which nothing was told for so long is told whatever it costs."""
SUMMARY_EVERY_S: Final = 10.0
"""How often what was left out of a kind is told."""
_SAVED_BYTES: Final = 16 * 1024
"""Most bytes that are saved up: a stranger gets little of what honest senders sent before."""
_LINES: Final = 10
_TRACEBACKS: Final = 2
_LINE_EVERY_S: Final = 30.0
_SITES_KNOWN: Final = 1_000


class LeftOut(msgspec.Struct, frozen=True):
    """Events of one kind that were not told."""

    kind: str
    count: int
    for_s: float
    """Since when, in seconds."""


class _Rate(msgspec.Struct):
    """A token bucket, and what it left out."""

    tokens: float
    at_s: float
    told_s: float = float("-inf")
    left_out: int = 0
    since_s: float = 0.0

    def refill(self, now_s: float, burst: int, per_s: float) -> None:
        self.tokens = min(float(burst), self.tokens + (now_s - self.at_s) * per_s)
        self.at_s = now_s

    def told(self, now_s: float) -> None:
        self.tokens -= 1
        self.told_s = now_s

    def leave_out(self, now_s: float) -> None:
        if not self.left_out:
            self.since_s = now_s
        self.left_out += 1


class EventSampler:
    """Which events of one consumer are told. What peers cause takes no more bytes than they sent in
    messages, but for one line of each kind in ten minutes.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Rate] = {}
        self._received_bytes = 0
        self._left_bytes = 0
        """What was received and not yet used up; negative after lines that were free."""

    def __repr__(self) -> str:
        return f"<EventSampler {self._left_bytes:,} bytes left>"

    def admits(self, kind: str, line_bytes: int, received_bytes: int | None, now_s: float) -> bool:
        """Whether an event is told.

        Args:
            kind: Its kind.
            line_bytes: How long its line would be.
            received_bytes: All that peers have sent in messages so far; None: nothing listens, and
                every event is told.
            now_s: A monotonic time in seconds.
        """
        if received_bytes is None or kind not in PEER_EVENTS:
            return True
        self._credit(received_bytes)
        rate = self._kinds.get(kind)
        if rate is None:
            rate = self._kinds[kind] = _Rate(_BURST, now_s)
        rate.refill(now_s, _BURST, _PER_S)
        has_bytes = self._has(line_bytes, keep_half=kind not in _TO_ACT_ON)
        if (rate.tokens >= 1 and has_bytes) or now_s - rate.told_s >= _FREE_EVERY_S:
            rate.told(now_s)
            self._left_bytes -= line_bytes
            return True
        rate.leave_out(now_s)
        return False

    def left_out(self, now_s: float, after_s: float = SUMMARY_EVERY_S) -> list[LeftOut]:
        """What was left out, of each kind for at least `after_s` seconds."""
        return [
            LeftOut(kind, rate.left_out, now_s - rate.since_s)
            for kind, rate in self._kinds.items()
            if rate.left_out and now_s - rate.since_s >= after_s
        ]

    def admits_summary(
        self, kind: str, line_bytes: int, received_bytes: int | None, now_s: float
    ) -> bool:
        """Whether what was left out of a kind is told by one line; then it is forgotten. Else it is
        counted on.
        """
        self._credit(received_bytes or 0)
        rate = self._kinds[kind]
        if not self._has(line_bytes) and now_s - rate.told_s < _FREE_EVERY_S:
            return False
        rate.told_s, rate.left_out = now_s, 0
        self._left_bytes -= line_bytes
        return True

    def _credit(self, received_bytes: int) -> None:
        more = max(0, received_bytes - self._received_bytes)
        self._received_bytes += more
        self._left_bytes = min(self._left_bytes + more, _SAVED_BYTES)

    def _has(self, line_bytes: int, *, keep_half: bool = False) -> bool:
        return line_bytes <= (self._left_bytes // 2 if keep_half else self._left_bytes)


class LineSampler:
    """Which lines of loggers are told: a few of each place in the code, then one in half a minute.
    Of those with a traceback, two.
    """

    def __init__(self) -> None:
        self._sites: OrderedDict[tuple[str, int], _Rate] = OrderedDict()

    def admits(self, site: tuple[str, int], now_s: float, *, traceback: bool) -> bool:
        """Whether a line is told.

        Args:
            site: File and line of the code that logs it.
            now_s: A monotonic time in seconds.
            traceback: Whether it has one.
        """
        burst = _TRACEBACKS if traceback else _LINES
        rate = self._sites.get(site)
        if rate is None:
            rate = self._sites[site] = _Rate(burst, now_s)
            if len(self._sites) > _SITES_KNOWN:
                self._sites.popitem(last=False)
        rate.refill(now_s, burst, 1 / _LINE_EVERY_S)
        if rate.tokens < 1:
            rate.leave_out(now_s)
            return False
        rate.told(now_s)
        return True

    def left_out(self, now_s: float) -> list[tuple[tuple[str, int], LeftOut]]:
        """What was left out for half a minute or longer, by its place; forgotten by this call."""
        found = []
        for site, rate in self._sites.items():
            if rate.left_out and now_s - rate.since_s >= _LINE_EVERY_S:
                found.append((site, LeftOut("", rate.left_out, now_s - rate.since_s)))
                rate.left_out = 0
        return found


class EventBuffer:
    """Events that a reader has not read yet, `limit` at most: beyond, the kind that has most
    of them loses its oldest one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: deque[ConsumerEvent] = deque()
        self._kinds: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: ConsumerEvent) -> None:
        """Add an event; beyond `limit`, the oldest one of the kind that has most is dropped."""
        self._events.append(event)
        self._kinds[event.kind] += 1
        if len(self._events) > self._limit:
            ((most, _),) = self._kinds.most_common(1)
            # Nearly always at the front: this kind is most of what is there.
            oldest = next(at for at, one in enumerate(self._events) if one.kind == most)
            del self._events[oldest]
            self._count_down(most)

    def popleft(self) -> ConsumerEvent:
        """Remove the oldest event and return it. Raises `IndexError` where there is none."""
        event = self._events.popleft()
        self._count_down(event.kind)
        return event

    def _count_down(self, kind: str) -> None:
        self._kinds[kind] -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]
