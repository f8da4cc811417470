"""`instep conformance sdpi`: which rules of numbered reports a provider holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.output import Format, FormatOption, json_line, plain, stamp

if TYPE_CHECKING:
    from instep_sdpi.conformance import RequirementResult

_SHOWN_BYTES = 2_000


def sdpi(
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
    output: FormatOption = Format.TABLE,
) -> None:
    """Say which requirements a BICEPS provider holds.

    It subscribes, and confirms the reports. Nothing is stored. A requirement is held, broken (with
    the reports that prove it), or was not
    seen. Ends with 1 where one is broken. A layer between can break them as well as the provider.
    """
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
    asyncio.run(receive_reports(source, seconds, fault))
    results = source.conformance.results()
    for result in results:
        if output is Format.JSONL:
            json_line(_facts(result))
        else:
            _print(result)
    if any(result.broken for result in results):
        raise typer.Exit(1)


def _facts(result: RequirementResult) -> dict[str, Any]:
    return {
        "requirement": result.requirement,
        "status": result.status,
        "times_held": result.held,
        "times_broken": result.broken,
        "reason": result.reason,
        "evidence": [
            {
                "session": one.session,
                "number": one.number,
                "received_at": stamp(one.received_at_us),
                "body": one.raw.decode(errors="replace"),
            }
            for one in result.evidence
        ],
    }


def _print(result: RequirementResult) -> None:
    counted = f"held {result.held:,} times, broken {result.broken:,} times"
    typer.echo(f"{result.requirement}  {result.status}  ({counted})")
    if result.reason:
        typer.echo(f"  {plain(result.reason)}")
    for one in result.evidence:
        number = "no number" if one.number is None else f"number {one.number}"
        body = plain(one.raw[:_SHOWN_BYTES].decode(errors="replace"))
        typer.echo(f"  {stamp(one.received_at_us)}  {number}\n    {body}")
