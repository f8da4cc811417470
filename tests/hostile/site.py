"""The process under attack: `instep run` with two listeners, a TAPI consumer with its provider, and
one whose provider is no good; 1,024 descriptors, and what it costs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["LIMITS", "Limits", "Site", "site"]

MIB: Final = 1024 * 1024
_INSTEP: Final = [sys.executable, "-m", "instep.cli"]
_LISTENER: Final = """
[[consumers]]
name = "heard"
[consumers.source]
kind = "didcomm"
listen = "http://127.0.0.1:{port}/didcomm"
did = "did:ex:us"
allow_private_endpoints = true
protocols = [{{ type = "https://didcomm.org/auction/1.0/*" }}]
[consumers.sink]
kind = "sql"
url = "sqlite:///{folder}/heard.db"
messages_retention_bytes = {kept}
[consumers.settings.intake]
limit_buffered_bytes = {buffered}
limit_buffered_bytes_per_sender = {per_sender}

[[consumers]]
name = "rm"
[consumers.source]
kind = "wsrm"
listen = "http://127.0.0.1:{rm_port}/rm"
[consumers.sink]
kind = "sql"
url = "sqlite:///{folder}/rm.db"

[[consumers]]
name = "endless"
[consumers.source]
kind = "tapi"
endpoints = ["http://127.0.0.1:{endless_port}"]
[consumers.sink]
kind = "sql"
url = "sqlite:///{folder}/endless.db"
cache_bytes = 16777216
[consumers.settings]
reconnect_max_s = 2.0
reconnect_late_s = 2.0
"""
_STREAM: Final = """
[[consumers]]
name = "network"
[consumers.source]
kind = "tapi"
endpoints = ["{provider}"]
[consumers.sink]
kind = "sql"
url = "sqlite:///{folder}/network.db"
cache_bytes = 16777216
"""


class Limits(msgspec.Struct, frozen=True):
    """What the process may cost, as its configuration and the page on bounds state."""

    descriptors: int = 1_024
    kept_bytes: int = 64 * MIB
    buffered_bytes: int = 64 * MIB
    memory_bytes: int = 768 * MIB
    disk_bytes: int = 512 * MIB
    """Kept, buffered, the same again for what SQLite has free, its log, and 50,000 sequences."""
    error_bytes: int = MIB
    """Of stderr. All of the log, stderr and events, must not exceed what strangers send."""
    latency_s: float = 0.5
    lag_s: float = 0.2
    """Of the event loop."""
    threads_per_s: float = 50_000 / 600
    """So many were to be opened at least."""


LIMITS: Final = Limits()


class Site:
    """The running processes, and what they cost by now."""

    def __init__(
        self, folder: Path, ports: tuple[int, int, int], process: subprocess.Popen[bytes]
    ) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{ports[0]}/didcomm"
        self.rm = f"http://127.0.0.1:{ports[1]}/rm"
        self.endless_port = ports[2]
        """Where a provider may listen that is no good."""
        self.process = process
        self.most_disk_bytes = 0
        self.processor_s = 0.0
        self.memory_bytes: list[int] = []
        """At each look."""

    def look(self) -> None:
        """Note what it costs now. Raises `AssertionError` where it has ended."""
        assert self.process.poll() is None, f"it has ended: {self.process.returncode}"
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        self.processor_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        self.memory_bytes.append(pages * resource.getpagesize())
        disk_bytes = 0
        for path in self.folder.glob("*.db*"):
            with contextlib.suppress(FileNotFoundError):
                disk_bytes += path.stat().st_size
        self.most_disk_bytes = max(self.most_disk_bytes, disk_bytes)

    @property
    def error_bytes(self) -> int:
        """What it wrote to stderr."""
        return (self.folder / "stderr").stat().st_size

    @property
    def log_bytes(self) -> int:
        """What it wrote in all, but the regular lines of health."""
        lines = (self.folder / "stdout").read_bytes().splitlines(keepends=True)
        return self.error_bytes + sum(len(one) for one in lines if b'"event":"health"' not in one)

    def heard(self, name: str) -> list[int]:
        """The numbers delivered of a sender (DIDComm) or sequence (WS-RM), in the order of
        delivery.
        """
        return [
            number
            for file, of in (("heard.db", "sender"), ("rm.db", "stream"))
            for number in self._numbers(file, of, name)
        ]

    def _numbers(self, file: str, of: str, name: str) -> list[int]:
        query = f"SELECT number FROM instep_messages WHERE {of} = ? ORDER BY cursor"
        with contextlib.closing(sqlite3.connect(self.folder / file)) as store:
            return [number for (number,) in store.execute(query, (name,))]

    def worst_lag_s(self) -> float:
        """The longest lag of the loop that any consumer has reported."""
        return max(
            (float(str(one["loop_lag_s"])) for one in self._events() if "loop_lag_s" in one),
            default=0.0,
        )

    def audit(self) -> str:
        """Hold the store of the stream against its provider. Returns what is wrong."""
        command = [*_INSTEP, "audit", str(self.folder / "stream.toml"), "--format", "jsonl"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
        return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()[-2_000:]

    def count(self, consumer: str, event: str) -> int:
        """How many events of a kind a consumer has reported."""
        return sum(
            one.get("event") == event and one.get("consumer") == consumer for one in self._events()
        )

    def last_health(self, consumer: str) -> dict[str, object]:
        """The last line of health of a consumer."""
        of_consumer = [one for one in self._events() if one.get("consumer") == consumer]
        health = [one for one in of_consumer if one.get("event") == "health"]
        return health[-1] if health else {}

    def _events(self) -> Iterator[dict[str, object]]:
        for line in (self.folder / "stdout").read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line)


@contextlib.contextmanager
def site(folder: Path, limits: Limits = LIMITS) -> Iterator[Site]:
    """Start a provider and `instep run`; both are stopped at the end."""
    ports = _free_ports()
    ready = folder / "ready"
    arguments = ["--port", "0", "--storm", "20", "--ready-file", str(ready)]
    provider = _started([*_INSTEP, "provider", *arguments], folder, "provider")
    try:
        _wait(lambda: ready.exists() and bool(ready.read_text().strip()), provider)
        stream = _STREAM.format(folder=folder, provider=ready.read_text().split()[0])
        (folder / "stream.toml").write_text(stream)
        config = folder / "instep.toml"
        listener = _LISTENER.format(
            port=ports[0],
            rm_port=ports[1],
            endless_port=ports[2],
            folder=folder,
            kept=limits.kept_bytes,
            buffered=limits.buffered_bytes,
            per_sender=limits.buffered_bytes // 4,
        )
        config.write_text(listener + stream)
        command = [*_limited(limits.descriptors), *_INSTEP, "run", str(config)]
        process = _started([*command, "--format", "jsonl", "--period", "2"], folder, "")
        try:
            _wait(lambda: _listens(ports[0]) and _listens(ports[1]), process)
            yield Site(folder, ports, process)
        finally:
            _stop(process)
    finally:
        _stop(provider)


def _free_ports() -> tuple[int, int, int]:
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for free in (one, two, three):
            free.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1], three.getsockname()[1]


def _started(command: list[str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    """A process whose output goes to files of the folder."""
    with (folder / f"{name}stdout").open("wb") as out, (folder / f"{name}stderr").open("wb") as err:
        environment = os.environ | {"PYTHONASYNCIODEBUG": ""}
        return subprocess.Popen(command, stdout=out, stderr=err, env=environment)


def _limited(descriptors: int) -> list[str]:
    """A command that runs the one after it with so many descriptors."""
    return ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _wait(done: object, process: subprocess.Popen[bytes]) -> None:
    assert callable(done)
    until_s = time.monotonic() + 60
    while not done():
        assert process.poll() is None, "it has ended before it began"
        assert time.monotonic() < until_s, "it did not begin in time"
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
