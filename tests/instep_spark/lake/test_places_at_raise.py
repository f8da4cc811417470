"""Where an alarm was when it was raised, told from the history, whatever the network is now."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep_spark import create_views
from instep_spark.lake.tables.schema import LAKE_TABLES
from tests.instep_spark.lake.log_kit import Row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
PORT = [{"node-uuid": "n1", "node-edge-point-uuid": "p1"}, {"node-uuid": "n2"}]


def at(minute: int) -> datetime:
    return datetime(2026, 11, 23, 12, minute, tzinfo=UTC)


def held(cls: str, uuid: str, name: str, since: int, until: int | None, **more: Any) -> Any:
    """An interval of the history, in minutes."""
    parents = more.pop("parents", None)
    body = {"uuid": uuid, "name": [{"value-name": "n", "value": name}], **more}
    facts = {"consumer": "c", "stream": "s", "id": uuid, "key": uuid, "class": cls, "uuid": ""}
    facts |= {"body": json.dumps(body), "parent_address": parents and json.dumps(parents)}
    ends = None if until is None else at(until)
    return facts | {"valid_from": at(since), "valid_to": ends, "open": until is None}


def raised(name: str, minute: int, measured: str, node: str | None = None) -> Any:
    facts = {"consumer": "c", "stream": "a", "id": name, "key": name, "episode": minute}
    facts |= {"raised_at": at(minute), "open": True, "node_uuid": node}
    return facts | {"measured_entity_uuid": measured}


def write(lake: Path, name: str, rows: list[Any]) -> None:
    schema = pa.schema([(c.name, TYPES[c.type]) for c in LAKE_TABLES[name].columns])
    write_deltalake(lake / name, pa.Table.from_pylist(rows, schema))


def test_an_alarm_is_where_it_was_at_its_raise(spark: SparkSession, tmp_path: Path) -> None:
    in_n1 = ["topology-uuid:t", "node-uuid:n1"]
    history = [
        held("NODE", "n1", "old name", 10, 20),
        held("NODE", "n1", "new name", 20, None),
        held("NODE_EDGE_POINT", "p1", "port", 10, None, parents=in_n1),
        held("LINK", "l1", "first link", 10, 15, **{"node-edge-point": PORT}),
        held("LINK", "l2", "second link", 25, None, **{"node-edge-point": PORT}),
    ]
    alarms = [
        raised("too early", 5, "p1"),
        raised("first", 12, "p1"),
        raised("at the end of the link", 15, "p1"),
        raised("at the change of the name", 20, "p1"),
        raised("second", 30, "p1"),
        raised("of a link", 12, "l1"),
        raised("of a gone link", 30, "l1"),
        raised("names its node", 12, "unknown", "n1"),
    ]
    write_deltalake(tmp_path / "changes", table([Row("c", "s", 1, "ATTEMPT")]))
    write(tmp_path, "entity_history", history)
    write(tmp_path, "alarms", alarms)
    session = spark.newSession()
    create_views(session, tmp_path.as_uri())
    found = session.sql(
        "SELECT id, node_uuid, node_name, link_uuid, link_name FROM alarm_places_at_raise"
    ).collect()
    assert {one.id: tuple(one)[1:] for one in found} == {
        "too early": (None, None, None, None),
        "first": ("n1", "old name", "l1", "first link"),
        "at the end of the link": ("n1", "old name", None, None),
        "at the change of the name": ("n1", "new name", None, None),
        "second": ("n1", "new name", "l2", "second link"),
        "of a link": (None, None, "l1", "first link"),
        "of a gone link": (None, None, None, None),
        "names its node": ("n1", "old name", None, None),
    }
    assert len(found) == len(alarms)
