"""One uuid in two classes or two places, in the tables of a lake (A13).

What the rule asks of a lake, as examples; each is a stream of one lake.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.landing.live_view import live
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.landing_schema import CHANGES
from instep_spark.options import DeltaOptions
from tests.instep_spark.lake.lake_kit import ends, pipeline, read
from tests.instep_spark.lake.log_kit import START_US, Row, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_COLUMNS = [column.name for column in CHANGES]


@dataclass(frozen=True)
class Stated(Row):
    """A row of `changes` with a class and a parent-address of its own."""

    entity_class: str = "NODE"
    parents: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[object, ...]:
        cells = dict(zip(_COLUMNS, super().cells, strict=True))
        header_only = self.body is None
        cells["class"] = "" if header_only else self.entity_class
        cells["parent_address"] = json.dumps(self.parents, separators=(",", ":"))
        if header_only or not self.parents:
            cells["parent_address"] = None
        return tuple(cells.values())


@dataclass(frozen=True)
class Statement:
    """Of the entity `u`, by the stream or by its baseline."""

    key: str
    entity_class: str = "NODE"
    below: str = ""
    """The node in which it stands."""
    baseline: bool = False
    ends: bool = False

    def row(self, stream: str, ordinal: int) -> Stated:
        """The row that it is landed as. An end has a header only."""
        at = START_US + ordinal * 1_000_000
        return Stated(
            *("c", stream, ordinal, "TOMBSTONE" if self.ends else "CREATE_UPDATE", self.key),
            token="" if self.baseline else f"t{ordinal}",
            appended_at=at,
            event_at=at,
            committed_at=at,
            ends=self.ends,
            value=ordinal,
            uuid="" if self.ends else "u",
            entity_class=self.entity_class,
            parents=("topology-uuid:t", f"node-uuid:{self.below}") if self.below else (),
        )


def address(node: str) -> str:
    """The key of the end point `u` below this node: its whole address."""
    return f"topology-uuid:t+node-uuid:{node}+node-edge-point-uuid:u"


def port(key: str, below: str, *, baseline: bool = False) -> Statement:
    return Statement(key, "NODE_EDGE_POINT", below, baseline)


def end(key: str) -> Statement:
    return Statement(key, ends=True)


TWO_PLACES = (port(address("n1"), "n1"), port(address("n2"), "n2"))
SHOWN_TWICE = tuple(port(address(n), n, baseline=True) for n in ("n1", "n2"))
TWO_CLASSES = (Statement("k1", "NODE"), Statement("k2", "LINK"))
LOGS: dict[str, tuple[Sequence[Statement], set[str]]] = {
    # What is stated, and the keys of what exists then.
    "one-place": ((port("u", "n1", baseline=True), port("k1", "n1")), {"k1"}),
    "one-place-end": ((port("u", "n1", baseline=True), port("k1", "n1"), end("k1")), set()),
    "two-classes": (TWO_CLASSES, {"k1", "k2"}),
    "two-classes-end": ((*TWO_CLASSES, end("k2")), {"k1"}),
    "two-classes-end-at-once": ((*TWO_CLASSES, end("k1")), {"k2"}),
    "two-classes-baseline": (
        (Statement("topology-uuid:u", "TOPOLOGY", baseline=True), Statement("k2", "NODE")),
        {"topology-uuid:u", "k2"},
    ),
    "two-places": (TWO_PLACES, {address("n1"), address("n2")}),
    "two-places-end": ((*TWO_PLACES, end(address("n2"))), {address("n1")}),
    "two-places-end-at-once": ((*TWO_PLACES, end(address("n1"))), {address("n2")}),
    "two-places-baseline": (SHOWN_TWICE, {address("n1"), address("n2")}),
    "two-places-joined": ((*SHOWN_TWICE, port("k2", "n2")), {address("n1"), "k2"}),
    "two-places-joined-end": (
        (*SHOWN_TWICE, port("k2", "n2"), end("k2")),
        {address("n1")},
    ),
    "end-by-address": (
        (port("u", "n1", baseline=True), end(address("n2")), end(address("n1"))),
        set(),
    ),
}


@pytest.fixture(scope="module")
def found(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, set[tuple[str, str]]]:
    """Stream and key of what exists, as each table and the sink's own view tell it."""
    lake: Path = tmp_path_factory.mktemp("twins")
    rows = [
        statement.row(stream, ordinal)
        for stream, (statements, _) in LOGS.items()
        for ordinal, statement in enumerate(statements, 1)
    ]
    writer = DeltaRsWriter(DeltaOptions(url=lake.as_uri()))
    writer.open("c")
    land(lake, rows)
    made = pipeline(spark, lake, tables=["entity_history", "topology"])
    # Twins come in one micro-batch, what follows in the next; or all at once (L1).
    first = [row for row in rows if row.ordinal <= 2 and not row.stream.endswith("-at-once")]
    made.apply(spark, ends(first))
    made.apply(spark, ends([row for row in rows if row not in first]))
    seen = {
        (stream, key)
        for stream in LOGS
        for key in writer.query(live(writer, "c", stream, "key"))["key"].to_pylist()
    }
    history = [row for row in read(lake, "entity_history") if row["open"]]
    tables = {name: read(lake, name) for name in ("entities", "topology")}
    return {
        "live_view": seen,
        **{
            name: {(row["stream"], row["key"]) for row in rows}
            for name, rows in {**tables, "entity_history": history}.items()
        },
    }


@pytest.mark.parametrize("stream", LOGS)
def test_a13_one_uuid_is_one_entity_for_each_class_and_place(
    found: dict[str, set[tuple[str, str]]], stream: str
) -> None:
    wanted = LOGS[stream][1]
    for table, existing in found.items():
        assert {key for of, key in existing if of == stream} == wanted, table
