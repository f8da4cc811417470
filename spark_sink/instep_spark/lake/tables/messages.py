"""`messages`: delivered messages of numbered sequences, copied from the store that delivered them.

A message is delivered in the transaction of a SQL store, so it is there, and not in `changes`, that
its order is durable. The largest cursor in the table is its progress.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from instep.config.plugins import open_reader
from instep.model.messages import StoredMessage
from instep.ports.reader import MessageReader
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.schema import MESSAGES
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MessagesTable"]

_encode: Final = msgspec.json.Encoder().encode
_PAGE_RECORDS: Final = 10_000
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_SCHEMA: Final = pa.schema(
    [
        ("consumer", pa.string()),
        ("stream", pa.string()),
        ("cursor", pa.int64()),
        ("number", pa.int64()),
        ("id", pa.string()),
        ("sender", pa.string()),
        ("received_at", _MOMENT),
        ("delivered_at", _MOMENT),
        ("body", pa.string()),
        ("attachments", pa.string()),
    ]
)


class MessagesTable(LakeTable):
    """The table `messages`. It takes the messages of one store."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(MESSAGES, place)

    async def take(self, spark: SparkSession, store: str) -> int:
        """Append what the store delivered since the last time. Returns the number of messages.

        Raises `ConfigurationError` for a store that keeps none, and `SinkError`.
        """
        reader = open_reader(store)
        try:
            last = spark.sql(f"SELECT coalesce(max(cursor), 0) AS at FROM {self.sql}").first()
            assert last is not None
            page: list[StoredMessage] = []
            count = 0
            async for message in MessageReader.of(reader).messages(last.at):
                page.append(message)
                count += 1
                if len(page) == _PAGE_RECORDS:
                    self._append(spark, page)
                    page = []
            if page:
                self._append(spark, page)
            return count
        finally:
            await reader.close()

    def _append(self, spark: SparkSession, page: list[StoredMessage]) -> None:
        rows = [
            (
                *(m.consumer, m.stream, m.cursor, m.number, m.id, m.sender),
                *(m.received_at_us, m.delivered_at_us, _text(m.body)),
                _encode(m.attachments).decode() if m.attachments else None,
            )
            for m in page
        ]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=_SCHEMA)
        spark.createDataFrame(table).createOrReplaceTempView("instep_messages")
        names = ", ".join(_SCHEMA.names)
        new = f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({names})"
        merge = f"MERGE INTO {self.sql} USING instep_messages ON false {new}"
        self.commit(spark, TableProgress(), merge)


def _text(body: bytes) -> str:
    """Return the body as text. A body that is no text becomes `{"base64": …}`."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(body).decode()}"}}'
