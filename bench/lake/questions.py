"""`python -m bench.lake.questions`: the seconds of each question of an operator, by engine.

The lake has networks of topohub, each of a consumer of its own, connectivity services over them,
and detectors that raise and clear. A second time is measured after a first answer: with the tables'
logs known, and classes loaded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import typer
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from markdown_it import MarkdownIt

from instep_spark import Lake, create_views
from instep_spark.answers import open_lake
from instep_spark.landing_schema import CHANGES, arrow_schema
from instep_spark.session import SparkOptions, open_session
from instep_tapi_provider.context import Nested
from instep_tapi_provider.topology import topology_context

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

_PAGE: Final = Path(__file__).resolve().parents[2] / "docs/how-to/questions.md"
_START_US: Final = 1_790_000_000_000_000
_TABLES: Final = ("entities", "entity_history", "alarms", "topology", "stream_health")
Ask = Callable[[str], int]
"""Asks a question and returns the number of rows of the answer."""


def main(
    topology: str = "sndlib/abilene",
    services: int = 50,
    alarms: int = 500,
    consumers: int = 1,
    copies: int = 1,
    *,
    without_spark: bool = False,
) -> None:
    """Land networks and alarms that are raised and cleared, and ask. `copies`: of what the pipeline
    has made of these, as of other consumers. `without_spark`: its own times are not measured, since
    they grow to minutes.
    """
    spark = open_session(SparkOptions(master="local[2]"))
    with TemporaryDirectory() as folder:
        lake = Path(folder)
        write_deltalake(lake / "changes", _landed(topology, services, alarms, consumers))
        Lake(lake.as_uri(), spark).run(once=True)
        for name in ("changes", *_TABLES):
            _copy(lake / name, copies)
        began = time.perf_counter()
        opened = open_lake(str(lake))
        opening_s = time.perf_counter() - began
        (entities,) = opened.sql("SELECT count(*) FROM entities").fetchall()[0]
        typer.echo(f"{entities} entities; `open_lake` takes {opening_s:.2f} s\n")
        _, with_spark = _PAGE.read_text("utf-8").split("## The questions\n")
        with_spark, _ = with_spark.split("## Without Spark\n")
        questions = _fences(with_spark)
        engines = [_duckdb(opened), _polars(lake)]
        names = ["DuckDB", "Polars"]
        if not without_spark:
            engines.insert(0, _spark(spark, lake))
            names.insert(0, "Spark")
        typer.echo(f"| Question | {' | '.join(names)} |\n|{' --- |' * (len(names) + 1)}")
        titles = [line for line in with_spark.splitlines() if line.endswith("?")]
        for title, question in zip(titles, questions, strict=True):
            cells = [_seconds(engine, question) for engine in engines]
            typer.echo(f"| {title} | {' | '.join(cells)} |")
    spark.stop()


def _copy(table: Path, copies: int) -> None:
    rows = pa.table(QueryBuilder().register("t", DeltaTable(table)).execute("SELECT * FROM t"))
    at, name = rows.schema.get_field_index("consumer"), rows.schema.field("consumer")
    for number in range(1, copies):
        others = pc.binary_join_element_wise(rows["consumer"].cast(pa.string()), str(number), "-")
        write_deltalake(table, rows.set_column(at, name, others.cast(name.type)), mode="append")


def _fences(markdown: str) -> list[str]:
    return [token.content for token in MarkdownIt().parse(markdown) if token.type == "fence"]


def _spark(spark: SparkSession, lake: Path) -> Ask:
    session = spark.newSession()
    create_views(session, lake.as_uri())
    return lambda question: len(session.sql(question).collect())


def _duckdb(opened: DuckDBPyConnection) -> Ask:
    return lambda question: int(opened.sql(question).to_arrow_table().num_rows)


def _polars(lake: Path) -> Ask:
    known = pl.SQLContext({name: pl.scan_delta(str(lake / name)) for name in _TABLES}, eager=True)

    def ask(question: str) -> int:
        answer: Any = known.execute(question)
        return int(answer.height)

    return ask


def _seconds(ask: Ask, question: str) -> str:
    try:
        ask(question)
    except (pl.exceptions.PolarsError, KeyError):
        return "-"
    began = time.perf_counter()
    ask(question)
    return f"{time.perf_counter() - began:.2f}"


def _landed(topology: str, services: int, alarms: int, consumers: int) -> pa.Table:
    """The rows of `changes`."""
    context = topology_context(topology, services=services)
    stated = [
        (node.key, node.cls, node.parent_address, node.body(Nested.IDENTIFIED).decode(), False)
        for node in context.nodes.values()
    ]
    ports = [node for node in context.nodes.values() if node.cls == "NODE_EDGE_POINT"]
    stated += list(_alarms([port.uuid for port in ports], alarms))
    rows: list[tuple[Any, ...]] = []
    for ordinal, (key, name, parents, body, ends) in enumerate(stated, 1):
        at = _START_US + ordinal * 1_000_000
        place = (
            f"t{ordinal}",
            "p",
            ordinal,
            at,
            at,
            name,
            json.dumps(parents) if parents else None,
            1,
            1,
        )
        content = (True, ends, "", body, None, None, at)
        rest = ("s", ordinal, key, "CREATE_UPDATE", *place, *content)
        rows += [(f"c{number}", *rest) for number in range(consumers)]
    schema = arrow_schema(CHANGES)
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def _alarms(ports: list[str], count: int) -> Iterator[tuple[str, str, Any, str, bool]]:
    """Episodes, each of a detector on a port; one in ten lasts."""
    for n in range(count):
        port = ports[n * 7 % len(ports)]
        for state in ("ACTIVE", "CLEAR")[: 1 if n % 10 == 0 else 2]:
            detail = {
                "alarm-detector-state": f"ALARM_DETECTOR_STATE_{state}",
                "legacy-properties": {"perceived-severity": ("MINOR", "CRITICAL")[n % 2]},
            }
            body = {
                "tapi-streaming:alarm-condition-detector-detail": detail,
                "condition-native-name": "LOS",
                "measured-entity-class": "NODE_EDGE_POINT",
                "measured-entity-uuid": port,
            }
            yield f"LOS {port}", "CONDITION_DETECTOR", None, json.dumps(body), state == "CLEAR"


if __name__ == "__main__":
    typer.run(main)
