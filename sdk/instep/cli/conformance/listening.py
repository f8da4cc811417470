"""`instep conformance` of those who send to us: it listens, answers, and judges what comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.conformance.printing import ReportFormat, print_report
from instep.cli.conformance.recording import recording
from instep.cli.output import plain
from instep.config.entry_points import rule_book
from instep.config.plugins import sink_plugin, source_plugin

if TYPE_CHECKING:
    from instep.conformance import Event

__all__ = ["ListenOption", "MinutesOption", "judge_senders", "receive"]

ListenOption = Annotated[
    str,
    typer.Option("--listen", metavar="URL", help="Where it is sent to; an address of this host."),
]
MinutesOption = Annotated[
    float, typer.Option("--minutes", metavar="NUMBER", min=0.01, help="How long it listens.")
]
_STORE = "sqlite://"
"""In memory: nothing is stored."""


def judge_senders(
    protocol: str,
    options: Mapping[str, Any],
    minutes: float,
    *,
    trace: Path | None,
    output: ReportFormat,
    html: Path | None,
    junit: Path | None,
) -> None:
    """Listen as a consumer of this protocol does, print the report, and end with 1 where a MUST is
    broken. Interrupted, it judges what came until then.

    Raises `ConfigurationError`: these are no options of the protocol.
    """
    from instep.conformance import TraceJudge

    judging = TraceJudge(rule_book(protocol), str(options["listen"]))
    listener = source_plugin(protocol).build(options, "--listen")
    with recording(trace, judging) as record, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(receive(listener, minutes * 60.0, record))
    print_report(judging.report(), output, html_file=html, junit_file=junit)


async def receive(listener: Any, seconds: float, record: Callable[[Event], None]) -> None:
    """Let a listener receive for so long; `record` is given each event. Nothing is stored."""
    from instep.runtime.receiver import Receiver

    sink: Any = sink_plugin("sql").build({"url": _STORE}, "sink")
    listener.record(record)
    async with Receiver("conformance", listener, sink) as receiver:
        await receiver.aligned(10)
        typer.echo(plain(f"listening on {listener.address} for {seconds / 60:g} min"), err=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await receiver.wait()
