"""`instep projections …`: the tables that a SQL store fills for its users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import typer

from instep.cli.output import Format, FormatOption, counted, json_line, plain, stamp
from instep.cli.store import ConfigArgument, ConsumerOption
from instep.config.file import ConsumerConfiguration, default_path, load
from instep.config.plugins import build_sink
from instep.errors import ConfigurationError
from instep_sql.reader import ProjectionError
from instep_sql.store import SqlStore

__all__ = ["projections"]


async def rebuild(
    config: ConfigArgument = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Fill the tables again from the stored entities.

    It is one transaction; the consumer may run meanwhile.

    Example: instep projections rebuild instep.toml
    """
    for one in _consumers(config or default_path(), consumer):
        async with _store(one) as store:
            await store.open(one.name)
            rebuilt = await store.rebuild_projections()
        for name, rows in rebuilt.items():
            if output is Format.JSONL:
                json_line({"consumer": one.name, "projection": name, "rows": rows})
            else:
                typer.echo(plain(f"{one.name}: {name} has {counted(rows, 'rows')}"))


async def errors(
    config: ConfigArgument = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the rows that a table could not hold.

    Ends with 1 if there are any.

    Example: instep projections errors instep.toml
    """
    found = _consumers(config or default_path(), consumer)
    missing: list[ProjectionError] = []
    for one in found:
        async with _store(one) as store:
            errors = await store.reader.projection_errors()
        missing += [error for error in errors if error.consumer == one.name]
    for error in missing:
        _print(error, output)
    if missing:
        raise typer.Exit(1)
    if output is Format.TABLE:
        typer.echo("every row is in its table")


projections: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "rebuild": rebuild,
    "errors": errors,
}
"""Look after the tables of ready projections."""


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
