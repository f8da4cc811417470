"""`reconciliation`: what audits have found, so that it can be asked how often tables were wrong."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from instep_spark.lake.batches.micro_batch import local_relation
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.schema import RECONCILIATION
from instep_spark.lake.verify import Comparison
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ReconciliationTable"]

_SCHEMA: Final = pa.schema(
    [
        ("consumer", pa.string()),
        ("stream", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("against", pa.string()),
        ("verdict", pa.string()),
        ("entities", pa.int64()),
        ("ids", pa.list_(pa.string())),
    ]
)


class ReconciliationTable(LakeTable):
    """The table `reconciliation`. Rows are only added to it."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(RECONCILIATION, place)

    def append(self, spark: SparkSession, found: Comparison, *, at: datetime, against: str) -> None:
        """Append the result of an audit that began at a time."""
        ids: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for one in found.examples:
            ids[one["consumer"], one["stream"], one["verdict"]].append(one["id"])
        rows = [
            {
                "consumer": one.consumer,
                "stream": one.stream,
                "at": at,
                "against": against,
                "verdict": one.verdict,
                "entities": one.entities,
                "ids": ids.get((one.consumer, one.stream, one.verdict)),
            }
            for one in found.by_stream
        ]
        made = local_relation(spark, pa.Table.from_pylist(rows, _SCHEMA))
        made.createOrReplaceTempView("instep_reconciled")
        names = ", ".join(f"`{name}`" for name in _SCHEMA.names)
        new = f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({names})"
        merge = f"MERGE INTO {self.sql} USING instep_reconciled ON false {new}"
        self.commit(spark, TableProgress(), merge)
