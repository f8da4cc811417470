"""`instep entities`: what the store holds, as the provider stated it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
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
    one_line,
    stamp,
)
from instep.cli.store import StoreOption, StreamOption, open_reader, require_stream
from instep.model.entities import StoredEntity

__all__ = ["entities"]

_BODY_SHOWN_BYTES: Final = 400
"""Bytes of a body that are read for the table, whose column shows fewer."""


class _Line(msgspec.Struct, omit_defaults=True, rename={"entity_class": "class"}):
    """An entity as a line of JSON; `proven` shows only where it is false."""

    stream: str
    key: str
    entity_class: str
    token: str
    appended_at: str
    attempt: int
    body: msgspec.Raw
    proven: bool = True


def entities(
    store: StoreOption,
    stream: StreamOption = None,
    entity_class: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="Only this class, such as NODE.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the entities of a store."""
    asyncio.run(_list(store, stream, entity_class, output))


async def _list(store: str, stream: str | None, entity_class: str | None, output: Format) -> None:
    async with open_reader(store) as reader:
        await require_stream(reader, stream)
        found = reader.entities(stream=stream, entity_class=entity_class)
        if output is Format.JSONL:
            async for entity in found:
                json_line(_line(entity))
            return
        console = Console(highlight=False)
        columns = [Column("Stream", ratio=2), Column("Class", ratio=3), Column("Key", ratio=4)]
        columns += [Column("Appended", width=MOMENT_WIDTH), Column("Body", ratio=6)]
        listing = Listing(console, columns)
        async for entity in found:
            proven = "" if entity.proven else "unproven: "
            listing.add(
                entity.stream,
                entity.entity_class,
                entity.key,
                moment(entity.appended_at_us),
                proven + entity.body[:_BODY_SHOWN_BYTES].decode(errors="replace"),
            )
        listing.flush()
        console.print(f"{listing.rows:,} entities")


def _line(entity: StoredEntity) -> _Line:
    return _Line(
        entity.stream,
        entity.key,
        entity.entity_class,
        entity.token,
        stamp(entity.appended_at_us),
        entity.attempt,
        one_line(entity.body),
        entity.proven,
    )
