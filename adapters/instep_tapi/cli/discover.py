"""`instep discover`: show the streams of a provider, and which would be followed and why."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.output import Format, FormatOption, json_line, plain
from instep.model.durations import duration
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
    from instep_tapi.wire.stream_context import StreamType

_MAX_CLASSES = 12


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
    """Show the streams of a TAPI provider (TR-548 ST-0.2).

    It says of each whether a consumer would follow it, and why.

    Ends with 1 if it would follow none, and with 2 if no stream has an id that you named.

    Example: instep discover https://controller:8443 --token-file token
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
        offered = {name for choice in found.choices for name in (choice.id, choice.stream.uuid)}
        raise typer.Exit(1 if offered.issuperset(ids or ()) else 2)


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
        "address": _address(choice, survey),
        "addresses": [
            {"address": stated, "chosen": not reason, "reason": reason}
            for stated, reason in _addresses(choice, survey)
        ],
        "foreign_host": _foreign_host(choice, survey) or None,
        "endpoint": survey.address.endpoint,
        "context": survey.address.context,
        "tapi": stream.profile.tapi,
        "tapi_evidence": stream.profile.evidence,
    }
    if type_ is not None:
        row |= {
            "type": type_.name,
            "classes": type_.classes,
            "storage_strategy": type_.storage_strategy,
            "record_strategy": type_.record_strategy,
            "encoding": type_.encoding or None,
            "mode": log_mode(type_),
            "compaction_delay_s": _number(type_.compaction_delay_s),
            "tombstone_retention_s": _number(type_.tombstone_retention_s),
            "record_retention_s": _number(type_.record_retention_s),
            "segment_size": type_.segment_size or None,
            "deviation_kinds": type_.deviations,
        }
    return row


def _addresses(choice: Choice, survey: Survey) -> list[tuple[str, str]]:
    """Each address of the stream, and why it is not used; empty: it is."""
    from yarl import URL

    from instep_tapi.endpoints.selection import judge_addresses, protocol_of

    if not protocol_of(choice.stream):
        return [(stated, choice.reason) for stated in choice.stream.addresses]
    judged = judge_addresses(choice.stream, URL(survey.address.endpoint))
    return [(one.stated, one.error.message if one.error else "") for one in judged]


def _address(choice: Choice, survey: Survey) -> str:
    """The first address that is used, or the first if none is."""
    addresses = _addresses(choice, survey)
    usable = [stated for stated, reason in addresses if not reason]
    return next(iter([*usable, *choice.stream.addresses]), "")


def _foreign_host(choice: Choice, survey: Survey) -> str:
    """The host of the stream's address, if it is not the endpoint's; else empty."""
    from yarl import URL

    from instep_tapi.endpoints.selection import foreign_host

    endpoint = URL(survey.address.endpoint)
    try:
        return foreign_host(endpoint.join(URL(_address(choice, survey), encoded=True)), endpoint)
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
    for choice in survey.choices:
        type_ = choice.stream.type
        console.print(Text(plain(choice.id), style="bold"))
        followed = f"{'yes' if choice.chosen else 'no'}: {choice.reason}"
        if choice.chosen and (host := _foreign_host(choice, survey)):
            followed += f'; at another host: stream_hosts = ["{host}"]'
        rows = [("state", choice.stream.state.name)]
        if type_ is not None:
            followed += "".join(f"; {DEVIATIONS[kind]}" for kind in type_.deviations)
            strategies = f"{type_.storage_strategy} ({log_mode(type_)}), {type_.record_strategy}"
            more = len(type_.classes) - _MAX_CLASSES
            classes = ", ".join(type_.classes[:_MAX_CLASSES]) or "all"
            rows += [
                ("log", strategies),
                ("kept", _kept(type_)),
                ("classes", classes + (f" and {more} more" if more > 0 else "")),
            ]
        rows += [("tapi", f"{choice.stream.profile.tapi}: {choice.stream.profile.evidence}")]
        if len(addresses := _addresses(choice, survey)) > 1:
            rows += [
                ("address", stated + (f" (not used: {reason})" if reason else ""))
                for stated, reason in addresses
            ]
        table = Table.grid(padding=(0, 2))
        for name, value in [*rows, ("followed", followed)]:
            table.add_row(Text(f"  {name}"), Text(plain(value), overflow="fold"))
        console.print(table)


def _kept(type_: StreamType) -> str:
    """How long what a log has been told stays in it."""
    periods = {
        "compaction delay": type_.compaction_delay_s,
        "tombstone retention": type_.tombstone_retention_s,
    }
    if not any(value is not None for value in periods.values()):
        periods = {"record retention": type_.record_retention_s}
    words = [f"{name} {duration(value)}" for name, value in periods.items() if value is not None]
    words += [f"segments: {type_.segment_size}"] * bool(type_.segment_size)
    return ", ".join(words) or "—"
