"""`instep references`: where the entities of a store stand, and what refers to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    KEY_WIDTH,
    MOMENT_WIDTH,
    Format,
    FormatOption,
    Listing,
    json_line,
    moment,
    stamp,
)
from instep.cli.store import (
    ClassOption,
    ConfigArgument,
    ConsumerOption,
    LimitOption,
    StoreOption,
    open_stores,
)
from instep.ports.reader import StoreReader
from instep_tapi.derivations import references as derived

__all__ = ["references"]

UuidArgument = Annotated[str, typer.Argument(metavar="UUID", help="The uuid of an entity.")]
_Row: TypeAlias = dict[str, Any]
_Find: TypeAlias = Callable[[StoreReader, str | None], AsyncIterator[_Row]]
"""The rows of one consumer of a store (None: of all)."""


async def children(
    uuid: UuidArgument,
    depth: Annotated[int, typer.Option(metavar="N", min=1, help="So many levels.")] = 1,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    entity_class: ClassOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List what is below an entity, which itself may be missing.

    Example: instep references children 19457cc4-c35c-5ac8-a4a1-60e9a908d05b
    """

    async def find(reader: StoreReader, name: str | None) -> AsyncIterator[_Row]:
        async for one in derived.children(
            reader, uuid, depth=depth, entity_class=entity_class, consumer=name
        ):
            yield {
                "consumer": one.consumer,
                "stream": one.stream,
                "class": one.entity_class,
                "uuid": one.uuid,
                "key": one.key,
            }

    await _run(find, config, store, consumer, limit, output)


async def path(
    uuid: UuidArgument,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what contains an entity, the highest first.

    Example: instep references path 19457cc4-c35c-5ac8-a4a1-60e9a908d05b
    """

    async def find(reader: StoreReader, name: str | None) -> AsyncIterator[_Row]:
        # One after the other: the ways of two consumers to the same uuid are two ways.
        names = [name] if name else sorted({one.consumer for one in await reader.streams()})
        for each in names:
            for one in await derived.path(reader, uuid, consumer=each):
                yield {"consumer": each, "name": one.name, "uuid": one.uuid, "known": one.known}

    await _run(find, config, store, consumer, None, output)


async def referrers(
    uuid: UuidArgument,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    entity_class: ClassOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List what refers to an entity, which itself may be missing.

    Example: instep references referrers 19457cc4-c35c-5ac8-a4a1-60e9a908d05b
    """

    async def find(reader: StoreReader, name: str | None) -> AsyncIterator[_Row]:
        async for one in derived.referrers(reader, uuid, entity_class=entity_class, consumer=name):
            yield {
                "consumer": one.consumer,
                "class": one.entity_class,
                "key": one.key,
                "name": one.name,
                "role": one.role,
            }

    await _run(find, config, store, consumer, limit, output)


async def dangling(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the references to what is not stored, with their age.

    Example: instep references dangling --limit 20
    """

    async def find(reader: StoreReader, name: str | None) -> AsyncIterator[_Row]:
        async for one in derived.dangling(reader, consumer=name):
            yield {
                "consumer": one.consumer,
                "class": one.entity_class,
                "key": one.key,
                "name": one.name,
                "target": one.target,
                "since_us": one.since_us,
            }

    await _run(find, config, store, consumer, limit, output)


async def skeletons(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the parents that are not stored, with what is below them.

    Example: instep references skeletons --limit 20
    """

    async def find(reader: StoreReader, name: str | None) -> AsyncIterator[_Row]:
        async for one in derived.skeletons(reader, consumer=name):
            row = msgspec.structs.asdict(one)
            yield {"consumer": row.pop("consumer"), **row}

    await _run(find, config, store, consumer, limit, output)


references: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "children": children,
    "path": path,
    "referrers": referrers,
    "dangling": dangling,
    "skeletons": skeletons,
}
"""See where entities stand, and which entities refer to them."""


async def _run(
    find: _Find,
    config: Path | None,
    store: str | None,
    consumer: str | None,
    limit: int | None,
    output: Format,
) -> None:
    console = Console(highlight=False)
    listing: Listing | None = None
    shown = 0
    async with open_stores(config, store, consumer, "references") as places:
        for place in places:
            for name in place.names:
                async for row in find(place.reader, name):
                    if shown == limit:
                        break
                    shown += 1
                    if output is Format.JSONL:
                        json_line(_line(row))
                        continue
                    if listing is None:
                        listing = Listing(console, [_column(member) for member in row])
                    listing.add(*[_cell(member, value) for member, value in row.items()])
    if output is Format.TABLE:
        if listing is not None:
            listing.flush()
        console.print(f"{shown:,} found{' (--limit)' * (shown == limit)}")


def _column(member: str) -> Column:
    title = member.removesuffix("_us").capitalize()
    if member.endswith("_us"):
        return Column(title, width=MOMENT_WIDTH)
    if member in ("uuid", "target"):
        return Column(title, width=KEY_WIDTH, overflow="fold")
    return Column(title, ratio=1, overflow="fold")


def _cell(member: str, value: Any) -> str:
    if member.endswith("_us"):
        return moment(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _line(row: _Row) -> _Row:
    return {
        name.removesuffix("_us"): stamp(value) if name.endswith("_us") else value
        for name, value in row.items()
    }
