"""CHECK constraints of the tables: Delta refuses a commit with a row that breaks one."""

from __future__ import annotations

from typing import Final

from instep_spark.lake.tables.schema import TableSchema

__all__ = ["constraint_properties"]

_PREFIX: Final = "delta.constraints."
"""Of the table property that holds a constraint."""


def constraint_properties(table: TableSchema) -> str:
    """SQL: what a new table adds to its TBLPROPERTIES. So no commit of its own is needed."""
    return "".join(f", '{_PREFIX}{name}' = \"{sql}\"" for name, sql in table.constraints.items())
