"""Stopping in time, whatever the work is doing."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys, time
from instep.cli.signals import until_signalled

def ready():
    print("ready", flush=True)

async def work():
    try:
        {body}
    finally:
        print("over", flush=True)

until_signalled(work())
print("returned", flush=True)
"""


def stopped(body: str, number: signal.Signals) -> tuple[int, list[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        try:
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
        return process.returncode, output.split()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_work_and_returns(number: signal.Signals) -> None:
    assert stopped("ready(); await asyncio.sleep(600)", number) == (0, ["over", "returned"])


@pytest.mark.parametrize(
    "body",
    [
        "ready(); time.sleep(600)",  # the loop itself is stuck
        "await asyncio.to_thread(lambda: (ready(), time.sleep(600)))",  # a thread is not cancelled
    ],
)
def test_what_does_not_stop_is_left_where_it_is(body: str) -> None:
    code, output = stopped(body, signal.SIGTERM)
    assert code == 0
    assert "returned" not in output


def test_work_that_ends_by_itself_just_returns() -> None:
    program = PROGRAM.format(body="ready()")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == ["ready", "over", "returned"]


def test_work_that_is_cancelled_without_a_signal_is_no_success() -> None:
    program = PROGRAM.format(
        body="ready(); asyncio.current_task().cancel(); await asyncio.sleep(1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode != 0
    assert "CancelledError" in done.stderr
