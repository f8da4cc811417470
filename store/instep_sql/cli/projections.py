"""`instep projections …`: the tables that a SQL store fills for its users."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from instep.cli.output import Format, FormatOption, json_line, plain, stamp
from instep.cli.store import ConfigArgument, ConsumerOption
from instep.config.file import ConsumerConfiguration, default_path, load
from instep.config.plugins import build_sink
from instep.errors import ConfigurationError
from instep_sql.reader import ProjectionError
from instep_sql.store import SqlStore

__all__ = ["projections"]


class Verb(StrEnum):
    """What to do with the projections of a configuration."""

    REBUILD = "rebuild"
    ERRORS = "errors"


def projections(
    verb: Annotated[Verb, typer.Argument(help="What to do.", show_default=False)],
    config: ConfigArgument = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Look after the ready projections that sinks of kind `sql` name.

    rebuild: fill their tables again from the stored entities, in one transaction; the consumer may
    run meanwhile. errors: list the rows that a table could not hold; ends with 1 where there are
    any.
    """
    found = _consumers(config or default_path(), consumer)
    if verb is Verb.REBUILD:
        for one in found:
            for name, rows in asyncio.run(_rebuild(one)).items():
                if output is Format.JSONL:
                    json_line({"consumer": one.name, "projection": name, "rows": rows})
                else:
                    typer.echo(plain(f"{one.name}: {name} has {rows:,} rows"))
        return
    errors = [error for one in found for error in asyncio.run(_errors(one))]
    for error in errors:
        _print(error, output)
    if errors:
        raise typer.Exit(1)
    if output is Format.TABLE:
        typer.echo("every row is in its table")


def _consumers(path: Path, consumer: str | None) -> list[ConsumerConfiguration]:
    """The consumers whose sink names projections. Raises `ConfigurationError`: there are none."""
    found = [
        one
        for one in load(path).consumers
        if consumer in (None, one.name)
        and one.sink.kind == "sql"
        and one.sink.options.get("projections")
    ]
    if not found:
        raise ConfigurationError(
            "no sink of kind sql names projections",
            where=str(path),
            hint='add projections = ["node"] to [consumers.sink], or choose by --consumer',
            key="projections",
        )
    return found


async def _rebuild(one: ConsumerConfiguration) -> dict[str, int]:
    """Fill the tables again; how many rows each has, by its name."""
    async with _store(one) as store:
        await store.open(one.name)
        return await store.rebuild_projections()


async def _errors(one: ConsumerConfiguration) -> list[ProjectionError]:
    async with _store(one) as store:
        errors = await store.reader.projection_errors()
        return [error for error in errors if error.consumer == one.name]


def _store(one: ConsumerConfiguration) -> SqlStore:
    store = build_sink(one.sink)
    assert isinstance(store, SqlStore)
    return store


def _print(error: ProjectionError, output: Format) -> None:
    if output is Format.JSONL:
        json_line(
            {
                "consumer": error.consumer,
                "projection": error.table,
                "stream": error.stream,
                "key": error.key,
                "class": error.entity_class,
                "reason": error.reason,
                "since": stamp(error.since_us),
            }
        )
    else:
        about = f"{error.consumer} / {error.stream}: {error.entity_class} {error.key}"
        typer.echo(plain(f"{about} is not in {error.table}: {error.reason}"))
