"""What a database's thread does with its work, and when it ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from textwrap import dedent

import pytest
import pytest_asyncio

from instep_sql.engine.worker_thread import WorkerThread

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[WorkerThread]:
    made = WorkerThread("instep-test")
    yield made
    made.shutdown()


async def test_results_and_errors_come_back_in_order(worker: WorkerThread) -> None:
    run = asyncio.get_running_loop().run_in_executor
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return 10 // number

    outcomes = await asyncio.gather(
        *(run(worker, work, number) for number in (1, 0, 2)), return_exceptions=True
    )
    assert (outcomes[0], type(outcomes[1]), outcomes[2]) == (10, ZeroDivisionError, 5)
    assert done == [1, 0, 2]


async def test_work_cancelled_before_it_has_begun_is_not_done(worker: WorkerThread) -> None:
    run = asyncio.get_running_loop().run_in_executor
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        begun.set()
        go_on.wait(10)
        done.append("first")

    running = run(worker, first)
    waiting = run(worker, lambda: done.append("second"))
    await asyncio.to_thread(begun.wait, 10)
    running.cancel()
    waiting.cancel()
    go_on.set()
    await run(worker, lambda: done.append("third"))
    assert done == ["first", "third"]


async def test_what_was_submitted_before_the_shutdown_is_done() -> None:
    run, worker = asyncio.get_running_loop().run_in_executor, WorkerThread("instep-test")
    last = run(worker, lambda: "last")
    worker.shutdown(wait=False)
    assert await last == "last"
    with pytest.raises(RuntimeError, match="shut down"):
        run(worker, lambda: None)


async def test_the_thread_ends_when_nobody_refers_to_it() -> None:
    worker = WorkerThread("instep-test")
    thread = await asyncio.get_running_loop().run_in_executor(worker, threading.current_thread)
    del worker
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


async def test_what_has_begun_is_done_before_the_program_ends() -> None:
    program = dedent("""
        import asyncio, threading, time
        from instep_sql.engine.worker_thread import WorkerThread

        begun = threading.Event()

        def work():
            begun.set()
            time.sleep(0.3)
            print("done", flush=True)

        async def main():
            asyncio.get_running_loop().run_in_executor(worker, work)
            begun.wait(10)

        worker = WorkerThread("instep-test")
        asyncio.run(main())
    """)
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
