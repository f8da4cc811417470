"""One look at the journal for all who follow it through one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from instep.errors import ChangesTrimmedError, InstepError
from instep.model.entities import Change, JournalEnd

__all__ = ["JournalTail"]

_MOST_CHANGES: Final = 2_000
_MOST_BYTES: Final = 32 * 1024 * 1024
_FIRST_CHANGES: Final = 500
"""How many cursors before the newest change it begins at first: who comes again, as browsers
do after a restart of their server, has missed few.
"""


class JournalTail:
    """The newest changes, read once for all subscribers that are not behind. Who is behind reads
    the journal itself. Without a subscriber that waits it looks at nothing.

    Args:
        end: Reads the newest change.
        read: Reads changes after one, with the newest of them; at most so many.
        pause: Waits for a notification of a commit, or so many seconds.
    """

    def __init__(
        self,
        end: Callable[[], Awaitable[JournalEnd]],
        read: Callable[[JournalEnd, int], Awaitable[Sequence[Change]]],
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self._end_of_journal = end
        self._read = read
        self._pause = pause
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._start: JournalEnd | None = None
        """What `_changes` begins after; None: nothing is known."""
        self._end: JournalEnd | None = None
        self._arrived = asyncio.Event()
        self._count = 0
        self._looking = False
        self._waiting: dict[object, float] = {}
        """Who waits → how often it wants to have looked for more, in seconds."""
        self._task: asyncio.Task[None] | None = None
        self._pausing: asyncio.Task[None] | None = None
        self._poll_s = 0.0
        """How often it is looked for more now, in seconds."""
        self._idle = asyncio.Event()

    def after(self, at: JournalEnd) -> tuple[Sequence[Change], JournalEnd] | None:
        """The changes after this one and where they end; None: the journal has to be asked."""
        start, end = self._start, self._end
        if start is None or end is None or self._task is None:
            return None
        if at.cursor > end.cursor and self._looking:
            # Read by somebody else since the last look; the next one tells whether that holds.
            return (), at
        if at.cursor == end.cursor:
            return ((), end) if at.epoch in {"", end.epoch} else None
        if not start.cursor <= at.cursor < end.cursor:
            return None
        if at.cursor == start.cursor:
            return (tuple(self._changes), end) if at.epoch in {"", start.epoch} else None
        # Cursors may have gaps, where a transaction was undone.
        found: list[Change] = []
        for change in reversed(self._changes):
            if change.cursor <= at.cursor:
                known = change.cursor == at.cursor and at.epoch in {"", change.epoch}
                return (found[::-1], end) if known else None
            found.append(change)
        return None

    async def join(self) -> None:
        """Begin to look, and wait for the first look; whoever comes later waits for nothing."""
        self._begin()
        if self._count == 0:
            await self._arrived.wait()

    async def wait(self, seen: int, poll_s: float) -> int:
        """Wait until the journal may have more than at `seen`; returns a number for now."""
        who = object()
        self._waiting[who] = poll_s
        self._idle.set()
        if self._pausing is not None and poll_s < self._poll_s:
            # It may be in the middle of a long pause.
            self._pausing.cancel()
        self._begin()
        try:
            while self._count == seen:
                await self._arrived.wait()
            return self._count
        finally:
            del self._waiting[who]

    async def close(self) -> None:
        """Look no more."""
        tasks = {one for one in (self._task, self._pausing) if one is not None}
        self._task = self._pausing = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._wake()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._follow(), name="instep journal tail"
            )

    async def _follow(self) -> None:
        while True:
            self._looking = True
            try:
                is_new = await self._look()
            except InstepError:
                # Whoever waits asks the journal itself, and is told why.
                self._forget()
                is_new = True
            finally:
                self._looking = False
            if is_new:
                self._wake()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until it is to be looked again, and while nobody waits for more."""
        self._poll_s = min(self._waiting.values(), default=0.0)
        self._pausing = asyncio.ensure_future(self._pause(self._poll_s))
        await asyncio.wait({self._pausing})
        self._pausing = None
        if not self._waiting:
            self._idle.clear()
            await self._idle.wait()

    async def _look(self) -> bool:
        end = await self._end_of_journal()
        if end == self._end:
            return False
        before = self._end
        new = 0 if before is None else end.cursor - before.cursor
        if before is None or not 0 < new <= _MOST_CHANGES:
            self._forget()
            # The epoch of the place before them is not known: who stands there reads himself.
            before = self._start = JournalEnd(max(end.cursor - _FIRST_CHANGES, 0))
            try:
                await self._keep(before, end)
            except ChangesTrimmedError:
                self._forget()
                self._start = end
        else:
            await self._keep(before, end)
        self._end = end
        while len(self._changes) > _MOST_CHANGES or self._bytes > _MOST_BYTES:
            gone = self._changes.popleft()
            self._bytes -= len(gone.body) + len(gone.previous or b"") + len(gone.envelope)
            self._start = JournalEnd(gone.cursor, gone.epoch)
        return True

    async def _keep(self, after: JournalEnd, end: JournalEnd) -> None:
        for change in await self._read(after, _MOST_CHANGES):
            if change.cursor <= end.cursor:
                self._changes.append(change)
                self._bytes += len(change.body) + len(change.previous or b"") + len(change.envelope)

    def _forget(self) -> None:
        self._changes.clear()
        self._bytes = 0
        self._start = self._end = None

    def _wake(self) -> None:
        self._count += 1
        self._arrived.set()
        self._arrived = asyncio.Event()
