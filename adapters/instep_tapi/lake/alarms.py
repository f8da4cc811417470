"""The table `alarms`: episodes of condition-detectors, from ACTIVE or INTERMITTENT to their end
(TR-548 4.4, 4.7). Events, which never clear, are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from instep.ports.lake import LakeColumn, LakeEpisodeTable
from instep_tapi.facts.detector import (
    CONTAINERS,
    DETECTOR,
    EVENT_STATES,
    EVENT_TYPES,
    NATIVE,
    SEVERITIES,
    STATES,
    read_statement,
)
from instep_tapi.facts.episodes import FLAPPING_WITHIN_S
from instep_tapi.facts.members import read_json
from instep_tapi.lake.json_members import (
    bound,
    class_name,
    flag,
    identity,
    members_of,
    named,
    parent_uuid,
    short_enough,
    text,
    text_of,
    trimmed,
)

__all__ = ["ALARMS"]

_STATED: Final = {
    "state": "state",
    "severity": "severity",
    "service_affect": "service_affect",
    "acknowledged": "acknowledged",
    "condition": "condition",
    "condition_normalized": "condition_normalized",
    "detector_native_id": "detector_native_id",
    "detector_uuid": "detector_uuid",
    "measured_entity_class": "measured_class",
    "measured_entity_uuid": "measured_uuid",
    "measured_entity_native_id": "measured_native_id",
    "node_uuid": "node_uuid",
    "event": "event",
}
"""What one statement of a detector says: column → the member of `Detector`."""
_FLAGS: Final = frozenset({"acknowledged", "event"})
_KEPT: Final = {
    "episode": "BIGINT",
    "raised_at": "TIMESTAMP",
    "raised_spread": "STRING",
    "worst_severity": "STRING",
    "severity_changes": "BIGINT",
    "intermittent_count": "BIGINT",
    "statements": "BIGINT",
    "flapping_count": "BIGINT",
}
"""What an open episode has gathered so far."""


def _read(
    bodies: Sequence[str | None], parent_addresses: Sequence[str | None]
) -> dict[str, list[Any]]:
    read = [
        read_statement((body or "").encode(), read_json((address or "").encode()), {})
        for body, address in zip(bodies, parent_addresses, strict=True)
    ]
    found = {name: [getattr(one, own) for one in read] for name, own in _STATED.items()}
    # What states that it is an event ends an alarm, too, and is not left out.
    found["event"] = [one.event and one.state not in EVENT_STATES for one in read]
    return found


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _members() -> str:
    """SQL: the members of a condition-detector and of its containers, the outer ones first."""
    last = len(CONTAINERS)
    then = f"concat({', '.join(f'm{depth}' for depth in range(last + 1))})"
    for depth in range(last, -1, -1):
        inner = f"transform({named(f'm{depth - 1}', *sorted(CONTAINERS))}, inner -> inner.value)"
        then = bound(members_of(inner if depth else "array(body)"), f"m{depth}", then)
    return then


def _named_text(name: str, read: Callable[[str], str] | None = None) -> str:
    """SQL: what `read` makes of the text of the first member with this name."""
    stated = text_of("members", name, "body")
    return stated if read is None else bound(stated, "stated", read("stated"))


def _first_text(*names: str, read: Callable[[str], str] | None = None) -> str:
    """SQL: the same of the first of these names that states something."""
    return f"coalesce({', '.join(_named_text(name, read) for name in names)})"


def _normalized(value: str) -> str:
    """SQL: the name of a detected condition, null where it has none."""
    name = trimmed(f"substring_index({value}, ':', -1)")
    stated = f"CASE WHEN NOT endswith(found_name, '{NATIVE}') THEN nullif(found_name, '') END"
    return bound(name, "found_name", stated)


_IDENTITY: Final = bound(text("member", "body"), "stated", identity("stated"))
_STATES: Final = (
    f"filter(transform({named('members', *STATES)}, member -> {_IDENTITY}), one -> one IS NOT NULL)"
)
_CLEARED: Final = (
    f"coalesce(exists({named('members', 'perceived-severity')}, "
    f"member -> {_IDENTITY} = 'CLEARED'), false)"
)
_STATE: Final = bound(
    _STATES,
    "states",
    "coalesce(get(filter(states, one -> one <> 'CLEAR'), 0), "
    f"CASE WHEN size(states) > 0 OR {_CLEARED} THEN 'CLEAR' END)",
)
_ACKNOWLEDGED: Final = ", ".join(
    flag(f"get({named('members', name)}, 0).value")
    for name in ("is-acknowledged", "is-acknowledge")
)
_READ_SQL: Final = bound(
    _members(),
    "members",
    bound(
        f"named_struct('state', {_STATE}, "
        f"'type', {_named_text('condition-detector-type', identity)}, "
        f"'measured_class', {_named_text('measured-entity-class', class_name)}, "
        f"'measured_uuid', {_named_text('measured-entity-uuid', short_enough)})",
        "own",
        "named_struct("
        "'state', coalesce(own.state, 'ACTIVE'), "
        f"'severity', {_named_text('perceived-severity', identity)}, "
        f"'service_affect', {_first_text('service-affect', 'service-affecting', read=identity)}, "
        f"'acknowledged', coalesce({_ACKNOWLEDGED}), "
        f"'condition', {_first_text('condition-native-name', 'detected-condition-native-name')}, "
        f"'condition_normalized', coalesce({_named_text('condition-normalized-name')}, "
        f"{_named_text('detected-condition-name', _normalized)}), "
        f"'detector_native_id', {_named_text('detector-native-id')}, "
        f"'detector_uuid', {_named_text('detector-uuid')}, "
        "'measured_entity_class', own.measured_class, "
        "'measured_entity_uuid', own.measured_uuid, "
        f"'measured_entity_native_id', {_named_text('measured-entity-native-id')}, "
        f"'node_uuid', coalesce({parent_uuid('node')}, "
        "CASE WHEN own.measured_class = 'NODE' THEN own.measured_uuid END), "
        "'event', own.state IS NULL "
        f"AND coalesce(own.type IN ({_quoted(sorted(EVENT_TYPES))}), false))",
    ),
)
_MAY_BE_EVENT: Final = (
    " OR ".join(f"contains(body, '{name}')" for name in sorted(EVENT_TYPES))
    + r" OR contains(body, r'\')"
)
_WHO: Final = "consumer, stream, id"
_SEVERITIES: Final = f"array({_quoted(SEVERITIES)})"
_RANK: Final = f"array_position({_SEVERITIES}, {{}})"
_SQL: Final = f"""
    WITH compared AS (
        SELECT *, lag(named_struct('ends', ends, 'state', stated.state,
            'severity', stated.severity)) OVER (PARTITION BY {_WHO} ORDER BY ordinal) AS before
        FROM statements
    ), counted AS (
        SELECT *, count_if(NOT ends AND (before IS NULL OR before.ends)) OVER (
            PARTITION BY {_WHO} ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number,
            NOT known AND NOT ends AS news
        FROM compared
    ), episodes AS (
        SELECT {_WHO}, number, bool_or(known) AS known, max(kept) AS kept,
            min_by(named_struct('ordinal', ordinal, 'at', happened_at, 'spread', happened_spread),
                ordinal) AS raise,
            min_by({{end}}, ordinal) FILTER (WHERE ends) AS end,
            max_by({{last}}, ordinal) FILTER (WHERE NOT ends) AS last,
            max({_RANK.format("stated.severity")}) FILTER (WHERE NOT ends) AS worst,
            count_if(news) AS statements,
            count_if(news AND NOT before.ends AND NOT stated.severity <=> before.severity)
                AS severity_changes,
            count_if(news AND stated.state = 'INTERMITTENT' AND (
                before IS NULL OR before.ends OR before.state <> 'INTERMITTENT'))
                AS intermittent_count
        FROM counted WHERE number > 0 GROUP BY {_WHO}, number
    ), timed AS (
        SELECT *, coalesce(kept.raised_at, raise.at) AS raised_at,
            CASE WHEN end IS NOT NULL THEN
                greatest(end.at, coalesce(kept.raised_at, raise.at)) END AS cleared_at
        FROM episodes
    ), near AS (
        SELECT timed.*, flapping_before, NOT known AND NOT coalesce(raised_at
            <= coalesce(lag(cleared_at) OVER in_order, cleared_before)
                + INTERVAL {FLAPPING_WITHIN_S} SECONDS, false) AS calm
        FROM timed LEFT JOIN (
            SELECT {_WHO}, cleared_before, flapping_before FROM instep_closed
        ) USING (consumer, stream, id)
        WINDOW in_order AS (PARTITION BY {_WHO} ORDER BY number)
    ), chained AS (
        SELECT *, count_if(calm) OVER (PARTITION BY {_WHO} ORDER BY number
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS chain FROM near
    ), flapping AS (
        SELECT *, row_number() OVER in_order - 1 + CASE WHEN chain = 0 THEN coalesce(
            first(kept.flapping_count) OVER in_order, flapping_before + 1, 0) ELSE 0 END
            AS flapping_count
        FROM chained WINDOW in_order AS (PARTITION BY {_WHO}, chain ORDER BY number)
    )
    SELECT {_WHO}, known, last, end, raised_at, cleared_at, flapping_count,
        coalesce(kept.episode, raise.ordinal) AS episode,
        CASE WHEN kept IS NULL THEN raise.spread ELSE kept.raised_spread END AS raised_spread,
        end.spread AS cleared_spread,
        (unix_micros(cleared_at) - unix_micros(raised_at)) / 1e6D AS duration_s,
        try_element_at({_SEVERITIES}, CAST(nullif(
            greatest(worst, {_RANK.format("kept.worst_severity")}), 0) AS INT)) AS worst_severity,
        severity_changes + coalesce(kept.severity_changes, 0) AS severity_changes,
        intermittent_count + coalesce(kept.intermittent_count, 0) AS intermittent_count,
        statements + coalesce(kept.statements, 0) AS statements
    FROM flapping
"""
_DURATION: Final = "(unix_micros({at}) - unix_micros(t.raised_at)) / 1e6"
ALARMS: Final = LakeEpisodeTable(
    name="alarms",
    meaning="One row an episode of an alarm: from ACTIVE or INTERMITTENT to CLEAR, DELETE, "
    "TOMBSTONE or sweep (TR-548 4.4, 4.7).",
    entity_class=DETECTOR,
    columns=(
        LakeColumn("episode", "BIGINT", "row of `changes` that raised it"),
        LakeColumn("raised_at", "TIMESTAMP", "event time of the raise, else its append time"),
        LakeColumn(
            "cleared_at", "TIMESTAMP", "event time of the end, else its append time; or null"
        ),
        LakeColumn(
            "raised_spread",
            "STRING",
            "how sure `raised_at` is: `event_spread` of the raise; BEFORE for an append time",
        ),
        LakeColumn(
            "cleared_spread", "STRING", "how sure `cleared_at` is: likewise of the end; or null"
        ),
        LakeColumn("duration_s", "DOUBLE", "from raise to end in seconds; null while it lasts"),
        LakeColumn("state", "STRING", "ACTIVE or INTERMITTENT; CLEAR when it is over"),
        LakeColumn("ended_by", "STRING", "CLEAR, DELETE, TOMBSTONE or SWEEP; null while it lasts"),
        LakeColumn("severity", "STRING", "last perceived-severity; null where none is stated"),
        LakeColumn("worst_severity", "STRING", "the worst of the episode"),
        LakeColumn("severity_changes", "BIGINT", "how often the severity changed"),
        LakeColumn("intermittent_count", "BIGINT", "how often it became INTERMITTENT"),
        LakeColumn(
            "statements", "BIGINT", "statements about the episode, repeated ones not counted"
        ),
        LakeColumn(
            "flapping_count",
            "BIGINT",
            f"raises of this detector before this one, each within {FLAPPING_WITHIN_S} s of the "
            "end of the episode before",
        ),
        LakeColumn("service_affect", "STRING", "last service-affect"),
        LakeColumn("acknowledged", "BOOLEAN", "last is-acknowledged"),
        LakeColumn("condition", "STRING", "condition-native-name"),
        LakeColumn("condition_normalized", "STRING", "condition-normalized-name"),
        LakeColumn("detector_native_id", "STRING", "detector-native-id"),
        LakeColumn("detector_uuid", "STRING", "detector-uuid"),
        LakeColumn("measured_entity_class", "STRING", "class of the measured entity"),
        LakeColumn("measured_entity_uuid", "STRING", "uuid of the measured entity"),
        LakeColumn("measured_entity_native_id", "STRING", "native id of the measured entity"),
        LakeColumn(
            "node_uuid", "STRING", "node in the parent-address, or the measured NODE; or null"
        ),
    ),
    checks=(
        "(open <=> (cleared_at IS NULL)) AND (open <=> (ended_by IS NULL))",
        "cleared_at IS NULL OR cleared_at >= raised_at",
        "duration_s IS NULL OR duration_s >= 0",
        "ended_by IS NULL OR ended_by IN ('DELETE', 'TOMBSTONE', 'CLEAR', 'SWEEP')",
        "open OR state <=> 'CLEAR'",
    ),
    clustered_by=("raised_at", "node_uuid"),
    stated={name: "BOOLEAN" if name in _FLAGS else "STRING" for name in _STATED},
    left_out="event",
    read=_read,
    read_sql=_READ_SQL,
    left_out_sql=_MAY_BE_EVENT,
    gathered=_KEPT,
    remembered={
        "cleared_before": ("cleared_at", "episode"),
        "flapping_before": ("flapping_count", "episode"),
    },
    sql=_SQL,
    ended={"state": "'CLEAR'"},
    closing={
        "cleared_at": "greatest(t.raised_at, {at})",
        "cleared_spread": "'BEFORE'",
        "duration_s": f"greatest(0.0D, {_DURATION})",
    },
    begin="episode",
    begin_at="raised_at",
    end_at="cleared_at",
    intervals="alarm_intervals",
    noun="an episode",
)
