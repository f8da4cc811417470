"""`python -m bench`: measures the product beside the floor and prints a table or JSON lines."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from bench.alignment.rounds import measure, measure_memory
from bench.comparison import Measured, Memory
from bench.reports.reading import Reading
from bench.reports.rounds import MeasuredMdib, measure_mdib, measure_reports
from bench.scenarios import (
    MDIB,
    MEMORY,
    REPORT_SHARE,
    REPORTS,
    SCENARIOS,
    SEQUENCES,
    MdibScenario,
    ReportScenario,
    Scenario,
    SequenceScenario,
)
from bench.sequences.rounds import measure_sequence

_MIB = 1 << 20

_AnyScenario = Scenario | SequenceScenario | ReportScenario | MdibScenario
_Result = Measured | Memory | MeasuredMdib


class Format(StrEnum):
    TABLE = "table"
    JSONL = "jsonl"


def main(
    records: Annotated[int, typer.Option(min=1, help="Records of each run.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of floor and product each.")] = 5,
    memory_records: Annotated[
        int, typer.Option(min=1, help="Records of the run whose memory is watched.")
    ] = 1_000_000,
    scenario: Annotated[
        list[str] | None, typer.Option(help="Only these (may be repeated); default all.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,  # noqa: A002
    strict: Annotated[bool, typer.Option(help="Exit 1 when a target is missed.")] = False,
) -> None:
    """Measure records/s from socket to committed rows beside the floor: TR-548 alarms of
    1.3 KB; then messages/s of numbered sequences, and reports/s of a BICEPS device. Ratios can be
    compared between machines, records/s cannot.
    """
    known: list[_AnyScenario] = [*SCENARIOS, *SEQUENCES, *REPORTS, MDIB, MEMORY]
    names = [each.name for each in known]
    for name in scenario or ():
        if name not in names:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(names)}")
    results: list[_Result] = []
    console = Console(stderr=True)
    for each in known:
        if scenario and each.name not in scenario:
            continue
        with console.status(each.text):
            result = _measured(each, records, rounds, memory_records)
        results.append(result)
        if format is Format.JSONL:
            print(msgspec.json.encode(result).decode(), flush=True)
    if format is Format.TABLE:
        _print(results)
    if strict and not all(result.met for result in results):
        raise typer.Exit(1)


def _measured(scenario: _AnyScenario, records: int, rounds: int, memory_records: int) -> _Result:
    if isinstance(scenario, MdibScenario):
        return measure_mdib(scenario, rounds)
    if isinstance(scenario, ReportScenario):
        return measure_reports(scenario, max(1, records // REPORT_SHARE), rounds)
    if isinstance(scenario, SequenceScenario):
        return measure_sequence(scenario, records, rounds)
    if scenario is MEMORY:
        return measure_memory(scenario, memory_records)
    return measure(scenario, records, rounds)


def _print(results: list[_Result]) -> None:
    console = Console()
    sequences = {each.name for each in SEQUENCES}
    reports = {each.name for each in REPORTS}
    speeds = [result for result in results if isinstance(result, Measured)]
    _print_speeds(
        console,
        "Records/s from socket to committed rows",
        [result for result in speeds if result.scenario not in sequences | reports],
    )
    _print_speeds(
        console,
        "Messages/s of numbered sequences",
        [result for result in speeds if result.scenario in sequences],
    )
    _print_speeds(
        console,
        "Reports/s of a BICEPS device",
        [result for result in speeds if result.scenario in reports],
    )
    for result in results:
        if isinstance(result, MeasuredMdib):
            console.print(
                f"{result.text}, {result.product.entities:,} entities: {_shown(result.product)}; "
                f"the floor {_shown(result.floor)}: {'met' if result.met else '[red]not met'}",
                soft_wrap=True,
            )
        if isinstance(result, Memory):
            first, last, peak = (
                f"{size / _MIB:.0f} MiB"
                for size in (result.first_bytes, result.last_bytes, result.peak_bytes)
            )
            console.print(
                f"Memory over {result.records:,} records ({result.text}, "
                f"{result.records_per_s:,}/s): {first} when warm, {last} at the end, {peak} at "
                f"most: {'flat' if result.met else '[red]not flat'}",
                soft_wrap=True,
            )


def _shown(reading: Reading) -> str:
    return (
        f"{reading.seconds:.2f} s, {reading.peak_bytes / _MIB:.0f} MiB at most, longest stall "
        f"{reading.longest_stall_s * 1e3:.0f} ms"
    )


def _print_speeds(console: Console, title: str, results: list[Measured]) -> None:
    speeds = Table(title=title)
    for name in ("scenario", "load"):
        speeds.add_column(name)
    for name in ("floor", "product", "ratio", "target", "met"):
        speeds.add_column(name, justify="right")
    for result in results:
        speeds.add_row(
            result.scenario,
            result.text,
            f"{result.floor_records_per_s:,}",
            f"{result.product_records_per_s:,}",
            f"{result.ratio:.2f}",
            f"{result.target:.2f}",
            "yes" if result.met else "[red]no",
        )
    if results:
        console.print(speeds)


if __name__ == "__main__":
    typer.run(main)
