"""Runs seeds: `make simulate SEEDS=n` the first n, `make simulate SEED=n` one, with its trace."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.simulation.alignment.simulation import SeedFailedError, SeedResult, simulate
from tests.simulation.sdpi.simulation import simulate_sdpi
from tests.simulation.seeds import (
    run_all,
    run_endings,
    run_numbered,
    run_sdpi,
    run_seed,
    run_seed_of_2_6,
    run_sequences,
    run_soap,
)
from tests.simulation.sequenced_feed.simulation import NumberedFailedError, simulate_numbered

_REPORT_EVERY_S = 10.0


def report(done: list[SeedResult], failures: int, real_s: float) -> str:
    virtual_h = sum(outcome.virtual_s for outcome in done) / 3600
    commits = sum(outcome.commits for outcome in done)
    swept = sum(outcome.swept for outcome in done)
    seeds = len(done) + failures
    processor_s = sum(outcome.processor_s for outcome in done)
    return (
        f"{seeds:,} seeds, {failures} failed; {virtual_h:,.1f} virtual hours, {commits:,} commits, "
        f"{swept:,} entities swept in {real_s:,.1f} s: {seeds / real_s:.1f} seeds/s, "
        f"{virtual_h / real_s:.2f} virtual hours per real second; "
        f"{len(done) / max(processor_s, 0.001):.2f} seeds per second of processor time"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: one line an event")
    parser.add_argument(
        "--tapi", choices=("2.1.3", "2.6"), default="2.1.3", help="what the provider speaks"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--sequences", type=int, default=100, help="seeds of the numbered sequences, beside these"
    )
    parser.add_argument(
        "--endings", type=int, default=100, help="seeds of numbers that end in every way"
    )
    parser.add_argument(
        "--sequenced-feeds",
        type=int,
        default=0,
        help="seeds of the numbered entities, beside these",
    )
    parser.add_argument(
        "--soap", type=int, default=100, help="seeds of the SOAP protocols, beside these"
    )
    parser.add_argument(
        "--sdpi", type=int, default=100, help="seeds of the reports of a device, beside these"
    )
    parser.add_argument("--sequenced-feed-seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--sdpi-seed", type=int, help="this one alone, with its trace")
    given = parser.parse_args()
    for alone, simulate_it in (
        (given.sequenced_feed_seed, simulate_numbered),
        (given.sdpi_seed, simulate_sdpi),
    ):
        if alone is None:
            continue
        try:
            print(simulate_it(alone, report=print))
        except NumberedFailedError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    if given.seed is not None:
        try:
            report_line = print if given.trace else None
            print(simulate(given.seed, report=report_line, tapi_2_6=given.tapi == "2.6"))
        except SeedFailedError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    done: list[SeedResult] = []
    failures = 0
    began_s = reported_s = time.perf_counter()
    seeds = range(given.first, given.first + given.seeds)
    run_one = run_seed_of_2_6 if given.tapi == "2.6" else run_seed
    stopped = False
    try:
        for outcome in run_all(run_one, seeds, given.processes):
            if isinstance(outcome, str):
                failures += 1
                print(outcome, file=sys.stderr, flush=True)
            else:
                done.append(outcome)
            if time.perf_counter() - reported_s > _REPORT_EVERY_S:
                reported_s = time.perf_counter()
                print(report(done, failures, reported_s - began_s), flush=True)
    except KeyboardInterrupt:
        stopped = True  # what was run is told all the same
    print(report(done, failures, time.perf_counter() - began_s))
    counts = sum((Counter(one.counts) for one in done), Counter[str]())
    print("; ".join(f"{kind}: {count:,}" for kind, count in sorted(counts.items())))
    if stopped:
        return 1
    for run, name, count in (
        (run_sequences, "sequences", given.sequences),
        (run_endings, "ends of numbers", given.endings),
        (run_soap, "SOAP protocols", given.soap),
        (run_numbered, "numbered entities", given.sequenced_feeds),
        (run_sdpi, "reports of a device", given.sdpi),
    ):
        seeds = range(given.first, given.first + count)
        failures += run_others(run, name, seeds, given.processes)
    return 1 if failures else 0


def run_others(run: Callable[[int], str], name: str, seeds: range, processes: int) -> int:
    """Run seeds of another simulation; how many failed."""
    failures = 0
    began_s = reported_s = time.perf_counter()
    for done, failure in enumerate(run_all(run, seeds, processes), start=1):
        if failure:
            failures += 1
            print(f"{name}: {failure}", file=sys.stderr, flush=True)
        if time.perf_counter() - reported_s > _REPORT_EVERY_S or done == len(seeds):
            reported_s = time.perf_counter()
            took_s = reported_s - began_s
            text = f"{done:,} seeds of {name}, {failures} failed, in {took_s:,.1f} s"
            print(text, flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
