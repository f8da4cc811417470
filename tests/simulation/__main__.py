"""Runs seeds: `make simulate SEEDS=n` the first n, `make simulate SEED=n` one, with its trace."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.alignment.simulation import SeedFailedError, SeedResult, simulate
from tests.simulation.seeds import run_all, run_seed, run_sequences

_REPORT_EVERY_S = 10.0


def report(done: list[SeedResult], failures: int, real_s: float) -> str:
    virtual_h = sum(outcome.virtual_s for outcome in done) / 3600
    commits = sum(outcome.commits for outcome in done)
    swept = sum(outcome.swept for outcome in done)
    seeds = len(done) + failures
    return (
        f"{seeds:,} seeds, {failures} failed; {virtual_h:,.1f} virtual hours, {commits:,} commits, "
        f"{swept:,} entities swept in {real_s:,.1f} s: {seeds / real_s:.1f} seeds/s, "
        f"{virtual_h / real_s:.2f} virtual hours per real second"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: one line an event")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--sequences", type=int, default=100, help="seeds of the numbered sequences, beside these"
    )
    given = parser.parse_args()
    if given.seed is not None:
        try:
            print(simulate(given.seed, report=print if given.trace else None))
        except SeedFailedError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    done: list[SeedResult] = []
    failures = 0
    began_s = reported_s = time.perf_counter()
    seeds = range(given.first, given.first + given.seeds)
    for outcome in run_all(run_seed, seeds, given.processes):
        if isinstance(outcome, str):
            failures += 1
            print(outcome, file=sys.stderr, flush=True)
        else:
            done.append(outcome)
        if time.perf_counter() - reported_s > _REPORT_EVERY_S:
            reported_s = time.perf_counter()
            print(report(done, failures, reported_s - began_s), flush=True)
    print(report(done, failures, time.perf_counter() - began_s))
    failures += sequences(range(given.first, given.first + given.sequences), given.processes)
    return 1 if failures else 0


def sequences(seeds: range, processes: int) -> int:
    """Run seeds of the numbered sequences; how many failed."""
    failures = 0
    began_s = reported_s = time.perf_counter()
    for done, failure in enumerate(run_all(run_sequences, seeds, processes), start=1):
        if failure:
            failures += 1
            print(f"sequences: {failure}", file=sys.stderr, flush=True)
        if time.perf_counter() - reported_s > _REPORT_EVERY_S or done == len(seeds):
            reported_s = time.perf_counter()
            text = (
                f"{done:,} seeds of sequences, {failures} failed, in {reported_s - began_s:,.1f} s"
            )
            print(text, flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
