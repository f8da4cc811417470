"""The clock of durations: no step of the wall clock moves it (A5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["SteadyClock", "steady_now"]


class SteadyClock:
    """Seconds since 1970 as the wall clock showed them when this was made, and monotonic since.

    A wall clock that is set by an hour while a stream is followed must not look like an hour of
    silence, nor like a lag. So times that are compared with each other come from a steady clock;
    the wall clock only stamps what people read.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._base_s = wall() - monotonic()

    def __call__(self) -> float:
        return self._base_s + self._monotonic()


steady_now: Final = SteadyClock()
"""The steady clock of this process. What measures how far a provider's clock is from ours must use
the clock that its consumer uses.
"""
