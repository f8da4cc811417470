"""Kills `instep run` into a lake with SIGKILL, round after round, while the provider storms; with
the Spark writer its JVM, too.

After each round, from what another engine reads of `changes`: rows are dense, none is there twice,
and the position covers no record that is not a row. At the end what the rows say is what the
provider states.

Run by hand for many rounds: `python -m tests.crash.lake --rounds 50`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable
from rich.progress import track

from instep import Position
from tests.crash.site import INSTEP, Report, Site, site

CONFIG = """
[[consumers]]
name = "crash"
[consumers.source]
kind = "tapi"
endpoints = ["{url}"]
[consumers.sink]
kind = "delta"
url = "{lake}"
writer = "{writer}"
commit_interval_s = {interval_s}
compact_every_commits = 10
{spark}
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 1.0
[consumers.settings.alignment]
quiet_s = 0.5
"""
SPARK = """
spark = { master = "local[1]", config = { "spark.sql.shuffle.partitions" = "1" } }
"""
RECORDS = ("CREATE_UPDATE", "DELETE", "TOMBSTONE")


@contextmanager
def running(here: Site, writer: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    config = here.folder / "instep.toml"
    config.write_text(
        CONFIG.format(
            url=here.url,
            lake=here.store,
            writer=writer,
            interval_s=0.05 if writer == "rust" else 0.5,
            spark=SPARK if writer == "spark" else "",
        )
    )
    with (here.folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            [*INSTEP, "run", str(config), "--format", "jsonl", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {"PYTHONASYNCIODEBUG": ""},
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def landed(lake: str) -> list[dict[str, Any]]:
    """All rows of `changes`, as delta-rs reads them, in order."""
    if not DeltaTable.is_deltatable(f"{lake}/changes"):
        return []
    rows = DeltaTable(f"{lake}/changes").to_pyarrow_table().sort_by("ordinal")
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def check(here: Site, report: Report) -> dict[tuple[str, str], dict[str, Any]]:
    """Hold the rows against themselves and the truth; the newest row of each entity."""
    rows = landed(here.store)
    truth = here.truth()
    last = {row["stream"]: row for row in rows}
    at = f"round {report.rounds}"
    for stream, row in last.items():
        own = [one for one in rows if one["stream"] == stream]
        if [one["ordinal"] for one in own] != list(range(1, len(own) + 1)):
            report.ahead.append(f"{at}: {stream}: the ordinals are not dense")
        if row["position"] is None:
            report.ahead.append(f"{at}: {stream}: the last row has no position")
    names = ("stream", "attempt", "partition", "record_offset", "key", "kind", "token", "body")
    copies = Counter(tuple(row[name] for name in names) for row in rows if row["kind"] in RECORDS)
    report.ahead += [f"{at}: {row[4]} {times} times" for row, times in copies.items() if times > 1]
    positions = {
        stream: msgspec.json.decode(row["position"], type=Position) for stream, row in last.items()
    }
    newest = {(row["stream"], row["key"]): row for row in rows if row["kind"] in RECORDS}
    for (stream, key), stated in truth.items():
        position = positions.get(stream)
        if position is None or stated.appended_at_us >= position.appended_at_us:
            continue
        held = newest.get((stream, key))
        if held is None or held["token"] != stated.token:
            report.ahead.append(f"{at}: {stream} {key}: {held and held['token']} for {stated}")
    for stream, position in positions.items():
        count = sum(row["stream"] == stream and row["kind"] in RECORDS for row in rows)
        # A record that came again is counted by the position and is no second row.
        if not 0 <= position.records - count <= report.rounds + 1:
            report.ahead.append(f"{at}: {stream}: {count} rows of {position.records} records")
        if position.attempt > 1:
            report.needless_attempts.append(f"{at}: {stream}: attempt {position.attempt}")
    report.committed_records = sum(position.records for position in positions.values())
    return newest


def compare(here: Site, newest: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """Entity by entity, with the storm over."""
    truth = here.truth()
    held = {place: row for place, row in newest.items() if not row["ends"]}
    found = [f"phantom {place}" for place in held.keys() - truth.keys()]
    found += [f"missing {place}" for place in truth.keys() - held.keys()]
    found += [
        f"stale {place}"
        for place in truth.keys() & held.keys()
        if json.loads(held[place]["body"]) != truth[place].body
    ]
    return found


def children(pid: int) -> list[int]:
    """The processes that a process started, on Linux."""
    with suppress(OSError):
        return [
            int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ] + [
            int(one)
            for task in Path(f"/proc/{pid}/task").iterdir()
            if task.name != str(pid)
            for one in (task / "children").read_text().split()
        ]
    return []


def rounds(count: int, *, writer: str, seed: int, storm_per_s: float, show: bool = False) -> Report:
    """Run and kill `count` times; then let it align and compare."""
    rng = random.Random(seed)
    report = Report()
    options = ("--seed", str(seed), "--storm", str(storm_per_s), "--alarms", "50")
    with tempfile.TemporaryDirectory(prefix="instep-lake-") as name:
        lake = (Path(name) / "lake").as_uri()
        with site(lake, *options) as here:
            for number in track(range(count), f"killing, {writer}", disable=not show):
                report.rounds = number + 1
                with running(here, writer) as consumer:
                    assert consumer.stdout is not None
                    if rng.random() < 0.8 or writer == "spark":
                        consumer.stdout.readline()
                    time.sleep(rng.uniform(0.0, 0.8 if writer == "rust" else 8.0))
                    if writer == "spark" and number % 2:
                        # The consumer itself goes on, with a new JVM.
                        for child in children(consumer.pid):
                            with suppress(ProcessLookupError):
                                os.kill(child, signal.SIGKILL)
                        before = len(landed(lake))
                        until_s = time.monotonic() + 90
                        while len(landed(lake)) <= before and time.monotonic() < until_s:
                            time.sleep(0.5)
                        if len(landed(lake)) <= before:
                            report.differences.append("no row came after the JVM was killed")
                check(here, report)
                if report.faults:
                    break
            here.command("storm", changes_per_s=0)
            with running(here, writer, "--until-aligned") as consumer:
                consumer.communicate(timeout=180)
            newest = check(here, report)
            if consumer.returncode != 0:
                told = (here.folder / "stderr").read_text()
                report.differences.append(f"the last run failed: {told[-2_000:]}")
            report.differences += compare(here, newest)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--writer", action="append", choices=["rust", "spark"])
    parser.add_argument("--storm", type=float, default=300.0, help="changes per second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    good = True
    for writer in chosen.writer or ["rust"]:
        report = rounds(
            chosen.rounds, writer=writer, seed=chosen.seed, storm_per_s=chosen.storm, show=True
        )
        print(f"{writer}, seed {chosen.seed}: {report}", flush=True)
        for line in report.faults[:20]:
            print(line)
        good = good and not report.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
