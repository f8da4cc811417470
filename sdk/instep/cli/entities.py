"""`instep entities` and `instep entity show`: what stores hold, as the provider stated it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from instep.cli.output import (
    KEY_WIDTH,
    MOMENT_WIDTH,
    WIDE,
    Format,
    FormatOption,
    counted,
    json_line,
    moment,
    one_line,
    plain,
    plain_lines,
    print_listing,
    stamp,
)
from instep.cli.store import (
    ClassOption,
    ConfigArgument,
    ConsumerOption,
    KeyOption,
    LimitOption,
    OpenStore,
    StoreOption,
    StreamOption,
    open_stores,
    require_stream,
)
from instep.errors import ConfigurationError
from instep.model.entities import StoredEntity

__all__ = ["entities", "show"]

_BODY_SHOWN_BYTES: Final = 400
"""Bytes of a body that are read for the table, whose column shows fewer."""


_NAMES: Final = {"entity_class": "class", "unproven": "unproven_reason"}


class _Line(msgspec.Struct, omit_defaults=True, rename=_NAMES):
    """An entity as a line of JSON; `proven` and why not show only where it is not proven."""

    consumer: str
    stream: str
    key: str
    entity_class: str
    token: str
    appended_at: str
    attempt: int
    body: msgspec.Raw
    proven: bool = True
    unproven: str = ""
    proven_at: str | None = None
    proven_by: str = ""


class _Chosen(NamedTuple):
    """What of a store is asked for."""

    stream: str | None
    entity_class: str | None
    key: str | None
    unproven: bool = False


async def entities(  # noqa: PLR0917 - options, given by name on the command line
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    entity_class: ClassOption = None,
    key: KeyOption = None,
    limit: LimitOption = None,
    count: Annotated[
        bool, typer.Option("--count", help="Only how many there are of each class.")
    ] = False,
    unproven: Annotated[
        bool,
        typer.Option("--unproven", help="Only entities that may not exist as stored."),
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the entities of stores, or count them by class.

    Example: instep entities --class LINK --limit 5 --format jsonl
    """
    chosen = _Chosen(stream, entity_class, key, unproven)
    if count:
        if key is not None or limit is not None or unproven:
            raise ConfigurationError(
                "--count counts all of a class",
                where="entities",
                hint="without --key, --limit and --unproven",
            )
        await _count(config, store, consumer, chosen, output)
    else:
        await _list(config, store, consumer, chosen, limit, output)


async def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, whole.")],
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one entity whole. Where several consumers or streams have it, it is shown of each.

    Example: instep entity show 7251018470133159378
    """
    chosen = _Chosen(stream, None, key)
    count = 0
    async for entity in _found(config, store, consumer, chosen):
        count += 1
        if output is Format.JSONL:
            json_line(_line(entity))
        else:
            _print(entity)
    if not count:
        raise ConfigurationError(
            f"there is no entity with the key {chosen.key!r}",
            where="KEY",
            hint="`instep entities --class CLASS` lists the keys",
        )


async def _found(
    config: Path | None, store: str | None, consumer: str | None, chosen: _Chosen
) -> AsyncGenerator[StoredEntity, None]:
    """The entities that are asked for; raises for a class that no entity has."""
    any_found, known = False, set[str]()
    async with open_stores(config, store, consumer, "entities") as places:
        for place in places:
            await require_stream(place.reader, chosen.stream)
            async for entity in _of(place, chosen):
                any_found = True
                yield entity
            if not any_found and chosen.entity_class is not None:
                known |= await _classes(place)
    if not any_found and chosen.entity_class is not None:
        _require_class(chosen.entity_class, known)


async def _of(place: OpenStore, chosen: _Chosen) -> AsyncGenerator[StoredEntity, None]:
    for name in place.names:
        async for entity in place.reader.entities(
            consumer=name,
            stream=chosen.stream,
            entity_class=chosen.entity_class,
            key=chosen.key,
            unproven=chosen.unproven,
        ):
            yield entity


async def _classes(place: OpenStore) -> set[str]:
    return {
        one.entity_class for one in await place.reader.count_entities() if place.has(one.consumer)
    }


def _require_class(entity_class: str, known: set[str]) -> None:
    if entity_class not in known:
        raise ConfigurationError(
            f"the store has no entity of class {entity_class!r}",
            where="--class",
            hint=f"it has: {', '.join(sorted(known)) or 'none yet'}",
        )


async def _list(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    chosen: _Chosen,
    limit: int | None,
    output: Format,
) -> None:
    console = Console(highlight=False)
    wide = console.width >= WIDE
    columns = [Column("Consumer", ratio=2, overflow="fold")]
    columns += [Column("Stream", ratio=2, overflow="fold")]
    columns += [Column("Class", ratio=5, overflow="fold")]
    columns += [Column("Key", width=KEY_WIDTH, overflow="fold")]
    if wide:
        columns += [Column("Appended", width=MOMENT_WIDTH), Column("Body", ratio=8)]

    def cells(entity: StoredEntity) -> list[str]:
        unproven = "" if entity.proven else f" (unproven: {entity.unproven})"
        names = [entity.consumer, entity.stream, entity.entity_class, entity.key + unproven]
        if not wide:
            return names
        body = entity.body[:_BODY_SHOWN_BYTES].decode(errors="replace")
        return [*names, moment(entity.appended_at_us), body]

    await print_listing(
        _found(config, store, consumer, chosen),
        console,
        columns,
        cells=cells,
        facts=_line,
        what="entities",
        limit=limit,
        output=output,
    )


async def _count(
    config: Path | None, store: str | None, consumer: str | None, chosen: _Chosen, output: Format
) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("Consumer", "Stream", "Class"):
        table.add_column(name, overflow="fold")
    table.add_column("Entities", justify="right")
    total, known = 0, set[str]()
    async with open_stores(config, store, consumer, "entities") as places:
        for place in places:
            await require_stream(place.reader, chosen.stream)
            for one in await place.reader.count_entities(stream=chosen.stream):
                if not place.has(one.consumer):
                    continue
                known.add(one.entity_class)
                if chosen.entity_class not in (None, one.entity_class):
                    continue
                total += one.entities
                if output is Format.JSONL:
                    json_line(
                        {
                            "consumer": one.consumer,
                            "stream": one.stream,
                            "class": one.entity_class,
                            "entities": one.entities,
                        }
                    )
                names = (one.consumer, one.stream, one.entity_class, f"{one.entities:,}")
                table.add_row(*(Text(plain(name)) for name in names))
    if chosen.entity_class is not None:
        _require_class(chosen.entity_class, known)
    if output is Format.TABLE:
        console = Console(highlight=False)
        console.print(table)
        console.print(counted(total, "entities"))


def _print(entity: StoredEntity) -> None:
    facts = {
        "consumer": entity.consumer,
        "stream": entity.stream,
        "class": entity.entity_class,
        "key": entity.key,
        "token": entity.token,
        "appended_at": stamp(entity.appended_at_us),
        "attempt": entity.attempt,
        "proven": "yes" if entity.proven else f"no: {entity.unproven}",
        "proven_at": _proven_at(entity) or "—",
        "proven_by": entity.proven_by or "—",
    }
    for name, value in facts.items():
        typer.echo(plain(f"{name:12} {value}"))
    typer.echo(f"\n{plain_lines(_indented(entity.body))}\n")


def _indented(body: bytes) -> str:
    try:
        return msgspec.json.format(body, indent=2).decode()
    except msgspec.DecodeError:
        return body.decode(errors="backslashreplace")


def _line(entity: StoredEntity) -> _Line:
    return _Line(
        entity.consumer,
        entity.stream,
        entity.key,
        entity.entity_class,
        entity.token,
        stamp(entity.appended_at_us),
        entity.attempt,
        one_line(entity.body),
        entity.proven,
        entity.unproven,
        _proven_at(entity),
        entity.proven_by,
    )


def _proven_at(entity: StoredEntity) -> str | None:
    return stamp(entity.proven_at_us) if entity.proven_at_us else None
