"""An asyncio loop in virtual time: when nothing is ready, time jumps to the next timer.

One thread, no socket, no real waiting, and always the same order: what runs on it is as repeatable
as the random numbers it draws. `asyncio.to_thread` and `run_in_executor` come to `worker`, which
runs the work on the loop itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, Final

__all__ = ["DeadlockError", "LivelockError", "VirtualLoop"]

_RESOLUTION_S: Final = 1e-6
_MOST_TURNS_AT_ONE_TIME: Final = 100_000
_MOST_CANCELLED: Final = 100
"""Of more timers that were cancelled, the list is made anew."""


class DeadlockError(AssertionError):
    """Nothing is ready and no timer is set: everybody waits for somebody else."""


class LivelockError(AssertionError):
    """The loop runs on, and time does not advance."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`time` begins at 0. `turns` counts the rounds of the loop, in each of which every task that
    is ready goes on to its next await.
    """

    # What `BaseEventLoop` has, and its stubs do not tell.
    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._still = 0
        self._alarms: list[tuple[int, Callable[[], object]]] = []
        self.turns = 0
        self.worker: Callable[[Executor | None, Callable[[], Any]], asyncio.Future[Any]]
        self.worker = self._at_once
        self.set_debug(False)

    def time(self) -> float:
        return self._now_s

    def pass_time(self, timeout: float | None) -> None:
        if timeout is None:
            raise DeadlockError(f"nothing is ready and no timer is set at {self._now_s:.3f} s")
        if timeout > 0:
            self._now_s += timeout
            self._still = 0
            return
        self._still += 1
        if self._still > _MOST_TURNS_AT_ONE_TIME:
            raise LivelockError(f"{self._still} turns of the loop at {self._now_s:.3f} s")

    def after_turns(self, turns: int, callback: Callable[[], object]) -> None:
        """Call back after so many turns: the way to hit any await of any task."""
        self._alarms.append((self.turns + turns, callback))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        return self.worker(executor, lambda: func(*args))

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """A round, as `BaseEventLoop` has it, without what serves sockets, threads and debugging:
        that would be a tenth of each seed.
        """
        ready, scheduled = self._ready, self._scheduled
        if self._timer_cancelled_count > _MOST_CANCELLED and (
            self._timer_cancelled_count / len(scheduled) > 0.5
        ):
            for timer in scheduled:
                timer._scheduled = not timer._cancelled
            scheduled = self._scheduled = [one for one in scheduled if not one._cancelled]
            heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled)._scheduled = False
        if ready or self._stopping:
            self.pass_time(0)
        else:
            self.pass_time(max(0, scheduled[0]._when - self._now_s) if scheduled else None)
        self._note_turn()
        end_s = self._now_s + _RESOLUTION_S
        while scheduled and scheduled[0]._when < end_s:
            timer = heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _at_once(self, _executor: object, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future

    def _note_turn(self) -> None:
        self.turns += 1
        if self._alarms:
            due = [callback for turn, callback in self._alarms if turn <= self.turns]
            self._alarms = [alarm for alarm in self._alarms if alarm[0] > self.turns]
            for callback in due:
                callback()

    def _write_to_self(self) -> None:
        raise AssertionError("a thread calls into the simulation")
