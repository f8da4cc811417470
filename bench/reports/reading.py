"""How the reading of an MDIB went: what both sides print about it."""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Final, Self

import msgspec

__all__ = ["Reading", "StallMeter", "peak_bytes"]

_TICK_S: Final = 0.001


class Reading(msgspec.Struct, frozen=True):
    """From the request to the last committed row."""

    entities: int
    seconds: float
    peak_bytes: int
    """Resident memory at most, of the process and of the largest process that it has started."""
    longest_stall_s: float
    """The longest time in which the event loop did nothing else."""


def peak_bytes() -> int:
    """See `Reading.peak_bytes`."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(who).ru_maxrss for who in both) * 1024


class StallMeter:
    """Measures, while its context lasts, how late the event loop wakes a task."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            asleep_s = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            late_s = time.perf_counter() - asleep_s - _TICK_S
            self.longest_s = max(self.longest_s, late_s)
