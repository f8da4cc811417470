"""A real `instep run` whose configuration changes again and again under a storm: level, pace and
guards, a stream chosen and left, a rotated secret, a consumer added and removed; every tenth file
is wrong.

The stream that never changes must keep its one connection, and be sent each record once; what the
provider says that it sent is the witness. At the end stores and provider are equal.

Run by hand for many rounds: `make reloads ROUNDS=1000`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import track

from tests.crash.site_kit import Site, site
from tests.instep.cli.test_reload import Running

SECRETS = ("first", "second")
SMALL = ("--topology", "sndlib/polska", "--services", "20", "--alarms", "20")
STORM = ("--storm", "50", "--compaction-delay", "1h")
WRONG = ("[[consumers", 'isolation = "often"', "[operations]\nlog_level = 7", "[[consumers]]")


@dataclass
class Plan:
    """What the next configuration says."""

    level: str = "warning"
    pace_s: int = 30
    guard: float = 0.5
    alarms: bool = True
    secret: str = SECRETS[0]
    west: bool = False

    def change(self, chance: random.Random) -> str:
        """Change one thing, and say which."""
        what = chance.choice(("level", "pace", "guard", "stream", "secret", "consumer"))
        match what:
            case "level":
                self.level = chance.choice(
                    [one for one in ("debug", "info", "warning", "error") if one != self.level]
                )
            case "pace":
                self.pace_s += 1
            case "guard":
                self.guard = 0.75 - self.guard
            case "stream":
                self.alarms = not self.alarms
            case "secret":
                self.secret = SECRETS[self.secret == SECRETS[0]]
            case "consumer":
                self.west = not self.west
        return what

    def write(self, running: Running, west: str) -> None:
        streams = '"network", "alarms"' if self.alarms else '"network"'
        auth = f'auth = {{ kind = "bearer", token = "{self.secret}" }},'
        parts = {
            "source": f"streams = {{ ids = [{streams}] }}, {auth}",
            "settings": f"reconnect_max_s = {self.pace_s}",
            "alignment": f"sweep_guard_share = {self.guard}",
        }
        consumers = [running.consumer("east", **parts)]
        if self.west:
            consumers.append(running.consumer("west", source=auth).replace(running.url, west))
        running.write(*consumers, operations=f'log_level = "{self.level}"')


@dataclass
class ReloadReport:
    """What the rounds showed. There must be no fault."""

    changes: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    records: int = 0
    """Of the stream that never changes."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        changes = ", ".join(f"{count} {what}" for what, count in sorted(self.changes.items()))
        return (
            f"{self.changes.total()} reloads ({changes}), {self.refused} wrong files refused;"
            f" {self.records:,} records of the stream that stays; faults: {len(self.faults)}"
        )


def counters(at: Site) -> dict[str, dict[str, Any]]:
    with urllib.request.urlopen(f"{at.url}/_instep/counters", timeout=30) as answer:
        found: dict[str, dict[str, Any]] = json.load(answer)
    return found


@contextmanager
def controllers() -> Iterator[tuple[Site, Site]]:
    """Two providers, each of which takes both secrets."""
    tokens = [word for one in SECRETS for word in ("--token", one)]
    with (
        site("", *SMALL, *STORM, *tokens) as east,
        site("", *SMALL, "--storm", "5", *tokens) as west,
    ):
        yield east, west


def reload_rounds(rounds: int, seed: int, folder: Path) -> ReloadReport:
    """So many reloads of one process; every tenth beside them is wrong."""
    chance, report, plan = random.Random(seed), ReloadReport(), Plan()
    with controllers() as (east, west):
        running = Running(folder, east.url)
        plan.write(running, west.url)
        running.start()
        try:
            running.aligned("east")
            for number in track(range(rounds), "reloads", disable=not sys.stderr.isatty()):
                if number % 10 == 9:
                    running.file.write_text(chance.choice(WRONG))
                    running.reload("reload-refused")
                    report.refused += 1
                report.changes[plan.change(chance)] += 1
                plan.write(running, west.url)
                text = running.reload()
                if "restart" in text:
                    report.faults.append(f"a restart is asked for: {text}")
            _check(running, plan, east, west, report)
        finally:
            running.stop()
    return report


def _check(running: Running, plan: Plan, east: Site, west: Site, report: ReloadReport) -> None:
    """End the storm, follow everything, and compare."""
    for one in (east, west):
        one.command("storm", changes_per_s=0)
    plan.alarms = plan.west = True
    plan.write(running, west.url)
    running.reload()
    for name, of in (("east", east), ("west", west)):
        store = Site(running.folder, of.url, f"sqlite:///{running.folder}/{name}.db")
        report.faults += [f"{name}: {one}" for one in _differences(store)]
    positions = Site(running.folder, east.url, f"sqlite:///{running.folder}/east.db").durable()[0]
    report.records = positions["network"].records
    told = counters(east)["network"]
    if told["connections"] != 1:
        report.faults.append(f"the stream that stays was opened {told['connections']} times")
    if told["records_sent"] != report.records:
        report.faults.append(f"{told['records_sent']:,} records sent, {report.records:,} committed")
    for stream, position in positions.items():
        if position.attempt != 1:
            report.faults.append(f"{stream} is at attempt {position.attempt}")
    wrong = running.events("east", "redelivered", "failed", "stream-failed", "lost")
    report.faults += [f"{one['event']}: {one['text']}" for one in wrong]


def _differences(of: Site) -> list[str]:
    """What the store lacks or has too much, once it has had the time to come to the end."""
    until_s = time.monotonic() + 60
    while True:
        truth = {key: one.token for key, one in of.truth().items()}
        stored = {key: token for key, (token, _) in of.durable()[1].items()}
        if truth == stored or time.monotonic() > until_s:
            return [str(key) for key in sorted(truth.items() ^ stored.items())]
        time.sleep(0.1)


def main() -> None:
    """Reload by the command line; end with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="instep-reloads-") as folder:
        report = reload_rounds(arguments.rounds, arguments.seed, Path(folder))
    print(f"seed {arguments.seed}: {report}")
    for fault in report.faults:
        print(f"  {fault}")
    if report.faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
