"""Views of TAPI's entities for analysts: alarms with the places that they are at, edges, routes,
services, capacity.
"""

from __future__ import annotations

from typing import Final

from instep.ports.lake import LakeView
from instep_tapi.lake.json_members import bound, enum_field, identity, json_path, parent_uuid
from instep_tapi.lake.topology import TOPOLOGY_CLASSES

__all__ = ["VIEWS"]

_END: Final = "STRUCT<`node-uuid`: STRING, `node-edge-point-uuid`: STRING>"
_HOP: Final = (
    "STRUCT<`node-uuid`: STRING, `node-edge-point-uuid`: STRING, "
    "`connection-end-point-uuid`: STRING>"
)
_UUID: Final = f"coalesce({json_path('uuid')}, nullif(uuid, ''), key)"
_NAME: Final = f"from_json({json_path('name')}, 'ARRAY<STRUCT<value: STRING>>')[0].value"


def _size(name: str) -> str:
    path = json_path(name, "total-size", "value")
    return f"try_cast({path} AS DOUBLE)"


def _unit(stated: str) -> str:
    """A unit: an identity from TAPI 2.4 on."""
    return bound(stated, "unit", identity("unit"))


def _requested(member: str) -> str:
    """What a service requests: in a constraint from TAPI 2.4 on."""
    path = ("requested-capacity", "total-size", member)
    return f"coalesce({json_path(*path)}, {json_path('connectivity-constraint', *path)})"


def _edges(name: str, meaning: str, table: str, *validity: str) -> LakeView:
    """The links of a table as edges; `validity`: its columns that say when they were so."""
    more = "".join(f", {column}" for column in validity)
    return LakeView(
        name,
        meaning,
        f"""
    WITH links AS (
        SELECT consumer, stream, {_UUID} AS link_uuid, {_NAME} AS link_name,
            nullif(regexp_extract({json_path("layer-protocol-name")}, '[A-Z][A-Z0-9_]*', 0), '')
                AS layer,
            {json_path("direction")} AS direction,
            {enum_field("operational-state")} AS operational_state,
            from_json(coalesce({json_path("node-edge-point")}, {json_path("link-end")}),
                'ARRAY<{_END}>') AS ends{more}
        FROM {table} WHERE class = 'LINK'
    ), pairs AS (
        SELECT *, explode(ends) AS near FROM links
    ), ordered AS (
        SELECT *, explode(ends) AS far FROM pairs
    )
    SELECT consumer, stream, link_uuid, link_name, layer, direction, operational_state,
        near.`node-uuid` AS from_node_uuid, near.`node-edge-point-uuid` AS from_nep_uuid,
        far.`node-uuid` AS to_node_uuid, far.`node-edge-point-uuid` AS to_nep_uuid{more}
    FROM ordered WHERE near <> far
    """,
    )


_EDGES: Final = _edges(
    "edges",
    "Links as directed edges: a row for each ordered pair of the ends of a link.",
    "entities",
)
_EDGE_HISTORY: Final = _edges(
    "edge_history",
    "Edges as they were, each from `valid_from` to `valid_to`; see `entity_history`.",
    "entity_history",
    *("valid_from", "valid_to", "valid_to_basis", "open"),
)
_ALARM_PLACES: Final = LakeView(
    "alarm_places",
    "Alarms with the names of the node and the link that they are at, as the network is now. The "
    "node of an alarm is the one it names, else that of the measured end point.",
    """
    WITH places AS (
        SELECT consumer, uuid, max(class) AS class, max(node_uuid) AS node_uuid,
            max(coalesce(nep_uuid, '')) AS nep_uuid
        FROM topology GROUP BY consumer, uuid
    ), names AS (
        SELECT consumer, uuid, max(name) AS name FROM topology GROUP BY consumer, uuid
    ), lines AS (
        SELECT consumer, from_nep_uuid AS nep_uuid, max(link_uuid) AS link_uuid
        FROM edges GROUP BY consumer, from_nep_uuid
    ), placed AS (
        SELECT a.* EXCEPT (node_uuid), coalesce(a.node_uuid, p.node_uuid) AS node_uuid,
            CASE WHEN p.class = 'LINK' THEN p.uuid ELSE l.link_uuid END AS link_uuid
        FROM alarms a
        LEFT JOIN places p ON p.consumer = a.consumer AND p.uuid = a.measured_entity_uuid
        LEFT JOIN lines l ON l.consumer = a.consumer AND l.nep_uuid = p.nep_uuid
    )
    SELECT placed.*, n.name AS node_name, k.name AS link_name FROM placed
    LEFT JOIN names n ON n.consumer = placed.consumer AND n.uuid = placed.node_uuid
    LEFT JOIN names k ON k.consumer = placed.consumer AND k.uuid = placed.link_uuid
    """,
)
_HELD: Final = "{0}.valid_from <= {1}.raised_at AND ({0}.open OR {0}.valid_to > {1}.raised_at)"
_EPISODE: Final = "consumer, stream, id, episode"


def _named_then(place: str) -> str:
    """The name that this place of an alarm had at the raise, by episode."""
    return f"""
        SELECT a.consumer, a.stream, a.id, a.episode, max_by(p.name, p.valid_from) AS {place}_name
        FROM lined a JOIN places p ON p.consumer = a.consumer AND p.uuid = a.{place}_uuid
            AND {_HELD.format("p", "a")} GROUP BY ALL
    """


_PLACES_AT_RAISE: Final = LakeView(
    "alarm_places_at_raise",
    "`alarm_places` as the network was at `raised_at`. Null: nothing was stated there then, as "
    "before the first reading of a stream.",
    f"""
    WITH places AS (
        SELECT consumer, class, {_UUID} AS uuid, {_NAME} AS name,
            CASE WHEN class = 'NODE' THEN {_UUID} ELSE {parent_uuid("node")} END AS node_uuid,
            CASE WHEN class = 'NODE_EDGE_POINT' THEN {_UUID}
                ELSE {parent_uuid("node-edge-point")} END AS nep_uuid,
            valid_from, valid_to, open
        FROM entity_history WHERE class IN ({", ".join(f"'{name}'" for name in TOPOLOGY_CLASSES)})
    ), measured AS (
        SELECT a.consumer, a.stream, a.id, a.episode, max_by(named_struct('class', p.class,
            'uuid', p.uuid, 'node_uuid', p.node_uuid, 'nep_uuid', p.nep_uuid), p.valid_from)
            AS place
        FROM alarms a JOIN places p ON p.consumer = a.consumer
            AND p.uuid = a.measured_entity_uuid AND {_HELD.format("p", "a")} GROUP BY ALL
    ), placed AS (
        SELECT a.* EXCEPT (node_uuid), coalesce(a.node_uuid, place.node_uuid) AS node_uuid, place
        FROM alarms a LEFT JOIN measured USING ({_EPISODE})
    ), lines AS (
        SELECT a.consumer, a.stream, a.id, a.episode, max_by(l.link_uuid, l.valid_from) AS line
        FROM placed a JOIN edge_history l ON l.consumer = a.consumer
            AND l.from_nep_uuid = a.place.nep_uuid AND {_HELD.format("l", "a")} GROUP BY ALL
    ), lined AS (
        SELECT placed.* EXCEPT (place),
            CASE WHEN place.class = 'LINK' THEN place.uuid ELSE line END AS link_uuid
        FROM placed LEFT JOIN lines USING ({_EPISODE})
    ), nodes AS ({_named_then("node")}), links AS ({_named_then("link")})
    SELECT * FROM lined LEFT JOIN nodes USING ({_EPISODE}) LEFT JOIN links USING ({_EPISODE})
    """,
)
_CONNECTIONS: Final = LakeView(
    "connections",
    "Connections with their states.",
    f"""
    SELECT consumer, stream, {_UUID} AS connection_uuid, {_NAME} AS connection_name,
        {json_path("layer-protocol-name")} AS layer, {json_path("direction")} AS direction,
        {enum_field("operational-state")} AS operational_state,
        {enum_field("lifecycle-state")} AS lifecycle_state
    FROM entities WHERE class = 'CONNECTION'
    """,
)
_HOPS: Final = LakeView(
    "connection_hops",
    "The end points that the routes of a connection pass, in order; `position` counts from 0. "
    "`link_uuid`: the link at this end point.",
    f"""
    WITH routes AS (
        SELECT consumer, stream, {_UUID} AS connection_uuid, posexplode(from_json(
            {json_path("route")}, 'ARRAY<STRUCT<`connection-end-point`: ARRAY<{_HOP}>>>'))
            AS (route, passed)
        FROM entities WHERE class = 'CONNECTION'
    ), hops AS (
        SELECT consumer, stream, connection_uuid, route,
            posexplode(passed.`connection-end-point`) AS (position, hop)
        FROM routes
    ), lines AS (
        SELECT consumer, from_nep_uuid, max(link_uuid) AS link_uuid
        FROM edges GROUP BY consumer, from_nep_uuid
    )
    SELECT hops.consumer, stream, connection_uuid, route, position,
        hop.`node-uuid` AS node_uuid, hop.`node-edge-point-uuid` AS nep_uuid,
        hop.`connection-end-point-uuid` AS cep_uuid, link_uuid
    FROM hops LEFT JOIN lines
        ON lines.consumer = hops.consumer AND from_nep_uuid = hop.`node-edge-point-uuid`
    """,
)
_SERVICES: Final = LakeView(
    "services",
    "Connectivity services with what they request and the connections that they have.",
    f"""
    SELECT consumer, stream, {_UUID} AS service_uuid, {_NAME} AS service_name,
        {enum_field("operational-state")} AS operational_state,
        try_cast({_requested("value")} AS DOUBLE) AS requested_capacity,
        {_unit(_requested("unit"))} AS capacity_unit,
        transform(from_json({json_path("connection")}, 'ARRAY<STRUCT<`connection-uuid`: STRING>>'),
            one -> one.`connection-uuid`) AS connection_uuids
    FROM entities WHERE class = 'CONNECTIVITY_SERVICE'
    """,
)
_CAPACITY: Final = LakeView(
    "link_capacity",
    "Capacity of links as their provider states it: in total, free, and used, with its unit.",
    f"""
    SELECT consumer, stream, {_UUID} AS link_uuid, {_NAME} AS link_name,
        {_size("total-potential-capacity")} AS total, {_size("available-capacity")} AS free,
        {_size("total-potential-capacity")} - {_size("available-capacity")} AS used,
        {_unit(json_path("total-potential-capacity", "total-size", "unit"))} AS unit
    FROM entities WHERE class = 'LINK'
    """,
)
_IMPACT: Final = LakeView(
    "impact",
    "Which connections and services an open alarm is on: by the link that it is at, else by its "
    "node. A service without a known connection is not among them.",
    """
    WITH passing AS (
        SELECT DISTINCT consumer, connection_uuid, node_uuid, link_uuid FROM connection_hops
    ), serving AS (
        SELECT consumer, service_uuid, service_name, explode(connection_uuids) AS connection_uuid
        FROM services
    ), raised AS (
        SELECT consumer, id AS alarm_id, severity, condition, raised_at, node_uuid, node_name,
            link_uuid, link_name
        FROM alarm_places WHERE open
    ), hit AS (
        SELECT r.*, p.connection_uuid FROM raised r JOIN passing p
            ON p.consumer = r.consumer AND p.link_uuid = r.link_uuid
        UNION
        SELECT r.*, p.connection_uuid FROM raised r JOIN passing p
            ON p.consumer = r.consumer AND p.node_uuid = r.node_uuid
        WHERE r.link_uuid IS NULL
    )
    SELECT hit.*, service_uuid, service_name FROM hit
    LEFT JOIN serving USING (consumer, connection_uuid)
    """,
)
_AVAILABILITY: Final = LakeView(
    "availability",
    "From when to when an entity that states an operational-state was up, down, or planned (not "
    "yet installed); how sure that is, as in `entity_intervals`.",
    f"""
    SELECT consumer, stream, id, class, {_UUID} AS uuid, {_NAME} AS name,
        CASE WHEN {enum_field("lifecycle-state")} LIKE 'PLANNED%' THEN 'planned'
             WHEN {enum_field("operational-state")} = 'ENABLED' THEN 'up' ELSE 'down' END AS state,
        valid_from, valid_to, known_from, known_until, basis, zone, uncertain_s
    FROM entity_intervals WHERE {enum_field("operational-state")} IS NOT NULL
    """,
)
_HOURLY: Final = LakeView(
    "alarm_hourly",
    "Alarms that were raised, by hour, node and worst severity.",
    """
    SELECT consumer, date_trunc('HOUR', raised_at) AS hour, node_uuid, node_name,
        worst_severity AS severity, count(*) AS raised, sum(duration_s) AS duration_s
    FROM alarm_places GROUP BY ALL
    """,
)
VIEWS: Final = (
    *(_EDGES, _EDGE_HISTORY, _ALARM_PLACES, _PLACES_AT_RAISE, _CONNECTIONS, _HOPS, _SERVICES),
    *(_CAPACITY, _IMPACT, _AVAILABILITY, _HOURLY),
)
