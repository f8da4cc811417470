"""One view of a lake."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["View"]


class View(NamedTuple):
    """One view."""

    name: str
    meaning: str
    sql: str
    """A query over other views and tables, by their names."""
