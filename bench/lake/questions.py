"""`python -m bench.lake.questions`: the seconds of each question of an operator, by engine.

The lake has a network of topohub, connectivity services over it, and detectors that raise and
clear. A second time is measured after a first answer: with the tables' logs known, and classes
loaded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import typer
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from markdown_it import MarkdownIt

from instep_spark import Lake, create_views
from instep_spark.landing_schema import CHANGES, arrow_schema
from instep_spark.session import SparkOptions, open_session
from instep_tapi_provider.context import Nested
from instep_tapi_provider.topology import topology_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE: Final = Path(__file__).resolve().parents[2] / "docs/how-to/questions.md"
_START_US: Final = 1_790_000_000_000_000
_TABLES: Final = ("entities", "entity_history", "alarms", "topology", "stream_health")
Ask = Callable[[str], int]
"""Asks a question and returns the number of rows of the answer."""


def main(topology: str = "sndlib/abilene", services: int = 50, alarms: int = 500) -> None:
    """Land a network and alarms that are raised and cleared, and ask."""
    spark = open_session(SparkOptions(master="local[2]"))
    with TemporaryDirectory() as folder:
        lake = Path(folder)
        write_deltalake(lake / "changes", _landed(topology, services, alarms))
        Lake(lake.as_uri(), spark).run(once=True)
        with_spark, without = _PAGE.read_text("utf-8").split("## Without Spark\n")
        without, _ = without.split("## With Polars\n")
        (_, *asked), (recipe, *others) = _fences(with_spark), _fences(without)
        views = recipe[recipe.index("CREATE VIEW") :].partition('"""')[0]
        engines = (_duckdb(lake, views), _polars(lake))
        typer.echo("| Question | Spark | DuckDB | Polars |\n| --- | --- | --- | --- |")
        titles = [line for line in with_spark.splitlines() if line.endswith("?")]
        ask = _spark(spark, lake)
        for title, question, other in zip(titles, asked, others, strict=True):
            cells = [_seconds(ask, question), *(_seconds(engine, other) for engine in engines)]
            typer.echo(f"| {title} | {' | '.join(cells)} |")
    spark.stop()


def _fences(markdown: str) -> list[str]:
    return [token.content for token in MarkdownIt().parse(markdown) if token.type == "fence"]


def _spark(spark: SparkSession, lake: Path) -> Ask:
    session = spark.newSession()
    create_views(session, lake.as_uri())
    return lambda question: len(session.sql(question).collect())


def _duckdb(lake: Path, views: str) -> Ask:
    known = duckdb.connect()
    for name in _TABLES:
        found = QueryBuilder().register(name, DeltaTable(lake / name))
        known.register(name, pa.table(found.execute(f"SELECT * FROM {name}")))
    known.execute(views)
    return lambda question: int(known.sql(question).to_arrow_table().num_rows)


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


def _landed(topology: str, services: int, alarms: int) -> pa.Table:
    """The rows of `changes`."""
    context = topology_context(topology, services=services)
    stated = [
        (node.key, node.cls, node.parent_address, node.body(Nested.IDENTIFIED).decode(), False)
        for node in context.nodes.values()
    ]
    ports = [node for node in context.nodes.values() if node.cls == "NODE_EDGE_POINT"]
    stated += list(_alarms([port.uuid for port in ports], alarms))
    rows = []
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
        rows.append((*("c", "s", ordinal, key, "CREATE_UPDATE"), *place, *content))
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
