"""Lakes of random networks, and the answers of each engine beside those of the oracle."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import write_deltalake

from instep_spark.answers import answer
from instep_spark.answers.definitions import FUNCTIONS as DEFINED
from instep_spark.answers.definitions import TABLES
from instep_spark.lake.lake import Lake
from instep_spark.lake.tables.schema import LAKE_TABLES
from instep_spark.landing_schema import CHANGES, FACTS, arrow_schema
from tests.instep_spark.answers.network_kit import (
    COMPACTION_US,
    HOUR_US,
    START_US,
    Network,
    Statement,
    facts,
    land,
)
from tests.instep_spark.answers.oracle_kit import ANSWERS, MINUTE_US, PLACES, Oracle, Row
from tests.instep_spark.lake.lake_kit import UNGUARDED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS: Final = (START_US + 5_000_000, START_US + HOUR_US, START_US + 4 * HOUR_US + 7)
WINDOWS: Final = (
    (START_US - HOUR_US, START_US + HOUR_US),
    (START_US + 1_234_567, START_US + 2 * HOUR_US + 1),
    (START_US, START_US + 100 * HOUR_US),
)
ARGUMENTS: Final[Mapping[str, tuple[tuple[int, ...], ...]]] = {
    "availability_between": WINDOWS,
    "repair_between": WINDOWS,
    "topology_at": tuple((one,) for one in MOMENTS),
    "entities_at": tuple((MOMENTS[1], as_of) for as_of in MOMENTS),
}
FUNCTIONS: Final = {one.name: one.parameters for one in DEFINED}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
QUESTIONS: Final = [(name, given) for name in ANSWERS for given in ARGUMENTS.get(name, ((),))]
TYPES: Final = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
Ask = Callable[[str, tuple[int, ...]], pa.Table]
"""All rows of an answer, for its arguments."""


def oracles(seeds: Iterable[int]) -> list[Oracle]:
    """Of every second network the compaction delay is declared."""
    return [Oracle(Network(seed).rows, COMPACTION_US if seed % 2 else None) for seed in seeds]


def write_tables(networks: Iterable[Oracle], lake: Path) -> None:
    """The tables of a lake as the oracle has them: what the pipeline makes of these statements, in
    a hundredth of the time.
    """
    networks = list(networks)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES if name in LAKE_TABLES}
    for one in networks:
        for name, found in _tables(one):
            rows[name].append(found)
    for name, those in rows.items():
        schema = pa.schema([(c.name, TYPES[c.type]) for c in LAKE_TABLES[name].columns])
        write_deltalake(lake / name, pa.Table.from_pylist(those, schema))
    _write(lake, "changes", CHANGES, land([row for one in networks for row in one.rows]))
    _write(lake, "stream_facts", FACTS, facts_of(networks))


def facts_of(networks: Iterable[Oracle]) -> list[tuple[Any, ...]]:
    """The rows of `stream_facts`."""
    return [row for one in networks for row in facts(one.rows, told=one.told)]


def _tables(network: Oracle) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in network.history:
        whose: dict[str, Any] = dict(zip(("consumer", "stream", "id"), one.key, strict=True))
        whose |= {"key": one.key[2], "class": one.entity_class, "uuid": "", "open": one.end is None}
        whose["body"] = json.dumps(one.body)
        whose["parent_address"] = json.dumps(one.parents) if one.parents else None
        place: dict[str, Any] = {"ordinal": one.ordinal, "proven": one.basis != "UNPROVEN"}
        yield (
            "entity_history",
            {
                **whose,
                **place,
                "valid_from": one.begin,
                "valid_to": one.end,
                "ended_by": one.ended_by,
                "end_ordinal": one.end_ordinal,
            },
        )
        if one.end is None:
            mark = {"attempt": one.mark, "token": "t", "appended_at": one.stated_at}
            yield "entities", {**whose, **place, **mark}
            if one.entity_class in PLACES:
                place = {"node_uuid": one.node, "nep_uuid": one.port, "name": one.name}
                yield "topology", {**whose, **place, "uuid": one.uuid}
    for alarm in network.episodes:
        whose = dict(zip(("consumer", "stream", "id"), alarm.key, strict=True))
        ended = None if alarm.cleared_at is None else "SWEEP" if alarm.swept else "CLEAR"
        yield (
            "alarms",
            {
                **whose,
                "episode": alarm.ordinal,
                "raised_at": alarm.raised_at,
                "cleared_at": alarm.cleared_at,
                "duration_s": alarm.cleared_at and (alarm.cleared_at - alarm.raised_at) / 1e6,
                "cleared_spread": "BEFORE" if alarm.swept else None,
                "ended_by": ended,
                "end_ordinal": alarm.end_ordinal,
                "worst_severity": alarm.worst,
                "severity": alarm.severity,
                "flapping_count": alarm.flapping,
                "measured_entity_class": alarm.measured_class,
                "measured_entity_uuid": alarm.measured,
                "node_uuid": alarm.node,
                "open": ended is None,
            },
        )
    for (stream, minute), delay in network.delays.items():
        full = network.compaction_us is None or delay <= network.compaction_us
        yield (
            "stream_health",
            {
                "consumer": network.consumer,
                "stream": stream,
                "minute": minute * MINUTE_US,
                "worst_read_delay_s": delay / 1e6,
                "zone": "full fidelity" if full else "reduced fidelity",
            },
        )


def _write(lake: Path, name: str, columns: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    schema = arrow_schema(columns)
    values = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
    write_deltalake(lake / name, pa.table(arrays, schema))


def lake_of(networks: Iterable[Oracle], lake: Path, spark: SparkSession) -> None:
    """Land the networks, and run the pipeline."""
    networks = list(networks)
    rows: list[Statement] = []
    for one in networks:
        rows += one.rows
    _write(lake, "changes", CHANGES, land(rows))
    _write(lake, "stream_facts", FACTS, facts_of(networks))
    Lake(lake.as_uri(), spark, settings=UNGUARDED).run(once=True)


def differences(networks: Iterable[Oracle], ask: Ask, name: str, given: tuple[int, ...]) -> str:
    """What an engine answers otherwise than the oracle; empty where all is equal."""
    columns = ["consumer", *ANSWERS[name].split(", ")]
    found = ask(name, given).select(columns)
    for at, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(at, column.name, found[column.name].cast(pa.int64()))
    rows = [tuple(one.values()) for one in found.to_pylist()]
    wanted: list[Row] = []
    for one in networks:
        answer: list[Row] = getattr(one, name)(*given)
        wanted += [(one.consumer, *row) for row in answer]
    rows.sort(key=_by_text)
    wanted.sort(key=_by_text)
    if len(rows) == len(wanted) and all(map(_same, rows, wanted)):
        return ""
    near = {tuple(map(_rounded, row)) for row in rows}
    other = {tuple(map(_rounded, row)) for row in wanted}
    return (
        f"{name}{given}: {columns}\n{len(rows)} rows, {len(wanted)} wanted\n"
        f"only found: {sorted(near - other, key=str)[:5]}\n"
        f"only wanted: {sorted(other - near, key=str)[:5]}"
    )


def _rounded(cell: Any) -> Any:
    return round(cell, 6) if isinstance(cell, float) else cell


def _by_text(row: Row) -> str:
    return str([f"{cell:.6f}" if type(cell) in (int, float) else str(cell) for cell in row])


def _same(row: Row, wanted: Row) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-12) if isinstance(b, float) and a is not None else a == b
        for a, b in zip(row, wanted, strict=True)
    )


def duckdb_asker(lake: Any) -> Ask:
    """Asks an open lake."""

    def ask(name: str, given: tuple[int, ...]) -> pa.Table:
        arguments = ", ".join(f"make_timestamp({one})" for one in given)
        called = f"({arguments})" if given else ""
        return pa.table(lake.sql(f"SELECT * FROM {name}{called}").to_arrow_table())

    return ask


def polars_asker(lake: Any) -> Ask:
    """Asks an open lake for frames of Polars."""

    def ask(name: str, given: tuple[int, ...]) -> pa.Table:
        arguments = ", ".join(f"make_timestamp({one})" for one in given)
        called = f"({arguments})" if given else ""
        return pa.table(lake.sql(f"SELECT * FROM {name}{called}").pl().to_arrow())

    return ask


def spark_asker(spark: SparkSession, url: str) -> Ask:
    """Asks a lake by the functions of PySpark."""

    def ask(name: str, given: tuple[int, ...]) -> pa.Table:
        parameters = FUNCTIONS.get(name, ())
        moments: dict[str, Any] = {
            parameter: _EPOCH + timedelta(microseconds=at)
            for (parameter, _), at in zip(parameters, given, strict=True)
        }
        return pa.table(answer(spark, url, name, **moments).toArrow())

    return ask
