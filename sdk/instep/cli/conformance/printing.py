"""Prints a report of conformance: for people, as JSON, as JUnit XML, as a page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from instep.cli.conformance.junit import junit
from instep.cli.conformance.page import page
from instep.cli.output import json_line, plain, stamp
from instep.conformance import ConformanceReport, RuleResult, RuleStatus
from instep.errors import ConfigurationError
from instep.model.durations import duration

__all__ = [
    "HtmlOption",
    "JunitOption",
    "ReportFormat",
    "ReportFormatOption",
    "facts",
    "print_report",
]

_SHOWN_BYTES: Final = 400
_MARKS: Final = {
    RuleStatus.HELD: "✓ held",
    RuleStatus.BROKEN: "✗ broken",
    RuleStatus.NOT_SEEN: "· not seen",
}
_STYLES: Final = {
    RuleStatus.HELD: "green",
    RuleStatus.BROKEN: "bold red",
    RuleStatus.NOT_SEEN: "dim",
}


class ReportFormat(StrEnum):
    """How a report is printed."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    HTML = "html"


ReportFormatOption = Annotated[
    ReportFormat,
    typer.Option("--format", help="A table for people, one JSON object, JUnit XML, or a page."),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the page there as well.", dir_okay=False),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write JUnit XML there as well.", dir_okay=False),
]


def print_report(
    report: ConformanceReport,
    output: ReportFormat = ReportFormat.TABLE,
    *,
    html_file: Path | None = None,
    junit_file: Path | None = None,
) -> None:
    """Print a report, and write its files. Ends the command with 1 where a MUST is broken, or where
    nothing was seen.
    """
    for path, render in ((html_file, page), (junit_file, junit)):
        if path is not None:
            try:
                path.write_text(render(report), encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(
                    f"cannot be written: {error.strerror}", where=str(path)
                ) from error
    match output:
        case ReportFormat.JSON:
            json_line(facts(report))
        case ReportFormat.JUNIT:
            typer.echo(junit(report))
        case ReportFormat.HTML:
            typer.echo(page(report))
        case _:
            _print(report)
    if not (report.conforms and report.judged):
        raise typer.Exit(1)


def facts(report: ConformanceReport) -> dict[str, Any]:
    """A report as JSON has it."""
    return {
        "protocol": report.protocol,
        "subject": report.subject,
        "edition": report.edition,
        "conforms": report.conforms if report.judged else None,
        "began_at": stamp(report.began_at_us),
        "ended_at": stamp(report.ended_at_us),
        "connections": report.connections,
        "messages": report.messages,
        "all_judged": not report.skipped,
        "messages_unjudged": report.messages_skipped,
        "notes": list(report.notes),
        "rules": [_facts_of(one) for one in report.results],
    }


def _facts_of(result: RuleResult) -> dict[str, Any]:
    return {
        "rule": result.rule,
        "chapter": result.chapter,
        "clause": result.clause,
        "level": result.level,
        "text": result.text,
        "status": result.status,
        "times_held": result.held,
        "times_broken": result.broken,
        "reason": result.reason,
        "provoke": result.provoke,
        "evidence": [
            {
                "at": stamp(one.at_us),
                "what": one.what,
                "body": one.content.decode(errors="replace"),
            }
            for one in result.evidence
        ],
    }


def _unjudged(report: ConformanceReport) -> str:
    if report.messages_skipped:
        return f"; {report.messages_skipped:,} more were not judged"
    return "; not all of them were judged" if report.skipped else ""


def _print(report: ConformanceReport) -> None:
    console = Console(highlight=False)
    told = f"{report.title}: {plain(report.subject)}"
    if report.edition:
        told += f", edition {report.edition}"
    console.print(Text(told, style="bold"), soft_wrap=True)
    seen_s = (report.ended_at_us - report.began_at_us) / 1e6
    console.print(
        f"{report.messages:,} messages over {report.connections:,} connections in"
        f" {duration(seen_s)}" + _unjudged(report),
        soft_wrap=True,
    )
    for note in report.notes:
        console.print(Text(f"note: {plain(note)}"), soft_wrap=True)
    for chapter in dict.fromkeys(one.chapter for one in report.results):
        console.print()
        console.print(Text(chapter, style="bold"))
        table = Table.grid(padding=(0, 1))
        table.add_column(min_width=10)
        table.add_column(min_width=6)
        table.add_column(overflow="fold")
        for one in (one for one in report.results if one.chapter == chapter):
            words = Text(f"{one.text} ({one.clause})")
            if one.broken:
                words.append(f"\n{plain(one.reason)}", style="red")
                words.append(f"\n{one.rule}: broken {one.broken:,}, held {one.held:,} times")
            elif one.held:
                words.append(f" {one.held:,}×", style="dim")
            mark = Text(_MARKS[one.status], style=_STYLES[one.status])
            table.add_row(mark, one.level, words)
            for part in one.evidence:
                body = plain(part.content[:_SHOWN_BYTES].decode(errors="replace"))
                shown = f"{stamp(part.at_us)}  {plain(part.what)}" + (f"\n{body}" if body else "")
                table.add_row("", "", Text(shown, style="dim"))
        console.print(table)
    console.print()
    broken = report.broken
    seen = sum(one.status is not RuleStatus.NOT_SEEN for one in report.results)
    console.print(
        Text(
            f"It {report.verdict}: of {len(report.results)} rules {seen} were seen,"
            f" {len(broken)} broken.",
            style="bold",
        ),
        soft_wrap=True,
    )
