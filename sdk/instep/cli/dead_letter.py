"""`instep messages dead`: what was accepted and is not delivered, to look at and to deliver."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Column

from instep.cli.messages import shown_body
from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    counted,
    json_bytes,
    json_line,
    moment,
    one_line,
    plain,
    print_listing,
    stamp,
)
from instep.cli.sequences import Wait, action_outcome
from instep.cli.store import (
    AllOption,
    ConfigArgument,
    ConfigOption,
    ConsumerOption,
    IdsArgument,
    LimitOption,
    OpenStore,
    StoreOption,
    StreamOption,
    check_choice,
    open_store,
    open_stores,
)
from instep.errors import ConfigurationError
from instep.ports.reader import DeadMessage, MessageReader
from instep.sequencing.operator_actions import OperatorAction

__all__ = ["drop", "export", "list_", "replay", "show"]

_BODY_SHOWN_BYTES: Final = 400


async def list_(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List what was accepted and is not delivered, the oldest first, with the reason.

    What waits in a sequence that has failed is among it.

    Example: instep messages dead list --stream orders
    """
    console = Console(highlight=False)
    columns = [Column("ID", width=8, justify="right"), Column("Stream", ratio=3, overflow="fold")]
    columns += [Column("Number", width=8, justify="right"), Column("Since", width=MOMENT_WIDTH)]
    columns += [Column("End", width=8), Column("Reason", ratio=4, overflow="fold")]
    columns += [Column("Body", ratio=3)]
    await print_listing(
        _all(config, store, consumer, stream),
        console,
        columns,
        cells=_cells,
        facts=_line,
        what="messages",
        limit=limit,
        output=output,
    )


async def show(
    id: Annotated[int, typer.Argument(metavar="ID", min=1)],
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one message whole: its body, its number, and why it was not delivered.

    Example: instep messages dead show 17
    """
    async with open_store(config, store, consumer, "messages dead show") as place:
        one = await _one(place, id)
    line = _line(one)
    if output is Format.JSONL:
        json_line(line)
        return
    for name, value in line.items():
        if name not in ("body", "attachments", "attributes"):
            typer.echo(plain(f"{name}: {'' if value is None else value}").rstrip())
    typer.echo(plain(one.body.decode(errors="backslashreplace")))


async def replay(
    ids: IdsArgument = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    *,
    everything: AllOption = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    although_told: Annotated[
        bool,
        typer.Option(
            "--although-told", help="Also what its sender was told has failed or expired."
        ),
    ] = False,
    wait_s: Wait = 3.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Deliver messages of the dead letter; the consumer does it, running now or later.

    Ends with 1 when one of them is refused: it stays where it is.

    Example: instep messages dead replay --all --stream orders
    """
    check_choice("messages dead replay", ids, everything=everything)
    ids = ids or []
    counts = Counter[str]()
    async with open_store(config, store, consumer, "messages dead replay") as place:
        reader = MessageReader.of(place.reader)
        if ids:
            chosen = [await _one(place, id) for id in ids]
        else:
            chosen = [one async for one in _found(place, stream)]
        asked: list[tuple[DeadMessage, int, str]] = []
        for one in chosen:
            why, request = one.why_not_replayed(although_told=although_told), 0
            if not why:
                request = await reader.request_action(
                    one.consumer, one.stream, OperatorAction.REPLAY, one.id
                )
            asked.append((one, request, f"replay: refused: {why}" if why else ""))
        until_s = time.monotonic() + wait_s
        for one, request, text in asked:
            outcome = text or await action_outcome(reader, request, until_s)
            refused = outcome.partition(": refused: ")[2]
            counts["refused" if refused else "delivered" if outcome else "later"] += 1
            if output is Format.JSONL:
                json_line({"id": one.id, "replayed": not refused, "text": refused or outcome})
            elif refused:
                typer.echo(plain(f"{one.id}: refused: {refused}"))
    if output is Format.TABLE:
        text = f"{counts['delivered']:,} delivered, {counts['refused']:,} refused"
        if counts["later"]:
            text += f"; {counts['later']:,}: the consumer, running now or later, delivers them"
        typer.echo(text)
    if counts["refused"]:
        raise typer.Exit(1)


async def export(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The file to write; default: stdout."),
    ] = None,
    output: FormatOption = Format.JSONL,
) -> None:
    """Write all of it as JSON lines, with bodies and attachments; it stays where it is.

    Example: instep messages dead export --output dead.jsonl
    """
    count = 0
    async with aclosing(_all(config, store, consumer, stream)) as found:
        if file is None:
            async for one in found:
                json_line(_line(one))
            return
        with file.open("xb") as lines:
            async for one in found:
                lines.write(json_bytes(_line(one)) + b"\n")
                count += 1
    if output is Format.JSONL:
        json_line({"file": str(file), "rows": count})
    else:
        typer.echo(plain(f"{counted(count, 'messages')} written to {file}"))


async def drop(
    ids: IdsArgument = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    everything: AllOption = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="They are lost for good: yes.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Forget messages of the dead letter for good; what became of their numbers stays recorded.

    Example: instep messages dead drop 17 18 --yes
    """
    check_choice("messages dead drop", ids, everything=everything)
    if not yes:
        raise ConfigurationError(
            "these messages would be lost for good",
            where="messages dead drop",
            hint="keep them with `instep messages dead export`; then give --yes",
        )
    ids = ids or []
    async with open_store(config, store, consumer, "messages dead drop") as place:
        for id in ids:
            if (await _one(place, id)).frozen:
                raise ConfigurationError(
                    f"{id} waits in a sequence that has failed",
                    where="messages dead drop",
                    hint="`instep sequences reset` moves it to the dead letter",
                )
        if not ids:
            ids = [one.id async for one in _found(place, stream) if not one.frozen]
        dropped = await MessageReader.of(place.reader).drop_dead(ids) if ids else 0
    if output is Format.JSONL:
        json_line({"dropped": dropped})
    else:
        typer.echo(f"{dropped:,} dropped")


async def _found(
    place: OpenStore, stream: str | None, id: int | None = None
) -> AsyncGenerator[DeadMessage, None]:
    reader = MessageReader.of(place.reader)
    for name in place.names:
        async for one in reader.dead_messages(consumer=name, stream=stream, id=id):
            yield one


async def _all(
    config: Path | None, store: str | None, consumer: str | None, stream: str | None
) -> AsyncGenerator[DeadMessage, None]:
    async with open_stores(config, store, consumer, "messages dead") as places:
        for place in places:
            async with aclosing(_found(place, stream)) as found:
                async for one in found:
                    yield one


async def _one(place: OpenStore, id: int) -> DeadMessage:
    async with aclosing(_found(place, None, id)) as found:
        async for one in found:
            return one
    raise ConfigurationError(
        f"nothing in the dead letter has the ID {id}",
        where="ID",
        hint="`instep messages dead list` tells which there are",
    )


def _cells(one: DeadMessage) -> list[str]:
    return [
        str(one.id),
        f"{one.consumer} / {one.stream}",
        "—" if one.number < 0 else str(one.number),
        moment(one.dead_at_us),
        one.end,
        one.reason + "; waits in its sequence" * one.frozen,
        one.body[:_BODY_SHOWN_BYTES].decode(errors="replace"),
    ]


def _line(one: DeadMessage) -> dict[str, Any]:
    return {
        "id": one.id,
        "consumer": one.consumer,
        "stream": one.stream,
        "number": None if one.number < 0 else one.number,
        "message_id": one.message_id,
        "sender": one.sender,
        "received_at": stamp(one.received_at_us),
        "dead_at": stamp(one.dead_at_us),
        "end": one.end,
        "reason": one.reason,
        "by": one.by,
        "told": one.told,
        "frozen": one.frozen,
        "attributes": one_line(one.attributes),
        "body": shown_body(one.body),
        "attachments": one.attachments,
    }
