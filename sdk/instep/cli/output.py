"""Output of all commands: JSON lines for machines, tables for people that print as they grow."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from instep.errors import plain

__all__ = [
    "KEY_WIDTH",
    "MOMENT_WIDTH",
    "WIDE",
    "Format",
    "FormatOption",
    "Listing",
    "counted",
    "json_bytes",
    "json_line",
    "moment",
    "one_line",
    "plain",
    "plain_lines",
    "print_listing",
    "stamp",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK_ROWS: Final = 200
KEY_WIDTH: Final = 36
"""Width in characters of a column of keys: a uuid is shown whole, to be copied."""
WIDE: Final = 120
"""Columns of a terminal that has room for more than what is needed."""
MOMENT_WIDTH: Final = 19
"""Width in characters of a column of times (`moment`)."""


class Format(StrEnum):
    """How a command prints: for people, or one JSON object a line."""

    TABLE = "table"
    JSONL = "jsonl"


FormatOption = Annotated[
    Format, typer.Option("--format", help="A table for people, or one JSON object a line.")
]


def json_line(value: Any, *, flush: bool = False) -> None:
    """Print one JSON object on a line of stdout; bodies given as `msgspec.Raw` go in verbatim, but
    for characters that could steer a terminal: they are written as escapes of JSON.
    """
    sys.stdout.buffer.write(json_bytes(value) + b"\n")
    if flush:
        sys.stdout.buffer.flush()


def json_bytes(value: Any) -> bytes:
    """A value as JSON, all of it printable: the same value to whoever reads it."""
    encoded = msgspec.json.encode(value)
    text = encoded.decode()
    if text.isprintable():
        return encoded
    # Outside of texts, JSON has no such character but a tab.
    return "".join(
        char if char.isprintable() or char == "\t" else json.dumps(char)[1:-1] for char in text
    ).encode()


def one_line(body: bytes) -> msgspec.Raw:
    """A JSON body as it stands, but on one line: a line break in JSON is only ever a blank."""
    if b"\n" in body or b"\r" in body:
        body = body.replace(b"\n", b" ").replace(b"\r", b" ")
    return msgspec.Raw(body or b"null")


def stamp(at_us: int) -> str:
    """Microseconds since 1970 as RFC 3339, UTC, with all six decimals."""
    at = _EPOCH + timedelta(microseconds=at_us)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment(at_us: int) -> str:
    """Microseconds since 1970 as text for people: UTC, to the second, 19 characters."""
    return stamp(at_us)[:19].replace("T", " ")


def plain_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines."""
    return "\n".join(map(plain, text.split("\n")))


class Listing:
    """A table that is printed while it grows: memory does not grow with it.

    The widths of the columns are fixed, so that all parts of the table line up.
    """

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        """`columns`: each has a `width` in characters, or a `ratio` of the width that is left. What
        does not fit is cut, or in a column with `overflow="fold"` goes on in the next line.
        """
        self._console = console
        self._columns = columns
        self._rows: list[tuple[Text, ...]] = []
        self.rows = 0
        """Rows added so far."""

    def add(self, *cells: str) -> None:
        self._rows.append(
            tuple(
                Text(plain(cell), overflow=column.overflow)
                for cell, column in zip(cells, self._columns, strict=True)
            )
        )
        self.rows += 1
        if len(self._rows) >= _CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Print the rows added since the last call."""
        first = self.rows == len(self._rows)
        if not self._rows and not first:
            return
        columns = [
            replace(column, no_wrap=column.overflow != "fold", _cells=[])
            for column in self._columns
        ]
        table = Table(
            *columns,
            box=SIMPLE_HEAD,
            show_header=first,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            expand=True,
        )
        for row in self._rows:
            table.add_row(*row)
        self._console.print(table)
        self._rows.clear()


_RowT = TypeVar("_RowT")


_SINGULAR: Final = {
    "alarms": "alarm",
    "changes": "change",
    "entities": "entity",
    "events": "event",
    "failed changes": "failed change",
    "handlers": "handler",
    "messages": "message",
    "records": "record",
    "rows": "row",
    "sequences": "sequence",
}
"""What is counted → one of it."""


def counted(count: int, what: str) -> str:
    """A number with what it counts: `1 entity`, `1,204 entities`."""
    return f"{count:,} {_SINGULAR.get(what, what) if count == 1 else what}"


async def print_listing(
    found: AsyncGenerator[_RowT, None],
    console: Console,
    columns: Sequence[Column],
    *,
    cells: Callable[[_RowT], Sequence[str]],
    facts: Callable[[_RowT], Any],
    what: str,
    limit: int | None,
    output: Format,
) -> None:
    """Print what was found, up to `limit`, and close it: as a table with the `cells` of each and
    their count in words (`what`), or as JSON lines of the `facts` of each.
    """
    listing = Listing(console, columns)
    shown = 0
    async with aclosing(found):
        async for one in found:
            shown += 1
            if output is Format.JSONL:
                json_line(facts(one))
            else:
                listing.add(*cells(one))
            if shown == limit:
                break
    if output is Format.TABLE:
        listing.flush()
        console.print(f"{counted(listing.rows, what)}{' (--limit)' * (shown == limit)}")
