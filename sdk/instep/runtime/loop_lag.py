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
    """Measures the lag of the running loop, by a timer.

    Args:
        every_s: Time between two measurements, in seconds; 0: none is made.
        told: Called with the lag in seconds when it is over a second, at most once a minute.
    """

    def __init__(self, every_s: float, told: Callable[[float], None]) -> None:
        self._every_s = every_s
        self._told = told
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
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
        self._set_timer(loop)

    def stop(self) -> None:
        """End the measuring. Safe to call again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._every_s:
            self._due_s = loop.time() + self._every_s
            self._timer = loop.call_at(self._due_s, self._measure, loop)

    def _measure(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        lag_s = now_s - self._due_s
        if now_s >= self._window_ends_s:
            self._before_s, self._now_s = self._now_s, 0.0
            self._window_ends_s = now_s + _WINDOW_S
        self._now_s = max(self._now_s, lag_s)
        if lag_s > _TOLD_S and now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _WINDOW_S
            self._told(lag_s)
        self._set_timer(loop)
