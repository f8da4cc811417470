"""`instep config`: every key of `instep.toml`, for people and for editors."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from instep.cli.output import Format, FormatOption, json_line, plain
from instep.config.json_schema import json_schema
from instep.config.reference import Key, Table, tables
from instep.errors import ConfigurationError

__all__ = ["config"]


def config(
    keys: Annotated[
        bool,
        typer.Option("--keys", help="Every key with its type, default and meaning: the default."),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="A JSON Schema of the file, for editors.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what a configuration may say: its keys, or a schema for editors.

    Both include what the installed plug-ins know.

    Example: instep config --keys --format jsonl
    """
    if keys and schema:
        raise ConfigurationError(
            "both --keys and --schema were given",
            where="config",
            hint="`instep config --keys` is for people, --schema for editors",
        )
    if schema:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(json_schema())) + b"\n")
    elif output is Format.JSONL:
        for table in tables():
            for key in table.keys:
                json_line(_line(table, key))
    else:
        _print()


def _line(table: Table, key: Key) -> dict[str, Any]:
    return {
        "table": table.path,
        "plugin": table.plugin,
        "kind": table.kind,
        "key": key.name,
        "type": key.type,
        "required": key.required,
        "default": key.default,
        "meaning": key.meaning,
    }


def _print() -> None:
    console = Console(highlight=False)
    shown: dict[type, str] = {}
    for number, table in enumerate(tables()):
        console.print(Text("\n" * bool(number) + plain(table.heading), style="bold"))
        if table.struct in shown:
            console.print(Text(f"The keys of {shown[table.struct]}.", style="dim"))
            continue
        shown[table.struct] = plain(table.heading)
        console.print(Text(plain(table.meaning), style="dim"))
        grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1, overflow="fold")
        for key in table.keys:
            named = Text(plain(key.name))
            stated = Text(plain(f"{key.type}{_default(key)}"), style="dim")
            grid.add_row(named, Text("\n").join([stated, Text(plain(key.meaning))]))
        console.print(grid)


def _default(key: Key) -> str:
    if key.required:
        return ", required"
    return "" if key.default is None else f", default {msgspec.json.encode(key.default).decode()}"
