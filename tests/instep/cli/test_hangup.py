"""SIGHUP ends no service: it is told, and the work goes on."""

import fcntl
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import QUICK_CONFIG, small_provider

DEADLINE_S = 60


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with small_provider("--storm", "100") as url:
        yield url


def configured(folder: Path, url: str) -> str:
    file = folder / "instep.toml"
    text = QUICK_CONFIG.format(url=url, store=folder / "network")
    file.write_text(text.replace('name = "east"', 'name = "east"\nworkers = 2'))
    return str(file)


def commits(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "network.db", timeout=30)) as raw:
        found = raw.execute("SELECT position FROM instep_stream").fetchall()
    return sum(json.loads(position)["ordinal"] for (position,) in found)


def await_commits(folder: Path, more_than: int) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while commits(folder) <= more_than:
        assert time.monotonic() < until_s, "nothing is committed any more"
        time.sleep(0.05)


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "instep.cli", *arguments],
        env=os.environ | {"PYTHONASYNCIODEBUG": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_run_tells_of_it_and_goes_on(provider: str, tmp_path: Path) -> None:
    with start("run", configured(tmp_path, provider)) as process:
        assert process.stdout is not None
        try:
            pids: list[int] = []
            for line in process.stdout:
                one = json.loads(line)
                if one["event"] == "worker-started":
                    pids.append(int(one["text"].split()[4].rstrip(",")))
                if one["event"] == "aligned":
                    break
            assert len(pids) == 2
            for _ in range(3):
                # To all of the group, as a terminal does that is closed.
                os.killpg(process.pid, signal.SIGHUP)
                for pid in pids:
                    os.kill(pid, signal.SIGHUP)
                await_commits(tmp_path, commits(tmp_path))
            first = next(
                one for one in map(json.loads, process.stdout) if one["event"] == "reloaded"
            )
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert not errors
    events = [json.loads(line) for line in output.splitlines()]
    told = [first["text"]]
    told += [one["text"] for one in events if one["event"] == "reloaded"]
    assert 1 <= len(told) <= 3, "of two that come at once, the system delivers one"
    assert set(told) == {"nothing to take over"}
    assert events[-1]["event"] == "stopped"
    assert b"worker-lost" not in output


def test_a_provider_goes_on() -> None:
    with start("provider", "--topology", "sndlib/polska", "--format", "jsonl") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdout.readline()
            process.send_signal(signal.SIGHUP)
            assert b"SIGHUP is ignored" in process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def test_a_command_that_only_reads_ends_with_its_terminal() -> None:
    program = "from instep.cli import main; import signal; main.__globals__['sys'].argv[1:] = []"
    check = "; print(signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)"
    code = f"{program}\ntry: main()\nexcept SystemExit: pass{check}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_a_terminal_that_is_closed_ends_nothing(provider: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        [sys.executable, "-m", "instep.cli", "run", configured(tmp_path, provider)],
        env=os.environ | {"PYTHONASYNCIODEBUG": "", "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,  # noqa: PLW1509 - this process has no other thread
    ) as process:
        os.close(theirs)
        try:
            shown = b""
            while b"aligned" not in shown:
                shown += os.read(ours, 65536)
            os.close(ours)
            for _ in range(3):
                await_commits(tmp_path, commits(tmp_path))
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
