"""What it costs a consumer that its provider is judged meanwhile (`conformance = true`).

    python -m bench.conformance [--pairs 15] [--records 20000] [--scenario update-1]
    python -m bench.conformance --instructions [--records 5000]

The same senders, and the product in turn without and with a judge, each run in a process of its
own. Less than 3 % of the processor time of a record may be added: the median of pairs of runs, each
of one without and one with a judge. Other work on the machine adds to a run and takes its caches,
so that this needs many pairs. `--instructions` counts instructions instead, by callgrind (of
valgrind), which other work changes by nothing: one pair is enough. Where many senders wait for one
commit, runs differ by more than that in how many messages a commit has, counted or timed: for them
the first line says what a message costs that is not judged, and the judging itself is bounded.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench.alignment import rounds as streams
from bench.report import Counting, Result
from bench.reports import rounds as device_reports
from bench.scenarios import REPORT_SHARE, REPORTS, SCENARIOS, SEQUENCES, Scenario
from bench.sequences import rounds as sequences
from instep.conformance import JudgingBudget, LiveJudge, MeteredRecorder
from instep_didcomm.conformance import didcomm_rules

__all__ = ["JUDGING_SHARE", "Judging", "main", "measure_judging", "passed_over_us"]

JUDGING_SHARE: Final = 0.03
"""Most of the processor time of a record that judging may add."""
_MEASURED: Final = ("new-1", "update-1", "storm-1", "update-50", "journal-storm")
_INBOX_SHARE: Final = 4
"""A run has a message for so many records: each takes as long."""
_SENDERS: Final = 10
"""Under callgrind a process is too slow for a hundred: it would let them go as being idle."""
Run = Callable[..., Result]
"""A run of the product; given more of its options."""


class Judging(msgspec.Struct, frozen=True):
    """What it costs that a peer is judged, a record: microseconds of the processor, or thousands of
    instructions. The median of all pairs.
    """

    scenario: str
    unit: str
    records: int
    bare: float
    """Of a record, without a judge."""
    added_share: float
    judging_share: float
    """What the judge itself has measured of its runs: the median."""
    messages: int
    """How many were judged in a run."""

    @property
    def met(self) -> bool:
        return self.added_share < JUDGING_SHARE


def measure_judging(name: str, run: Run, pairs: int, *, instructions: bool = False) -> Judging:
    """Run the product without and with a judge in turn, another one first each time."""
    costs: dict[bool, list[float]] = {False: [], True: []}
    judged_runs: list[Result] = []
    for number in range(pairs):
        for judged in (False, True) if number % 2 else (True, False):
            result, cost = (_counted if instructions else _timed)(run, *["--judged"] * judged)
            costs[judged].append(cost)
            if judged:
                judged_runs.append(result)
    return Judging(
        scenario=name,
        unit="thousand instructions" if instructions else "us",
        records=judged_runs[0].records,
        bare=statistics.median(costs[False]),
        added_share=statistics.median(
            judged / bare - 1 for bare, judged in zip(costs[False], costs[True], strict=True)
        ),
        judging_share=statistics.median(
            one.judging_seconds / one.cpu_seconds for one in judged_runs
        ),
        messages=round(statistics.median(one.judged for one in judged_runs)),
    )


def _timed(run: Run, *more: str) -> tuple[Result, float]:
    result = run(*more)
    return result, result.cpu_seconds / result.records * 1e6


def _counted(run: Run, *more: str) -> tuple[Result, float]:
    with tempfile.TemporaryDirectory(prefix="instep-bench-") as folder:
        file = Path(folder) / "callgrind.out"
        result = run(*more, "--count-into", str(file))
        return result, Counting.read(file) / result.records / 1e3


@contextmanager
def _streaming(scenario: Scenario, records: int) -> Iterator[Run]:
    """Runs against one sender of a TAPI stream."""
    with streams.sending(scenario, records) as (url, place):
        filled = place.named("filled")
        if scenario.prefill:
            streams.run_product(url, filled, scenario.keys or records, scenario, "--prepare")

        def run(*more: str) -> Result:
            store = place.named("product")
            if scenario.prefill:
                place.copy(filled, store)
            result = streams.run_product(url, store, records, scenario, *more)
            place.remove(store)
            return result

        yield run


def passed_over_us(messages: int = 200_000) -> float:
    """Microseconds of the processor that a message costs more that there is no time to judge."""
    budget = JudgingBudget(time.process_time, time.perf_counter)
    budget.spend(budget.most_s * 1_000)
    judge = LiveJudge(didcomm_rules(), "", budget, lambda *_: None)
    recorder = MeteredRecorder(judge.take, judge.room, lambda: 0)
    began_s = time.process_time()
    for _ in range(messages):
        if recorder.takes_next():
            raise SystemExit("a message was judged")
        if judge.waits:
            judge.step()
    return (time.process_time() - began_s) / messages * 1e6


def _runs(records: int) -> Iterator[tuple[str, AbstractContextManager[Run]]]:
    """Each scenario by its name."""
    for stream in SCENARIOS:
        if stream.name in _MEASURED:
            yield stream.name, _streaming(stream, records)
    for inbox in SEQUENCES:
        if inbox.senders:
            messages = records // _INBOX_SHARE
            fewer = msgspec.structs.replace(inbox, senders=_SENDERS)
            yield inbox.name, nullcontext(partial(sequences.run_product, fewer, messages))
    for device in REPORTS:
        reports = records // REPORT_SHARE
        yield device.name, nullcontext(partial(device_reports.run_product, device, reports))


def main() -> None:
    """Measure, print a line for each scenario, and end with 1 where one costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=0, help="of runs; default: 15, counted: 1")
    parser.add_argument("--records", type=int, default=0, help="default: 20,000, counted: 5,000")
    parser.add_argument("--scenario", action="append", help="only this one; repeatable")
    parser.add_argument("--instructions", action="store_true", help="count them, by callgrind")
    given = parser.parse_args()
    pairs = given.pairs or (1 if given.instructions else 15)
    met = True
    print(f"a message that is not judged costs {passed_over_us():.2f} us more", flush=True)
    for name, opened in _runs(given.records or (5_000 if given.instructions else 20_000)):
        if given.scenario and name not in given.scenario:
            continue
        with opened as run:
            found = measure_judging(name, run, pairs, instructions=given.instructions)
        met = met and found.met
        print(
            f"{found.scenario}: {found.bare:.2f} {found.unit} a record, judged"
            f" {found.added_share:+.1%} (at most {JUDGING_SHARE:.0%}); the judge itself"
            f" {found.judging_share:.1%}; {found.messages:,} of {found.records:,} judged:"
            f" {'met' if found.met else 'not met'}",
            flush=True,
        )
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
