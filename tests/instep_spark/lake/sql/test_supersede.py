"""Rule A3 in the SQL of the lake's engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from tests.instep.model.ordering_kit import NEWER, null_query, pairs_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a3_in_datafusion() -> None:
    def query(sql: str) -> list[tuple[int, int]]:
        found = pa.table(QueryBuilder().execute(sql).read_all())
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    assert set(query(pairs_query())) == NEWER
    assert query(null_query()) == [(0, 1)]


# A JVM starts, and may share the machine.
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a3_in_spark(spark: SparkSession) -> None:
    assert {tuple(row) for row in spark.sql(pairs_query()).collect()} == NEWER
    assert [tuple(row) for row in spark.sql(null_query()).collect()] == [(0, 1)]
