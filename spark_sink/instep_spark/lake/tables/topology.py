"""`topology`: nodes, links and end points that exist now, flattened for joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from instep_spark.lake.sql.json_fields import enum_field, json_path
from instep_spark.lake.tables.entities import ProjectionTable
from instep_spark.lake.tables.schema import TOPOLOGY
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CLASSES", "TopologyTable", "parent_of"]

CLASSES: Final = (
    *("TOPOLOGY", "NODE", "LINK", "NODE_EDGE_POINT", "CONNECTION_END_POINT"),
    *("SERVICE_INTERFACE_POINT", "ACCESS_PORT"),
)
"""The classes that the table holds."""
_END: Final = "STRUCT<`node-uuid`: STRING, `node-edge-point-uuid`: STRING>"


def parent_of(entity_class: str) -> str:
    """SQL for the uuid of the entity of this class in the parent-address; null where none is."""
    return f"nullif(regexp_extract(parent_address, r'\"{entity_class}-uuid:([^\"]+)\"', 1), '')"


def _own_or(entity_class: str, parent: str) -> str:
    return f"CASE WHEN class = '{entity_class}' THEN entity_uuid ELSE {parent} END"


class TopologyTable(ProjectionTable):
    """Of each entity, what joins it to the others."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(place, TOPOLOGY, CLASSES)

    def project(self, rows: DataFrame) -> DataFrame:
        rows = self.of_classes(rows).selectExpr(
            "*",
            f"coalesce({json_path('uuid')}, nullif(uuid, ''), key) AS entity_uuid",
            f"CASE WHEN class = 'LINK' THEN from_json(coalesce({json_path('node-edge-point')}, "
            f"{json_path('link-end')}), 'ARRAY<{_END}>') END AS link_ends",
        )
        first, last = "link_ends[0]", "try_element_at(link_ends, -1)"
        return rows.selectExpr(
            *(f"`{name}`" for name in rows.columns if name not in {"uuid", "link_ends"}),
            "entity_uuid AS uuid",
            f"{json_path('name')} AS names",
            f"{_own_or('TOPOLOGY', parent_of('topology'))} AS topology_uuid",
            f"{_own_or('NODE', parent_of('node'))} AS node_uuid",
            f"{_own_or('NODE_EDGE_POINT', parent_of('node-edge-point'))} AS nep_uuid",
            f"{first}.`node-uuid` AS a_node_uuid",
            f"{first}.`node-edge-point-uuid` AS a_nep_uuid",
            f"{last}.`node-uuid` AS z_node_uuid",
            f"{last}.`node-edge-point-uuid` AS z_nep_uuid",
            "CAST(CASE WHEN link_ends IS NOT NULL THEN size(link_ends) END AS BIGINT) AS end_count",
            f"nullif(regexp_extract({json_path('layer-protocol-name')}, '[A-Z][A-Z0-9_]*', 0), '') "
            "AS layer",
            f"{enum_field('administrative-state')} AS administrative_state",
            f"{enum_field('operational-state')} AS operational_state",
            f"{enum_field('lifecycle-state')} AS lifecycle_state",
        ).selectExpr("*", "from_json(names, 'ARRAY<STRUCT<value: STRING>>')[0].value AS name")
