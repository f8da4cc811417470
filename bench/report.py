"""The report that a measured process prints about its run."""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from instep.runtime.conformance import PROCESS_BUDGET, LiveConformance

__all__ = ["Counting", "Meter", "Result", "Spent", "rss_bytes", "settle"]

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

    def __init__(self, conformance: LiveConformance | None, counting: Counting) -> None:
        self._conformance, self._counting = conformance, counting
        # What was saved up before would be spent now.
        PROCESS_BUDGET.spend(max(0.0, PROCESS_BUDGET.left_s()))
        self._judging_s = PROCESS_BUDGET.spent_s
        self._judged = self._messages()
        counting.begin()
        self._cpu_s = time.process_time()

    def spent(self) -> Spent:
        """What was spent since; nothing is counted from now on."""
        cpu_s = time.process_time() - self._cpu_s
        self._counting.end()
        judging_s = PROCESS_BUDGET.spent_s - self._judging_s
        return Spent(cpu_s, self._messages() - self._judged, judging_s)

    def _messages(self) -> int:
        return 0 if self._conformance is None else self._conformance.report().messages


class Counting:
    """Counts the instructions of this process by callgrind, where that is asked for."""

    _INSIDE: Final = "INSTEP_BENCH_COUNTED"

    def __init__(self, file: str) -> None:
        """Begin anew under callgrind, which counts nothing yet. Empty: nothing is counted."""
        self._counted = bool(file)
        if not file or os.environ.get(self._INSIDE):
            return
        os.environ[self._INSIDE] = "1"
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={file}"]
        command = ["valgrind", "--quiet", *options, sys.executable, *sys.orig_argv[1:]]
        os.execvp(command[0], command)

    @staticmethod
    def option(parser: argparse.ArgumentParser) -> None:
        """The option that asks for it."""
        parser.add_argument("--count-into", default="", metavar="FILE", help="by callgrind")

    @staticmethod
    def read(file: Path) -> int:
        """How many instructions were counted into a file."""
        (line,) = (one for one in file.read_text().splitlines() if one.startswith("totals:"))
        return int(line.split()[1])

    def begin(self) -> None:
        """Count from now on."""
        self._tell("on")

    def end(self) -> None:
        """Count no more."""
        self._tell("off")

    def _tell(self, state: str) -> None:
        if self._counted:
            command = ["callgrind_control", f"--instr={state}", str(os.getpid())]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


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
