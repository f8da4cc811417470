"""A provider in a process of its own, `instep run` beside it, and what is durable held against what
is true.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from instep import Position
from tests.postgres_kit import serving

__all__ = ["INSTEP", "Report", "Site", "check_round", "compare", "site", "store_url"]

INSTEP = [sys.executable, "-m", "instep.cli"]
CONFIG = """
[[consumers]]
name = "crash"
[consumers.source]
kind = "tapi"
endpoints = ["{url}"]
[consumers.sink]
kind = "sql"
url = "{store}"
{sink}
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 1.0
[consumers.settings.alignment]
# A process is killed more often here than a second doubt is probed.
probe_min_s = 0.001
quiet_s = 0.5
"""
_POSITIONS = "SELECT stream, position FROM instep_stream"
_ENTITIES = (
    "SELECT s.stream, e.key, e.token, e.body FROM instep_entity e"
    " JOIN instep_stream s ON s.id = e.stream_no"
)
Durable = tuple[dict[str, Position], dict[tuple[str, str], tuple[str, bytes]]]


@dataclass
class Report:
    """What the rounds showed. Every list must be empty, every stream at attempt 1."""

    rounds: int = 0
    ahead: list[str] = field(default_factory=list)
    """Entities that the position covers and the store does not hold as stated."""
    needless_attempts: list[str] = field(default_factory=list)
    committed_records: int = 0
    differences: list[str] = field(default_factory=list)
    """Between the store and the provider, at the end."""

    @property
    def faults(self) -> list[str]:
        return [*self.ahead, *self.needless_attempts, *self.differences]

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.committed_records:,} records committed; "
            f"position ahead of data: {len(self.ahead)}, "
            f"needless attempts: {len(self.needless_attempts)}, "
            f"differences at the end: {len(self.differences)}"
        )


@dataclass(frozen=True)
class Truth:
    """An entity as the provider states it."""

    token: str
    appended_at_us: int
    body: object


class Site:
    """A provider, and the folder of the consumer's files."""

    def __init__(self, folder: Path, url: str, store: str) -> None:
        self.folder = folder
        self.url = url
        self.store = store

    def command(self, name: str, **body: object) -> object:
        """POST to the provider's control endpoint."""
        request = urllib.request.Request(
            f"{self.url}/_instep/{name}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def truth(self) -> dict[tuple[str, str], Truth]:
        """What the provider states now, by stream-id and entity-key."""
        with urllib.request.urlopen(f"{self.url}/_instep/entities", timeout=60) as response:
            lines = [json.loads(line) for line in response if line.strip()]
        return {
            (line["stream_id"], line["key"]): Truth(
                line["token"], _us(line["appended_at"]), line["body"]
            )
            for line in lines
        }

    def run(self, *arguments: str, store: str = "", sink: str = "") -> subprocess.Popen[bytes]:
        """`instep run` of a configuration with these lines for its sink, in a process."""
        config = self.folder / "instep.toml"
        config.write_text(CONFIG.format(url=self.url, store=store or self.store, sink=sink))
        with (self.folder / "stderr").open("ab") as stderr:
            return subprocess.Popen(
                [*INSTEP, "run", str(config), "--format", "jsonl", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            )

    def durable(self) -> Durable:
        """Positions by stream and (token, body) by stream and entity-key, as after a crash: both of
        the same moment.
        """
        if self.store.startswith("sqlite"):
            file = Path(self.store.removeprefix("sqlite:///"))
            if not file.exists():
                return {}, {}
            exists = "SELECT 1 FROM sqlite_master WHERE name = 'instep_stream'"
            with contextlib.closing(sqlite3.connect(file, timeout=30)) as raw:
                return _read(raw, exists, "BEGIN")
        with psycopg.connect(self.store, autocommit=True) as server:
            exists = "SELECT 1 FROM pg_tables WHERE tablename = 'instep_stream'"
            return _read(server, exists, "BEGIN ISOLATION LEVEL REPEATABLE READ")


def _read(raw: Any, exists: str, begin: str) -> Durable:
    if raw.execute(exists).fetchone() is None:
        return {}, {}
    raw.execute(begin)
    positions = {
        stream: msgspec.json.decode(position, type=Position)
        for stream, position in raw.execute(_POSITIONS)
    }
    entities = {(stream, key): (token, body) for stream, key, token, body in raw.execute(_ENTITIES)}
    raw.execute("ROLLBACK")
    return positions, entities


def _us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000_000)


@contextlib.contextmanager
def store_url(database: str) -> Iterator[str]:
    """An empty database of this kind. Raises `tests.postgres_kit.Missing`."""
    if database == "sqlite":
        with tempfile.TemporaryDirectory(prefix="instep-crash-") as name:
            yield f"sqlite:///{name}/store.db"
    else:
        with serving() as server:
            yield server.create()


@contextlib.contextmanager
def site(store: str, *options: str) -> Iterator[Site]:
    """A provider with its control endpoint, in its own process."""
    with tempfile.TemporaryDirectory(prefix="instep-crash-") as name:
        folder = Path(name)
        ready = folder / "ready"
        command = [*INSTEP, "provider", "--control", "--ready-file", str(ready), *options]
        quiet = os.environ | {"PYTHONASYNCIODEBUG": ""}
        with (
            (folder / "provider").open("wb") as output,
            subprocess.Popen(command, stdout=output, stderr=output, env=quiet) as provider,
        ):
            try:
                deadline_s = time.monotonic() + 60
                while not ready.exists() or not ready.read_text():
                    if provider.poll() is not None or time.monotonic() > deadline_s:
                        raise RuntimeError("the provider does not start")
                    time.sleep(0.05)
                yield Site(folder, ready.read_text().strip(), store)
            finally:
                provider.send_signal(signal.SIGTERM)


def check_round(site: Site, report: Report) -> None:
    """Compare the durable state with the truth."""
    positions, entities = site.durable()
    truth = site.truth()
    for (stream, key), stated in truth.items():
        position = positions.get(stream)
        if position is None or stated.appended_at_us >= position.appended_at_us:
            continue
        held = entities.get((stream, key))
        # A store that was already further when the truth was read holds a later statement.
        if held is None or held[0] != stated.token:
            report.ahead.append(f"round {report.rounds}: {stream} {key}: {held} for {stated}")
    for stream, position in positions.items():
        if position.attempt > 1:
            report.needless_attempts.append(
                f"round {report.rounds}: {stream}: attempt {position.attempt}"
            )
    report.committed_records = sum(position.records for position in positions.values())


def compare(site: Site) -> list[str]:
    """Entity by entity, with the storm over."""
    _, entities = site.durable()
    truth = site.truth()
    found: list[str] = []
    for place in sorted(truth.keys() | entities.keys()):
        stated = truth.get(place)
        held = entities.get(place)
        if stated is None:
            found.append(f"phantom {place}")
        elif held is None:
            found.append(f"missing {place}")
        elif json.loads(held[1]) != stated.body:
            found.append(f"stale {place}")
    return found
