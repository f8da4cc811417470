"""Answers about TAPI's entities: alarms with the places that they are at, edges, routes, what a
failure hits, capacity, availability.
"""

from __future__ import annotations

from typing import Final

from instep.ports.lake import LakeFunction, LakeView
from instep_tapi.facts.episodes import FLAPPING_WITHIN_S

__all__ = ["FUNCTIONS", "VIEWS"]

_FLOOD_S: Final = 600
_FLOOD_RAISES: Final = 10
"""ANSI/ISA-18.2: a flood has more than ten alarms in ten minutes."""


def _edges(name: str, meaning: str, ends: str, *validity: str) -> LakeView:
    """The ends of links as edges; `validity`: columns that say when they were so."""
    more = "".join(f", a.{column}" for column in validity)
    same = " AND a.ordinal = z.ordinal" if validity else ""
    return LakeView(
        name,
        meaning,
        f"""
    SELECT a.consumer, a.stream, a.link_uuid, a.link_name, a.layer, a.direction,
        a.operational_state, a.node_uuid AS from_node_uuid, a.nep_uuid AS from_nep_uuid,
        z.node_uuid AS to_node_uuid, z.nep_uuid AS to_nep_uuid{more}
    FROM {ends} a JOIN {ends} z
        ON a.consumer = z.consumer AND a.stream = z.stream AND a.id = z.id{same}
    WHERE (a.node_uuid IS DISTINCT FROM z.node_uuid OR a.nep_uuid IS DISTINCT FROM z.nep_uuid)
        AND a.end_position <> z.end_position
        AND (a.direction IS DISTINCT FROM 'UNIDIRECTIONAL' OR a.end_position = 0)
    """,
    )


_DIRECTED: Final = (
    "a row for each ordered pair of the ends of a link; of a UNIDIRECTIONAL one, from the end "
    "that is stated first"
)
_EDGES: Final = _edges("edges", f"Links as directed edges: {_DIRECTED}.", "link_ends")
_EDGE_HISTORY: Final = _edges(
    "edge_history",
    f"Edges as they were, each from `valid_from` to `valid_to`: {_DIRECTED}.",
    "link_end_history",
    *("valid_from", "valid_to", "valid_to_basis", "open"),
)
_ALARM_PLACES: Final = LakeView(
    "alarm_places",
    "Alarms with the names of the node and the link that they are at, as the network is now. The "
    "node of an alarm is the one it names, else that of the measured end point. The link is the "
    "measured one, or the only one at the measured end point.",
    """
    WITH places AS (
        SELECT consumer, uuid, class, max(node_uuid) AS node_uuid, max(nep_uuid) AS nep_uuid,
            max(name) AS name
        FROM topology GROUP BY consumer, uuid, class
    ), measured AS (
        SELECT a.consumer, a.stream, a.id, a.episode, p.uuid, p.class, p.node_uuid, p.nep_uuid,
            row_number() OVER (PARTITION BY a.consumer, a.stream, a.id, a.episode
                ORDER BY CASE WHEN p.class = a.measured_entity_class THEN 0 ELSE 1 END, p.class)
                AS choice
        FROM alarms a JOIN places p ON p.consumer = a.consumer AND p.uuid = a.measured_entity_uuid
    ), lines AS (
        SELECT consumer, nep_uuid, min(link_uuid) AS link_uuid FROM link_ends
        WHERE nep_uuid IS NOT NULL
        GROUP BY consumer, nep_uuid HAVING count(DISTINCT link_uuid) = 1
    ), placed AS (
        SELECT a.* EXCEPT (node_uuid), coalesce(a.node_uuid, p.node_uuid) AS node_uuid, p.nep_uuid,
            CASE WHEN p.class = 'LINK' THEN p.uuid ELSE l.link_uuid END AS link_uuid
        FROM alarms a
        LEFT JOIN measured p ON p.consumer = a.consumer AND p.stream = a.stream AND p.id = a.id
            AND p.episode = a.episode AND p.choice = 1
        LEFT JOIN lines l ON l.consumer = a.consumer AND l.nep_uuid = p.nep_uuid
    )
    SELECT placed.*, n.name AS node_name, k.name AS link_name FROM placed
    LEFT JOIN places n
        ON n.consumer = placed.consumer AND n.uuid = placed.node_uuid AND n.class = 'NODE'
    LEFT JOIN places k
        ON k.consumer = placed.consumer AND k.uuid = placed.link_uuid AND k.class = 'LINK'
    """,
)
_HELD: Final = "{0}.valid_from <= {1}.raised_at AND ({0}.open OR {0}.valid_to > {1}.raised_at)"
_EPISODE: Final = "consumer, stream, id, episode"


def _named_then(place: str) -> str:
    """The name that this place of an alarm had at the raise, by episode."""
    return f"""
        SELECT a.consumer, a.stream, a.id, a.episode, max_by(p.place_name, p.valid_from)
            AS {place}_name
        FROM lined a JOIN place_history p ON p.consumer = a.consumer
            AND p.place_uuid = a.{place}_uuid AND p.class = '{place.upper()}'
            AND {_HELD.format("p", "a")}
        WHERE p.place_name IS NOT NULL GROUP BY a.consumer, a.stream, a.id, a.episode
    """


_PLACES_AT_RAISE: Final = LakeView(
    "alarm_places_at_raise",
    "`alarm_places` as the network was at `raised_at`. Null: nothing was stated there then, as "
    "before the first reading of a stream.",
    f"""
    WITH held AS (
        SELECT a.consumer, a.stream, a.id, a.episode, a.raised_at, p.class, p.place_uuid AS uuid,
            CASE WHEN p.class = 'NODE' THEN p.place_uuid ELSE p.in_node_uuid END AS node_uuid,
            CASE WHEN p.class = 'NODE_EDGE_POINT' THEN p.place_uuid ELSE p.in_nep_uuid END
                AS nep_uuid,
            row_number() OVER (PARTITION BY a.consumer, a.stream, a.id, a.episode
                ORDER BY CASE WHEN p.class = a.measured_entity_class THEN 0 ELSE 1 END, p.class,
                p.valid_from DESC) AS choice
        FROM alarms a JOIN place_history p ON p.consumer = a.consumer
            AND p.place_uuid = a.measured_entity_uuid AND {_HELD.format("p", "a")}
    ), measured AS (
        SELECT * FROM held WHERE choice = 1
    ), lines AS (
        SELECT a.consumer, a.stream, a.id, a.episode, min(l.link_uuid) AS link_uuid
        FROM measured a JOIN link_end_history l ON l.consumer = a.consumer
            AND l.nep_uuid = a.nep_uuid AND {_HELD.format("l", "a")}
        GROUP BY a.consumer, a.stream, a.id, a.episode HAVING count(DISTINCT l.link_uuid) = 1
    ), lined AS (
        SELECT a.* EXCEPT (node_uuid), coalesce(a.node_uuid, p.node_uuid) AS node_uuid, p.nep_uuid,
            CASE WHEN p.class = 'LINK' THEN p.uuid ELSE l.link_uuid END AS link_uuid
        FROM alarms a
        LEFT JOIN measured p ON p.consumer = a.consumer AND p.stream = a.stream AND p.id = a.id
            AND p.episode = a.episode
        LEFT JOIN lines l ON l.consumer = a.consumer AND l.stream = a.stream AND l.id = a.id
            AND l.episode = a.episode
    ), node_names AS ({_named_then("node")}), link_names AS ({_named_then("link")})
    SELECT * FROM lined LEFT JOIN node_names USING ({_EPISODE})
    LEFT JOIN link_names USING ({_EPISODE})
    """,
)
_HOPS: Final = LakeView(
    "connection_hops",
    "The end points that the routes of a connection pass, in order, with the links that each is "
    "on; `position` counts from 0. `link_basis`: ROUTE where the route passes another end of this "
    "link, and of no other link, just before or after; else POSSIBLE: one of several links, or the "
    "route does not show which. A hop has a row for each link, or one with no link.",
    """
    WITH ends AS (
        SELECT DISTINCT consumer, link_uuid, nep_uuid FROM link_ends WHERE nep_uuid IS NOT NULL
    ), points AS (
        SELECT *, lead(nep_uuid) OVER (PARTITION BY consumer, stream, id, connection_uuid, route
            ORDER BY position) AS next_nep_uuid
        FROM route_points
    ), spans AS (
        SELECT p.consumer, p.stream, p.id, p.route, p.position, a.link_uuid,
            count(*) OVER (PARTITION BY p.consumer, p.stream, p.id, p.route, p.position) AS fitting
        FROM points p
        JOIN ends a ON a.consumer = p.consumer AND a.nep_uuid = p.nep_uuid
        JOIN ends z ON z.consumer = p.consumer AND z.nep_uuid = p.next_nep_uuid
            AND z.link_uuid = a.link_uuid
        WHERE p.nep_uuid <> p.next_nep_uuid
    ), sides AS (
        SELECT consumer, stream, id, route, position, link_uuid, fitting FROM spans
        UNION ALL
        SELECT consumer, stream, id, route, position + 1, link_uuid, fitting FROM spans
    ), crossed AS (
        SELECT consumer, stream, id, route, position, link_uuid, min(fitting) AS fitting
        FROM sides GROUP BY consumer, stream, id, route, position, link_uuid
    ), shown AS (
        SELECT DISTINCT consumer, stream, id, route, position FROM crossed
    ), placed AS (
        SELECT consumer, stream, id, route, position, link_uuid,
            CASE WHEN fitting = 1 THEN 'ROUTE' ELSE 'POSSIBLE' END AS link_basis
        FROM crossed
        UNION ALL
        SELECT p.consumer, p.stream, p.id, p.route, p.position, a.link_uuid, 'POSSIBLE'
        FROM points p
        JOIN ends a ON a.consumer = p.consumer AND a.nep_uuid = p.nep_uuid
        LEFT JOIN shown s ON s.consumer = p.consumer AND s.stream = p.stream AND s.id = p.id
            AND s.route = p.route AND s.position = p.position
        WHERE s.consumer IS NULL
    )
    SELECT p.consumer, p.stream, p.connection_uuid, p.route, p.position, p.node_uuid, p.nep_uuid,
        p.cep_uuid, l.link_uuid, l.link_basis
    FROM points p
    LEFT JOIN placed l ON l.consumer = p.consumer AND l.stream = p.stream AND l.id = p.id
        AND l.route = p.route AND l.position = p.position
    """,
)
_FAILURES: Final = LakeView(
    "failure_impact",
    "Which connections and services are hit where a link, a node or a node edge point fails: those "
    "with a route over it. `routes`: how many routes the connection has, `routes_hit`: those that "
    "are hit, `protected`: whether another one is left. `basis`: ROUTE, or POSSIBLE as in "
    "`connection_hops`. A service is hit through each of its connections; null: none is known.",
    """
    WITH passed AS (
        SELECT consumer, 'LINK' AS failed_class, link_uuid AS failed_uuid, connection_uuid, route,
            link_basis AS basis
        FROM connection_hops WHERE link_uuid IS NOT NULL
        UNION ALL
        SELECT consumer, 'NODE', node_uuid, connection_uuid, route, 'ROUTE'
        FROM connection_hops WHERE node_uuid IS NOT NULL
        UNION ALL
        SELECT consumer, 'NODE_EDGE_POINT', nep_uuid, connection_uuid, route, 'ROUTE'
        FROM connection_hops WHERE nep_uuid IS NOT NULL
    ), hit AS (
        SELECT consumer, failed_class, failed_uuid, connection_uuid,
            count(DISTINCT route) AS routes_hit, max(basis) AS basis
        FROM passed GROUP BY consumer, failed_class, failed_uuid, connection_uuid
    ), ways AS (
        SELECT consumer, connection_uuid, count(DISTINCT route) AS routes
        FROM route_points GROUP BY consumer, connection_uuid
    ), places AS (
        SELECT consumer, class, uuid, max(name) AS name FROM topology GROUP BY consumer, class, uuid
    ), named AS (
        SELECT consumer, connection_uuid, max(connection_name) AS connection_name
        FROM connections GROUP BY consumer, connection_uuid
    ), serving AS (
        SELECT consumer, connection_uuid, service_uuid, max(service_name) AS service_name
        FROM service_connections GROUP BY consumer, connection_uuid, service_uuid
    )
    SELECT h.consumer, h.failed_class, h.failed_uuid, p.name AS failed_name, h.basis,
        h.connection_uuid, n.connection_name, w.routes, h.routes_hit,
        h.routes_hit < w.routes AS protected, s.service_uuid, s.service_name
    FROM hit h
    JOIN ways w ON w.consumer = h.consumer AND w.connection_uuid = h.connection_uuid
    LEFT JOIN places p
        ON p.consumer = h.consumer AND p.class = h.failed_class AND p.uuid = h.failed_uuid
    LEFT JOIN named n ON n.consumer = h.consumer AND n.connection_uuid = h.connection_uuid
    LEFT JOIN serving s ON s.consumer = h.consumer AND s.connection_uuid = h.connection_uuid
    """,
)
_IMPACT: Final = LakeView(
    "impact",
    "Which connections and services an open alarm is on: by the link that it is at, else by the "
    "measured end point, else by its node; or it measures the connection or the service itself. "
    "`basis`, `routes`, `routes_hit` and `protected` as in `failure_impact`; null for what is "
    "measured itself.",
    """
    WITH raised AS (
        SELECT consumer, id AS alarm_id, severity, condition, raised_at, node_uuid, node_name,
            link_uuid, link_name, measured_entity_class, measured_entity_uuid,
            CASE WHEN link_uuid IS NOT NULL THEN 'LINK'
                WHEN nep_uuid IS NOT NULL THEN 'NODE_EDGE_POINT' ELSE 'NODE' END AS failed_class,
            coalesce(link_uuid, nep_uuid, node_uuid) AS failed_uuid
        FROM alarm_places WHERE open
    ), serving AS (
        SELECT consumer, connection_uuid, service_uuid, max(service_name) AS service_name
        FROM service_connections GROUP BY consumer, connection_uuid, service_uuid
    ), known AS (
        SELECT DISTINCT consumer, connection_uuid FROM connections
    ), served AS (
        SELECT consumer, service_uuid, max(service_name) AS service_name
        FROM services GROUP BY consumer, service_uuid
    ), hit AS (
        SELECT r.consumer, r.alarm_id, r.severity, r.condition, r.raised_at, r.node_uuid,
            r.node_name, r.link_uuid, r.link_name, f.connection_uuid, f.basis, f.routes,
            f.routes_hit, f.protected, f.service_uuid, f.service_name
        FROM raised r JOIN failure_impact f ON f.consumer = r.consumer
            AND f.failed_class = r.failed_class AND f.failed_uuid = r.failed_uuid
        UNION ALL
        SELECT r.consumer, r.alarm_id, r.severity, r.condition, r.raised_at, r.node_uuid,
            r.node_name, r.link_uuid, r.link_name, k.connection_uuid, 'ROUTE', NULL, NULL, NULL,
            s.service_uuid, s.service_name
        FROM raised r JOIN known k
            ON k.consumer = r.consumer AND k.connection_uuid = r.measured_entity_uuid
        LEFT JOIN serving s
            ON s.consumer = k.consumer AND s.connection_uuid = k.connection_uuid
        WHERE coalesce(r.measured_entity_class, 'CONNECTION') = 'CONNECTION'
        UNION ALL
        SELECT r.consumer, r.alarm_id, r.severity, r.condition, r.raised_at, r.node_uuid,
            r.node_name, r.link_uuid, r.link_name, NULL, 'ROUTE', NULL, NULL, NULL,
            s.service_uuid, s.service_name
        FROM raised r JOIN served s
            ON s.consumer = r.consumer AND s.service_uuid = r.measured_entity_uuid
        WHERE coalesce(r.measured_entity_class, 'CONNECTIVITY_SERVICE') = 'CONNECTIVITY_SERVICE'
    )
    SELECT * FROM hit
    """,
)
_RATES: Final = {"TBPS": "1e3", "GBPS": "1e0", "MBPS": "1e-3", "KBPS": "1e-6"}
_WIDTHS: Final = {"GHZ": "1e0", "MHZ": "1e-3"}
_FACTORS: Final = " ".join(
    f"WHEN '{unit}' THEN {factor}" for unit, factor in {**_RATES, **_WIDTHS}.items()
)


def _factor(unit: str) -> str:
    """SQL: what a size in this unit is multiplied with to be in that of its family."""
    return f"CASE upper({unit}) {_FACTORS} ELSE 1e0 END"


def _family(unit: str) -> str:
    """SQL: GBPS for a bit rate, GHZ for a width of spectrum, any other unit as it is."""
    rates, widths = (", ".join(f"'{one}'" for one in units) for units in (_RATES, _WIDTHS))
    return (
        f"CASE WHEN upper({unit}) IN ({rates}) THEN 'GBPS' "
        f"WHEN upper({unit}) IN ({widths}) THEN 'GHZ' ELSE {unit} END"
    )


_CAPACITY: Final = LakeView(
    "link_capacity",
    "Capacity of links as their provider states it: in total, free, and used, in the unit of the "
    "total; free and used are null where they are stated in units that do not compare.",
    f"""
    WITH sized AS (
        SELECT consumer, stream, link_uuid, link_name, total, unit,
            CASE WHEN free_unit IS NULL OR unit IS NULL OR free_unit = unit THEN free
                WHEN {_family("free_unit")} = {_family("unit")}
                THEN free * ({_factor("free_unit")}) / ({_factor("unit")}) END AS free
        FROM links
    )
    SELECT consumer, stream, link_uuid, link_name, total, free, total - free AS used, unit
    FROM sized
    """,
)
_LOAD: Final = LakeView(
    "link_load",
    "Capacity that services request over each link: `requested` by those that are known to pass "
    "it, `requested_at_most` with those that may. Bit rates are in GBPS, widths in GHZ; a link has "
    "a row for each unit. A service counts once, over each route of its connections.",
    f"""
    WITH passing AS (
        SELECT consumer, failed_uuid AS link_uuid, service_uuid, max(basis) AS basis
        FROM failure_impact WHERE failed_class = 'LINK' AND service_uuid IS NOT NULL
        GROUP BY consumer, failed_uuid, service_uuid
    ), asked AS (
        SELECT consumer, service_uuid, {_family("capacity_unit")} AS unit,
            max(requested_capacity * ({_factor("capacity_unit")})) AS requested
        FROM services WHERE requested_capacity IS NOT NULL
        GROUP BY consumer, service_uuid, {_family("capacity_unit")}
    ), named AS (
        SELECT consumer, link_uuid, max(link_name) AS link_name FROM links
        GROUP BY consumer, link_uuid
    )
    SELECT p.consumer, p.link_uuid, n.link_name, a.unit,
        sum(CASE WHEN p.basis = 'ROUTE' THEN a.requested ELSE 0e0 END) AS requested,
        sum(a.requested) AS requested_at_most, count(*) AS services
    FROM passing p
    JOIN asked a ON a.consumer = p.consumer AND a.service_uuid = p.service_uuid
    JOIN named n ON n.consumer = p.consumer AND n.link_uuid = p.link_uuid
    GROUP BY p.consumer, p.link_uuid, n.link_name, a.unit
    """,
)
_AVAILABILITY: Final = LakeView(
    "availability",
    "From when to when an entity that states an operational-state was up, down, or planned (not "
    "yet installed); how sure that is, as in `entity_intervals`. `name`: the last one that it had. "
    "What stated no known state has no spell.",
    """
    WITH named AS (
        SELECT consumer, stream, id, max_by(entity_name, ordinal) AS name FROM state_history
        WHERE entity_name IS NOT NULL GROUP BY consumer, stream, id
    ), identified AS (
        SELECT consumer, stream, id, max_by(entity_uuid, ordinal) AS uuid FROM state_history
        WHERE entity_uuid IS NOT NULL GROUP BY consumer, stream, id
    ), stated AS (
        SELECT consumer, stream, id, ordinal,
            CASE WHEN lifecycle_state LIKE 'PLANNED%' THEN 'planned'
                WHEN operational_state = 'ENABLED' THEN 'up'
                WHEN operational_state = 'DISABLED' THEN 'down' END AS state
        FROM state_history
    )
    SELECT i.consumer, i.stream, i.id, i.class, u.uuid, n.name, s.state, i.valid_from, i.valid_to,
        i.known_from, i.known_until, i.basis, i.zone, i.uncertain_s, i.proven_until
    FROM entity_intervals i
    JOIN stated s ON s.consumer = i.consumer AND s.stream = i.stream AND s.id = i.id
        AND s.ordinal = i.ordinal
    LEFT JOIN named n ON n.consumer = i.consumer AND n.stream = i.stream AND n.id = i.id
    LEFT JOIN identified u ON u.consumer = i.consumer AND u.stream = i.stream AND u.id = i.id
    WHERE s.state IS NOT NULL
    """,
)
_HOURLY: Final = LakeView(
    "alarm_hourly",
    "Alarms that were raised, by hour, node and worst severity.",
    """
    SELECT consumer, date_trunc('HOUR', raised_at) AS hour, node_uuid, node_name,
        worst_severity AS severity, count(*) AS raised, sum(duration_s) AS duration_s
    FROM alarm_places
    GROUP BY consumer, date_trunc('HOUR', raised_at), node_uuid, node_name, worst_severity
    """,
)
_FLAPPING: Final = LakeView(
    "flapping",
    f"Detectors that were raised again within {FLAPPING_WITHIN_S} s of their last end: `raises`, "
    "how often in a row at most; how many episodes in all.",
    """
    SELECT consumer, stream, id, max(condition) AS condition, max(node_uuid) AS node_uuid,
        max(node_name) AS node_name, max(link_name) AS link_name,
        max(flapping_count) AS raises, count(*) AS episodes, max(raised_at) AS last_raised_at
    FROM alarm_places GROUP BY consumer, stream, id HAVING max(flapping_count) > 0
    """,
)
_FLOODS: Final = LakeView(
    "alarm_floods",
    f"Alarm floods (ANSI/ISA-18.2): spans of {_FLOOD_S} s, counted from midnight UTC, in which "
    f"more than {_FLOOD_RAISES} alarms were raised; on how many nodes, and how many were critical.",
    f"""
    SELECT consumer, timestamp_micros(unix_micros(raised_at)
            - unix_micros(raised_at) % {_FLOOD_S * 1_000_000}) AS since,
        count(*) AS raised, count(DISTINCT node_uuid) AS nodes,
        count_if(worst_severity = 'CRITICAL') AS critical
    FROM alarm_places
    GROUP BY consumer, timestamp_micros(unix_micros(raised_at)
        - unix_micros(raised_at) % {_FLOOD_S * 1_000_000})
    HAVING count(*) > {_FLOOD_RAISES}
    """,
)
_TOPOLOGY_HISTORY: Final = LakeView(
    "topology_history",
    "What `topology` tells of nodes, links and end points, as it was from `valid_from` to "
    "`valid_to`.",
    """
    WITH counted AS (
        SELECT consumer, stream, id, ordinal, min(end_position) AS first_end,
            max(end_position) AS last_end
        FROM link_end_history GROUP BY consumer, stream, id, ordinal
    )
    SELECT p.consumer, p.stream, p.id, p.key, p.class, p.ordinal, p.place_uuid AS uuid,
        p.place_name AS name,
        CASE WHEN p.class = 'TOPOLOGY' THEN p.place_uuid ELSE p.in_topology_uuid END
            AS topology_uuid,
        CASE WHEN p.class = 'NODE' THEN p.place_uuid ELSE p.in_node_uuid END AS node_uuid,
        CASE WHEN p.class = 'NODE_EDGE_POINT' THEN p.place_uuid ELSE p.in_nep_uuid END AS nep_uuid,
        a.node_uuid AS a_node_uuid, a.nep_uuid AS a_nep_uuid,
        z.node_uuid AS z_node_uuid, z.nep_uuid AS z_nep_uuid, c.last_end + 1 AS end_count,
        p.layer, p.administrative_state, p.operational_state, p.lifecycle_state,
        p.valid_from, p.valid_to, p.valid_to_basis, p.open
    FROM place_history p
    LEFT JOIN counted c ON c.consumer = p.consumer AND c.stream = p.stream AND c.id = p.id
        AND c.ordinal = p.ordinal
    LEFT JOIN link_end_history a ON a.consumer = c.consumer AND a.stream = c.stream
        AND a.id = c.id AND a.ordinal = c.ordinal AND a.end_position = c.first_end
    LEFT JOIN link_end_history z ON z.consumer = c.consumer AND z.stream = c.stream
        AND z.id = c.id AND z.ordinal = c.ordinal AND z.end_position = c.last_end
    """,
)
VIEWS: Final = (
    *(_EDGES, _EDGE_HISTORY, _ALARM_PLACES, _PLACES_AT_RAISE, _HOPS, _FAILURES, _IMPACT),
    *(_CAPACITY, _LOAD, _AVAILABILITY, _HOURLY, _FLAPPING, _FLOODS, _TOPOLOGY_HISTORY),
)
_WINDOW: Final = (("window_start", False), ("window_end", False))
FUNCTIONS: Final = (
    LakeFunction(
        "topology_at",
        "Nodes, links and end points that existed at a moment of the provider.",
        (("moment", False),),
        "SELECT * FROM topology_history WHERE valid_from <= moment AND (open OR valid_to > moment)",
    ),
    LakeFunction(
        "availability_between",
        "How available each entity was in a window, in seconds: up, down, planned, and unknown, "
        "which is the rest of the window: before its first statement, after its end, and where it "
        "stated no state. `percent`: up of up and down, planned time left out. `unproven_s`: what "
        "of it nothing proves; were it all down, `percent_at_least`, were it all up, "
        "`percent_at_most`. `failures`: how often it was down, spells that meet counted once; "
        "MTTR: time down of each; MTBF: time up of each. An entity of which nothing is known in "
        "the window has no row.",
        _WINDOW,
        """
    WITH clipped AS (
        SELECT consumer, stream, id, class, uuid, name, state, unix_micros(proven_until) AS proven,
            greatest(unix_micros(valid_from), unix_micros(window_start)) AS low,
            least(unix_micros(coalesce(valid_to, current_timestamp())), unix_micros(window_end))
                AS high
        FROM availability
    ), spells AS (
        SELECT *, high - low AS us, high - greatest(low, least(high, proven)) AS unproven_us,
            lag(state) OVER (PARTITION BY consumer, stream, id ORDER BY low, high) AS before,
            lag(high) OVER (PARTITION BY consumer, stream, id ORDER BY low, high) AS before_high
        FROM clipped WHERE high > low
    ), summed AS (
        SELECT consumer, stream, id, class, uuid, name,
            unix_micros(window_end) - unix_micros(window_start) AS window_us,
            sum(CASE WHEN state = 'up' THEN us ELSE 0 END) AS up_us,
            sum(CASE WHEN state = 'down' THEN us ELSE 0 END) AS down_us,
            sum(CASE WHEN state = 'planned' THEN us ELSE 0 END) AS planned_us,
            sum(unproven_us) AS unproven_us,
            sum(CASE WHEN state = 'up' THEN us - unproven_us ELSE 0 END) AS proven_up_us,
            sum(CASE WHEN state = 'down' THEN us - unproven_us ELSE 0 END) AS proven_down_us,
            count_if(state = 'down' AND (before IS DISTINCT FROM 'down' OR before_high < low))
                AS failures
        FROM spells GROUP BY consumer, stream, id, class, uuid, name
    )
    SELECT consumer, stream, id, class, uuid, name, window_us / 1e6 AS window_s,
        up_us / 1e6 AS up_s, down_us / 1e6 AS down_s, planned_us / 1e6 AS planned_s,
        (window_us - up_us - down_us - planned_us) / 1e6 AS unknown_s,
        unproven_us / 1e6 AS unproven_s,
        1e2 * up_us / nullif(up_us + down_us, 0) AS percent,
        1e2 * proven_up_us / nullif(proven_up_us + proven_down_us + unproven_us, 0)
            AS percent_at_least,
        1e2 * (proven_up_us + unproven_us)
            / nullif(proven_up_us + proven_down_us + unproven_us, 0) AS percent_at_most,
        failures, down_us / 1e6 / nullif(failures, 0) AS mttr_s,
        up_us / 1e6 / nullif(failures, 0) AS mtbf_s
    FROM summed
    """,
    ),
    LakeFunction(
        "repair_between",
        "How long alarms lasted that ended in a window (MTTR), by worst severity: mean and longest "
        "in seconds, how many seconds of the mean nothing proves, how many episodes, and how many "
        "of them have a begin or an end that is not a stated time.",
        _WINDOW,
        """
    SELECT consumer, worst_severity, sum(duration_us) / 1e6 / count(*) AS mttr_s,
        max(duration_us) / 1e6 AS longest_s,
        sum(uncertain_us) / 1e6 / count(*) AS give_or_take_s,
        count(*) AS episodes,
        count_if(coalesce(raised_spread, 'AT') <> 'AT' OR coalesce(cleared_spread, 'AT') <> 'AT')
            AS uncertain
    FROM (
        SELECT *, unix_micros(cleared_at) - unix_micros(raised_at) AS duration_us,
            CAST(round(uncertain_s * 1e6) AS BIGINT) AS uncertain_us
        FROM alarm_intervals
        WHERE NOT open AND cleared_at >= window_start AND cleared_at < window_end
    ) AS ended
    GROUP BY consumer, worst_severity
    """,
    ),
)
