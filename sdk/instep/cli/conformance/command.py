"""`instep conformance trace`: judges a trace from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
    print_report,
)
from instep.config.entry_points import rule_book

__all__ = ["trace"]


def trace(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    protocol: Annotated[
        str,
        typer.Option("--protocol", metavar="NAME", help="Whose rules: the command that wrote it."),
    ],
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Judge a trace that was written by --trace.

    Ends with 1 where a MUST is broken.
    """
    from instep.conformance import judge, read_events

    book = rule_book(protocol)
    with file.open("rb") as lines:
        report = judge(book, read_events(lines, str(file)), str(file))
    print_report(report, output, html_file=html, junit_file=junit)
