"""The rows that a table lacks, and which of them the driver holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.batches.micro_batch import MicroBatch
from instep_spark.lake.batches.progress import StreamProgress, TableProgress
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.place import LakePlace
from tests.instep_spark.lake.lake_kit import changes, ends
from tests.instep_spark.lake.log_kit import START_US, Row, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = [
    Row("c", "s", n, "CREATE_UPDATE", f"n{n}", f"t{n}", "p", n, START_US + n, START_US + n)
    for n in range(1, 6)
]


@pytest.mark.parametrize("by_driver", [True, False])
def test_few_rows_with_small_contents_are_held(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_driver: bool
) -> None:
    land(tmp_path, ROWS)
    ask = DeltaRsTable((tmp_path / "changes").as_uri(), any_size=True).query if by_driver else None
    table = LakePlace(tmp_path.as_uri()).table("changes")
    (total,) = changes(spark, tmp_path).selectExpr("sum(octet_length(body))").collect()
    assert total[0]

    def held(records: int, size_bytes: int) -> bool:
        monkeypatch.setattr("instep_spark.lake.batches.micro_batch.SMALL_RECORDS", records)
        monkeypatch.setattr("instep_spark.lake.batches.micro_batch.SMALL_BYTES", size_bytes)
        batch = MicroBatch(spark, table, ends(ROWS), str(tmp_path), lambda pending: pending, ask)
        pending = batch.after(TableProgress())
        assert pending.rows.count() == len(ROWS)
        return pending.small

    assert held(len(ROWS), total[0])
    assert not held(len(ROWS) - 1, total[0])
    assert not held(len(ROWS), total[0] - 1)


def test_l4_a_table_reads_the_rows_that_it_lacks(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, ROWS)
    table = LakePlace(tmp_path.as_uri()).table("changes")
    batch = MicroBatch(spark, table, ends(ROWS), str(tmp_path), lambda pending: pending)
    pending = batch.after(TableProgress({("c", "s"): StreamProgress(3)}))
    assert sorted(row.ordinal for row in pending.rows.collect()) == [4, 5]
