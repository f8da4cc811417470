"""A watchdog of the event loop: how late it runs what is due.

While a callback runs, nothing else does: no Pong, no lease, no answer. A loop that is often late
has a callback that takes too long, or too little processor time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["LoopLag"]

_TOLD_S: Final = 1.0
_WINDOW_S: Final = 60.0


class LoopLag:
    """Measures the lag of the running loop, by a timer that all share who measure as often.

    Args:
        every_s: Time between two measurements, in seconds; 0: none is made.
        told: Called with the lag in seconds when it is over a second, at most once a minute.
    """

    def __init__(self, every_s: float, told: Callable[[float], None]) -> None:
        self._every_s = every_s
        self._told = told
        self._timer: _SharedTimer | None = None
        self._window_ends_s = 0.0
        self._tell_again_s = float("-inf")
        self._before_s = self._now_s = 0.0

    @property
    def worst_s(self) -> float:
        """The longest lag of the last minute or two, in seconds."""
        return max(self._before_s, self._now_s)

    def start(self) -> None:
        """Begin to measure on the running loop."""
        loop = asyncio.get_running_loop()
        self._window_ends_s = loop.time() + _WINDOW_S
        if self._every_s and self._timer is None:
            self._timer = _timer_of(loop, self._every_s)
            self._timer.add(self.note)

    def stop(self) -> None:
        """End the measuring. Safe to call again."""
        if self._timer is not None:
            self._timer.remove(self.note)
            self._timer = None

    def note(self, now_s: float, lag_s: float) -> None:
        """Take a measurement: the time of the loop, and its lag, both in seconds."""
        if now_s >= self._window_ends_s:
            self._before_s, self._now_s = self._now_s, 0.0
            self._window_ends_s = now_s + _WINDOW_S
        self._now_s = max(self._now_s, lag_s)
        if lag_s > _TOLD_S and now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _WINDOW_S
            self._told(lag_s)


class _SharedTimer:
    """Measures while anybody wants to know: a hundred timers would wake an idle loop a hundred
    times as often.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float) -> None:
        self._loop = loop
        self._every_s = every_s
        self._told: list[Callable[[float, float], None]] = []
        self._due_s = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def add(self, told: Callable[[float, float], None]) -> None:
        """Call it with each measurement from now on."""
        self._told = [*self._told, told]
        if self._handle is None:
            self._set()

    def remove(self, told: Callable[[float, float], None]) -> None:
        """Call it no more."""
        self._told = [one for one in self._told if one != told]
        if not self._told and self._handle is not None:
            self._handle.cancel()
            _timers.pop((self._loop, self._every_s), None)

    def _set(self) -> None:
        self._due_s = self._loop.time() + self._every_s
        self._handle = self._loop.call_at(self._due_s, self._measure)

    def _measure(self) -> None:
        now_s = self._loop.time()
        lag_s = now_s - self._due_s
        self._set()
        for told in self._told:
            told(now_s, lag_s)


_timers: Final[dict[tuple[asyncio.AbstractEventLoop, float], _SharedTimer]] = {}
"""Those that measure."""


def _timer_of(loop: asyncio.AbstractEventLoop, every_s: float) -> _SharedTimer:
    return _timers.setdefault((loop, every_s), _SharedTimer(loop, every_s))
