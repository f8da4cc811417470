"""`instep changes`: the journal of committed changes, from a cursor on."""

from __future__ import annotations

import sys
from typing import Annotated

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
from instep.cli.signals import until_signalled
from instep.cli.store import StoreOption, StreamOption, open_reader, require_stream
from instep.model.entities import Change

__all__ = ["changes"]


class _Line(msgspec.Struct, omit_defaults=True, rename={"entity_class": "class"}):
    """A change as a line of JSON; `body` and `previous` show where the journal keeps them."""

    cursor: int
    consumer: str
    stream: str
    key: str
    entity_class: str
    change: str
    kind: str | None
    token: str
    appended_at: str
    committed_at: str
    body: msgspec.Raw | None = None
    previous: msgspec.Raw | None = None


def changes(
    store: StoreOption,
    after: Annotated[
        int, typer.Option(metavar="CURSOR", min=0, help="Begin after this cursor; 0: the oldest.")
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the committed changes of a store, in the order of commit."""
    until_signalled(_list(store, after, follow, stream, output))


async def _list(store: str, after: int, follow: bool, stream: str | None, output: Format) -> None:
    async with open_reader(store) as reader:
        await require_stream(reader, stream)
        found = reader.changes(after, stream=stream, follow=follow)
        if output is Format.JSONL:
            async for change in found:
                json_line(_line(change), flush=follow)
            return
        console = Console(highlight=False)
        columns = [Column("Cursor", width=9), Column("Committed", width=MOMENT_WIDTH)]
        columns += [Column("Change", width=7), Column("Stream", ratio=2)]
        columns += [Column("Class", ratio=3), Column("Key", ratio=5)]
        listing = Listing(console, columns)
        async for one in found:
            committed = moment(one.committed_at_us)
            listing.add(
                str(one.cursor), committed, one.change, one.stream, one.entity_class, one.key
            )
            if follow:
                listing.flush()
                sys.stdout.flush()
        listing.flush()
        console.print(f"{listing.rows:,} changes")


def _line(change: Change) -> _Line:
    return _Line(
        change.cursor,
        change.consumer,
        change.stream,
        change.key,
        change.entity_class,
        change.change.value,
        change.kind.name if change.kind is not None else None,
        change.token,
        stamp(change.appended_at_us),
        stamp(change.committed_at_us),
        one_line(change.body) if change.body else None,
        one_line(change.previous) if change.previous is not None else None,
    )
