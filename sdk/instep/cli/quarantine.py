"""`instep quarantine`: records that could not be read, kept with their bytes, to look at and to
replay.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    Listing,
    json_line,
    moment,
    plain,
    plain_lines,
    stamp,
)
from instep.cli.store import StoreOption, StreamOption, open_reader, require_stream
from instep.config.plugins import source_plugin
from instep.errors import ConfigurationError, InstepError
from instep.model.entities import Quarantined, StreamStatus
from instep.model.streams import StreamInfo
from instep.ports.reader import StoreReader

__all__ = ["drop", "list_", "replay", "show"]


def list_(
    store: StoreOption, stream: StreamOption = None, output: FormatOption = Format.TABLE
) -> None:
    """List the records in quarantine, the oldest first."""
    asyncio.run(_list(store, stream, output))


def show(
    store: StoreOption,
    id: Annotated[int, typer.Argument(metavar="ID", min=1)],
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one record whole, with its bytes."""
    asyncio.run(_show(store, id, output))


def replay(
    store: StoreOption,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All records that were not replayed yet.")
    ] = False,
    stream: StreamOption = None,
) -> None:
    """Read records again and commit what they state, unless something newer is stored.

    Ends with 1 when one of them still cannot be read; it stays in quarantine.
    """
    if bool(ids) == everything:
        raise ConfigurationError(
            "it is not clear what to replay", where="quarantine replay", hint="name IDs, or --all"
        )
    asyncio.run(_replay(store, ids or [], stream))


def drop(
    store: StoreOption,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All records in quarantine.")] = False,
    stream: StreamOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="They are lost for good: yes.")] = False,
) -> None:
    """Forget records that will never be read, so that a full quarantine takes others."""
    if bool(ids) == everything or (ids and stream):
        raise ConfigurationError(
            "it is not clear what to drop",
            where="quarantine drop",
            hint="name IDs, or --all (of one --stream)",
        )
    if not yes:
        raise ConfigurationError(
            "the bytes of these records would be lost for good",
            where="quarantine drop",
            hint="look at them with `instep quarantine show`; then give --yes",
        )
    asyncio.run(_drop(store, ids, stream))


async def _list(store: str, stream: str | None, output: Format) -> None:
    async with open_reader(store) as reader:
        await require_stream(reader, stream)
        found = reader.quarantine(stream=stream)
        if output is Format.JSONL:
            async for one in found:
                json_line(_facts(one))
            return
        console = Console(highlight=False)
        columns = [Column("ID", width=7), Column("Received", width=MOMENT_WIDTH)]
        columns += [Column("Bytes", width=9, justify="right"), Column("Replayed", width=8)]
        columns += [Column("Stream", ratio=1), Column("Reason", ratio=3)]
        listing = Listing(console, columns)
        async for one in found:
            listing.add(
                str(one.id),
                moment(one.received_at_us),
                f"{len(one.raw):,}",
                "no" if one.replayed_at_us is None else "yes",
                one.stream,
                one.reason,
            )
        listing.flush()
        console.print(f"{listing.rows:,} in quarantine")


async def _show(store: str, id: int, output: Format) -> None:
    async with open_reader(store) as reader:
        one = await _one(reader, id)
    try:
        text = one.raw.decode()
    except UnicodeDecodeError:
        raw = {"raw_base64": base64.b64encode(one.raw).decode()}
        text = one.raw.decode(errors="backslashreplace")
    else:
        raw = {"raw": text}
    if output is Format.JSONL:
        json_line({**_facts(one), **raw})
        return
    for name, value in _facts(one).items():
        typer.echo(plain(f"{name:12} {'—' if value is None else value}"))
    typer.echo(f"\n{plain_lines(text)}")


async def _replay(store: str, ids: list[int], stream: str | None) -> None:
    async with open_reader(store) as reader:
        await require_stream(reader, stream)
        streams = {(one.consumer, one.stream): one for one in await reader.streams()}
        waiting = ids or [
            one.id async for one in reader.quarantine(stream=stream) if one.replayed_at_us is None
        ]
        failed = 0
        for id in waiting:
            one = await _one(reader, id)
            try:
                outcome = await _replayed(reader, one, streams.get((one.consumer, one.stream)))
            except InstepError as error:
                failed += 1
                outcome = str(error)
            typer.echo(plain(f"{id}: {outcome}"))
    typer.echo(f"{len(waiting) - failed:,} replayed, {failed:,} still in quarantine")
    if failed:
        raise typer.Exit(1)


async def _drop(store: str, ids: list[int] | None, stream: str | None) -> None:
    async with open_reader(store) as reader:
        await require_stream(reader, stream)
        for id in ids or ():
            await _one(reader, id)
        typer.echo(f"{await reader.drop(ids or None, stream=stream):,} dropped")


async def _replayed(reader: StoreReader, one: Quarantined, status: StreamStatus | None) -> str:
    if one.replayed_at_us is not None:
        return f"was replayed at {stamp(one.replayed_at_us)}"
    if await reader.deliver_again(one.id):
        return "the handler is given it again by the consumer, running now or later"
    if status is None:
        raise InstepError("its stream is not in the store any more", where=one.stream)
    stream = StreamInfo.from_stored(status.info)
    delivery = source_plugin(stream.kind, f"stream {stream.id}").decode(one.raw, stream)
    if delivery.unreadable or not delivery.records:
        reasons = "; ".join(bad.reason for bad in delivery.unreadable) or "it states no record"
        raise InstepError(f"still not readable: {reasons}")
    count = await reader.replay(one.id, delivery)
    return f"replayed, {count:,} {'entity' if count == 1 else 'entities'} changed"


async def _one(reader: StoreReader, id: int) -> Quarantined:
    async for one in reader.quarantine(id=id):
        return one
    raise ConfigurationError(
        f"nothing in quarantine has the ID {id}",
        where="ID",
        hint="`instep quarantine list` tells which there are",
    )


def _facts(one: Quarantined) -> dict[str, Any]:
    return {
        "id": one.id,
        "consumer": one.consumer,
        "stream": one.stream,
        "reason": one.reason,
        "token": one.token,
        "received_at": stamp(one.received_at_us),
        "replayed_at": None if one.replayed_at_us is None else stamp(one.replayed_at_us),
        "size_bytes": len(one.raw),
    }
