"""Runs floor and product alternating, each in a process of its own, with a device beside them."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Final

import msgspec

from bench.comparison import Measured, compared
from bench.report import Result, Spent
from bench.reports import floor, product
from bench.reports.reading import Reading
from bench.scenarios import RATIO_TARGET, MdibScenario, ReportScenario

__all__ = ["MeasuredMdib", "measure_mdib", "measure_reports", "run_product"]

_ROOT: Final = Path(__file__).parents[2]
_RUN_S: Final = 600
_SIDES: Final = ("floor", "product")
_TABLES: Final = {"floor": floor.TABLE, "product": product.TABLE}


class MeasuredMdib(msgspec.Struct, frozen=True):
    """An MDIB that was read in all rounds. Seconds and bytes are medians; a stall is the longest of
    all rounds.
    """

    scenario: str
    text: str
    rounds: int
    floor: Reading
    product: Reading
    target_s: float
    """The longest stall of the product's event loop that is accepted."""
    met: bool


def measure_reports(scenario: ReportScenario, reports: int, rounds: int) -> Measured:
    """Alternate floor and product; the order changes each round."""
    rates: dict[str, list[float]] = {side: [] for side in _SIDES}
    for number in range(rounds):
        for side in sorted(_SIDES, reverse=bool(number % 2)):
            _, result = _run(side, scenario.metrics, scenario.states, reports)
            rates[side].append(result.records_per_s)
    return compared(scenario.name, scenario.text, reports, rates, RATIO_TARGET)


def measure_mdib(scenario: MdibScenario, rounds: int) -> MeasuredMdib:
    """Alternate floor and product; the order changes each round."""
    read: dict[str, list[Reading]] = {side: [] for side in _SIDES}
    for number in range(rounds):
        for side in sorted(_SIDES, reverse=bool(number % 2)):
            reading, _ = _run(side, scenario.metrics, 1, 1)
            read[side].append(reading)
    both = {side: _median(readings) for side, readings in read.items()}
    return MeasuredMdib(
        scenario=scenario.name,
        text=scenario.text,
        rounds=rounds,
        **both,
        target_s=scenario.longest_stall_s,
        met=both["product"].longest_stall_s <= scenario.longest_stall_s,
    )


def _median(readings: list[Reading]) -> Reading:
    return Reading(
        readings[0].entities,
        median(one.seconds for one in readings),
        round(median(one.peak_bytes for one in readings)),
        max(one.longest_stall_s for one in readings),
    )


def run_product(scenario: ReportScenario, reports: int, *more: str) -> Result:
    """One run of the product."""
    return _run("product", scenario.metrics, scenario.states, reports, *more)[1]


def _run(side: str, metrics: int, states: int, reports: int, *more: str) -> tuple[Reading, Result]:
    """One side reads the MDIB, and then receives reports."""
    sizes = ["--reports", str(reports), "--states", str(states), "--metrics", str(metrics)]
    with (
        tempfile.TemporaryDirectory(prefix="instep-bench-") as folder,
        _process("sender", *sizes) as (sender, told, tell),
    ):
        store = Path(folder) / "store.db"
        url = told.readline().strip()
        with _process(side, "--url", url, "--store", str(store), *more) as (process, says, _):
            reading = msgspec.json.decode(says.readline(), type=Reading)
            tell.write("send\n")
            tell.flush()
            result = msgspec.json.decode(told.readline(), type=Result)
            process.send_signal(signal.SIGTERM)
            spent_text = says.read()
            if process.wait(60):
                raise SystemExit(f"the {side} ended with {process.returncode}")
        tell.write("end\n")
        tell.flush()
        sender.wait(60)
        with closing(sqlite3.connect(store)) as raw:
            (kept,) = raw.execute(f"SELECT count(*) FROM {_TABLES[side]}").fetchone()
    if kept != reading.entities:
        raise SystemExit(f"{reading.entities:,} entities were read and {kept:,} are stored")
    if not spent_text:
        return reading, result
    spent = msgspec.json.decode(spent_text, type=Spent)
    return reading, msgspec.structs.replace(result, **msgspec.to_builtins(spent))


@contextmanager
def _process(
    program: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A program with its output and its input."""
    command = [sys.executable, "-m", f"bench.reports.{program}", *arguments]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, process.stdout, process.stdin
        finally:
            process.kill()
