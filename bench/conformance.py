"""What it costs a consumer that its provider is judged meanwhile (`conformance = true`).

    python -m bench.conformance [--rounds 8] [--records 60000] [--scenario update-1]

The same senders, and the product in turn without and with a judge, each run in a process of its
own. Less than 3 % of the processor time of a record may be added.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final

import msgspec

from bench.alignment.rounds import run_product, sending
from bench.report import Result
from bench.reports import rounds as device_reports
from bench.scenarios import (
    REPORT_SHARE,
    REPORTS,
    SCENARIOS,
    SEQUENCES,
    ReportScenario,
    Scenario,
    SequenceScenario,
)
from bench.sequences import rounds as sequences

__all__ = ["JUDGING_SHARE", "Judging", "main", "measure_judging"]

JUDGING_SHARE: Final = 0.03
"""Most of the processor time of a record that judging may add."""
_MEASURED: Final = ("new-1", "update-1", "storm-1", "update-50")
Run = Callable[[bool], Result]
"""A run of the product, with a judge or without."""


class Judging(msgspec.Struct, frozen=True):
    """What it costs that a peer is judged: times of the processor of a record. Other work on the
    machine only adds to a run, so that the least of all rounds counts.
    """

    scenario: str
    records: int
    bare_us: float
    """Of a record, without a judge."""
    judged_us: float
    judging_share: float
    """What the judge itself has measured of its runs: the median."""
    messages: int
    """How many were judged in a run."""

    @property
    def added_share(self) -> float:
        return self.judged_us / self.bare_us - 1

    @property
    def met(self) -> bool:
        return self.added_share < JUDGING_SHARE


def measure_judging(name: str, run: Run, rounds: int) -> Judging:
    """Run the product without and with a judge in turn, another one first each time."""
    times: dict[bool, list[float]] = {False: [], True: []}
    judged_runs: list[Result] = []
    for number in range(rounds):
        for judged in (False, True) if number % 2 else (True, False):
            result = run(judged)
            times[judged].append(result.cpu_seconds / result.records * 1e6)
            if judged:
                judged_runs.append(result)
    return Judging(
        scenario=name,
        records=judged_runs[0].records,
        bare_us=min(times[False]),
        judged_us=min(times[True]),
        judging_share=statistics.median(
            one.judging_seconds / one.cpu_seconds for one in judged_runs
        ),
        messages=round(statistics.median(one.judged for one in judged_runs)),
    )


@contextmanager
def _streaming(scenario: Scenario, records: int) -> Iterator[Run]:
    """Runs against one sender of a TAPI stream."""
    with sending(scenario, records) as (url, place):
        filled = place.named("filled")
        if scenario.prefill:
            run_product(url, filled, scenario.keys or records, scenario, "--prepare")

        def run(judged: bool) -> Result:
            store = place.named("product")
            if scenario.prefill:
                place.copy(filled, store)
            # What was saved up before the first record is spent on the first ones.
            more = ["--begins-after", str(records // 4), *["--judged"] * judged]
            result = run_product(url, store, records, scenario, *more)
            place.remove(store)
            return result

        yield run


def _runs(records: int) -> Iterator[tuple[str, AbstractContextManager[Run]]]:
    """Each scenario by its name."""
    for stream in SCENARIOS:
        if stream.name in _MEASURED:
            yield stream.name, _streaming(stream, records)
    for inbox in SEQUENCES:
        if inbox.senders:
            yield inbox.name, nullcontext(partial(_run_sequence, inbox, records))
    for device in REPORTS:
        yield device.name, nullcontext(partial(_run_reports, device, records // REPORT_SHARE))


def _run_sequence(scenario: SequenceScenario, messages: int, judged: bool) -> Result:
    return sequences.run_judged(scenario, messages, judged=judged)


def _run_reports(scenario: ReportScenario, reports: int, judged: bool) -> Result:
    return device_reports.run_judged(scenario, reports, judged=judged)


def main() -> None:
    """Measure, print a line for each scenario, and end with 1 where one costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--scenario", action="append", help="only this one; repeatable")
    given = parser.parse_args()
    met = True
    for name, opened in _runs(given.records):
        if given.scenario and name not in given.scenario:
            continue
        with opened as run:
            found = measure_judging(name, run, given.rounds)
        met = met and found.met
        print(
            f"{found.scenario}: {found.bare_us:.2f} us a record, {found.judged_us:.2f} judged,"
            f" {found.added_share:+.1%} (at most {JUDGING_SHARE:.0%}); the judge itself"
            f" {found.judging_share:.1%}; {found.messages:,} of {found.records:,} judged:"
            f" {'met' if found.met else 'not met'}",
            flush=True,
        )
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
