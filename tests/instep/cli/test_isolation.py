"""`isolation = "process"`: what ends the process of one consumer ends nothing else."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from tests.instep.cli.cli_kit import failed, instep, lines, small_provider, started

pytest.importorskip("didcomm_messaging", reason="the extra `didcomm` is not installed")
DEADLINE_S = 90
PROTOCOL = "https://example.org/isolation/1.0"
DIDCOMM = """
[[consumers]]
name = "{name}"
[consumers.source]
kind = "didcomm"
listen = "http://127.0.0.1:{port}/{name}"
protocols = [{{ type = "{protocol}/*" }}]
sequence = {{ gap_deadline_s = 3600.0 }}
[consumers.sink]
kind = "sql"
url = "sqlite:///{folder}/{name}.db"
[consumers.settings]
reconnect_initial_s = 0.1
"""
TAPI = """
[[consumers]]
name = "{name}"
{more}
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {sink}
[consumers.settings]
reconnect_initial_s = 0.1
reconnect_attempts = {attempts}
alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.5 }}
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with small_provider("--storm", "50", "--control") as url:
        yield url


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def didcomm(folder: Path, name: str) -> tuple[str, int]:
    port = free_port()
    return DIDCOMM.format(name=name, port=port, folder=folder, protocol=PROTOCOL), port


def tapi(
    folder: Path, url: str, name: str = "network", more: str = "", sink: str = "", attempts: int = 0
) -> str:
    sink = sink or f'{{ kind = "sql", url = "sqlite:///{folder}/{name}.db" }}'
    return TAPI.format(name=name, more=more, url=url, sink=sink, attempts=attempts)


class Run:
    """`instep run` of a configuration, with what it has told so far."""

    def __init__(self, folder: Path, *parts: str, options: tuple[str, ...] = ()) -> None:
        self.file = folder / "instep.toml"
        self.file.write_text("".join(parts))
        self.process = started("run", str(self.file), "--period", "0.5", *options)
        self.told: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.told.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def of(self, consumer: str, event: str) -> list[dict[str, Any]]:
        return [o for o in self.told if (o.get("consumer"), o["event"]) == (consumer, event)]

    def until(self, consumer: str, event: str, count: int = 1, **values: object) -> dict[str, Any]:
        """Wait for an event that has these values."""

        def found() -> list[dict[str, Any]]:
            every = self.of(consumer, event)
            return [one for one in every if all(one[key] == v for key, v in values.items())]

        with self._changed:
            there = self._changed.wait_for(lambda: len(found()) >= count, DEADLINE_S)
        assert there, (event, self.told[-5:])
        return found()[count - 1]

    def until_health(self, consumer: str, good: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for a line of health, from now on, that is so."""
        seen = len(self.of(consumer, "health"))
        with self._changed:
            there = self._changed.wait_for(
                lambda: any(map(good, self.of(consumer, "health")[seen:])), DEADLINE_S
            )
        assert there, self.of(consumer, "health")[-1]

    def pid(self, consumer: str, count: int = 1) -> int:
        """The process that it runs in, as told for the count-th time."""
        return int(self.until(consumer, "worker-started", count)["text"].split()[4])

    def stop(self) -> tuple[int, list[dict[str, Any]]]:
        """SIGTERM. The status, and what was logged."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        status = self.process.wait(DEADLINE_S)
        self._reader.join()
        return status, [json.loads(line) for line in errors.splitlines()]


class Sender(threading.Thread):
    """Numbers its messages, and sends each until it is acknowledged, over one connection."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__()
        self.path, self.port = f"/{name}", port
        self.sent = self.connections = 0
        self.enough = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self.enough.is_set():
            while not self._post(self.sent + 1):
                time.sleep(0.05)
            self.sent += 1
        if self._connection is not None:
            self._connection.close()

    def _post(self, number: int) -> bool:
        content = {
            "id": f"{self.path[1:]}-{number}",
            "type": f"{PROTOCOL}/say",
            "from": "did:ex:sender",
            "thid": "T",
            "sender_order": number,
            "body": {"n": number},
        }
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                self._connection.connect()
                self.connections += 1
            headers = {"Content-Type": "application/didcomm-plain+json"}
            self._connection.request("POST", self.path, json.dumps(content), headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return False
        return answer.status == 202

    def wait_for(self, more: int) -> None:
        wanted, until_s = self.sent + more, time.monotonic() + DEADLINE_S
        while self.sent < wanted:
            assert time.monotonic() < until_s, f"{self.path}: nothing is acknowledged any more"
            time.sleep(0.02)


def delivered(folder: Path, name: str) -> list[int]:
    with closing(sqlite3.connect(folder / f"{name}.db", timeout=30)) as raw:
        rows = raw.execute("SELECT number FROM instep_message ORDER BY id").fetchall()
    return [number for (number,) in rows]


def gone(*pids: int) -> bool:
    until_s = time.monotonic() + DEADLINE_S
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def test_one_that_dies_is_told_and_started_again_alone(tmp_path: Path, provider: str) -> None:
    (hit, hit_port), (other, other_port) = didcomm(tmp_path, "hit"), didcomm(tmp_path, "other")
    parts = ('isolation = "process"\n', hit, other, tapi(tmp_path, provider))
    with Run(tmp_path, *parts) as run:
        senders = [Sender("hit", hit_port), Sender("other", other_port)]
        try:
            pids = {name: run.pid(name) for name in ("hit", "other", "network")}
            assert len({*pids.values(), run.process.pid}) == 4
            for sender in senders:
                sender.start()
            run.until("network", "aligned", 2)
            for count, number in enumerate((signal.SIGSEGV, signal.SIGKILL), start=1):
                for sender in senders:
                    sender.wait_for(20)
                os.kill(run.pid("hit", count), number)
                lost = run.until("hit", "worker-lost", count)
                assert number.name in lost["text"]
                assert "started again" in lost["text"]
                run.pid("hit", count + 1)
                for sender in senders:
                    sender.wait_for(20)
        finally:
            for sender in senders:
                sender.enough.set()
                if sender.is_alive():
                    sender.join(DEADLINE_S)
        health = run.until("hit", "health", len(run.of("hit", "health")) + 2)
        # One that hangs is not shown well, and nothing is lost when it goes on.
        os.kill(run.pid("hit", 3), signal.SIGSTOP)
        try:
            run.until_health("hit", lambda one: "has not reported for" in one["error"])
        finally:
            os.kill(run.pid("hit", 3), signal.SIGCONT)
        run.until_health("hit", lambda one: (one["state"], one["error"]) == ("running", ""))
        status, logged = run.stop()
    assert status == 0
    assert [line["text"].split("; ")[0] for line in logged] == [
        "hit: its process has ended by SIGSEGV", "hit: its process has ended by SIGKILL",
    ]  # fmt: skip
    for name in ("other", "network"):
        assert not run.of(name, "worker-lost")
        assert not run.of(name, "disconnected")
        assert len(run.of(name, "worker-started")) == 1
    assert senders[1].connections == 1, "its connection stays"
    for name, sender in zip(("hit", "other"), senders, strict=True):
        assert delivered(tmp_path, name) == list(range(1, sender.sent + 1))
    assert health["state"] == "running"
    # Counted since it was started first, but for what was not reported any more.
    assert health["intake"]["accepted"] > senders[0].sent / 2
    assert gone(*pids.values(), run.pid("hit", 3))


@pytest.mark.long
def test_none_outlives_the_process_that_was_started(tmp_path: Path, provider: str) -> None:
    parts = (
        'isolation = "process"\n',
        didcomm(tmp_path, "one")[0],
        tapi(tmp_path, provider, more="workers = 2"),
    )
    with Run(tmp_path, *parts) as run:
        workers = [run.until("network", "worker-started", count)["text"] for count in (1, 2, 3)]
        pids = [run.pid("one"), *(int(text.split()[4].rstrip(",")) for text in workers)]
        os.kill(pids[0], signal.SIGSTOP)
        run.process.kill()
        run.process.wait()
        assert gone(*pids[1:])
        # One that has heard nothing of it ends as soon as it can.
        os.kill(pids[0], signal.SIGCONT)
        assert gone(pids[0])


@pytest.mark.long
def test_until_aligned_of_a_tee_is_as_without(tmp_path: Path, provider: str) -> None:
    sinks = [f'{{ kind = "sql", url = "sqlite:///{tmp_path}/{name}.db" }}' for name in "ab"]
    sink = f'{{ kind = "tee", sinks = [{", ".join(sinks)}] }}'
    part = tapi(tmp_path, provider, sink=sink, more='isolation = "process"')
    with Run(tmp_path, part, options=("--until-aligned",)) as run:
        assert run.end() == (0, [])
    assert len(run.of("network", "worker-started")) == 1
    assert {one["event"] for one in run.told} >= {"connected", "attempt", "aligned", "stopped"}
    assert len(run.of("network", "aligned")) == 4
    for name in "ab":
        url = f"sqlite:///{tmp_path}/{name}.db"
        status = lines(instep("status", "--store", url, "--format", "jsonl"))
        assert [one["phase"] for one in status] == ["aligned"] * 2


def test_a_fatal_error_is_told_as_without(tmp_path: Path) -> None:
    with small_provider("--token", "s3cret") as url:
        other, _ = didcomm(tmp_path, "other")
        with Run(tmp_path, 'isolation = "process"\n', tapi(tmp_path, url), other) as run:
            assert "the provider answers 401" in run.until("network", "failed")["text"]
            run.until("network", "health", state="failed")
            run.until("other", "health", state="running")
            status, logged = run.stop()
    assert status == 1
    assert [line["text"] for line in logged] == ["the provider answers 401"]
    assert logged[0]["where"].startswith("http://127.0.0.1:")
    assert not run.of("network", "worker-lost")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("protocols", "protocol", "unknown key 'protocol'"),
        ('"didcomm"', '"didcom"', "there is no source of kind 'didcom'"),
        ('"process"', '"thread"', "the key 'isolation' is not usable"),
        (
            'isolation = "process"\n',
            "memory_limit_bytes = 9\n",
            "needs a consumer with a process of its own",
        ),
        ('isolation = "process"\n', "isolate = true\n", "unknown key 'isolate'"),
    ],
)
def test_a_wrong_configuration_ends_with_2_before_anything_starts(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    good, bad = didcomm(tmp_path, "good")[0], didcomm(tmp_path, "bad")[0]
    text = f'isolation = "process"\n{good}{bad}'
    at = text.rindex(old)
    file = tmp_path / "instep.toml"
    file.write_text(text[:at] + new + text[at + len(old) :])
    assert told in failed(instep("run", str(file)), 2).replace('\\"', '"')
    assert not list(tmp_path.glob("*.db"))


def test_one_that_takes_too_much_memory_is_killed_and_told(tmp_path: Path, provider: str) -> None:
    limited = 'isolation = "process"\nmemory_limit_bytes = 1_000_000'
    other, port = didcomm(tmp_path, "other")
    with Run(tmp_path, tapi(tmp_path, provider, more=limited, attempts=2), other) as run:
        lost = run.until("network", "worker-lost")
        assert "SIGKILL" in lost["text"]
        assert "over its memory limit" in lost["text"]
        assert "memory limit" in run.until("network", "failed")["text"]
        sender = Sender("other", port)
        sender.start()
        try:
            sender.wait_for(3)
        finally:
            sender.enough.set()
            sender.join(DEADLINE_S)
        status, logged = run.stop()
    assert status == 1
    assert logged[-1]["code"] == "worker-lost"


@pytest.mark.long
def test_a_lease_is_taken_again_by_the_next_process(tmp_path: Path, provider: str) -> None:
    sink = f'{{ kind = "sql", url = "sqlite:///{tmp_path}/network.db", lease_s = 3 }}'
    part = tapi(tmp_path, provider, sink=sink, more='isolation = "process"')
    with Run(tmp_path, part) as run:
        run.until("network", "active")
        run.until("network", "aligned", 2)
        os.kill(run.pid("network"), signal.SIGKILL)
        run.until("network", "active", 2)
        handed = instep("handover", str(run.file), "--format", "jsonl")
        assert handed.exit_code == 1, "it reached the holder, and nobody stands by"
        run.until("network", "active", 3)
        assert run.stop()[0] == 0


def test_check_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    good, _ = didcomm(tmp_path, "a")
    file.write_text(f'isolation = "process"\nmemory_limit_bytes = 500_000_000\n{good}')
    shown = instep("check", str(file)).stdout
    assert re.search(r"^  isolation +process, 500,000,000 bytes *$", shown, re.MULTILINE)
    [line] = lines(instep("check", str(file), "--format", "jsonl"))
    assert (line["isolation"], line["memory_limit_bytes"]) == ("process", 500_000_000)
