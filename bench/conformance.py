"""What it costs a consumer that its provider is judged meanwhile (`conformance = true`).

    python -m bench.conformance [--rounds 8] [--records 60000] [--scenario update-1]

One sender, and the product in turn without and with a judge, each run in a process of its own. Less
than 3 % of the processor time of a record may be added.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Final

import msgspec

from bench.alignment.rounds import run_product, sending
from bench.scenarios import SCENARIOS, Scenario

__all__ = ["JUDGING_SHARE", "Judging", "main", "measure_judging"]

JUDGING_SHARE: Final = 0.03
"""Most of the processor time of a record that judging may add."""
_MEASURED: Final = ("new-1", "update-1", "storm-1", "update-50")


class Judging(msgspec.Struct, frozen=True):
    """What it costs that a provider is judged: times of the processor, medians of all rounds."""

    scenario: str
    records: int
    bare_us: float
    """Of a record, without a judge."""
    judged_us: float
    added_share: float
    """The median of what a run with a judge takes more than the one beside it …"""
    judging_share: float
    """… and what the judge itself has measured of its run, which other work does not disturb."""
    messages: int
    """How many were judged in a run."""

    @property
    def met(self) -> bool:
        return self.added_share < JUDGING_SHARE


def measure_judging(scenario: Scenario, records: int, rounds: int) -> Judging:
    """Run the product without and with a judge in turn, another one first each time."""
    times: dict[bool, list[float]] = {False: [], True: []}
    messages: list[int] = []
    shares: list[float] = []
    with sending(scenario, records) as (url, place):
        filled = place.named("filled")
        if scenario.prefill:
            run_product(url, filled, scenario.keys or records, scenario, "--prepare")
        for number in range(rounds):
            for judged in (False, True) if number % 2 else (True, False):
                store = place.named("product")
                if scenario.prefill:
                    place.copy(filled, store)
                # What was saved up before the first record is spent on the first ones.
                more = ["--begins-after", str(records // 4), *["--judged"] * judged]
                result = run_product(url, store, records, scenario, *more)
                times[judged].append(result.cpu_seconds / result.records * 1e6)
                if judged:
                    messages.append(result.judged)
                    shares.append(result.judging_seconds / result.cpu_seconds)
                place.remove(store)
    added = [with_ / bare - 1 for bare, with_ in zip(times[False], times[True], strict=True)]
    return Judging(
        scenario=scenario.name,
        records=records,
        bare_us=statistics.median(times[False]),
        judged_us=statistics.median(times[True]),
        added_share=statistics.median(added),
        judging_share=statistics.median(shares),
        messages=round(statistics.median(messages)),
    )


def main() -> None:
    """Measure, print a line for each scenario, and end with 1 where one costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--scenario", action="append", choices=[one.name for one in SCENARIOS])
    given = parser.parse_args()
    met = True
    for scenario in SCENARIOS:
        if scenario.name not in (given.scenario or _MEASURED):
            continue
        found = measure_judging(scenario, given.records, given.rounds)
        met = met and found.met
        print(
            f"{found.scenario}: {found.bare_us:.2f} us a record, {found.judged_us:.2f} judged,"
            f" {found.added_share:+.1%} (at most {JUDGING_SHARE:.0%}); the judge itself"
            f" {found.judging_share:.1%}; {found.messages:,} of {found.records:,} records judged:"
            f" {'met' if found.met else 'not met'}",
            flush=True,
        )
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
