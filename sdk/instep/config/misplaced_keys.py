"""Where a key belongs that stands in the wrong table of a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, Final

from instep.config.lines import file_of
from instep.config.reference import Table, tables
from instep.errors import ConfigurationError

__all__ = ["with_place"]

_MOST: Final = 3
"""Places that are named. A key of more tables is too common for a hint."""


def with_place(error: ConfigurationError) -> str:
    """What to do about an error. For an unknown key that another table of the same file may have,
    that table comes first: one of the core, or of a plug-in that the file names. Not where the key
    is surely a slip of one that is known there.
    """
    path, key = file_of(error.where), error.data.get("key")
    if path is None or "known" not in error.data or error.data.get("sure"):
        return error.hint
    try:
        kinds = set(_kinds(tomllib.loads(path.read_text(encoding="utf-8-sig"))))
    except (OSError, ValueError):
        return error.hint
    usable = [
        table
        for table in tables()
        if not table.plugin or (table.path.split(".")[1], table.plugin) in kinds
    ]
    found = [table for table in usable if any(one.name == key for one in table.keys)]
    places = list(dict.fromkeys(map(_written, found)))
    if not 0 < len(places) <= _MOST:
        return error.hint
    paths = {table.path for table in usable}
    if str(path) == error.where and all(f"{one.path}.{key}" in paths for one in found):
        # It is a table itself, at the top of the file.
        return f"write {' or '.join(sorted({f'[{one.path}.{key}]' for one in found}))}"
    return f"it belongs in {' or '.join(places)}; known keys: {', '.join(error.data['known'])}"


def _kinds(document: Any) -> Iterator[tuple[str, str]]:
    """The plug-ins that a file names: what for, and their kinds. Also those in lists of tables."""
    if isinstance(document, list):
        for one in document:
            yield from _kinds(one)
    elif isinstance(document, dict):
        for name, one in document.items():
            if isinstance(one, dict) and isinstance(one.get("kind"), str):
                yield name, one["kind"]
            yield from _kinds(one)


def _written(table: Table) -> str:
    if not table.path:
        return "the top of the file"
    return f"[[{table.path}]]" if table.repeated else f"[{table.path}]"
