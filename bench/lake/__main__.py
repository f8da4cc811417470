"""`python -m bench.lake`: the chain from `changes` to `entities` beside a bare MERGE of Spark, and
the cost of a micro-batch against the size of the table for each layout, as a plot (L4).

The floor merges the same rows into a table of the same columns by the same join, with no
comparison, no mark, no progress: what a user would write by hand. Both run in one session,
alternating.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import typer
from deltalake import write_deltalake
from rich.console import Console
from rich.table import Table as RichTable

from instep.errors import ConfigurationError
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.tables.schema import ENTITIES
from instep_spark.landing_schema import CHANGES, arrow_schema
from instep_spark.place import LakePlace
from instep_spark.session import SparkOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_TARGET: Final = 0.7
_BODY: Final = '{"uuid":"%s","value":"%s"}'
_BODY_CHARS: Final = 1_200
_CHUNK: Final = 100_000


class _Layout(NamedTuple):
    """How a table of entities lies in files."""

    placed: str = ""
    """A clause of `CREATE TABLE`."""
    vectors: bool = False
    bucketed: bool = False


_BUCKETS: Final = 16
_TURNS: Final = 5
_LAYOUTS: Final = {
    "plain": _Layout(),
    "deletion vectors": _Layout(vectors=True),
    "clustered by id": _Layout("CLUSTER BY (stream, id)"),
    f"{_BUCKETS} buckets of ids": _Layout("PARTITIONED BY (bucket)", bucketed=True),
}
_BUCKET: Final = f"CAST(pmod(xxhash64(key), {_BUCKETS}) AS INT) AS bucket"
_LANDED: Final = {column.name for column in CHANGES}
_MADE: Final = ("id", "proven")
"""Columns of `entities` that the floor makes of others."""


class Chain(msgspec.Struct, frozen=True):
    """The results for one size: medians of the runs."""

    entities: int
    load: str
    floor_records_per_s: int
    product_records_per_s: int

    @property
    def ratio(self) -> float:
        return self.product_records_per_s / self.floor_records_per_s


def rows(first: int, count: int, attempt: int, at_us: int) -> Iterator[pa.Table]:
    """Return statements about `count` entities, one each, as `changes` has them."""
    schema = arrow_schema(CHANGES)
    filler = os.urandom(_BODY_CHARS // 2).hex()
    for begin in range(first, first + count, _CHUNK):
        ordinals = range(begin, min(begin + _CHUNK, first + count))
        # Keys come in no order, as in a network.
        keys = [f"{(n - first) * 0x9E3779B1 % 2**32:08x}-{n - first}" for n in ordinals]
        size = len(keys)
        same: dict[str, Any] = {
            "consumer": "bench",
            "stream": "s",
            "kind": "CREATE_UPDATE",
            "partition": "0",
            "appended_at": at_us,
            "event_at": at_us,
            "class": "NODE",
            "parent_address": None,
            "attempt": attempt,
            "lineage": 1,
            "whole": True,
            "ends": False,
            "uuid": "",
            "envelope": "{}",
            "position": None,
            "committed_at": at_us,
        }
        columns: dict[str, list[Any]] = {name: [value] * size for name, value in same.items()}
        columns |= {"ordinal": list(ordinals), "record_offset": list(ordinals), "key": keys}
        columns["token"] = [f"t{n}" for n in ordinals]
        columns["body"] = [_BODY % (key, filler) for key in keys]
        yield pa.table([pa.array(columns[f.name], f.type) for f in schema], schema)


def chain(spark: SparkSession, folder: Path, count: int, rounds: int) -> list[Chain]:
    """Measure new entities, then an update of each, by product and floor alternating."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        lake = folder / f"{count}-{number}"
        floor = _floor_table(spark, lake / "floor", "plain")
        pipeline = Pipeline(LakePlace(lake.as_uri()), tables=[])
        pipeline.open(spark)
        for load, first in (("new", 1), ("update", count + 1)):
            for part in rows(first, count, 1, 1_790_000_000_000_000 + first):
                write_deltalake(lake / "changes", part, mode="append")
            changes = spark.read.format("delta").load((lake / "changes").as_uri())
            batch = changes.where(f"ordinal >= {first}")
            gc.collect()
            runs: dict[str, Callable[[], None]] = {
                "floor": partial(_bare_merge, batch, floor),
                "product": partial(pipeline.apply, spark, {("bench", "s"): first + count - 1}),
            }
            order = list(runs) if number % 2 == 0 else list(reversed(runs))
            for name in order:
                begun = time.perf_counter()
                runs[name]()
                seconds.setdefault((load, name), []).append(time.perf_counter() - begun)
    found = []
    for load in ("new", "update") if rounds else ():
        speed = {
            n: round(count / statistics.median(seconds[load, n])) for n in ("floor", "product")
        }
        found.append(Chain(count, load, speed["floor"], speed["product"]))
    return found


def _floor_table(spark: SparkSession, path: Path, layout: str) -> str:
    chosen = _LAYOUTS[layout]
    table = f"delta.`{path.as_uri()}`"
    bucket = ", bucket INT" if chosen.bucketed else ""
    spark.sql(
        f"CREATE TABLE {table} ({ENTITIES.ddl()}{bucket}) USING delta {chosen.placed} "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(chosen.vectors).lower()}')"
    )
    return table


def _floor_rows(batch: Any, *, bucketed: bool) -> None:
    """Create the view `floor_rows` with the rows to merge."""
    taken = [
        f"`{column.name}`"
        if column.name in _LANDED
        else f"CAST(NULL AS {column.type}) {column.name}"
        for column in ENTITIES.columns
        if column.name not in _MADE
    ]
    bucket = [_BUCKET] if bucketed else []
    rows = batch.selectExpr(*taken, "key AS id", "true AS proven", *bucket)
    rows.createOrReplaceTempView("floor_rows")


def _bare_merge(batch: Any, table: str, *, bucketed: bool = False) -> None:
    _floor_rows(batch, bucketed=bucketed)
    batch.sparkSession.sql(
        f"MERGE INTO {table} t USING floor_rows s "
        "ON t.consumer = s.consumer AND t.stream = s.stream AND t.id = s.id "
        f"{'AND t.bucket = s.bucket ' if bucketed else ''}"
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def layouts(
    spark: SparkSession, folder: Path, sizes: list[int], batch_records: int, names: list[str]
) -> dict[str, list[float]]:
    """Measure the seconds of a micro-batch of updates by layout and size of the table; the layouts
    alternate.
    """
    found: dict[str, list[float]] = {layout: [] for layout in names}
    for size in sizes:
        landed = folder / f"changes-{size}"
        for part in rows(1, size, 1, 1):
            write_deltalake(landed, part, mode="append")
        changes = spark.read.format("delta").load(landed.as_uri())
        tables: dict[str, str] = {}
        for layout in names:
            table = _floor_table(spark, folder / f"{layout.replace(' ', '-')}-{size}", layout)
            _floor_rows(changes, bucketed=_LAYOUTS[layout].bucketed)
            spark.sql(f"INSERT INTO {table} BY NAME SELECT * FROM floor_rows")
            spark.sql(f"OPTIMIZE {table}")
            tables[layout] = table
        every = max(_TURNS, size // batch_records)
        times: dict[str, list[float]] = {layout: [] for layout in names}
        for repetition in range(_TURNS):
            batch = changes.where(f"ordinal % {every} = {repetition}").localCheckpoint()
            for layout in names if repetition % 2 else reversed(names):
                begun = time.perf_counter()
                _bare_merge(batch, tables[layout], bucketed=_LAYOUTS[layout].bucketed)
                times[layout].append(time.perf_counter() - begun)
        for layout in names:
            # The first one of a table opens its files.
            found[layout].append(statistics.median(times[layout][1:]))
            print(f"{size:>9,} entities, {layout}: {found[layout][-1]:.2f} s", flush=True)
    return found


def plot(path: Path, sizes: list[int], found: dict[str, list[float]], batch_records: int) -> None:
    """Draw seconds against size."""
    import matplotlib as mpl  # noqa: PLC0415 — only for a plot

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(8, 5))
    for layout, seconds in found.items():
        axes.plot(sizes[: len(seconds)], seconds, marker="o", label=layout)
    axes.set(
        xscale="log",
        xlabel="entities in the table",
        ylabel=f"seconds for a micro-batch of {batch_records:,} updates",
        ylim=(0, None),
        title="Cost of a micro-batch against the size of the table",
    )
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def main(
    sizes: Annotated[str, typer.Option(help="Entities of each run.")] = "10000,100000,1000000",
    rounds: Annotated[int, typer.Option(min=0, help="Runs of floor and product each.")] = 1,
    plot_to: Annotated[Path | None, typer.Option(help="Draw the cost of layouts there.")] = None,
    batch_records: Annotated[int, typer.Option(min=1, help="Updates of a micro-batch.")] = 1_000,
    limit_s: Annotated[
        float, typer.Option(min=1, help="Begin no size that would end later than this, in all.")
    ] = 1_800,
    layout: Annotated[
        list[str] | None, typer.Option(help="Only these layouts (may be repeated); default all.")
    ] = None,
    jsonl: Annotated[bool, typer.Option(help="One JSON object a line.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit 1 when a target is missed.")] = False,
) -> None:
    """Measure entities/s from landed changes to `entities`. Ratios can be compared between
    machines, records/s cannot.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    config = {"spark.driver.memory": "4g"}
    try:
        spark = open_session(SparkOptions(master="local[2]", config=config))
    except ConfigurationError as error:
        print(f"not measured: {error}")
        return
    names = layout or list(_LAYOUTS)
    if unknown := set(names) - set(_LAYOUTS):
        raise typer.BadParameter(f"{min(unknown)!r} is none of {', '.join(_LAYOUTS)}")
    counts = [int(size) for size in sizes.split(",")]
    table = RichTable(title=f"Entities/s from changes to entities (target {RATIO_TARGET})")
    for name in ("entities", "load", "bare MERGE", "instep", "ratio"):
        table.add_column(name, justify="right")
    met = True
    begun_s, cost_s = time.perf_counter(), 0.0
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        chain(spark, folder / "warm", 1_000, min(rounds, 2))
        for count in counts if rounds else ():
            spent_s = time.perf_counter() - begun_s
            if spent_s + count * cost_s > limit_s:
                print(f"{count:,} entities: not measured, it would take {count * cost_s:,.0f} s")
                continue
            for one in chain(spark, folder, count, rounds):
                met = met and one.ratio >= RATIO_TARGET
                if jsonl:
                    print(msgspec.json.encode(one).decode(), flush=True)
                speeds = (f"{one.floor_records_per_s:,}", f"{one.product_records_per_s:,}")
                table.add_row(f"{one.entities:,}", one.load, *speeds, f"{one.ratio:.2f}")
            cost_s = (time.perf_counter() - begun_s - spent_s) / count
        if plot_to is not None:
            found = layouts(spark, folder / "layouts", counts, batch_records, names)
            plot(plot_to, counts, found, batch_records)
            print(msgspec.json.encode(found).decode(), flush=True)
    if not jsonl:
        Console().print(table)
    spark.stop()
    if strict and not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
