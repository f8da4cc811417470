"""Finds the clauses that the feature matrix names, and where the source cites them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from docs.import_graph import FOLDERS
from tests.docs.architecture_kit import prose

_ROW: Final = re.compile(r"\| (?P<what>.+?) \| (?P<claim>yes|partly|no|–|) \|.*\|.*\|")
_NUMBER: Final = r"\d+(?:\.\d+)*"
_NUMBERS: Final = re.compile(rf"(Cancellation proposal )?({_NUMBER}(?:, {_NUMBER})*) ")
_TAGGED: Final = re.compile(
    rf"ST-\d\.\d|RFC \d+(?: {_NUMBER})?|R[01]\d{{3}}|Rel16(?: step \d)?"  # of the documents
    r"|(?<=`)\w+(?=`)|\b(?:[A-Z][a-z]+|[a-z]+)(?:[A-Z][a-z]+)+\b"  # elements and headers
)
# What a section of a document is cited as. Of the store and its operation no document says a word.
_DOCUMENTS: Final = {"Clauses": "TR-548", "WS-ReliableMessaging": "WS-RM"}
_NO_DOCUMENT: Final = "Stores and operation"
_SIMULATED: Final = ("adapters/instep_tapi/provider/", "adapters/instep_tapi_provider/")


def clauses(matrix: str) -> Iterator[str]:
    """The clauses of each row that says yes, as a citation has them.

    A section of TR-548 is `TR-548 3.10`, one of WS-ReliableMessaging `WS-RM 3.4`. Elements and
    headers are cited by their names.
    """
    section = ""
    for line in matrix.splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        row = _ROW.fullmatch(line)
        if row is None or row["claim"] != "yes" or section == _NO_DOCUMENT:
            continue
        numbers = _NUMBERS.match(row["what"])
        if numbers is not None:
            document = "proposal" if numbers[1] else _DOCUMENTS[section]
            yield from (f"{document} {number}" for number in numbers[2].split(", "))
        yield from _TAGGED.findall(row["what"])


def sources(repository: Path) -> dict[str, str]:
    """The source of what instep is, without the provider that it simulates, by path."""
    found = {
        path.relative_to(repository).as_posix(): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((repository / folder).rglob("*.py"))
    }
    return {path: text for path, text in found.items() if not path.startswith(_SIMULATED)}


def is_cited(clause: str, files: Mapping[str, str]) -> bool:
    """Whether a comment or a docstring of a file cites a clause; the name of an element may stand
    in the code.
    """
    document, _, number = clause.rpartition(" ")
    exact = re.compile(rf"(?<![\w.]){re.escape(number)}(?!\.?\w)")

    def cites(words: str) -> bool:
        return number in words and document in words and exact.search(words) is not None

    is_name = not re.search(r"\d", clause)
    return any(
        is_name or any(cites(words) for _, words in prose(text))
        for text in files.values()
        if cites(text)
    )
