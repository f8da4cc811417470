"""`instep streams`: what a store keeps of each stream, and the retirement of those that are not
offered any more (A20).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    Listing,
    counted,
    json_line,
    moment,
    plain,
    stamp,
)
from instep.cli.store import (
    ConfigArgument,
    ConsumerOption,
    StoreOption,
    StreamOption,
    find_streams,
)
from instep.errors import ConfigurationError
from instep.model.entities import StreamStatus
from instep.model.position import Phase
from instep.ports.reader import RetirementReader

__all__ = ["list_", "retire", "show"]

_PHASE_WIDTH = 11
_COUNT_WIDTH = 10
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
]


async def list_(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the streams of a store: phase, entities, and since when one is not offered.

    Example: instep streams list --consumer east
    """
    columns = [
        Column("consumer", ratio=1),
        Column("stream", ratio=2),
        Column("phase", width=_PHASE_WIDTH),
        Column("entities", width=_COUNT_WIDTH, justify="right"),
        Column("not offered since", width=MOMENT_WIDTH),
    ]
    table = Listing(Console(highlight=False), columns)
    async for _, one in find_streams(config, store, consumer, stream, "streams"):
        if output is Format.JSONL:
            json_line(_facts(one))
        else:
            since_us = one.info.get("not_offered_since_us") or 0
            since = moment(since_us) if since_us else ""
            phase = str(one.position.phase)
            table.add(one.consumer, one.stream, phase, f"{one.entities:,}", since)
    if output is Format.TABLE:
        table.flush()


async def show(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show streams whole: what the provider declares of each, under which names.

    Example: instep streams show --stream alarms
    """
    async for _, one in find_streams(config, store, consumer, stream, "streams"):
        facts = _facts(one) | {
            "endpoint": one.info.get("endpoint", ""),
            "uuid": one.info.get("uuid", ""),
            "strategy": one.info.get("variant", ""),
            "token": one.position.token,
            "attempt": one.position.attempt,
        }
        if output is Format.JSONL:
            json_line(facts)
            continue
        typer.echo(plain(f"{one.consumer} / {one.stream}"))
        for name, value in list(facts.items())[2:]:
            text = ", ".join(value) if isinstance(value, list) else f"{value or '—'}"
            typer.echo(plain(f"  {name.replace('_', ' '):18} {text}"))


async def retire(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    dry_run: DryRunOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a stream that is not offered any more, with all its entities. The consumer may run.

    Ends with 1 if the provider still offers it.

    Example: instep streams retire --stream alarms --dry-run
    """
    if stream is None:
        raise ConfigurationError(
            "it is not clear which stream is meant",
            where="streams retire",
            hint="name one by --stream; `instep streams list` shows which are not offered",
        )
    retired = 0
    async for reader, one in find_streams(config, store, consumer, stream, "streams"):
        if one.position.phase is not Phase.NOT_OFFERED:
            typer.echo(plain(f"{one.consumer} / {one.stream}: the provider offers it"), err=True)
            continue
        removed = one.entities
        if not dry_run:
            removed = (await RetirementReader.of(reader).retire(one.consumer, one.stream)).removed
        retired += 1
        if output is Format.JSONL:
            json_line(
                {
                    "consumer": one.consumer,
                    "stream": one.stream,
                    "retired": not dry_run,
                    "would_remove" if dry_run else "removed": removed,
                }
            )
        else:
            verb = "would be retired" if dry_run else "retired"
            text = f"{verb}, with {counted(removed, 'entities')}"
            typer.echo(plain(f"{one.consumer} / {one.stream}: {text}"))
    if not retired:
        raise typer.Exit(1)


def _facts(one: StreamStatus) -> dict[str, Any]:
    since_us = one.info.get("not_offered_since_us") or 0
    return {
        "consumer": one.consumer,
        "stream": one.stream,
        "phase": one.position.phase,
        "entities": one.entities,
        "unproven": one.unproven,
        "not_offered_at": stamp(since_us) if since_us else None,
        "classes": list(one.info.get("classes", ())),
    }
