"""CHECK constraints: a table takes no row that breaks one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.schema import HISTORY, LAKE_TABLES, TableSchema
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WHOSE = {"consumer": "'c'", "stream": "'s'", "id": "'i'"}
EARLY, LATE = "TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-02'"
INTERVAL = {"valid_from": EARLY, "valid_to": LATE, "ended_by": "'UPDATE'", "open": "false"}
EPISODE = {"raised_at": EARLY, "cleared_at": LATE, "ended_by": "'CLEAR'", "state": "'CLEAR'"}
EPISODE |= {"duration_s": "86400", "open": "false"}


def insert(spark: SparkSession, table: LakeTable, values: dict[str, str]) -> None:
    cells = WHOSE | values
    spark.sql(f"INSERT INTO {table.sql} ({', '.join(cells)}) VALUES ({', '.join(cells.values())})")


def opened(spark: SparkSession, folder: Path, table: TableSchema) -> LakeTable:
    made = LakeTable(table, LakePlace(folder.as_uri()))
    made.open(spark, to_replace=True)
    return made


def constraints(spark: SparkSession, table: LakeTable) -> dict[str, str]:
    prefix = "delta.constraints."
    found = spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()
    return {one.key.removeprefix(prefix): one.value for one in found if prefix in one.key}


@pytest.mark.parametrize(
    ("table", "good", "wrong"),
    [
        (
            HISTORY,
            INTERVAL,
            [
                {"valid_to": "TIMESTAMP '2025-01-01'"},
                {"valid_to": "NULL"},
                {"open": "true"},
                {"ended_by": "'MAGIC'"},
                {"valid_to_basis": "'GUESSED'"},
            ],
        ),
        (
            LAKE_TABLES["alarms"],
            EPISODE,
            [
                {"cleared_at": "TIMESTAMP '2025-01-01'"},
                {"ended_by": "NULL"},
                {"ended_by": "'UPDATE'"},
                {"state": "'ACTIVE'"},
                {"duration_s": "-1"},
            ],
        ),
    ],
    ids=["entity_history", "alarms"],
)
def test_a_row_that_cannot_be_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    table: TableSchema,
    good: dict[str, str],
    wrong: list[dict[str, str]],
) -> None:
    made = opened(spark, tmp_path, table)
    assert constraints(spark, made) == table.constraints
    insert(spark, made, good)
    for values in wrong:
        with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):
            insert(spark, made, good | values)
    assert made.read(spark).count() == 1
