"""Where a table or a key stands in a file of TOML, for errors. The parser does not tell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["file_of", "find_line", "with_line"]

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY: Final = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"))*)\s*=""")
_INNER: Final = r"""[{{,]\s*["']?{}["']?\s*="""
_PLACE: Final = re.compile(r"(?P<file>.+?): (?P<path>[\w.\[\]-]+)")
_QUOTES: Final = ('"""', "'''")


def file_of(where: str) -> Path | None:
    """The file that the place of an error names: `instep.toml: consumers[0].sink`, or the file
    alone. None where it names none.
    """
    place = _PLACE.fullmatch(where)
    path = Path(place["file"] if place else where)
    return path if path.is_file() else None


def with_line(where: str, key: str = "") -> str:
    """The place of an error, `instep.toml: consumers[0].sink`, with the line where it stands; as it
    is where that cannot be told.
    """
    file = file_of(where)
    if file is None:
        return where
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return where
    path = where.removeprefix(str(file)).removeprefix(": ")
    line = find_line(
        text, path if not key or path.endswith(f".{key}") else f"{path}.{key}".lstrip(".")
    )
    return where if line is None else f"{where} (line {line})"


def find_line(text: str, path: str) -> int | None:
    """The line, from 1, of a key by its path, `consumers[0].sink.url`; of what is nearest around it
    where it has none of its own.
    """
    wanted = _steps(path)
    best: tuple[int, int] | None = None
    counts: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    for number, line in _lines(text):
        found: list[tuple[str | int, ...]] = []
        if header := _HEADER.match(line):
            table = _header(header[2], counts, of_array=header[1] == "[[")
            found += [table, wanted] if (*wanted, 0) == table else [table]
        elif assigned := _KEY.match(line):
            at = (*table, *_names(assigned[1]))
            found.append(at)
            inner = wanted[len(at) : len(at) + 1]
            if wanted[: len(at)] == at and inner and _states(line, assigned.end(), inner[0]):
                found.append((*at, *inner))
        for at in found:
            if wanted[: len(at)] == at and (best is None or len(at) > best[0]):
                best = (len(at), number)
    return None if best is None else best[1]


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines outside of texts that run over several lines, with their numbers."""
    lines, closing = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if not closing:
            lines.append((number, line))
        for quotes in _QUOTES:
            if closing in ("", quotes) and line.count(quotes) % 2:
                closing = "" if closing else quotes
    return lines


def _header(
    name: str, counts: dict[tuple[str | int, ...], int], *, of_array: bool
) -> tuple[str | int, ...]:
    """The path of a table. In an array of tables, a name stands for the last one so far."""
    path: tuple[str | int, ...] = ()
    names = _names(name)
    for at, one in enumerate(names):
        path = (*path, one)
        if of_array and at == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _states(line: str, behind: int, name: str | int) -> bool:
    """Whether an inline table on this line states the key."""
    return re.search(_INNER.format(re.escape(str(name))), line[behind:]) is not None


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(one.strip().strip("\"'") for one in dotted.split("."))


def _steps(path: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    for part in path.split("."):
        name, *indexes = part.replace("]", "").split("[")
        steps += [name, *(int(index) for index in indexes if index.isdigit())]
    return tuple(steps)
