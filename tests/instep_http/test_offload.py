"""Off the loop: what is large runs in a few threads, and what is small where it always ran."""

from __future__ import annotations

import asyncio
import threading

import pytest

from instep_http.offload import Busy, Offload

BIG = 1_000_000


async def until(done: object) -> None:
    assert callable(done)
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0.001)


@pytest.mark.asyncio
async def test_a_small_input_stays_in_the_loop_and_a_large_one_leaves_it() -> None:
    offload = Offload(small_bytes=100)
    assert await offload.run(100, threading.get_ident) == threading.get_ident()
    assert await offload.run(101, threading.get_ident) != threading.get_ident()
    assert await offload.run(101, int, "ff", 16) == 255


@pytest.mark.asyncio
@pytest.mark.parametrize("size_bytes", [1, BIG])
async def test_what_a_function_raises_is_raised_and_its_place_is_free(size_bytes: int) -> None:
    offload = Offload(at_once=1, waiting=0)
    for _ in range(3):
        with pytest.raises(ValueError, match="invalid literal"):
            await offload.run(size_bytes, int, "no number")
        await asyncio.sleep(0)
        await until(lambda: not offload._taken)


@pytest.mark.asyncio
async def test_a_few_run_at_once_some_wait_and_others_are_refused() -> None:
    offload = Offload(at_once=2, waiting=3)
    go = threading.Event()
    running: list[int] = []

    def work(number: int) -> int:
        running.append(number)
        assert go.wait(10)
        return number

    tasks = [asyncio.ensure_future(offload.run(BIG, work, number)) for number in range(5)]
    try:
        await until(lambda: len(running) == 2)
        with pytest.raises(Busy):
            await offload.run(BIG, work, 5)
        # The loop goes on meanwhile, and so does what is small.
        assert await offload.run(1, int, "7") == 7
        assert sorted(running) == [0, 1]
    finally:
        go.set()
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]
    await until(lambda: not offload._taken)
    assert await offload.run(BIG, work, 6) == 6


@pytest.mark.asyncio
async def test_one_that_waits_is_cancelled_and_one_that_runs_keeps_its_place() -> None:
    offload = Offload(at_once=1, waiting=1)
    go, began = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        assert go.wait(10)

    runs = asyncio.ensure_future(offload.run(BIG, work))
    await until(began.is_set)
    waits = asyncio.ensure_future(offload.run(BIG, work))
    await asyncio.sleep(0)
    for task in (runs, waits):
        task.cancel()
    await asyncio.gather(runs, waits, return_exceptions=True)
    # The cancelled one's thread still works: one may wait behind it, and no second one.
    last = asyncio.ensure_future(offload.run(BIG, int, "1"))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await offload.run(BIG, int, "2")
    go.set()
    assert await last == 1


@pytest.mark.asyncio
async def test_all_listeners_together_use_two_threads() -> None:
    go = threading.Event()
    running: list[int] = []

    def work(number: int) -> None:
        running.append(number)
        assert go.wait(10)

    tasks = [asyncio.ensure_future(Offload().run(BIG, work, number)) for number in range(9)]
    try:
        await until(lambda: len(running) == 2)
        await asyncio.sleep(0.05)
        assert len(running) == 2
    finally:
        go.set()
    await asyncio.gather(*tasks)
