"""The names in the JSON lines of all commands, compared with the table of the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parent.parent / "docs/reference/json-lines.md"
GROUPS = {
    "conformance",
    "entity",
    "handlers",
    "lake",
    "projections",
    "quarantine",
    "references",
    "sequences",
    "streams",
    "sweep",
}
OPAQUE = {
    "attributes",
    "body",
    "conformance_report",
    "content",
    "counts",
    "default",
    "deviations",
    "envelope",
    "evidence",
    "monitor",
    "headers",
    "info",
    "intake",
    "metrics",
    "pair",
    "samples",
    "patch",
    "previous",
    "elapsed_s_by_table",
    "rows_behind_by_table",
    "altered_rows_by_table",
    "filters",
    "publishes_to",
    "settings",
    "sink",
    "source",
}
"""Names whose objects are of others, or have names that are data."""


class Name(NamedTuple):
    """A row of the table."""

    types: frozenset[str]
    commands: frozenset[str]


@cache
def table() -> dict[str, Name]:
    """The names of the page."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            name, types, commands, _ = (cell.strip() for cell in line.strip("|").split(" | "))
            listed = frozenset(one.strip(" `") for one in commands.split(","))
            found[name.strip("` ")] = Name(frozenset(types.split(" or ")), listed)
    return found


def command_of(arguments: Sequence[str]) -> str:
    """The command of a command line: one word, or two of a group."""
    if arguments[:2] == ("messages", "dead"):
        return " ".join(arguments[:3])
    return " ".join(arguments[: 2 if arguments[0] in GROUPS else 1])


def check_names(arguments: Sequence[str], output: str | bytes) -> None:
    """Fail for a name in these JSON lines that the table lacks, has with another type, or does not
    list for this command.
    """
    command = command_of(arguments)
    for line in output.splitlines():
        for name, type_ in _names(json.loads(line)):
            known = table().get(name)
            assert known is not None, f"{command}: {name!r} is not in {PAGE.name}"
            assert type_ in known.types, f"{command}: {name!r} is {type_}"
            assert command in known.commands, f"{PAGE.name}: {name!r} is of {command}, too"


def _names(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _names(one)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name, _type(inner)
            if name not in OPAQUE:
                yield from _names(inner)


def _type(value: Any) -> str:
    kinds = {str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "list" if isinstance(value, list) else "object")
