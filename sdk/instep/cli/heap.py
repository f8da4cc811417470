"""How the memory of a process that runs for long is given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["share_one_heap"]

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 1024 * 1024


def share_one_heap() -> None:
    """Let all threads take memory from one heap, and give what is large back as soon as it is free.
    Call it before any thread is started.

    glibc gives each thread an arena of its own, and each keeps the largest it has ever needed: what
    inflates, parses and writes takes turns in several threads, so memory would grow for hours.
    Python's threads seldom allocate at once, so one heap costs no time. Once a block of up to
    32 MiB was freed, glibc would also take blocks of this size from the heap, where a small one
    behind it holds them. Other C libraries do neither: there, nothing happens.
    """
    with suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
