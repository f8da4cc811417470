"""Runs what may take long off the event loop, a few at once: inflating and parsing what peers send.

While a function runs in the loop, nothing else does: no Pong, no lease, no other answer. A thread
costs more than a small input takes, so small inputs stay in the loop. A few threads serve the whole
process: what strangers send takes a bounded share of the processors and of memory, whatever they
send at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar, TypeVarTuple

__all__ = ["Busy", "Offload"]

# More would gain little: much of what runs here holds the interpreter's lock, and each more thread
# makes the loop and the database's thread wait for it once more.
_AT_ONCE_IN_PROCESS: Final = 2
_AT_ONCE: Final = 2
_WAITING: Final = 32
_SMALL_BYTES: Final = 64 * 1024
"""Inflating so much, or parsing it, takes a few milliseconds at most."""

# The threads are shared, and made when they are needed; the pool itself is made at import.
_threads: Final = ThreadPoolExecutor(_AT_ONCE_IN_PROCESS, thread_name_prefix="instep-offload")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Busy(Exception):
    """Too much is waiting already. It passes: a listener answers 503 with Retry-After."""


class Offload:
    """Runs functions for one listener.

    Args:
        small_bytes: Up to this size of its input, a function runs in the loop.
        at_once: How many run in threads at once; of all listeners together, two.
        waiting: How many more may wait for a thread.
    """

    def __init__(
        self,
        *,
        small_bytes: int = _SMALL_BYTES,
        at_once: int = _AT_ONCE,
        waiting: int = _WAITING,
    ) -> None:
        self.small_bytes = small_bytes
        """Up to this size of its input, a function runs in the loop."""
        self._places = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._taken = 0

    async def run(self, size_bytes: int, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function, and return what it returns or raise what it raises.

        A small one is called in the loop, at once. Another one runs in a thread, and goes on to its
        end, and keeps its place, where the caller is cancelled: it must touch nothing that others
        use.

        Args:
            size_bytes: The size of its input, in bytes.
            function: What is called …
            args: … with these.

        Raises:
            Busy: as many as may wait for a thread are waiting. The function was not called.
        """
        if size_bytes <= self.small_bytes:
            return function(*args)
        if self._taken >= self._most:
            raise Busy
        self._taken += 1
        try:
            await self._places.acquire()
        except BaseException:
            self._taken -= 1
            raise
        loop = asyncio.get_running_loop()
        submitted = _threads.submit(function, *args)
        # Not the end of this coroutine, which may be cancelled: the end of the function.
        submitted.add_done_callback(lambda _: self._tell_ended(loop))
        return await asyncio.wrap_future(submitted)

    def _tell_ended(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._taken -= 1
        self._places.release()
