"""The typed views of a lake: what Python makes of the same bodies, and of the YANG."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep.errors import ConfigurationError
from instep_spark import create_views
from instep_spark.lake.typed_views import comment, typed_classes, typed_view
from instep_tapi.facts.classes import CLASSES_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = json.loads(CLASSES_FILE.read_bytes())["classes"]
CLASS_OF = {
    "service-interface-point": "SERVICE_INTERFACE_POINT",
    "topology": "TOPOLOGY",
    "node": "NODE",
    "link": "LINK",
    "owned-node-edge-point": "NODE_EDGE_POINT",
    "connection-end-point": "CONNECTION_END_POINT",
    "node-rule-group": "NODE_RULE_GROUP",
    "connection": "CONNECTION",
    "connectivity-service": "CONNECTIVITY_SERVICE",
}
TEXTS = ("consumer", "stream", "id", "key", "class", "uuid", "parent_address", "body")
SCENARIO: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    (
        "LINK",
        {
            "uuid": "l1",
            "name": [{"value-name": "NAME", "value": 'a "tapi-x:y": b'}],
            "tapi-topology:direction": "tapi-common:BIDIRECTIONAL",
            "layer-protocol-name": ["tapi-common:ODU", "DSR"],
            "total-potential-capacity": {
                "tapi-common:total-size": {"value": "18446744073709551615", "unit": "GBPS"}
            },
            "operational-state": "ENABLED",
        },
        {
            "uuid": "l1",
            "name": '[{"value-name":"NAME","value":"a \\"tapi-x:y\\": b"}]',
            "direction": "BIDIRECTIONAL",
            "layer_protocol_name": ["ODU", "DSR"],
            "total_potential_capacity_total_size_value": Decimal(2**64 - 1),
            "total_potential_capacity_total_size_unit": "GBPS",
            "operational_state": "ENABLED",
            "lifecycle_state": None,
        },
        [],
    ),
    (
        "LINK",
        {
            "uuid": "l2",
            "direction": "SIDEWAYS",
            "layer-protocol-name": ["ODU", "SEMAPHORE"],
            "total-potential-capacity": {"total-size": {"value": "many", "unit": 7}},
            # A whole number in 2.1.3, and a decimal from 2.4 on.
            "available-capacity": {"total-size": {"value": "1.5"}},
            "operational-state": None,
        },
        {
            "uuid": "l2",
            "direction": None,
            "layer_protocol_name": ["ODU", None],
            "total_potential_capacity_total_size_value": None,
            # An enumeration in 2.1.3; from 2.4 on others may derive a unit.
            "total_potential_capacity_total_size_unit": "7",
            "available_capacity_total_size_value": Decimal("1.5"),
            "operational_state": None,
        },
        [
            "direction",
            "layer_protocol_name",
            "total_potential_capacity_total_size_value",
        ],
    ),
    (
        "CONNECTION_END_POINT",
        {
            "uuid": "c1",
            "tapi-photonic-media:otsi-connection-end-point-spec": {
                "otsi-termination": {
                    "transmited-power": {"total-power": "-3.5000001"},
                    "received-power": {"total-power": "1.00000001"},
                    "laser-properties": {"laser-status": " ON"},
                }
            },
            "layer-protocol-qualifier": "vendor:NEW_QUALIFIER",
        },
        {
            "otsi_connection_end_point_spec_otsi_termination_transmited_power_total_power": Decimal(
                "-3.5000001"
            ),
            "otsi_connection_end_point_spec_otsi_termination_received_power_total_power": None,
            "otsi_connection_end_point_spec_otsi_termination_laser_properties_laser_status": "ON",
            "layer_protocol_qualifier": "NEW_QUALIFIER",
        },
        ["otsi_connection_end_point_spec_otsi_termination_received_power_total_power"],
    ),
    (
        "CONDITION_DETECTOR",
        {
            "condition-detector-type": " tapi-streaming:CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
            "tapi-streaming:alarm-condition-detector-detail": {
                "legacy-properties": {"is-acknowledged": False, "perceived-severity": "MAJOR"}
            },
        },
        {
            "condition_detector_type": "CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
            "alarm_condition_detector_detail_legacy_properties_is_acknowledged": False,
            "alarm_condition_detector_detail_legacy_properties_perceived_severity": "MAJOR",
        },
        [],
    ),
    (
        "CONDITION_DETECTOR",
        {
            "alarm-condition-detector-detail": {"legacy-properties": {"is-acknowledged": "yes"}},
            "measured-entity-local-id": "not a list",
        },
        {
            "alarm_condition_detector_detail_legacy_properties_is_acknowledged": None,
            "measured_entity_local_id": None,
        },
        [
            "alarm_condition_detector_detail_legacy_properties_is_acknowledged",
            "measured_entity_local_id",
        ],
    ),
    (
        # As TAPI 2.4 to 2.6 state an alarm.
        "CONDITION_DETECTOR",
        {
            "tapi-fm:detected-condition": {
                "detected-condition-name": "tapi-photonic-media:X_LOS",
                "detector-info": {"perceived-severity": "MAJOR", "is-acknowledge": True},
                "simple-detector": {"simple-detector-state": "SIMPLE_DETECTOR_STATE_ACTIVE"},
            }
        },
        {
            "detected_condition_detected_condition_name": "X_LOS",
            "detected_condition_detector_info_is_acknowledge": True,
            "detected_condition_simple_detector_simple_detector_state": (
                "SIMPLE_DETECTOR_STATE_ACTIVE"
            ),
            "alarm_condition_detector_detail_alarm_detector_state": None,
        },
        [],
    ),
    (
        "CEP_PM_DATA",
        {"uuid": "p", "connection-end-point": {"node-uuid": "n"}, "history-data": []},
        {"uuid": "p", "connection_end_point_node_uuid": "n", "history_data": "[]"},
        [],
    ),
    # One address in 2.1.3, a list from 2.4 on.
    ("AVAILABLE_STREAM", {"connection-address": "ws://h"}, {"connection_address": "ws://h"}, []),
    (
        "AVAILABLE_STREAM",
        {"connection-address": ["ws://h", "ws://i"]},
        {"connection_address": '["ws://h","ws://i"]'},
        [],
    ),
    # A container in 2.1.3, a list from 2.4 on.
    (
        "PATH_COMPUTATION_SERVICE",
        {"uuid": "p", "topology-constraint": {"include-node": ["n", "m"]}},
        {
            "topology_constraint_include_node": ["n", "m"],
            "topology_constraint_avoid_topology": None,
        },
        [],
    ),
    (
        "PATH_COMPUTATION_SERVICE",
        {"uuid": "p", "topology-constraint": [{"local-id": "1"}]},
        {
            "uuid": "p",
            "topology_constraint": '[{"local-id":"1"}]',
            "topology_constraint_include_node": None,
        },
        [],
    ),
]
"""Class, body, what some of its columns are, and which values are bad."""


def write_entities(lake: Path, bodies: list[tuple[str, str]]) -> None:
    """A table `entities` with these classes and bodies; the key counts them."""
    rows = [
        dict.fromkeys(TEXTS, "") | {"key": str(at), "class": cls, "body": body}
        for at, (cls, body) in enumerate(bodies)
    ]
    made = pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in TEXTS]))
    for name in ("appended_at", "event_at"):
        made = made.append_column(name, pa.nulls(len(rows), pa.timestamp("us", "UTC")))
    write_deltalake(lake / "entities", made)


def typed(spark: SparkSession, cls: str) -> list[dict[str, Any]]:
    rows = spark.sql(f"SELECT * FROM typed_{cls.lower()} ORDER BY INT(key)").collect()
    return [row.asDict() for row in rows]


# A JVM starts, and may share the machine.
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_members_are_columns_in_any_spelling_and_bad_ones_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_entities(tmp_path, [(cls, json.dumps(body)) for cls, body, *_ in SCENARIO])
    session = spark.newSession()
    classes = {cls for cls, *_ in SCENARIO}
    made = create_views(session, tmp_path.as_uri(), classes=classes)
    assert {f"typed_{cls.lower()}" for cls in classes} <= set(made)
    found = {int(row["key"]): row for cls in classes for row in typed(session, cls)}
    for at, (_, body, expected, bad) in enumerate(SCENARIO):
        row = found[at]
        assert {name: row[name] for name in expected} == expected
        assert sorted(row["bad_values"]) == bad
        assert json.loads(row["body"]) == body
    shown = {row.col_name: row for row in session.sql("DESCRIBE typed_link").collect()}
    unit = shown["total_potential_capacity_total_size_unit"]
    assert unit.data_type == "string"
    assert "GBPS" in unit.comment
    assert shown["total_potential_capacity_total_size_value"].data_type == "decimal(27,7)"


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_is_requested_and_free_is_shown_alike_for_both_editions(
    spark: SparkSession, tmp_path: Path
) -> None:
    of_2_1_3 = {"value": "10", "unit": "GBPS"}
    of_2_6 = {"value": "10.5", "unit": "tapi-common:CAPACITY_UNIT_GBPS"}
    requests = [{"requested-capacity": {"total-size": size}} for size in (of_2_1_3, of_2_6)]
    bodies = [
        ("CONNECTIVITY_SERVICE", {"uuid": "a", **requests[0]}),
        ("CONNECTIVITY_SERVICE", {"uuid": "b", "connectivity-constraint": requests[1]}),
        ("LINK", {"uuid": "a", "total-potential-capacity": {"total-size": of_2_1_3}}),
        ("LINK", {"uuid": "b", "total-potential-capacity": {"total-size": of_2_6}}),
    ]
    write_entities(tmp_path, [(cls, json.dumps(body)) for cls, body in bodies])
    session = spark.newSession()
    create_views(session, tmp_path.as_uri())
    for columns in (
        "service_uuid AS id, requested_capacity, capacity_unit FROM services",
        "link_uuid AS id, total, unit FROM link_capacity",
    ):
        rows = session.sql(f"SELECT {columns} ORDER BY 1").collect()
        assert [tuple(row) for row in rows] == [("a", 10.0, "GBPS"), ("b", 10.5, "GBPS")]


def entities_of(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """All entities of a context that have a class of their own, as they stand there."""
    if isinstance(value, list):
        for item in value:
            yield from entities_of(item)
    elif isinstance(value, dict):
        for name, below in value.items():
            cls = CLASS_OF.get(name.rpartition(":")[2])
            if cls and isinstance(below, list):
                yield from ((cls, item) for item in below if "uuid" in item)
            yield from entities_of(below)


def plain(value: Any) -> Any:
    """The value without the modules of member names."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name.rpartition(":")[2]: plain(below) for name, below in value.items()}
    return value


def read_as(kind: str, column: dict[str, Any], value: Any) -> Any:
    """The value as its type; None where it is none (RFC 7951, section 6)."""
    if column.get("values"):
        name = str(value).strip().rpartition(":")[2]
        return name if column.get("open") or name in column["values"] else None
    if kind == "BOOLEAN":
        return {"true": True, "false": False}.get(str(value).lower())
    if kind == "STRING":
        return value if isinstance(value, str) else json.dumps(value)
    digits = int(found[1]) if (found := re.search(r",(\d+)\)", kind)) else 0
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    rounded = round(number, digits)
    return rounded if rounded == number else None


def expected_of(cls: str, body: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """By name what a column is, and the columns that are bad."""
    values, bad = {}, set()
    for column in COLUMNS[cls]["columns"]:
        found: Any = plain(body)
        for member in column["path"]:
            found = found.get(member) if isinstance(found, dict) else None
        kind = column["type"]
        if found is None or kind == "JSON":
            values[column["name"]] = found
        elif kind.startswith("ARRAY"):
            items = [read_as(kind[6:-1], column, item) for item in found]
            values[column["name"]] = items
            bad |= {column["name"]} if None in items else set()
        else:
            values[column["name"]] = read_as(kind, column, found)
            bad |= {column["name"]} if values[column["name"]] is None else set()
    return values, bad


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_columns_of_a_public_context_are_what_its_json_says(
    spark: SparkSession, tmp_path: Path, shared_data: Path
) -> None:
    context = json.loads((shared_data / "tapi/transportpce_tapi24_context.json").read_bytes())
    entities = list(entities_of(context))
    assert len(entities) > 100
    write_entities(tmp_path, [(cls, json.dumps(body)) for cls, body in entities])
    session = spark.newSession()
    classes = {cls for cls, _ in entities}
    create_views(session, tmp_path.as_uri(), classes=classes)
    stated = 0
    for cls in classes:
        for row in typed(session, cls):
            values, bad = expected_of(cls, entities[int(row["key"])][1])
            for column in COLUMNS[cls]["columns"]:
                found, expected = row[column["name"]], values[column["name"]]
                if column["type"] == "JSON" and found is not None:
                    found = json.loads(found)
                assert found == expected, (cls, column["name"])
                stated += expected is not None
            assert set(row["bad_values"]) == bad
    assert stated > 1000


def test_a_class_that_the_yang_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no columns of 'NODES'"):
        typed_view("NODES")


def test_a_catalogue_takes_every_column() -> None:
    around = {"consumer", "stream", "id", "key", "parent_address", "appended_at", "event_at"}
    for one in typed_classes().values():
        names = [column.name for column in one.columns]
        assert len(set(names)) == len(names)
        assert not {"body", "bad_values", *around} & set(names)
        assert all(len(comment(column)) < 256 for column in one.columns)
