"""A worker process that does not do as it should."""

from __future__ import annotations

import asyncio
import signal
import sys

import msgspec
import pytest

from instep.runtime.workers import process
from instep.runtime.workers.messages import Assignment, WorkerReport
from instep.runtime.workers.process import WorkerProcess

pytestmark = pytest.mark.asyncio
decode = msgspec.msgpack.Decoder(WorkerReport).decode
DEAF = "import time; time.sleep(1000)"


def assignment() -> Assignment:
    return Assignment(streams=(), assigned=frozenset())


def heard(_: WorkerReport) -> None:
    raise AssertionError("it says nothing")


async def test_one_that_is_silent_for_too_long_is_killed() -> None:
    worker = WorkerProcess(["-c", DEAF], b"", decode, kill_silent_after_s=0.2)
    assert await asyncio.wait_for(worker.run(heard, assignment), 60) == -signal.SIGKILL
    assert worker.pid is None


async def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STOP_WITHIN_S", 0.2)
    worker = WorkerProcess(["-c", DEAF], b"", decode)
    running = asyncio.create_task(worker.run(heard, assignment))
    async with asyncio.timeout(60):
        while worker.pid is None:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert worker.pid is None


async def test_what_is_assigned_while_it_starts_reaches_it() -> None:
    echo = (
        "import sys; read = sys.stdin.buffer.read; read(4); size = int.from_bytes(read(4));"
        "raise SystemExit(b'late' not in read(size))"
    )
    assigned: list[str] = []

    def latest() -> Assignment:
        return Assignment(streams=(), assigned=frozenset(assigned))

    worker = WorkerProcess(["-c", echo], b"", decode)
    running = asyncio.create_task(worker.run(heard, latest))
    await asyncio.sleep(0)
    assigned.append("late")
    worker.tell(latest())
    assert await asyncio.wait_for(running, 60) == 0


@pytest.mark.parametrize("status", [0, 3])
async def test_one_that_ends_at_once_tells_how(status: int) -> None:
    worker = WorkerProcess(["-c", f"raise SystemExit({status})"], b"", decode)
    assert await asyncio.wait_for(worker.run(heard, assignment), 60) == status


async def test_a_program_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        await WorkerProcess([], b"", decode).run(heard, assignment)
