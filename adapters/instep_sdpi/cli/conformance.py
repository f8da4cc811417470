"""`instep conformance sdpi`: which rules of numbered reports a provider holds."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
    print_report,
)
from instep.cli.conformance.recording import TraceOption, recording


def sdpi(  # noqa: PLR0917 - options, given by name on the command line
    provider: Annotated[
        str, typer.Argument(metavar="URL", help="The address of the device (an XAddr).")
    ],
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where reports are received; an address that the device reaches.",
        ),
    ] = "127.0.0.1:0",
    notify_to: Annotated[
        str,
        typer.Option(
            metavar="URL", help="What the device sends to, where that is another address."
        ),
    ] = "",
    actions: Annotated[
        list[str] | None,
        typer.Option(
            "--action", metavar="ACTION", help="A report to subscribe to; repeatable. Default: all."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long to receive reports.")
    ] = 30.0,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Answer one report with a fault (R0801).")
    ] = False,
    hold: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Leave one report unanswered for so many seconds (R0802).",
        ),
    ] = 0.0,
    trace: TraceOption = None,
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Judge a BICEPS provider by the rules of numbered reports.

    It subscribes, and confirms the reports. Nothing is stored. A rule is held, broken (with the
    reports that show it), or was not seen. Ends with 1 if one is broken. A layer between can
    break them as well as the provider.

    Example: instep conformance sdpi http://127.0.0.1:6464/device
    """
    from instep.conformance import TraceJudge
    from instep_sdpi.conformance import sdpi_rules
    from instep_sdpi.event_sink import InjectedFault, receive_reports
    from instep_sdpi.options import read_options
    from instep_sdpi.source import SdpiSource

    fault = InjectedFault(refuse=refuse, hold_s=hold)
    table: dict[str, Any] = {"provider": provider, "listen": listen, "feed": fault.feed}
    # Nothing is stored, and the address is one that was just given.
    table["allow_unauthenticated"] = True
    if notify_to:
        table["notify_to"] = notify_to
    if actions:
        table["actions"] = actions
    source = SdpiSource(read_options(table, "conformance"), "conformance")
    judging = TraceJudge(sdpi_rules(), provider)
    with recording(trace, judging) as record:
        source.record(record)
        asyncio.run(receive_reports(source, seconds, fault))
    print_report(judging.report(), output, html_file=html, junit_file=junit)
