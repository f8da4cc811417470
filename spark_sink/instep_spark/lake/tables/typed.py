"""Tables of one class each, with a column for each member that its model has: `typed_node`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep_spark.lake.tables.entities import ProjectionTable
from instep_spark.lake.tables.schema import Column, projection_schema
from instep_spark.lake.typed_views import (
    BAD_VALUES,
    bad_values,
    class_named,
    comment,
    ddl_type,
    parsed_body,
    typed_class,
    typed_values,
)
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TypedTable"]


class TypedTable(ProjectionTable):
    """The entities of one class that exist. The typed view is its plain twin, computed when it is
    asked; the table can be read without Spark.
    """

    driver_merges = False  # a merge of delta-rs (1.6) panics over some columns of lists

    def __init__(self, place: LakePlace, name: str) -> None:
        """`name`: of the table. Raises `ConfigurationError` for one of a class that is not
        known.
        """
        entity_class = class_named(name)
        self._class = typed_class(entity_class)
        columns = (
            Column("parent_address", "STRING", "parent-address as JSON; null where it has none"),
            *(Column(one.name, ddl_type(one), comment(one)) for one in self._class.columns),
            Column("body", "STRING", "the entity as JSON, as the provider stated it"),
            Column(
                BAD_VALUES, "ARRAY<STRING>", "columns whose value in `body` is none of its type"
            ),
        )
        meaning = f"Each {entity_class} that exists, with its members. {self._class.meaning}"
        super().__init__(place, projection_schema(name, meaning.strip(), columns), (entity_class,))

    def project(self, rows: DataFrame) -> DataFrame:
        typed = [column.name for column in self._class.columns]
        made = {*typed, BAD_VALUES}
        landed = [f"`{name}`" for name in ("ends", *self._names) if name not in made]
        rows = self.of_classes(rows).selectExpr(*landed, f"{parsed_body(self._class)} AS stated")
        rows = rows.selectExpr(*landed, *typed_values(self._class), "stated")
        named = [f"`{name}`" for name in typed]
        return rows.selectExpr(*landed, *named, f"{bad_values(self._class)} AS {BAD_VALUES}")
