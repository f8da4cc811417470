"""Kills `instep run` with SIGKILL, round after round, while the provider storms.

After each round, from what is durable and from the provider's truth: the position is not ahead of
the data, and no alignment attempt was opened that was not needed. At the end both sides are equal.

Run by hand for many rounds: `python -m tests.crash.rounds --rounds 200`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
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

import msgspec
from rich.progress import track

from instep import Position

INSTEP = [sys.executable, "-m", "instep"]
CONFIG = """
[[consumers]]
name = "crash"
[consumers.source]
kind = "tapi"
endpoints = ["{url}"]
[consumers.sink]
kind = "sql"
url = "sqlite:///{store}"
[consumers.settings]
reconnect_initial_s = 0.05
[consumers.settings.alignment]
quiet_s = 0.5
"""


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
    def good(self) -> bool:
        return not (self.ahead or self.needless_attempts or self.differences)


@dataclass(frozen=True)
class Truth:
    """An entity as the provider states it."""

    token: str
    appended_at_us: int
    body: object


class Site:
    """A provider in a process of its own, and the folder of the consumer's files."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.store = folder / "store.db"
        self.config = folder / "instep.toml"
        self.config.write_text(CONFIG.format(url=url, store=self.store))

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

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`instep run` with this folder's configuration."""
        with (self.folder / "stderr").open("ab") as stderr:
            return subprocess.Popen(
                [*INSTEP, "run", str(self.config), "--format", "jsonl", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            )

    def durable(self) -> tuple[dict[str, Position], dict[tuple[str, str], tuple[str, bytes]]]:
        """Positions by stream and (token, body) by stream and entity-key, as after a crash."""
        if not self.store.exists():
            return {}, {}
        with contextlib.closing(sqlite3.connect(self.store)) as raw:
            if not raw.execute("SELECT 1 FROM sqlite_master WHERE name='instep_stream'").fetchall():
                return {}, {}
            # One read transaction: positions and entities of the same moment.
            raw.execute("BEGIN")
            positions = {
                stream: msgspec.json.decode(position, type=Position)
                for stream, position in raw.execute("SELECT stream, position FROM instep_stream")
            }
            entities = {
                (stream, key): (token, body)
                for stream, key, token, body in raw.execute(
                    "SELECT s.stream, e.key, e.token, e.body FROM instep_entity e"
                    " JOIN instep_stream s ON s.id = e.stream_no"
                )
            }
        return positions, entities


def _us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000_000)


@contextlib.contextmanager
def site(*options: str) -> Iterator[Site]:
    """A provider with its control endpoint, in its own process."""
    with tempfile.TemporaryDirectory(prefix="instep-crash-") as name:
        folder = Path(name)
        ready = folder / "ready"
        command = [*INSTEP, "provider", "--control", "--ready-file", str(ready), *options]
        quiet = os.environ | {"PYTHONASYNCIODEBUG": ""}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=quiet) as provider:
            try:
                deadline_s = time.monotonic() + 30
                while not ready.exists() or not ready.read_text():
                    if provider.poll() is not None or time.monotonic() > deadline_s:
                        raise RuntimeError("the provider does not start")
                    time.sleep(0.05)
                yield Site(folder, ready.read_text().strip())
            finally:
                provider.send_signal(signal.SIGTERM)


def check_round(site: Site, report: Report) -> None:
    """Hold what is durable against the truth."""
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


def compare(site: Site, report: Report) -> None:
    """Entity by entity, with the storm over."""
    _, entities = site.durable()
    truth = site.truth()
    for place in sorted(truth.keys() | entities.keys()):
        stated = truth.get(place)
        held = entities.get(place)
        if stated is None:
            report.differences.append(f"phantom {place}")
        elif held is None:
            report.differences.append(f"missing {place}")
        elif json.loads(held[1]) != stated.body:
            report.differences.append(f"stale {place}")


def rounds(count: int, *, seed: int, storm_per_s: float, show: bool = False) -> Report:
    """Run and kill `count` times; then let it align and compare."""
    rng = random.Random(seed)
    report = Report()
    with site("--seed", str(seed), "--storm", str(storm_per_s), "--alarms", "50") as here:
        for number in track(range(count), "killing", disable=not show):
            report.rounds = number + 1
            with here.run() as consumer:
                assert consumer.stdout is not None
                if rng.random() < 0.8:
                    # Well into the storm: counted from the first event, a connection.
                    consumer.stdout.readline()
                time.sleep(rng.uniform(0.0, 0.8))
                consumer.kill()
            check_round(here, report)
            if report.ahead:
                break
        here.command("storm", changes_per_s=0)
        with here.run("--until-aligned") as consumer:
            consumer.communicate(timeout=120)
        check_round(here, report)
        if consumer.returncode != 0:
            report.differences.append(
                "the last run failed: " + (here.folder / "stderr").read_text()
            )
        compare(here, report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--storm", type=float, default=300.0, help="changes per second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    report = rounds(chosen.rounds, seed=chosen.seed, storm_per_s=chosen.storm, show=True)
    print(
        f"{report.rounds} rounds, {report.committed_records:,} records committed; "
        f"position ahead of data: {len(report.ahead)}, "
        f"needless attempts: {len(report.needless_attempts)}, "
        f"differences at the end: {len(report.differences)}"
    )
    for line in [*report.ahead, *report.needless_attempts, *report.differences][:20]:
        print(line)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
