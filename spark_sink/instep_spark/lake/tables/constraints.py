"""CHECK constraints of the tables: Delta refuses a commit with a row that breaks one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from instep_spark.lake.tables.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["add_constraints", "constraint_properties"]

_PREFIX: Final = "delta.constraints."
"""Of the table property that holds a constraint."""


def constraint_properties(table: TableSchema) -> str:
    """SQL: what a new table adds to its TBLPROPERTIES. So no commit of its own is needed."""
    return "".join(f", '{_PREFIX}{name}' = \"{sql}\"" for name, sql in table.constraints.items())


def add_constraints(
    spark: SparkSession, target: str, table: TableSchema, properties: Mapping[str, str]
) -> None:
    """Add to a table of an older version the constraints that all of its rows keep. `target`: SQL
    for the table; `properties`: those it has. A row that breaks one stays as it is, and the table
    goes on without that constraint.
    """
    lacking = {
        name: check
        for name, check in table.constraints.items()
        if f"{_PREFIX}{name}" not in properties
    }
    if not lacking:
        return
    counts = ", ".join(f"count_if(NOT ({check})) AS {name}" for name, check in lacking.items())
    broken = spark.sql(f"SELECT {counts} FROM {target}").first()  # noqa: S608 — our own table
    assert broken is not None
    for name, check in lacking.items():
        if not broken[name]:
            spark.sql(f"ALTER TABLE {target} ADD CONSTRAINT {name} CHECK ({check})")
