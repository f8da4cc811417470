"""Where the tables of a lake are, and what SQL calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["LakePlace", "Layout", "folder_of"]

Layout = Literal["auto", "merge-on-read", "copy-on-write"]
"""What a change does to the files of a table."""


def folder_of(url: str) -> Path:
    """The folder that a URL `file:…` names."""
    return Path(unquote(urlsplit(url).path))


class LakePlace(NamedTuple):
    """The place of a lake: a folder, and a database of Spark's catalogue where its tables have
    names, too.
    """

    url: str
    database: str = ""
    """`catalog.schema`; empty: tables are known by their URL alone."""
    managed: bool = False
    """The catalogue chooses where the files of a table of `database` are."""

    def table(self, name: str) -> str:
        """SQL for a table."""
        return f"{self.database}.{name}" if self.database else f"delta.`{self.location(name)}`"

    def location(self, name: str) -> str:
        """The URL of a table, or its name where the catalogue chooses the URL."""
        if self.managed:
            return f"{self.database}.{name}"
        return f"{self.url.rstrip('/')}/{name}"

    def clause(self, name: str) -> str:
        """The part of CREATE TABLE that says where the files are."""
        named = self.database and not self.managed
        return f"LOCATION '{self.location(name)}' " if named else ""
