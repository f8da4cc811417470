"""Group commit: items that arrive while a commit runs are queued, and the next commit takes them
all.

`GatheringQueue` is the bounded queue. `GroupCommitter` adds answers to callers that wait for them;
`instep.runtime.streams.read_ahead`, which answers nobody, uses the queue alone.

Promised: whatever is cancelled, no item that was added is lost, and the order is kept. A waiting
caller gets an answer: the result of its commit, the error of the commit, or the error passed to
`close`. A caller that is cancelled withdraws its item if no commit has taken it yet. A commit does
not run in the caller's task, so cancelling a caller never cancels a commit.

Not promised: whether the store holds a group whose commit failed or was cancelled. Only the store
shows that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["GatheringQueue", "GroupCommitter", "PendingCommit"]

T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P", bound="PendingCommit[Any]")


class GatheringQueue(Generic[T]):
    """A queue whose reader takes all queued items at once; bounded by records and bytes.

    Many tasks may add, one takes. An item is added if it fits within the limits, or if the queue is
    empty: so the queue holds at most its limits, or one larger item.
    """

    def __init__(self, limit_records: int, limit_bytes: int | None = None) -> None:
        """Create an empty queue. With `limit_bytes` None, only records are counted."""
        self._limit_records = limit_records
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[T, int, int]] = deque()
        self.records = 0
        """The number of queued records."""
        self.size_bytes = 0
        """The number of queued bytes."""
        self.error: Exception | None = None
        """The error passed to `close`; None while the queue is open."""
        self._arrival: asyncio.Future[bool] | None = None
        """What the reader waits for, or has waited for."""
        self._drained = asyncio.Event()
        self._put_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return (
            f"<GatheringQueue {self.records}/{self._limit_records} records,"
            f" {self.size_bytes} bytes>"
        )

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        """The queued items, oldest first."""
        return (item for item, _, _ in self._waiting)

    def offer(self, item: T, records: int, size_bytes: int = 0) -> bool:
        """Add an item. Returns False if there is no room. Raises the error of `close`."""
        if self.error is not None:
            raise self.error
        if self._put_lock.locked() or not self._fits(records, size_bytes):
            return False
        self._append(item, records, size_bytes)
        return True

    async def put(self, item: T, records: int, size_bytes: int = 0) -> None:
        """Add an item; waits for room, in the order of the calls. Raises the error of `close`.

        If it is cancelled, the item is not added.
        """
        if self.offer(item, records, size_bytes):
            return
        async with self._put_lock:
            while not self._fits(records, size_bytes) and self.error is None:
                self._drained.clear()
                await self._drained.wait()
            if self.error is not None:
                raise self.error
            self._append(item, records, size_bytes)

    async def arrival(self, timeout_s: float | None = None) -> bool:
        """Wait until the next item is added, or `wake` or `close` is called. Returns False after
        `timeout_s`.

        Items already queued do not count. Returns at once after `close`.
        """
        if self.error is not None:
            return True
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[bool] = loop.create_future()
        self._arrival = arrival
        if timeout_s is None:
            return await arrival
        # Not `asyncio.timeout`: every commit of one message or report waits here once.
        timer = loop.call_later(timeout_s, partial(_resolve, arrival, arrived=False))
        try:
            return await arrival
        finally:
            timer.cancel()

    def wake(self) -> None:
        """Make `arrival` return although nothing was added."""
        _resolve(self._arrival, arrived=True)

    def count_within(self, limit_records: int) -> int:
        """The number of oldest items that have together at most `limit_records` records; at least
        one if the queue is not empty.
        """
        if self.records <= limit_records:
            return len(self._waiting)
        total = 0
        for count, (_, records, _) in enumerate(self._waiting):
            total += records
            if count and total > limit_records:
                return count
        return len(self._waiting)

    def take(self, count: int | None = None) -> list[T]:
        """The oldest `count` items (None: all of them), in the order in which they were added.

        Raises the error of `close` once all that was added before it is taken.
        """
        if not self._waiting and self.error is not None:
            raise self.error
        if count is None or count >= len(self._waiting):
            taken = [item for item, _, _ in self._waiting]
            self._waiting.clear()
            self.records = self.size_bytes = 0
        else:
            taken = []
            for _ in range(count):
                item, records, size_bytes = self._waiting.popleft()
                taken.append(item)
                self.records -= records
                self.size_bytes -= size_bytes
        self._drained.set()
        return taken

    def close(self, error: Exception) -> None:
        """Refuse further items: `offer` and `put`, also those waiting for room, raise this error.
        Queued items can still be taken. A second call does nothing.
        """
        if self.error is None:
            self.error = error
            _resolve(self._arrival, arrived=True)
            self._drained.set()

    def _fits(self, records: int, size_bytes: int) -> bool:
        return not self._waiting or (
            self.records + records <= self._limit_records
            and (self._limit_bytes is None or self.size_bytes + size_bytes <= self._limit_bytes)
        )

    def _append(self, item: T, records: int, size_bytes: int) -> None:
        self._waiting.append((item, records, size_bytes))
        self.records += records
        self.size_bytes += size_bytes
        _resolve(self._arrival, arrived=True)


def _resolve(arrival: asyncio.Future[bool] | None, *, arrived: bool) -> None:
    if arrival is not None and not arrival.done():
        arrival.set_result(arrived)


class PendingCommit(msgspec.Struct, Generic[R], eq=False):
    """The item of one caller in a group, with its answer.

    Subclasses add what is committed. A subclass whose caller does not await the answer overrides
    `_resolve`.
    """

    done: bool = False
    """Whether it was answered or its caller was cancelled: then no commit takes it."""
    deadline_s: float = 0.0
    """The deadline of the answer, in the loop's time."""
    _answered: asyncio.Future[R] | None = None

    async def wait(self) -> R:
        """Wait for the result; raises the error it was answered with. Cancelling withdraws the
        item, unless a commit has taken it: that commit ends as if the caller still waited.
        """
        try:
            return await self._future()
        finally:
            self.done = True

    def answer(self, result: R | Exception) -> None:
        """Answer the caller with a result, or an error to raise. Only the first answer counts."""
        if not self.done:
            self.done = True
            self._resolve(result)

    def _resolve(self, result: R | Exception) -> None:
        future = self._future()
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _future(self) -> asyncio.Future[R]:
        if self._answered is None:
            self._answered = asyncio.get_running_loop().create_future()
        return self._answered


class GroupCommitter(Generic[P]):
    """Commits the items of a queue, group by group, and answers their callers.

    One task calls `commit_next` in a loop. Answers are given in the order of the queue, after the
    driver had the chance to begin the next commit, so that the store does not wait for callers.
    """

    def __init__(
        self,
        queue: GatheringQueue[P],
        closed_error: Callable[[], Exception],
        *,
        answer_within_s: float | None = None,
        expire: Callable[[P], None] | None = None,
    ) -> None:
        """Create a group commit; nobody else may take from the queue.

        Args:
            queue: The queue, with the bounds.
            closed_error: Makes the error for those whose commit was cancelled.
            answer_within_s: Longest time from `submit` to the answer, in seconds; None: no bound.
            expire: Called with each item that waited longer, and must answer it. That answer is
                final, whatever a commit does that has taken the item.
        """
        self._queue = queue
        self._closed_error = closed_error
        self._answer_within_s = answer_within_s
        self._expire = expire
        self._committing: list[P] = []
        """The group of the commit that runs."""
        self._deadline_timer: asyncio.TimerHandle | None = None

    def submit(self, pending: P, records: int, size_bytes: int = 0) -> bool:
        """Queue an item for a commit. Returns False if there is no room; it is then never answered.

        After `close` the item is answered with the error at once.
        """
        if self._queue.error is not None:
            pending.answer(self._queue.error)
            return True
        if not self._queue.offer(pending, records, size_bytes):
            return False
        if self._answer_within_s is not None:
            self._watch(pending, self._answer_within_s)
        return True

    async def commit_next(
        self, commit: Callable[[list[P]], Awaitable[Sequence[Any]]], count: int | None = None
    ) -> None:
        """Take the oldest `count` items (None: all), commit those whose callers still wait, and
        answer them.

        `commit` is called with the group, which may be empty, and returns a result or an error for
        each item. An error that it raises is the answer to all of them and is raised here, too. If
        this is cancelled, so is `commit`, and the group is answered with `closed_error`.
        """
        group = self._committing = [one for one in self._queue.take(count) if not one.done]
        answers: list[tuple[P, Any]] = []
        try:
            answers = list(zip(group, await commit(group), strict=True))
        except BaseException as error:
            reason = error if isinstance(error, Exception) else self._closed_error()
            answers = [(pending, reason) for pending in group]
            raise
        finally:
            asyncio.get_running_loop().call_soon(_answer, answers)

    def close(self, error: Exception) -> None:
        """Answer the queued items with this error. A running commit continues, and its items get
        its result.
        """
        self._queue.close(error)
        if self._queue:
            waiting = [(pending, error) for pending in self._queue.take()]
            asyncio.get_running_loop().call_soon(_answer, waiting)

    def _watch(self, pending: P, within_s: float) -> None:
        # One timer for all: most items are answered long before, and a timer for each is expensive.
        loop = asyncio.get_running_loop()
        pending.deadline_s = loop.time() + within_s
        if self._deadline_timer is None:
            self._deadline_timer = loop.call_at(pending.deadline_s, self._expire_late)

    def _expire_late(self) -> None:
        """Expire the items whose deadline has passed, and set the timer for the next deadline."""
        self._deadline_timer = None
        loop = asyncio.get_running_loop()
        # Both in the order in which they came, so the deadlines rise.
        for pending in [*self._committing, *self._queue]:
            if pending.done:
                continue
            if pending.deadline_s > loop.time():
                self._deadline_timer = loop.call_at(pending.deadline_s, self._expire_late)
                return
            if self._expire is not None:
                self._expire(pending)


def _answer(answers: Iterable[tuple[PendingCommit[Any], Any]]) -> None:
    for pending, result in answers:
        try:
            pending.answer(result)
        except Exception as error:  # noqa: BLE001 - the others must have their answers
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a caller's answer callback raised", "exception": error}
            )
