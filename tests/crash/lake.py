"""Kills what makes a lake with SIGKILL, round after round, while the provider storms, loses changes
and loses its log: `instep run`, `instep lake run`, their JVMs, and Spark's own servers.

After each round, from what another engine than Spark reads of `changes`: rows are dense, none is
there twice, and the position covers no record that is not a row. At the end every record that the
provider stated is a row once, `entities` is what it states, and `entity_history` replayed to many
moments is what it stated then.

Run by hand for many rounds: `python -m tests.crash.lake --rounds 50 --mode rust --mode spark`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.crash.lake_checks_kit import (
    RECORDS,
    check_round,
    compare_entities,
    compare_history,
    compare_progress,
    compare_rows,
    table,
)
from tests.crash.lake_processes_kit import LAKE, MODES, RETURN_S, Mode, Processes, processes
from tests.crash.lake_witness_kit import Witness, witness
from tests.crash.site_kit import Report, Site, site

KEEP_ALL = ("--compaction-delay", "12h", "--tombstone-retention", "24h")
"""Records compacted away before anybody read them are in no history."""
NETWORK = ("--services", "40", "--alarms", "60")
REWIND_RECORDS = 5
PROBED_S = 6.0
"""Less than there are alarms at any time: a redelivery from before the last record of each entity
cannot be told from a restart."""


def rounds(
    count: int,
    *,
    mode: Mode,
    seed: int,
    storm_per_s: float,
    most_s: float = float("inf"),
    keep: Path | None = None,
    show: bool = False,
) -> Report:
    """Kill `count` times, or as often as `most_s` allow; then let it align, come to the end of what
    has landed, however long that takes, and compare.

    `keep`: a folder that gets a copy of the lake where something is wrong with it.
    """
    begun_s = time.monotonic()

    def log(text: str) -> None:
        if show:
            print(f"{time.strftime('%X')} {mode} {text}", flush=True)

    rng = random.Random(seed)
    report = Report()
    killed: Counter[str] = Counter()
    forgets = 0
    options = ("--seed", str(seed), *NETWORK, *KEEP_ALL)
    with tempfile.TemporaryDirectory(prefix="instep-lake-") as name:
        lake = Path(name) / "lake"
        with (
            site(lake.as_uri(), *options) as here,
            witness(here.url) as seen,
            processes(here, mode) as running,
        ):
            here.command("faults", rewind_records=REWIND_RECORDS)
            here.command("storm", changes_per_s=storm_per_s)
            report.differences += past_rewind(here, running, attempt=1)
            while report.rounds < count and not report.faults:
                if time.monotonic() - begun_s > most_s:
                    break
                running.ensure()
                victim = running.choose(rng, report.rounds)
                if rng.random() < 0.8 and not running.moves(victim, rng):
                    report.differences.append(
                        f"{victim} did not come back: {running.stderr_tail()}"
                    )
                time.sleep(rng.uniform(0.0, 1.0))
                if not running.kill(victim):
                    continue
                report.rounds += 1
                killed[victim] += 1
                log(f"{report.rounds}: {victim}")
                check_round(here, report, 1 + forgets)
                report.differences += running.fallen
                trouble(here, rng)
                if report.rounds % 10 == 2:
                    forgets += 1
                    report.differences += lose_log(here, seen, running, rng, forgets, storm_per_s)
            for stream in seen.logged:
                here.command("recover", stream=stream)
            here.command("storm", changes_per_s=0)
            report.differences += seen.settle(here.truth)
            running.ensure()
            report.differences += running.stop()
            report.differences += running.finish("run", "--until-aligned", log=log)
            check_round(here, report, 1 + forgets)
            report.differences += compare_rows(here, seen)
            if mode != "landing":
                report.differences += running.finish(*LAKE, "--once", log=log)
                report.differences += compare_progress(here)
                report.differences += compare_entities(here, seen)
                report.differences += compare_history(here, seen, rng)
        if report.faults and keep is not None:
            shutil.copytree(name, keep / f"{mode}-{seed}")
    log(f"killed: {dict(killed)}; logs lost: {forgets}; {time.monotonic() - begun_s:.0f} s")
    return report


def trouble(here: Site, rng: random.Random) -> None:
    """Cut connections, or let a stream miss all changes for a while (ST-1.2)."""
    here.command("drop")
    if rng.random() < 0.3:
        stream = rng.choice(("alarms", "network"))
        here.command("lose", stream=stream)
        time.sleep(0.3)
        here.command("recover", stream=stream)


def lose_log(
    here: Site,
    seen: Witness,
    running: Processes,
    rng: random.Random,
    forgets: int,
    storm_per_s: float,
) -> list[str]:
    """Wait until all is landed; then remove some alarms together with the log, so that no record
    states their end.
    """
    here.command("storm", changes_per_s=0)
    if missing := seen.settle(here.truth):
        return missing
    deadline_s = time.monotonic() + RETURN_S
    while any(line.startswith("no row") for line in compare_rows(here, seen)):
        if time.monotonic() > deadline_s:
            return [f"not all is landed: {running.stderr_tail()}"]
        running.ensure()
        time.sleep(0.3)
    # A connection that ends sooner after a probe counts as ended because of it (A2).
    time.sleep(PROBED_S)
    here.command("lose", stream="alarms")
    alarms = sorted(key for stream, key in here.truth() if stream == "alarms")
    gone = rng.sample(alarms, min(3, len(alarms)))
    begin_us = time.time_ns() // 1_000
    for key in gone:
        here.command("clear", key=key)
    here.command("forget")
    here.command("drop")
    while (
        len([1 for row in table(here.store, "changes", "attempt") if row["attempt"] > forgets]) < 1
    ):
        if time.monotonic() > deadline_s:
            return [f"no attempt was opened: {running.stderr_tail()}"]
        running.ensure()
        time.sleep(0.3)
    seen.lost += [(begin_us, ("alarms", key)) for key in gone]
    here.command("storm", changes_per_s=storm_per_s)
    return past_rewind(here, running, attempt=forgets + 1)


def past_rewind(here: Site, running: Processes, attempt: int) -> list[str]:
    """Wait until each stream has landed more of its log than a redelivery goes back: one that
    begins with the oldest record cannot be told from a restart, and costs a reading of the log.
    """
    deadline_s = time.monotonic() + RETURN_S
    while True:
        rows = table(here.store, "changes", "stream", "attempt", "kind")
        read = Counter(
            row["stream"] for row in rows if row["attempt"] >= attempt and row["kind"] in RECORDS
        )
        if min(read["alarms"], read["network"]) > REWIND_RECORDS:
            return []
        if time.monotonic() > deadline_s:
            return [f"not enough is landed: {running.stderr_tail()}"]
        running.ensure()
        time.sleep(0.3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--storm", type=float, default=20.0, help="changes per second")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="most, of killing")
    parser.add_argument("--keep", type=Path, help="a folder for a lake that is wrong")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    good = True
    for mode in chosen.mode or MODES:
        report = rounds(
            chosen.rounds,
            mode=mode,
            seed=chosen.seed,
            storm_per_s=chosen.storm,
            most_s=chosen.minutes * 60,
            keep=chosen.keep,
            show=True,
        )
        print(f"{mode}, seed {chosen.seed}: {report}", flush=True)
        for line in report.faults[:20]:
            print(line)
        good = good and not report.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
