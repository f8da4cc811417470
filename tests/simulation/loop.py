"""An asyncio loop in virtual time: when nothing is ready, time jumps to the next timer.

One thread, no socket, no real waiting, and always the same order: what runs on it is as repeatable
as the random numbers it draws. `asyncio.to_thread` and `run_in_executor` come to `worker`, which
runs the work on the loop itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

__all__ = ["DeadlockError", "LivelockError", "VirtualLoop"]

_RESOLUTION_S: Final = 1e-6
_MOST_TURNS_AT_ONE_TIME: Final = 100_000


class DeadlockError(AssertionError):
    """Nothing is ready and no timer is set: everybody waits for somebody else."""


class LivelockError(AssertionError):
    """The loop runs on, and time does not advance."""


class _Jump:
    """Takes the place of a selector: to wait is to advance the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """`time` begins at 0. `turns` counts the rounds of the loop, in each of which every task that
    is ready goes on to its next await.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _Jump(self)
        self._clock_resolution = _RESOLUTION_S
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

    def _at_once(self, _executor: object, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future

    def _process_events(self, _events: object) -> None:
        self.turns += 1
        if self._alarms:
            due = [callback for turn, callback in self._alarms if turn <= self.turns]
            self._alarms = [alarm for alarm in self._alarms if alarm[0] > self.turns]
            for callback in due:
                callback()

    def _write_to_self(self) -> None:
        raise AssertionError("a thread calls into the simulation")
