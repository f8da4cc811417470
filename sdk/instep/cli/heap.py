"""How the memory of a process that runs for long is given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["share_one_heap"]

_M_ARENA_MAX: Final = -8


def share_one_heap() -> None:
    """Let all threads take memory from one heap. Call it before any thread is started.

    glibc gives each thread an arena of its own, and each keeps the largest it has ever needed: what
    inflates, parses and writes takes turns in several threads, so memory would grow for hours.
    Python's threads seldom allocate at once, so one heap costs no time. Other C libraries have no
    arenas: there, nothing happens.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
