"""One view of a lake."""

from __future__ import annotations

from typing import NamedTuple

from instep_spark.landing_schema import comment_literal

__all__ = ["ViewDefinition"]


class ViewDefinition(NamedTuple):
    """One view."""

    name: str
    meaning: str
    sql: str
    """A query over other views and tables, by their names."""
    columns: tuple[tuple[str, str], ...] = ()
    """Each column with its comment; none: as the query names them."""

    def ddl(self) -> str:
        """SQL: the columns with their comments, for `CREATE VIEW … (…)`."""
        named = (f"`{name}` COMMENT {comment_literal(text)}" for name, text in self.columns)
        return f"({', '.join(named)}) " if self.columns else ""
