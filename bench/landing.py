"""`python -m bench.landing`: landing in `changes` beside bare appends of delta-rs and of Spark.

All are given the same records in memory, batch by batch. The floors build the same columns in the
plainest way, and append: no position, no ordinal to go on from, no transaction, no check for
records delivered before. One process runs all, delta-rs and product alternating; ratios can be
compared between machines. Spark appends a few batches only: each of its commits takes a quarter of
a second.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import pyarrow as pa
import typer
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from instep import Position, Record, RecordType, StreamInfo
from instep.errors import ConfigurationError
from instep.model import Batch
from instep_spark import DeltaSink
from instep_spark.landing_schema import CHANGES, arrow_schema
from instep_spark.session import SparkOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RATIO_TARGET"]

RATIO_TARGET: Final = 0.8
_BODY: Final = b'{"uuid":"%d","alarm-condition-detector-detail":{"state":"ACTIVE","text":"%s"}}'
_ENVELOPE: Final = b'{"event-time-stamp":"2026-01-01T00:00:00.000Z","record-content":"NODE"}'
_T0_US: Final = 1_767_225_600_000_000
_SCHEMA: Final = arrow_schema(CHANGES)
_SETTINGS: Final = {"delta.dataSkippingStatsColumns": "stream,ordinal,key"}
_WRITTEN: Final = WriterProperties(compression="ZSTD", compression_level=1)
_SPARK_BATCHES: Final = 5
_FROM_ARROW_RECORDS: Final = 10_000
"""Above it Spark is faster through a Parquet file."""


def records(first: int, count: int) -> list[Record]:
    """Alarms of 1.3 KB, appended a millisecond apart."""
    text = b"Loss of frame on the span. " * 42
    return [
        Record(
            "alarms",
            f"key-{offset * 7_919 % 1_000_003}",
            RecordType.CREATE_UPDATE,
            f"62234255_0:{offset:019d}:AAAAQAAhw4=",
            _T0_US + offset * 1_000,
            "0",
            offset,
            "CONDITION_DETECTOR",
            _BODY % (offset, text),
            _ENVELOPE,
        )
        for offset in range(first, first + count)
    ]


def floor(url: str, batches: list[list[Record]]) -> float:
    """Append with delta-rs alone. Returns seconds."""
    table = DeltaTable.create(url, _SCHEMA, configuration=_SETTINGS)
    begun_s = time.perf_counter()
    for batch in batches:
        write_deltalake(
            table,
            _plain(batch),
            mode="append",
            writer_properties=_WRITTEN,
            commit_properties=CommitProperties(),
        )
    return time.perf_counter() - begun_s


def spark_floor(spark: SparkSession, url: str, batches: list[list[Record]]) -> float:
    """Append with Spark alone. Returns records/s."""
    first, *measured = batches[: _SPARK_BATCHES + 1] if len(batches) > 1 else [*batches, *batches]
    _spark_append(spark, url, first)
    begun_s = time.perf_counter()
    for batch in measured:
        _spark_append(spark, url, batch)
    return sum(map(len, measured)) / (time.perf_counter() - begun_s)


def _spark_append(spark: SparkSession, url: str, batch: list[Record]) -> None:
    if len(batch) > _FROM_ARROW_RECORDS:
        with TemporaryDirectory() as folder:
            handed = Path(folder) / "rows.parquet"
            parquet.write_table(_plain(batch), handed)
            spark.read.parquet(str(handed)).write.format("delta").mode("append").save(url)
    else:
        spark.createDataFrame(_plain(batch)).write.format("delta").mode("append").save(url)


def _spark() -> SparkSession | None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = open_session(SparkOptions(master="local[2]"))
    except ConfigurationError as error:
        print(f"Spark is not measured: {error}")
        return None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _plain(batch: list[Record]) -> pa.Table:
    count, moment = len(batch), pa.timestamp("us", tz="UTC")
    appended = pa.array([record.appended_at_us for record in batch]).cast(moment)
    columns: dict[str, Any] = {
        "consumer": ["bench"] * count,
        "stream": [record.stream for record in batch],
        "ordinal": [record.offset for record in batch],
        "key": [record.key for record in batch],
        "kind": ["CREATE_UPDATE"] * count,
        "token": [record.token for record in batch],
        "partition": [record.partition for record in batch],
        "record_offset": [record.offset for record in batch],
        "appended_at": appended,
        "event_at": appended,
        "class": [record.entity_class for record in batch],
        "parent_address": pa.nulls(count, pa.string()),
        "attempt": [1] * count,
        "lineage": [1] * count,
        "whole": [True] * count,
        "ends": [record.ends for record in batch],
        "uuid": [record.uuid for record in batch],
        "body": [record.body for record in batch],
        "envelope": [record.envelope for record in batch],
        "position": pa.nulls(count, pa.string()),
        "committed_at": appended,
    }
    return pa.table(columns, schema=_SCHEMA)


def product(url: str, batches: list[list[Record]]) -> float:
    """Commit through the sink. Returns seconds."""
    return asyncio.run(_product(url, batches))


async def _product(url: str, batches: list[list[Record]]) -> float:
    async with DeltaSink(url, commit_interval_s=0) as sink:
        await sink.open("bench")
        position = await sink.position(StreamInfo(id="alarms", origin="bench", kind="bench"))
        begun_s = time.perf_counter()
        for batch in batches:
            before, last = position, batch[-1]
            position = Position(
                token=last.token,
                offsets={"0": last.offset},
                appended_at_us=last.appended_at_us,
                ordinal=before.ordinal + 1,
                records=before.records + len(batch),
                attempt=1,
                lineage=1,
                recent=before.remember([record.token for record in batch[-256:]]),
            )
            await sink.commit(Batch("alarms", position, before.ordinal, batch))
        return time.perf_counter() - begun_s


def main(
    total: Annotated[int, typer.Option("--records", min=1, help="Records of each run.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of floor and product each.")] = 5,
    batch: Annotated[
        list[int] | None, typer.Option(help="Records of a batch (may be repeated).")
    ] = None,
    beside_spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Also measure bare appends of Spark.")
    ] = True,
    strict: Annotated[bool, typer.Option(help="Exit 1 when a target is missed.")] = False,
) -> None:
    """Measure records/s from memory to committed rows of a Delta table."""
    shown = Table(title=f"Records/s from memory to rows of `changes` (target {RATIO_TARGET})")
    for name in ("batch", "delta-rs", "product", "ratio", "bare Spark", "ratio to it"):
        shown.add_column(name, justify="right")
    met = True
    landed: dict[int, tuple[float, float, float]] = {}
    programs: list[Callable[[str, list[list[Record]]], float]] = [floor, product]
    for size in batch or [1_000, 5_000, 20_000]:
        batches = [records(at, size) for at in range(1, total + 1, size)]
        count = sum(map(len, batches))
        rates: list[list[float]] = [[], []]
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                with TemporaryDirectory(prefix="instep-landing-") as folder:
                    seconds = programs[which]((Path(folder) / "lake").as_uri(), batches)
                    rates[which].append(count / seconds)
        ratio = statistics.median(ours / bare for bare, ours in zip(*rates, strict=True))
        met = met and ratio >= RATIO_TARGET
        bare, ours = map(statistics.median, rates)
        landed[size] = (bare, ours, ratio)
    # Its JVM comes last, so that it takes no time from the others.
    session = _spark() if beside_spark else None
    for size, (bare, ours, ratio) in landed.items():
        spark_cells = ("–", "–")
        if session is not None:
            with TemporaryDirectory(prefix="instep-landing-") as folder:
                batches = [records(at, size) for at in range(1, total + 1, size)]
                rate = spark_floor(session, (Path(folder) / "lake").as_uri(), batches)
            spark_cells = (f"{rate:,.0f}", f"{ours / rate:.1f}")
        shown.add_row(f"{size:,}", f"{bare:,.0f}", f"{ours:,.0f}", f"{ratio:.2f}", *spark_cells)
    if session is not None:
        session.stop()
    Console().print(shown)
    if strict and not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
