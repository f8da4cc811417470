"""`python -m bench.lake.steady`: micro-batches of changes into all tables of a lake, beside bare
MERGEs of the same rows into as many tables.

The floor is what a user would write by hand, with no comparison, no interval and no progress: one
MERGE a table, all beside each other, by the same join; a history and alarms of their own rows only.
Both run in one session, in turn. Jobs are Spark's, which over Spark Connect nobody tells. Bytes are
those of the files that a micro-batch adds to all tables. Processor seconds are those of this
process and its children: they hold on a machine that is busy, as seconds do not.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import typer
from deltalake import write_deltalake

from instep.errors import ConfigurationError
from instep_spark.jar import installed_jar
from instep_spark.lake.batches.progress import CommitMetadata, TableProgress, carrying_metadata
from instep_spark.lake.pipeline import LakeSettings, Pipeline, PipelineStep
from instep_spark.lake.tables.schema import (
    ENTITIES,
    HEALTH,
    HISTORY,
    LAKE_TABLES,
    TableSchema,
)
from instep_spark.landing_schema import CHANGES, arrow_schema
from instep_spark.place import LakePlace, Layout
from instep_spark.session import ONE_MACHINE, SparkOptions, is_connect, open_session, own_session
from tests.instep_spark.spark_server_kit import connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Measured", "measure"]

RATIO_TARGET: Final = 0.8
STREAM: Final = ("bench", "s")
_CHUNK: Final = 100_000
_MASTER: Final = "local[2]"
_MEMORY: Final = "4g"
_SERVER: Final = {
    **ONE_MACHINE,
    "spark.driver.memory": _MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_START_US: Final = 1_790_000_000_000_000
_CLASSES: Final = ("CONDITION_DETECTOR", "NODE", "LINK", "NODE_EDGE_POINT", "CONNECTION")
"""Entities are of these classes in turn."""
_FILLER_CHARS: Final = 1_000
_FLOOR: Final[dict[TableSchema, str]] = {
    ENTITIES: "true",
    HISTORY: "true",
    LAKE_TABLES["alarms"]: "class = 'CONDITION_DETECTOR'",
    LAKE_TABLES["topology"]: "class IN ('NODE', 'LINK', 'NODE_EDGE_POINT')",
}
"""The tables of the floor, and the rows that concern them."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The medians for one size of the lake and of the micro-batch."""

    entities: int
    batch: int
    layout: str
    connect: bool
    product_s: float
    floor_s: float
    ratio: float
    """Speed of the product in speeds of the floor."""
    processor_s: float
    floor_processor_s: float
    jobs: int | None
    floor_jobs: int | None
    bytes: int
    """Of the files that a micro-batch has added to all tables …"""
    floor_bytes: int
    files: int
    """… and how many files these then have."""
    floor_files: int
    landed_to_s: dict[str, float]
    """By table: seconds from the begin of the micro-batch until the table has it."""


def statements(first: int, entities: range, attempt: int = 1) -> Iterator[pa.Table]:
    """Rows of `changes` from this ordinal on: one for each of these entities."""
    schema = arrow_schema(CHANGES)
    filler = os.urandom(_FILLER_CHARS // 2).hex()
    for begin in range(0, len(entities), _CHUNK):
        chosen = entities[begin : begin + _CHUNK]
        ordinals = range(first + begin, first + begin + len(chosen))
        # Keys come in no order, as in a network.
        keys = [f"{n * 0x9E3779B1 % 2**32:08x}-{n}" for n in chosen]
        times = [_START_US + 1_000 * ordinal for ordinal in ordinals]
        same: dict[str, Any] = {
            "consumer": STREAM[0],
            "stream": STREAM[1],
            "kind": "CREATE_UPDATE",
            "partition": "0",
            "parent_address": None,
            "attempt": attempt,
            "lineage": 1,
            "whole": True,
            "ends": False,
            "uuid": "",
            "envelope": "{}",
            "position": None,
        }
        columns: dict[str, list[Any]] = {name: [one] * len(keys) for name, one in same.items()}
        columns |= {
            "ordinal": list(ordinals),
            "record_offset": list(ordinals),
            "key": keys,
            "token": [f"t{ordinal}" for ordinal in ordinals],
            "class": [_CLASSES[n % len(_CLASSES)] for n in chosen],
            "body": [
                _body(key, _CLASSES[n % len(_CLASSES)], ordinal, filler)
                for key, n, ordinal in zip(keys, chosen, ordinals, strict=True)
            ],
            **dict.fromkeys(("appended_at", "event_at", "committed_at"), times),
        }
        columns["ends"] = ['"CLEAR"' in body for body in columns["body"]]
        yield pa.table([pa.array(columns[f.name], f.type) for f in schema], schema)


def _body(key: str, entity_class: str, ordinal: int, filler: str) -> str:
    if entity_class != "CONDITION_DETECTOR":
        return (
            f'{{"uuid":"{key}","operational-state":"ENABLED","name":[{{"value-name":"n",'
            f'"value":"{key}"}}],"value":"{ordinal}{filler}"}}'
        )
    state = "CLEAR" if ordinal % 2 else "ACTIVE"
    return (
        f'{{"tapi-streaming:alarm-condition-detector-detail":{{"alarm-detector-state":"{state}",'
        f'"legacy-properties":{{"perceived-severity":"MAJOR"}}}},"detector-native-id":"{key}",'
        f'"condition-native-name":"LOS","measured-entity-class":"NODE",'
        f'"measured-entity-uuid":"{key}","value":"{filler}"}}'
    )


class _Floor:
    """The tables of a user, and his MERGEs."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._tables = {
            schema: f"delta.`{(folder / schema.name).as_uri()}`" for schema in [*_FLOOR, HEALTH]
        }
        self._sessions = [own_session(spark) for _ in self._tables]
        for schema, table in self._tables.items():
            columns = ", ".join(f"`{one.name}` {one.type}" for one in schema.columns)
            spark.sql(
                f"CREATE TABLE {table} ({columns}) USING delta "
                "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
            )

    def merge(self, read: str) -> None:
        """Merge the rows that this query finds."""
        sessions = zip(self._sessions, self._tables.items(), strict=True)
        if is_connect(self._sessions[0]):
            for session, (schema, table) in sessions:
                self._merge(session, schema, table, read)
            return
        with ThreadPoolExecutor(len(self._sessions)) as pool:
            running = [
                pool.submit(self._merge, session, schema, table, read)
                for session, (schema, table) in sessions
            ]
        for one in running:
            one.result()

    def _merge(self, spark: SparkSession, schema: TableSchema, table: str, read: str) -> None:
        if schema is HEALTH:
            source = (
                "SELECT consumer, stream, date_trunc('MINUTE', committed_at) AS minute, "
                f"max(ordinal) AS ordinal, count(*) AS records FROM ({read}) "
                "GROUP BY consumer, stream, date_trunc('MINUTE', committed_at)"
            )
            key, names = "minute", ["consumer", "stream", "minute", "ordinal", "records"]
        else:
            landed = set(arrow_schema(CHANGES).names)
            names = ["id", *(c.name for c in schema.columns if c.name in landed)]
            source, key = f"SELECT *, key AS id FROM ({read}) WHERE {_FLOOR[schema]}", "id"
        columns = ", ".join(f"`{name}`" for name in names)
        updates = ", ".join(f"t.`{name}` = s.`{name}`" for name in names)
        values = ", ".join(f"s.`{name}`" for name in names)
        # The fastest that this Delta can: the pipeline's own setting.
        with carrying_metadata(spark, CommitMetadata(TableProgress()), maintenance=True):
            spark.sql(f"""
                MERGE INTO {table} t USING (SELECT {columns} FROM ({source})) s
                ON t.consumer = s.consumer AND t.stream = s.stream AND t.{key} = s.{key}
                WHEN MATCHED THEN UPDATE SET {updates}
                WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})
            """).collect()


class _Written(NamedTuple):
    """What the logs of some tables say."""

    bytes: int
    """Of all files that were ever added."""
    files: int
    """Those that the tables have now."""


def _written(folder: Path) -> _Written:
    added_bytes = files = 0
    for commit in folder.glob("*/_delta_log/*.json"):
        if commit.parent.parent.name == "changes":
            continue
        for line in commit.read_bytes().splitlines():
            action = msgspec.json.decode(line)
            added_bytes += action.get("add", {}).get("size", 0)
            files += ("add" in action) - ("remove" in action)
    return _Written(added_bytes, files)


def _processor_s() -> float:
    """Processor time of this process and its children, the JVM among them."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    own, newer = {os.getpid()}, {os.getpid()}
    while newer:
        newer = {pid for pid, parent in parents.items() if parent in newer} - own
        own |= newer
    return sum(ticks.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


def _jobs(spark: SparkSession) -> int | None:
    if is_connect(spark):
        return None
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def measure(
    spark: SparkSession,
    folder: Path,
    entities: int,
    batches: list[int],
    rounds: int,
    layout: Layout = "copy-on-write",
    *,
    floor: bool = True,
) -> Iterator[Measured | tuple[str, float]]:
    """Fill a lake with this many entities, and measure micro-batches into it: first how long it
    took to fill, then each size.
    """
    begun_s = 0.0
    steps: dict[str, float] = {}

    def told(step: PipelineStep) -> None:
        steps[step.table] = time.perf_counter() - begun_s

    for rows in statements(1, range(entities)):
        write_deltalake(folder / "changes", rows, mode="append")
    changes = f"delta.`{(folder / 'changes').as_uri()}`"
    pipeline = Pipeline(
        LakePlace(folder.as_uri()), settings=LakeSettings(layout=layout), report=told
    )
    begun_s = time.perf_counter()
    pipeline.open(spark)
    pipeline.apply(spark, {STREAM: entities})
    yield "filled", round(time.perf_counter() - begun_s, 1)
    # As a run that begins now: tables that have grown may be laid out anew.
    pipeline.open(spark)
    bare = _Floor(spark, folder / "floor") if floor else None
    if bare is not None:
        begun_s = time.perf_counter()
        bare.merge(f"SELECT * FROM {changes}")
        yield "floor filled", round(time.perf_counter() - begun_s, 1)
    last = entities
    for size in batches:
        seconds: dict[str, list[float]] = {}
        for number in range(rounds):
            # More than there are: the others are new.
            every = max(1, entities // size)
            if every % len(_CLASSES) == 0:
                every -= 1  # so each micro-batch has entities of all classes
            begin = number % every
            chosen = range(begin, begin + every * size, every)
            for rows in statements(last + 1, chosen):
                write_deltalake(folder / "changes", rows, mode="append")
            read = f"SELECT * FROM {changes} WHERE ordinal > {last}"
            last += size
            gc.collect()
            turns = ["product", *(["floor"] if bare is not None else [])]
            for turn in turns if number % 2 else reversed(turns):
                at = folder if turn == "product" else folder / "floor"
                jobs, before, used_s = _jobs(spark), _written(at), _processor_s()
                begun_s = time.perf_counter()
                if turn == "product":
                    steps.clear()
                    pipeline.apply(spark, {STREAM: last})
                else:
                    assert bare is not None
                    bare.merge(read)
                seconds.setdefault(turn, []).append(time.perf_counter() - begun_s)
                found, used_s = _written(at), _processor_s() - used_s
                seconds.setdefault(f"{turn} processor", []).append(used_s)
                seconds.setdefault(f"{turn} bytes", []).append(found.bytes - before.bytes)
                seconds.setdefault(f"{turn} files", []).append(found.files)
                if jobs is not None:
                    now = _jobs(spark)
                    assert now is not None
                    seconds.setdefault(f"{turn} jobs", []).append(now - jobs)
            for table, at_s in steps.items():
                seconds.setdefault(f"to {table}", []).append(at_s)
        # The first one compiles.
        of = {name: statistics.median(each[1:] or each) for name, each in seconds.items()}
        ratio = of["floor"] / of["product"] if bare is not None else 0.0
        yield Measured(
            entities=entities,
            batch=size,
            layout=layout,
            connect=is_connect(spark),
            product_s=round(of["product"], 2),
            floor_s=round(of.get("floor", 0.0), 2),
            ratio=round(ratio, 2),
            processor_s=round(of["product processor"], 2),
            floor_processor_s=round(of.get("floor processor", 0.0), 2),
            jobs=int(of["product jobs"]) if "product jobs" in of else None,
            floor_jobs=int(of["floor jobs"]) if "floor jobs" in of else None,
            bytes=int(of["product bytes"]),
            floor_bytes=int(of.get("floor bytes", 0)),
            files=int(of["product files"]),
            floor_files=int(of.get("floor files", 0)),
            landed_to_s={
                name[3:]: round(at, 2) for name, at in of.items() if name.startswith("to ")
            },
        )


def main(
    sizes: Annotated[str, typer.Option(help="Entities of each lake.")] = "10000,100000,1000000",
    batches: Annotated[str, typer.Option(help="Changes of a micro-batch.")] = "100,1000,20000",
    rounds: Annotated[int, typer.Option(min=1, help="Micro-batches of each size.")] = 5,
    layout: Annotated[str, typer.Option(help="As in the options of the sink.")] = "copy-on-write",
    remote: Annotated[str, typer.Option(help="A server of Spark Connect.")] = "",
    connect: Annotated[bool, typer.Option(help="Start a server of Spark Connect.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit 1 when the target is missed.")] = False,
    floor: Annotated[bool, typer.Option(help="Measure the bare MERGEs as well.")] = True,
) -> None:
    """Measure the seconds of a micro-batch from landing to each table, as JSON lines."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = SparkOptions(master=_MASTER, config={"spark.driver.memory": _MEMORY})
    with ExitStack() as stack:
        if connect:
            if installed_jar() is None:
                print("not measured: no provider of Delta's jar is installed")
                return
            remote, _ = stack.enter_context(connect_server(_MASTER, _SERVER))
        try:
            spark = open_session(SparkOptions(remote=remote) if remote else options)
        except ConfigurationError as error:
            print(f"not measured: {error}")
            return
        met = _report(
            spark,
            [int(size) for size in sizes.split(",")],
            [int(batch) for batch in batches.split(",")],
            rounds,
            msgspec.convert(layout, Layout),
            floor=floor,
        )
        spark.stop()
    if strict and not met:
        raise typer.Exit(1)


def _report(
    spark: SparkSession,
    sizes: list[int],
    batches: list[int],
    rounds: int,
    layout: Layout,
    *,
    floor: bool,
) -> bool:
    """Measure and print each; whether all meet the target."""
    met = True
    with TemporaryDirectory(prefix="instep-steady-") as temporary:
        for size in sizes:
            folder = Path(temporary) / str(size)
            for one in measure(spark, folder, size, batches, rounds, layout, floor=floor):
                print(msgspec.json.encode(one).decode(), flush=True)
                if isinstance(one, Measured):
                    met = met and one.ratio >= RATIO_TARGET
    return met


if __name__ == "__main__":
    typer.run(main)
