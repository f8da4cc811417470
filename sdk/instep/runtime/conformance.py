"""Judges the peer of a consumer while that works, between its other work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from instep.conformance import (
    ConformanceReport,
    Event,
    JudgingBudget,
    LiveJudge,
    RuleBook,
    RuleBroken,
)
from instep.ports.recordable import Recordable

__all__ = ["PROCESS_BUDGET", "LiveConformance"]

_AT_ONCE_S: Final = 0.002
_EVERY_S: Final = 0.02
"""What comes is judged so often at most: a turn of the loop for each event would cost more than the
judging.
"""
_AT_LAST_S: Final = 0.2
_REPORT_EVERY_S: Final = 1.0
PROCESS_BUDGET: Final = JudgingBudget(time.process_time, time.perf_counter)
"""That of this process: the more consumers it has, the less of each is judged."""
_log: Final = logging.getLogger("instep.conformance")

BreakListener = Callable[[str, str, RuleBroken], None]
"""Is told of each break: the uuid of the stream, empty where it is of none, the rule, and what was
found.
"""


class LiveConformance:
    """Which rules the peer of a consumer holds, judged while the consumer works; give it to a
    `Consumer` or a `Receiver`.

    ::

        conformance = LiveConformance(book, source, "optical-east")
        async with Consumer("optical-east", source, sink, conformance=conformance) as consumer:
            ...
            print(conformance.report().broken)

    It costs less than 3 % of the processor time that the process takes, 0.75 % of it for the
    judging itself, for all consumers of the process together. What cannot be judged for that is
    skipped, and counted (`ConformanceReport.messages_skipped`). It holds about ten MiB at most. A
    mistake in a rule ends the judging, and nothing else.

    Args:
        book: The rules.
        source: The source or the listener whose peer is judged.
        subject: What the report is about.
        budget: What may be spent; default: that of the process.
    """

    def __init__(
        self,
        book: RuleBook,
        source: Recordable,
        subject: str,
        budget: JudgingBudget = PROCESS_BUDGET,
    ) -> None:
        self._judge = LiveJudge(book, subject, budget, self._broken)
        self._budget = budget
        self._listeners: list[BreakListener] = []
        self._scheduled = False
        self._failed = False
        self._report: ConformanceReport | None = None
        self._reported_s = 0.0
        source.record(self._take, self._room)

    def __repr__(self) -> str:
        return f"<LiveConformance: {len(self.report().broken)} rules broken>"

    def listen(self, listener: BreakListener) -> None:
        """Have a listener told of each break, from now on. It must not block."""
        self._listeners.append(listener)

    def report(self) -> ConformanceReport:
        """What was found since the start, at most a second ago."""
        now_s = time.monotonic()
        if self._report is None or now_s - self._reported_s >= _REPORT_EVERY_S:
            found = self._judge.report()
            # Whoever keeps it looks whether it is another one.
            self._report = self._report if found == self._report else found
            self._reported_s = now_s
        assert self._report is not None
        return self._report

    def finish(self) -> None:
        """Judge what waits, for a moment: the next report is of all that was judged."""
        self._report = None
        self._judge_for(_AT_LAST_S)

    def copy_trace(self) -> list[Event]:
        """The last events that were judged: see `instep.conformance.event_line`."""
        return self._judge.copy_trace()

    # -- inner parts -----------------------------------------------------------------------------

    def _room(self) -> int:
        return 0 if self._failed else self._judge.room()

    def _take(self, event: Event) -> None:
        if self._failed:
            return
        self._judge.take(event)
        if self._judge.waits and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(_EVERY_S, self._run)

    def _run(self) -> None:
        """Judge for a moment; the rest of the loop has its turn before the next."""
        self._scheduled = False
        self._judge_for(_AT_ONCE_S)
        if self._judge.waits and not self._failed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _judge_for(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        try:
            while self._judge.waits and not self._failed and time.monotonic() < until_s:
                self._judge.step()
        except Exception:  # noqa: BLE001 - a mistake in a rule ends no consumer
            self._failed = True
            _log.exception("a rule could not be judged; the peer is judged no more")

    def _broken(self, stream: str, rule: str, broken: RuleBroken) -> None:
        for listener in self._listeners:
            listener(stream, rule, broken)
