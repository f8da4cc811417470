"""The table `topology`: nodes, links and end points that exist now, flattened for joins."""

from __future__ import annotations

from typing import Final

from instep.ports.lake import LakeColumn, LakeEntityTable
from instep_tapi.lake.json_members import enum_field, json_path, parent_uuid

__all__ = ["TOPOLOGY", "TOPOLOGY_CLASSES"]

TOPOLOGY_CLASSES: Final = (
    *("TOPOLOGY", "NODE", "LINK", "NODE_EDGE_POINT", "CONNECTION_END_POINT"),
    *("SERVICE_INTERFACE_POINT", "ACCESS_PORT"),
)
"""The classes that the table holds."""
_END: Final = "STRUCT<`node-uuid`: STRING, `node-edge-point-uuid`: STRING>"
_UUID: Final = f"coalesce({json_path('uuid')}, nullif(uuid, ''), key)"


def _own_or(entity_class: str, parent: str) -> str:
    return f"CASE WHEN class = '{entity_class}' THEN {_UUID} ELSE {parent} END"


_FIRST, _LAST = "get(link_ends, 0)", "try_element_at(link_ends, -1)"
TOPOLOGY: Final = LakeEntityTable(
    name="topology",
    meaning="Nodes, links and end points that exist now, flattened for joins.",
    classes=TOPOLOGY_CLASSES,
    columns=(
        LakeColumn("uuid", "STRING", "uuid of the node, link or end point"),
        LakeColumn("name", "STRING", "value of its first name"),
        LakeColumn("topology_uuid", "STRING", "topology that holds it"),
        LakeColumn("node_uuid", "STRING", "the node itself, or the node of an end point"),
        LakeColumn(
            "nep_uuid", "STRING", "node edge point: itself, or that of a connection end point"
        ),
        LakeColumn("a_node_uuid", "STRING", "of a link: node of its first end"),
        LakeColumn("a_nep_uuid", "STRING", "of a link: node edge point of its first end"),
        LakeColumn("z_node_uuid", "STRING", "of a link: node of its last end"),
        LakeColumn("z_nep_uuid", "STRING", "of a link: node edge point of its last end"),
        LakeColumn("end_count", "BIGINT", "of a link: how many ends it has"),
        LakeColumn("layer", "STRING", "layer-protocol-name; the first where it has several"),
        LakeColumn("administrative_state", "STRING", "LOCKED or UNLOCKED"),
        LakeColumn("operational_state", "STRING", "ENABLED or DISABLED"),
        LakeColumn("lifecycle_state", "STRING", "PLANNED, INSTALLED …"),
    ),
    clustered_by=("class", "node_uuid"),
    once={
        "link_ends": f"CASE WHEN class = 'LINK' THEN from_json(coalesce("
        f"{json_path('node-edge-point')}, {json_path('link-end')}), 'ARRAY<{_END}>') END",
    },
    values={
        "uuid": _UUID,
        "name": f"get(from_json({json_path('name')}, 'ARRAY<STRUCT<value: STRING>>'), 0).value",
        "topology_uuid": _own_or("TOPOLOGY", parent_uuid("topology")),
        "node_uuid": _own_or("NODE", parent_uuid("node")),
        "nep_uuid": _own_or("NODE_EDGE_POINT", parent_uuid("node-edge-point")),
        "a_node_uuid": f"{_FIRST}.`node-uuid`",
        "a_nep_uuid": f"{_FIRST}.`node-edge-point-uuid`",
        "z_node_uuid": f"{_LAST}.`node-uuid`",
        "z_nep_uuid": f"{_LAST}.`node-edge-point-uuid`",
        "end_count": "CAST(CASE WHEN link_ends IS NOT NULL THEN size(link_ends) END AS BIGINT)",
        "layer": f"nullif(regexp_extract({json_path('layer-protocol-name')}, "
        "'[A-Z][A-Z0-9_]*', 0), '')",
        "administrative_state": enum_field("administrative-state"),
        "operational_state": enum_field("operational-state"),
        "lifecycle_state": enum_field("lifecycle-state"),
    },
)
