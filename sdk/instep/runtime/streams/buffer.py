"""What was read and not yet committed: bounded by records and bytes, full means back-pressure."""

from __future__ import annotations

import asyncio
from collections import deque

from instep.model.columns import concatenated
from instep.model.records import RecordChunk

__all__ = ["ChunkBuffer"]


class ChunkBuffer:
    """Joins the reader of one feed to one committer: the next batch is read while one commits.

    Cancelling `put` or `take` loses nothing. What was put before the reader failed is taken before
    the failure is raised.
    """

    def __init__(self, limit_records: int, limit_bytes: int) -> None:
        self._limit_records = limit_records
        self._limit_bytes = limit_bytes
        self._waiting: deque[RecordChunk] = deque()
        self._records = 0
        self._bytes = 0
        self._error: BaseException | None = None
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    def __repr__(self) -> str:
        return f"<Inbox {self._records}/{self._limit_records} records, {self._bytes} bytes>"

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return not self._waiting

    @property
    def full(self) -> bool:
        """Whether `put` would wait."""
        return not self._drained.is_set()

    async def put(self, chunk: RecordChunk) -> None:
        """Add a delivery; waits while the inbox is full."""
        await self._drained.wait()
        self._waiting.append(chunk)
        self._records += len(chunk.records)
        self._bytes += chunk.size_bytes
        if self._records >= self._limit_records or self._bytes >= self._limit_bytes:
            self._drained.clear()
        self._filled.set()

    def fail(self, error: BaseException) -> None:
        """No more will come, for this reason."""
        self._error = error
        self._filled.set()

    async def take(self, timeout_s: float) -> RecordChunk | None:
        """All that waits, as one delivery of at most about one limit; None when nothing came in
        time.

        Raises what `fail` was given, once everything before it was taken.
        """
        if not self._filled.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._filled.wait()
            except TimeoutError:
                return None
        if not self._waiting:
            assert self._error is not None
            raise self._error
        taken = list(self._waiting)
        self._waiting.clear()
        self._records = self._bytes = 0
        self._drained.set()
        if self._error is None:
            self._filled.clear()
        return taken[0] if len(taken) == 1 else _join(taken)


def _join(chunks: list[RecordChunk]) -> RecordChunk:
    deviations: dict[str, int] = {}
    for chunk in chunks:
        for kind, times in chunk.deviations.items():
            deviations[kind] = deviations.get(kind, 0) + times
    return RecordChunk(
        concatenated([chunk.records for chunk in chunks]),
        [bad for chunk in chunks for bad in chunk.unreadable],
        deviations,
        sum(chunk.size_bytes for chunk in chunks),
        next((one.open for one in chunks if one.open is not None), None),
        all(chunk.whole for chunk in chunks),
        next((chunk.realign for chunk in chunks if chunk.realign), ""),
    )
