"""The report that a measured process prints about its run."""

from __future__ import annotations

import gc
import resource
import time
from pathlib import Path

import msgspec

from instep.runtime.conformance import PROCESS_BUDGET, LiveConformance

__all__ = ["Meter", "Result", "Spent", "rss_bytes", "settle"]

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = resource.getpagesize()


class Result(msgspec.Struct, frozen=True):
    """One run: from the opening of the connection to the last commit."""

    records: int
    seconds: float
    memory: list[tuple[int, int]]
    """After each commit: records committed so far, and resident bytes."""
    cpu_seconds: float = 0.0
    """Of the process in that time, all of its threads."""
    judged: int = 0
    """Messages that were judged meanwhile …"""
    judging_seconds: float = 0.0
    """… and the processor time that it took, as it was measured there."""

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds


class Spent(msgspec.Struct, frozen=True):
    """What a listening process has spent, from its first readiness to its end: see `Result`."""

    cpu_seconds: float
    judged: int
    judging_seconds: float


class Meter:
    """Measures what a process spends from now on; `conformance` is what judges in it, if any."""

    def __init__(self, conformance: LiveConformance | None) -> None:
        self._conformance = conformance
        self._cpu_s, self._judging_s = time.process_time(), PROCESS_BUDGET.spent_s

    def spent(self) -> Spent:
        """What was spent since."""
        judged = 0 if self._conformance is None else self._conformance.report().messages
        judging_s = PROCESS_BUDGET.spent_s - self._judging_s
        return Spent(time.process_time() - self._cpu_s, judged, judging_s)


def rss_bytes() -> int:
    """Resident memory of this process now; its peak where the system reports no current size."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def settle() -> None:
    """Keep what start-up has made out of garbage collections, as `instep run` does."""
    gc.collect()
    gc.freeze()
