"""`instep conformance trace` judges a trace from a file, `instep conformance CONFIG` the peer of a
consumer that is configured.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from instep.cli.conformance.listening import MinutesOption, receive
from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
    print_report,
)
from instep.cli.conformance.recording import TraceOption, recording
from instep.cli.store import ConfigArgument
from instep.config.entry_points import rule_book
from instep.config.file import ConsumerConfiguration, default_path, load
from instep.config.plugins import build_source, source_plugin
from instep.errors import ConfigurationError

__all__ = ["config", "trace"]

_MOST_LINE_BYTES: Final = 600_000_000
"""More than the largest answer that a source reads takes."""


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

    Ends with 1 if a MUST is broken.

    Example: instep conformance trace trace.jsonl --protocol wsrm
    """
    from instep.conformance import TraceJudge, read_events

    judging = TraceJudge(rule_book(protocol), str(file))
    with file.open("rb") as opened:
        lines = _lines(opened, str(file))
        for event in read_events(lines, str(file), judging.notes.append):
            judging.observe(event)
    print_report(judging.report(), output, html_file=html, junit_file=junit)


def _lines(file: BinaryIO, where: str) -> Iterator[bytes]:
    """The lines of a file. Raises `ConfigurationError` for one that is longer than an event."""
    number = 0
    while line := file.readline(_MOST_LINE_BYTES):
        number += 1
        if len(line) == _MOST_LINE_BYTES:
            raise ConfigurationError(
                f"this line has {_MOST_LINE_BYTES / 1e6:.0f} MB or more: it is no event of a trace",
                where=f"{where}:{number}",
                hint="`instep conformance … --trace FILE` writes one",
            )
        yield line


def config(
    file: ConfigArgument = None,
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Which one, where there are several.")
    ] = "",
    minutes: MinutesOption = 2.0,
    record_to: TraceOption = None,
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Judge the peer of a consumer, as it is configured.

    It reads or listens as that consumer does, and stores nothing. It may run beside it, where the
    peer allows two connections; a listener's address is free only while its consumer is not
    running. Ends with 1 if a MUST is broken.

    Example: instep conformance config --minutes 10 --html report.html
    """
    from instep.conformance import TraceJudge

    one = _consumer(file or default_path(), consumer)
    judging = TraceJudge(rule_book(one.source.kind), one.name)
    with recording(record_to, judging) as record, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_observe(one, minutes * 60.0, record, judging.notes.append))
    print_report(judging.report(), output, html_file=html, junit_file=junit)


def _consumer(path: Path, name: str) -> ConsumerConfiguration:
    known = {one.name: one for one in load(path).consumers}
    if not name and len(known) == 1:
        return next(iter(known.values()))
    if name not in known:
        what = f"there is no consumer {name!r}" if name else "there are several consumers"
        raise ConfigurationError(
            what, where=str(path), hint=f"--consumer {' or '.join(sorted(known))}"
        )
    return known[name]


async def _observe(one: ConsumerConfiguration, seconds: float, record: Any, note: Any) -> None:
    judge: Any = getattr(source_plugin(one.source.kind), "judge", None)
    if judge is not None:
        await judge(one.source.options, one.source.where, seconds, record, note)
        return
    await receive(build_source(one.source), seconds, record)
