"""A configuration that is read again while it is used: what a real process takes over, and what
goes on meanwhile.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

from tests.instep.cli.cli_kit import instep, started
from tests.instep.cli.test_run_port import DEADLINE_S, page, provider
from tests.instep.cli.test_status_check import free_port

CONFIG = """
[operations]
{operations}
{consumers}
"""
CONSUMER = """
[[consumers]]
name = "{name}"
source = {{ {source} kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "sqlite:///{folder}/{name}.db" }}

[consumers.settings]
discover_every_s = 600
{settings}
[consumers.settings.alignment]
quiet_s = 0.2
unreached_quiet_s = 0.5
{alignment}
"""


class Running:
    """`instep run` in a process of its own, with the file that it reads."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.file = folder / "instep.toml"
        self.lines: Queue[dict[str, Any]] = Queue()
        self.seen: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes]

    def consumer(self, name: str = "east", **parts: str) -> str:
        usual = {"source": "", "settings": "", "alignment": ""}
        return CONSUMER.format(name=name, url=self.url, folder=self.folder, **(usual | parts))

    def write(self, *consumers: str, operations: str = "") -> None:
        text = CONFIG.format(operations=operations, consumers="\n".join(consumers))
        self.file.write_text(text)

    def start(self) -> None:
        self.process = started("run", str(self.file), "--format", "jsonl", "--period", "600")
        assert self.process.stdout is not None
        output = self.process.stdout

        def read() -> None:
            for line in output:
                self.lines.put(json.loads(line))

        self.reader = Thread(target=read, daemon=True)
        self.reader.start()

    def stop(self) -> None:
        with self.process:
            self.process.terminate()
            self.process.wait(DEADLINE_S)
            self.reader.join(DEADLINE_S)

    def until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event that fits."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                one = self.lines.get(timeout=max(0.1, until_s - time.monotonic()))
            except Empty:
                raise AssertionError(self.seen[-20:]) from None
            self.seen.append(one)
            if fits(one):
                return one

    def aligned(self, consumer: str, streams: int = 2) -> None:
        done: set[str] = set()

        def fits(one: dict[str, Any]) -> bool:
            if one["event"] == "aligned" and one["consumer"] == consumer:
                done.add(one["stream"])
            return len(done) == streams

        self.until(fits)

    def reload(self, event: str = "reloaded") -> str:
        self.process.send_signal(signal.SIGHUP)
        one = self.until(lambda one: one["event"] in ("reloaded", "reload-refused"))
        assert one["event"] == event, one
        return str(one["text"])

    def events(self, consumer: str, *kinds: str) -> list[dict[str, Any]]:
        return [one for one in self.seen if one["consumer"] == consumer and one["event"] in kinds]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with provider("--storm", "100") as (_, url):
        one = Running(tmp_path, url)
        try:
            yield one
        finally:
            one.stop()


def records(folder: Path, name: str) -> int:
    with closing(sqlite3.connect(folder / f"{name}.db", timeout=30)) as raw:
        found = raw.execute("SELECT position FROM instep_stream").fetchall()
    return sum(json.loads(position)["records"] for (position,) in found)


def test_what_can_be_taken_over_is_and_the_connection_stays(running: Running) -> None:
    running.write(running.consumer())
    running.start()
    running.aligned("east")
    before = records(running.folder, "east")
    guarded = running.consumer(settings="reconnect_max_s = 7", alignment="sweep_guard_share = 0.25")
    running.write(guarded, operations='log_level = "info"')
    assert running.reload() == (
        "east: settings.alignment.sweep_guard_share; east: settings.reconnect_max_s;"
        " operations.log_level"
    )
    # A consumer is added …
    running.write(guarded, running.consumer("west"))
    assert running.reload() == "west was added; operations.log_level"
    running.aligned("west")
    # … a wrong file changes nothing …
    running.write(guarded, running.consumer("west", settings="reconect_max_s = 1"))
    text = running.reload("reload-refused")
    assert "did you mean 'reconnect_max_s'?" in text
    running.file.write_text("[[consumers")
    assert "TOML" in running.reload("reload-refused")
    # … and one is removed.
    running.write(guarded)
    assert running.reload() == "west was removed"
    assert running.events("west", "stopped")
    until_s = time.monotonic() + DEADLINE_S
    while records(running.folder, "east") <= before:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert len(running.events("east", "connected")) == 2, "one for each stream"
    assert not running.events("east", "disconnected", "attempt-again", "redelivered")


def test_what_needs_a_restart_is_named_each_time(running: Running) -> None:
    running.write(running.consumer())
    running.start()
    running.aligned("east")
    changed = running.consumer(source="dead_peer_s = 33,").replace("east.db", "other.db")
    changed = changed.replace('name = "east"', 'name = "east"\nconformance = true')
    running.write(changed + "\n", operations=f'listen = "127.0.0.1:{free_port()}"')
    told = "needs a restart: east: conformance, east: sink.url, east: source.dead_peer_s"
    told += ", operations.listen"
    for _ in range(2):
        assert running.reload() == f"nothing to take over; {told}"
    assert not (running.folder / "other.db").exists()


def test_streams_are_chosen_and_left(running: Running) -> None:
    one = running.consumer(source='streams = { ids = ["network"] },')
    running.write(one)
    running.start()
    running.aligned("east", 1)
    running.write(running.consumer())
    assert running.reload() == "east: source.streams"
    found = running.until(lambda one: one["event"] == "stream-found")
    assert found["stream"] == "alarms"
    running.until(lambda one: one["event"] == "aligned" and one["stream"] == "alarms")
    running.write(one)
    assert running.reload() == "east: source.streams"
    left = running.until(lambda one: one["event"] == "stream-left")
    assert left["stream"] == "alarms"
    network = [each for each in running.events("east", "connected") if each["stream"] == "network"]
    assert len(network) == 1


@pytest.mark.parametrize("placed", ["workers = 2", 'isolation = "process"'])
def test_processes_take_over_what_is_changed(running: Running, placed: str) -> None:
    """Connections stay; a process that is started anew knows what has changed, too."""

    def write(streams: str, guard: float) -> None:
        one = running.consumer(
            source=f"streams = {{ ids = [{streams}] }},",
            settings="reconnect_initial_s = 0.05",
            alignment=f"sweep_guard_share = {guard}",
        )
        running.write(one.replace('name = "east"', f'name = "east"\n{placed}'))

    def killed() -> None:
        [event] = running.events("east", "worker-started")[-1:]
        os.kill(int(re.findall(r"process (\d+)", event["text"])[0]), signal.SIGKILL)
        running.until(lambda one: one["event"] == "worker-started")

    write('"network"', 0.5)
    running.start()
    running.aligned("east", 1)
    write('"network", "alarms"', 0.25)
    assert running.reload() == ("east: settings.alignment.sweep_guard_share; east: source.streams")
    running.until(lambda one: one["event"] == "aligned" and one["stream"] == "alarms")
    killed()
    both = {"network", "alarms"}
    if "isolation" in placed:
        running.until(lambda one: one["event"] == "connected" and one["stream"] in both)
        running.until(lambda one: one["event"] == "connected" and one["stream"] in both)
    write('"network"', 0.25)
    assert running.reload() == "east: source.streams"
    left = running.until(lambda one: one["event"] == "stream-left")
    assert left["stream"] == "alarms"
    before = records(running.folder, "east")
    until_s = time.monotonic() + DEADLINE_S
    while records(running.folder, "east") <= before:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert len(running.events("east", "stream-left")) == 1
    assert not running.events("east", "attempt-again", "failed")


def test_the_command_finds_the_process_by_its_port(running: Running) -> None:
    listen = f'listen = "127.0.0.1:{free_port()}"'
    running.write(running.consumer(), operations=listen)
    running.start()
    running.aligned("east")
    file = str(running.file)
    running.write(running.consumer(settings="healthy_after_s = 9"), operations=listen)
    done = instep("reload", file)
    assert (done.exit_code, done.stdout) == (0, "east: settings.healthy_after_s\n"), done.stderr
    told = json.loads(page(listen.split('"')[1].join(["http://", ""]), "/status.json")[1])
    assert told["pid"] == running.process.pid
    assert told["reload"]["reloaded"]
    running.file.write_text("x")
    refused = instep("reload", file)
    assert (refused.exit_code, "TOML" in refused.stderr) == (2, True)


def test_without_a_port_the_command_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(
        CONSUMER.format(
            name="east", url="http://127.0.0.1:9", folder=tmp_path, source="", settings="",
            alignment="",
        )
    )  # fmt: skip
    done = instep("reload", str(file))
    assert done.exit_code == 2
    assert "kill -HUP" in done.stderr
