"""`instep discover`: show the streams of a provider, and which would be followed and why."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.output import Format, FormatOption, duration, json_line, plain
from instep_tapi.cli.connection import (
    AuthConfigOption,
    CaOption,
    InsecureOption,
    ProxyOption,
    RootOption,
    TokenFileOption,
    TokenOption,
    UrlArgument,
    connection,
    survey,
)

if TYPE_CHECKING:
    from instep_tapi.endpoints.selection import Choice
    from instep_tapi.source import Survey

_MAX_CLASSES = 4


def discover(  # noqa: PLR0917 - a command has as many parameters as options
    url: UrlArgument,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    auth_config: AuthConfigOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    proxy: ProxyOption = None,
    root: RootOption = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="CLASS", help="Only streams of this class; repeatable."),
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="ID", help="Only this stream; repeatable."),
    ] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option("--strategy", metavar="NAME", help="Only this log strategy; repeatable."),
    ] = None,
    only_classes: Annotated[
        list[str] | None,
        typer.Option(
            "--only-class", metavar="CLASS", help="Keep only entities of this class; repeatable."
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what a TAPI provider streams (TR-548 ST-0.2).

    What would be followed, what not, and why.

    Ends with 1 where no stream would be followed.
    """
    options = connection(
        url,
        token=token,
        token_file=token_file,
        auth_config=auth_config,
        ca=ca,
        insecure=insecure,
        proxy=proxy,
        root=root,
    )
    options["streams"] = {
        "classes": classes or [],
        "ids": ids or [],
        "strategies": strategies or [],
        "only_classes": only_classes or [],
    }
    found = asyncio.run(survey(options))
    if output is Format.JSONL:
        for choice in found.choices:
            json_line(_plain(choice, found))
    else:
        _print(found)
    if not any(choice.chosen for choice in found.choices):
        raise typer.Exit(1)


def _plain(choice: Choice, survey: Survey) -> dict[str, Any]:
    from instep_tapi.endpoints.selection import log_mode

    stream, type_ = choice.stream, choice.stream.type
    row: dict[str, Any] = {
        "stream": choice.id,
        "chosen": choice.chosen,
        "reason": choice.reason,
        "uuid": stream.uuid,
        "state": stream.state.name,
        "protocol": stream.protocol,
        "address": stream.address,
        "foreign_host": _foreign_host(choice, survey) or None,
        "endpoint": survey.address.endpoint,
        "context": survey.address.context,
    }
    if type_ is not None:
        row |= {
            "type": type_.name,
            "classes": type_.classes,
            "storage_strategy": type_.storage_strategy,
            "record_strategy": type_.record_strategy,
            "mode": log_mode(type_),
            "compaction_delay_s": _number(type_.compaction_delay_s),
            "tombstone_retention_s": _number(type_.tombstone_retention_s),
            "record_retention_s": _number(type_.record_retention_s),
            "segment_size": type_.segment_size or None,
            "deviations": type_.deviations,
        }
    return row


def _foreign_host(choice: Choice, survey: Survey) -> str:
    """The host of the stream's address, if it is not the endpoint's; else empty."""
    from yarl import URL

    from instep_tapi.endpoints.selection import foreign_host

    endpoint = URL(survey.address.endpoint)
    try:
        return foreign_host(endpoint.join(URL(choice.stream.address, encoded=True)), endpoint)
    except ValueError:
        return ""


def _number(period_s: float | None) -> float | str | None:
    return "FOREVER" if period_s == math.inf else period_s


def _print(survey: Survey) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from instep_tapi.deviations import DEVIATIONS
    from instep_tapi.endpoints.selection import log_mode

    console = Console(highlight=False)
    console.print(Text(plain(survey.address.streams)), soft_wrap=True)
    if not survey.choices:
        console.print("no stream is offered")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("stream", "state", "log", "delay/retention", "classes", "followed"):
        table.add_column(heading, overflow="fold")
    for choice in survey.choices:
        type_ = choice.stream.type
        log = periods = classes = "—"
        if type_ is not None:
            log = f"{plain(type_.storage_strategy)} ({log_mode(type_)})"
            log += f"\n{plain(type_.record_strategy)}"
            delays = (type_.compaction_delay_s, type_.tombstone_retention_s)
            if delays == (None, None):
                delays = (None, type_.record_retention_s)
            periods = " / ".join(duration(period_s) for period_s in delays)
            if type_.segment_size:
                periods += f"\nsegments: {plain(type_.segment_size)}"
            more = len(type_.classes) - _MAX_CLASSES
            classes = "\n".join(map(plain, type_.classes[:_MAX_CLASSES])) or "all"
            classes += f"\nand {more} more" if more > 0 else ""
        followed = f"{'yes' if choice.chosen else 'no'}: {choice.reason}"
        if choice.chosen and (host := _foreign_host(choice, survey)):
            followed += f'; at another host: stream_hosts = ["{host}"]'
        if type_ is not None:
            followed += "".join(f"; {DEVIATIONS[kind]}" for kind in type_.deviations)
        name, state = plain(choice.id), choice.stream.state.name
        table.add_row(*map(Text, (name, state, log, periods, classes, plain(followed))))
    console.print(table)
