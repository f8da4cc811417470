"""The loop in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tests.simulation.loop import DeadlockError, LivelockError, VirtualLoop

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> tuple[VirtualLoop, T]:
    loop = VirtualLoop()
    try:
        return loop, loop.run_until_complete(work)
    finally:
        loop.close()


def test_an_hour_passes_at_once() -> None:
    loop, _ = run(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(3600)


def test_timers_fire_in_their_order() -> None:
    order: list[int] = []

    async def later(number: int, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        order.append(number)

    async def main() -> None:
        await asyncio.gather(later(3, 3.0), later(1, 1.0), later(2, 2.0), later(0, 0.0))

    run(main())
    assert order == [0, 1, 2, 3]


def test_waiting_for_nobody_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(main())


def test_turning_without_end_is_a_livelock() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        run(main())


def test_a_timeout_comes_in_virtual_time() -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(main())


def test_work_for_a_thread_runs_on_the_loop() -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert run(main())[1] == 7


def test_any_turn_can_be_hit() -> None:
    hit: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.after_turns(3, lambda: hit.append(loop.turns))
        first = loop.turns
        for _ in range(10):
            await asyncio.sleep(0)
        assert hit == [first + 3]

    run(main())


def test_the_wall_clock_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> float:
        raise AssertionError

    monkeypatch.setattr(time, "monotonic", asked)
    run(asyncio.sleep(10))
