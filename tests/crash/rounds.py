"""Kills `instep run` with SIGKILL, round after round, while the provider storms.

After each round, from what is durable and from the provider's truth: the position is not ahead of
the data, and no alignment attempt was opened that was not needed. At the end both sides are equal.

Run by hand for many rounds, on both databases: `make crash ROUNDS=500`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from rich.progress import track

from tests.crash.site_kit import Report, check_round, compare, site, store_url


def rounds(
    count: int, *, database: str, seed: int, storm_per_s: float, show: bool = False
) -> Report:
    """Run and kill `count` times; then let it align and compare."""
    rng = random.Random(seed)
    report = Report()
    options = ("--seed", str(seed), "--storm", str(storm_per_s), "--alarms", "50")
    with store_url(database) as store, site(store, *options) as here:
        for number in track(range(count), f"killing, {database}", disable=not show):
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
        report.differences += compare(here)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--database", action="append", choices=["sqlite", "postgresql"])
    parser.add_argument("--storm", type=float, default=300.0, help="changes per second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    good = True
    for database in chosen.database or ["sqlite", "postgresql"]:
        report = rounds(
            chosen.rounds,
            database=database,
            seed=chosen.seed,
            storm_per_s=chosen.storm,
            show=True,
        )
        print(f"{database}, seed {chosen.seed}: {report}", flush=True)
        for line in report.faults[:20]:
            print(line)
        good = good and not report.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
