"""What the tests of the landing make: a lake with one stream open, and what is read of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from instep.model.batches import Batch, CommitResult
from instep.model.position import Position
from instep.model.records import Record
from instep.model.streams import StreamInfo, SweepEstimate
from instep_spark import DeltaSink
from tests.instep_sql.store_kit import stream_info


def url_of(folder: Path) -> str:
    return (folder / "lake").as_uri()


def rows(url: str, query: str = "SELECT * FROM changes ORDER BY stream, ordinal") -> list[Any]:
    """What another engine than Spark reads."""
    builder = QueryBuilder()
    for table in ("changes", "quarantine", "stream_facts"):
        builder = builder.register(table, DeltaTable(f"{url}/{table}"))
    found: list[Any] = pa.table(builder.execute(query).read_all()).to_pylist()
    return found


def of_all(estimate: SweepEstimate) -> tuple[int, int]:
    """How many entities there are, and how many of them are not marked; of all classes."""
    return estimate.total, estimate.unmarked


class Stage:
    """A lake with one stream, committed to step by step."""

    def __init__(self, sink: DeltaSink, stream: StreamInfo, position: Position) -> None:
        self.sink = sink
        self.stream = stream
        self.position = position
        self.attempt = max(position.attempt, 1)
        self.lineage = max(position.lineage, 1)

    def batch(self, *records: Record, **changes: Any) -> Batch:
        attempt = self.attempt
        offsets = dict(self.position.offsets) if attempt == self.position.attempt else {}
        offsets |= {r.partition: r.offset for r in records if r.offset >= 0}
        given: dict[str, Any] = {
            "position": Position(
                token=records[-1].token if records else self.position.token,
                ordinal=self.position.ordinal + 1,
                attempt=attempt,
                lineage=self.lineage,
                offsets=offsets,
                records=self.position.records + len(records),
            ),
            "expects_ordinal": self.position.ordinal,
            "records": records,
            **changes,
        }
        return Batch(self.stream.id, **given)

    async def commit(self, *records: Record, **changes: Any) -> CommitResult:
        batch = self.batch(*records, **changes)
        result = await self.sink.commit(batch)
        self.position = batch.position
        return result


@asynccontextmanager
async def stage(
    url: str, consumer: str = "c", stream: StreamInfo | None = None, **options: Any
) -> AsyncIterator[Stage]:
    stream = stream or stream_info()
    async with DeltaSink(url, **{"commit_interval_s": 0, **options}) as sink:
        await sink.open(consumer)
        yield Stage(sink, stream, await sink.position(stream))


def fill(path: Path) -> None:
    """Fill the disk with a file. Raises `OSError` when it is full."""
    with path.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 512)
