"""`instep changes`: the journal of committed changes, from a cursor on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    KEY_WIDTH,
    MOMENT_WIDTH,
    WIDE,
    Format,
    FormatOption,
    Listing,
    counted,
    json_line,
    moment,
    one_line,
    stamp,
)
from instep.cli.signals import until_signalled
from instep.cli.store import (
    ClassOption,
    ConfigArgument,
    ConsumerOption,
    KeyOption,
    LimitOption,
    StoreOption,
    StreamOption,
    open_store,
    require_stream,
)
from instep.errors import ConfigurationError
from instep.model.entities import Change, ChangeKind, JournalEnd

__all__ = ["changes"]


class _Chosen(NamedTuple):
    """What of a journal is asked for."""

    stream: str | None
    entity_class: str | None
    key: str | None
    change: ChangeKind | None


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
    journal_epoch: str = ""


def changes(  # noqa: PLR0917 - options, given by name on the command line
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    entity_class: ClassOption = None,
    key: KeyOption = None,
    change: Annotated[
        ChangeKind | None, typer.Option("--change", help="Only changes of this kind.")
    ] = None,
    after: Annotated[
        int, typer.Option(metavar="CURSOR", min=0, help="Begin after this cursor; 0: the oldest.")
    ] = 0,
    epoch: Annotated[
        str,
        typer.Option(
            metavar="EPOCH",
            help="The epoch of that cursor. A cursor of another journal is then an error.",
            show_default=False,
        ),
    ] = "",
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Begin after the newest change, and follow.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the committed changes of a store, in the order of commit.

    Example: instep changes --follow --from-now --class LINK
    """
    if from_now and (after or epoch):
        raise ConfigurationError(
            "--after and --from-now were both given", where="changes", hint="leave one of them out"
        )
    chosen = _Chosen(stream, entity_class, key, change)
    start = None if from_now else JournalEnd(after, epoch)
    until_signalled(
        _list(config, store, consumer, chosen, start, follow or from_now, limit, output)
    )


async def _list(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    chosen: _Chosen,
    after: JournalEnd | None,
    follow: bool,
    limit: int | None,
    output: Format,
) -> None:
    """`after`: the change to begin after; None: the newest."""
    console = Console(highlight=False)
    wide = console.width >= WIDE
    columns = [Column("Cursor", width=7, overflow="fold"), Column("Change", width=7)]
    if wide:
        columns += [Column("Committed", width=MOMENT_WIDTH)]
        columns += [
            Column("Consumer", ratio=3),
            Column("Stream", ratio=3),
            Column("Class", ratio=4),
        ]
    else:
        columns += [Column("Stream, class", ratio=1, overflow="fold")]
    columns += [Column("Key", width=KEY_WIDTH, overflow="fold")]
    listing = Listing(console, columns)
    shown = 0
    async with open_store(config, store, consumer, "changes") as place:
        await require_stream(place.reader, chosen.stream)
        begin = await place.reader.journal_end() if after is None else after
        async for one in place.reader.changes(
            begin.cursor,
            consumer=place.consumer,
            stream=chosen.stream,
            entity_class=chosen.entity_class,
            change=chosen.change,
            follow=follow,
            epoch=begin.epoch,
        ):
            # The journal has no index of keys: whoever asks for one reads all of it.
            if not place.has(one.consumer) or chosen.key not in {None, one.key}:
                continue
            shown += 1
            if output is Format.JSONL:
                json_line(_line(one), flush=follow)
            else:
                names = [one.consumer, one.stream, one.entity_class]
                if not wide:
                    names = [f"{one.consumer} / {one.stream}, {one.entity_class}"]
                moments = [moment(one.committed_at_us)] * wide
                listing.add(str(one.cursor), one.change, *moments, *names, one.key)
                if follow:
                    listing.flush()
                    sys.stdout.flush()
            if shown == limit:
                break
    if output is Format.TABLE:
        listing.flush()
        console.print(f"{counted(listing.rows, 'changes')}{' (--limit)' * (shown == limit)}")


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
        change.epoch,
    )
