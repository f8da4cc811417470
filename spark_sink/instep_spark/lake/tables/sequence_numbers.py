"""`sequence_numbers`: what became of every number, copied from the store that has the record (S13).

A range may still grow, and a sender may be told later: the rows of a sequence that the store knows
are replaced by what it says now. Those of one that it has forgotten stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from instep.config.plugins import open_reader
from instep.ports.reader import MessageReader
from instep.sequencing.ends import RecordedEnd, resolve_ends
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.schema import SEQUENCE_NUMBERS
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SequenceNumbersTable"]

_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("consumer", "stream")),
        *((name, pa.int64()) for name in ("epoch", "low", "high")),
        *((name, pa.string()) for name in ("outcome", "reason", "decided_by", "told")),
        ("decided_at", pa.timestamp("us", tz="UTC")),
    ]
)
_KEY: Final = ("consumer", "stream", "epoch", "low")
_AT_ONCE: Final = 100_000
"""About so many ranges are replaced by one statement, each sequence whole."""
_Row = tuple[str | int | None, ...]


class SequenceNumbersTable(LakeTable):
    """The table `sequence_numbers`. It takes the record of one store."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(SEQUENCE_NUMBERS, place)

    async def take(self, spark: SparkSession, store: str) -> int:
        """Replace the rows of the sequences that the store knows or has forgotten not long ago.
        Returns the number of ranges.

        Raises `ConfigurationError` for a store that keeps none, and `SinkError`.
        """
        opened = open_reader(store)
        try:
            reader = MessageReader.of(opened)
            rows: list[_Row] = []
            count = 0
            async for one in reader.sequences():
                ends = resolve_ends(one.state, one.held_numbers, one.record)
                rows += [_row(one.consumer, one.stream, end) for end in ends]
                if len(rows) >= _AT_ONCE:
                    count += self._replace(spark, rows)
                    rows = []
            for consumer, stream in await reader.forgotten_sequences():
                ends = await reader.numbers(consumer, stream)
                rows += [_row(consumer, stream, end) for end in ends]
            return count + self._replace(spark, rows)
        finally:
            await opened.close()

    def _replace(self, spark: SparkSession, rows: list[_Row]) -> int:
        if not rows:
            return 0
        columns = zip(*rows, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=_SCHEMA)
        spark.createDataFrame(table).createOrReplaceTempView("instep_sequence_numbers")
        names = ", ".join(_SCHEMA.names)
        same = " AND ".join(f"t.{name} = s.{name}" for name in _KEY)
        update = ", ".join(f"{name} = s.{name}" for name in _SCHEMA.names)
        # Ranges of these sequences that are there no more: Delta deletes by no subquery.
        gone = (
            f"SELECT {names}, true AS gone FROM {self.sql} AS t "
            "LEFT SEMI JOIN instep_sequence_numbers AS k "
            "ON t.consumer = k.consumer AND t.stream = k.stream "
            f"LEFT ANTI JOIN instep_sequence_numbers AS s ON {same}"
        )
        self.commit(
            spark,
            TableProgress(),
            f"MERGE INTO {self.sql} AS t "
            f"USING (SELECT {names}, false AS gone FROM instep_sequence_numbers "
            f"UNION ALL {gone}) AS s "
            f"ON {same} "
            "WHEN MATCHED AND s.gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {update} "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({names})",
        )
        return len(rows)


def _row(consumer: str, stream: str, one: RecordedEnd) -> _Row:
    numbers, why = (one.epoch, one.low, one.high), (one.end.value, one.reason, one.by, one.told)
    return (consumer, stream, *numbers, *why, one.at_us or None)
