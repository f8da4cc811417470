"""`alarms`: episodes of condition-detectors, from ACTIVE or INTERMITTENT to their end (TR-548 4.4,
4.7). Events, which never clear, are none.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from instep_spark.lake.batches.micro_batch import PendingRows
from instep_spark.lake.sql.dialect import Dialect
from instep_spark.lake.sql.event_time import EVENT_DETAILS
from instep_spark.lake.sql.json_fields import bool_field, enum_field, text_field
from instep_spark.lake.tables.base import rows_of_classes
from instep_spark.lake.tables.intervals import END_PLACE, SAME, SHOWN, IntervalTable
from instep_spark.lake.tables.schema import ALARMS
from instep_spark.place import LakePlace

__all__ = ["DETECTOR", "FLAPPING_WITHIN_S", "AlarmsTable"]

DETECTOR: Final = "CONDITION_DETECTOR"
FLAPPING_WITHIN_S: Final = 600
"""A raise this soon after the end of the episode before counts as flapping: the compaction delay
that TR-548 4.3 proposes.
"""

_STATE: Final = enum_field("alarm-detector-state", "simple-detector-state")
_EVENT: Final = (
    f"({_STATE} IS NULL AND coalesce(rtrim({text_field('condition-detector-type')}) "
    "RLIKE '(EVENT|PM_THRESHOLD)_DETECTOR$', false))"
)
"""SQL: the detector reports what happened, and never clears (TR-548 3.9.2.5)."""
_WHO: Final = "consumer, stream, id"
_HEADER: Final = (
    *("key", "token", "lineage", "partition", "record_offset", "appended_at", "event_at"),
    *("ordinal", "attempt", *EVENT_DETAILS),
)
_RANK: Final = "array_position(array('WARNING', 'MINOR', 'MAJOR', 'CRITICAL'), {})"
_STATED: Final = {
    "state": f"coalesce({_STATE}, 'ACTIVE')",
    "severity": enum_field("perceived-severity"),
    "service_affect": enum_field("service-affect"),
    "acknowledged": bool_field("is-acknowledged"),
    "condition": text_field("condition-native-name"),
    "condition_normalized": text_field("condition-normalized-name"),
    "detector_native_id": text_field("detector-native-id"),
    "detector_uuid": text_field("detector-uuid"),
    "measured_entity_class": enum_field("measured-entity-class"),
    "measured_entity_uuid": text_field("measured-entity-uuid"),
    "measured_entity_native_id": text_field("measured-entity-native-id"),
    "digest": "xxhash64(body)",
    "node_uuid": "coalesce("
    "nullif(regexp_extract(parent_address, r'\"node-uuid:([^\"]+)\"', 1), ''), "
    f"CASE WHEN {enum_field('measured-entity-class')} = 'NODE' "
    f"THEN {text_field('measured-entity-uuid')} END)",
}
"""The columns that a statement gives: column → SQL over `body` and `parent_address`."""


class AlarmsTable(IntervalTable):
    """An episode is one row: open while it lasts, then closed for good."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(ALARMS, place)
        self.remembered = {
            "cleared_before": ("cleared_at", "episode"),
            "flapping_before": ("flapping_count", "episode"),
        }

    def concerns(self, pending: PendingRows) -> bool:
        # A header-only end names no class.
        return bool(pending.classes & {DETECTOR, ""}) and any(
            stats.earliest_us is not None for stats in pending.stats_by_stream.values()
        )

    def concerned(self, held: pa.Table) -> pa.Table:
        """Statements about detectors, and all ends."""
        return rows_of_classes(held, (DETECTOR,))

    def closed_since(self, earliest_us: int, dialect: Dialect) -> str:
        # Event times may be off by any time, so the episode before is of any age.
        del earliest_us, dialect
        return "true"

    def class_of_row(self) -> str:
        return f"'{DETECTOR}'"

    def close(self, ordinal: str, at: str) -> str:
        duration = f"(unix_micros({at}) - unix_micros(t.raised_at)) / 1e6"
        return (
            f"t.cleared_at = greatest(t.raised_at, {at}), t.cleared_spread = 'BEFORE', "
            "t.state = 'CLEAR', "
            f"t.ended_by = 'SWEEP', t.duration_s = greatest(0.0D, {duration}), "
            f"t.end_ordinal = {ordinal}, t.open = false"
        )

    def moved(self) -> str:
        header = ", ".join(f"`{name}`" for name in _HEADER)
        stated = ", ".join(f"{sql} AS {name}" for name, sql in _STATED.items())
        words = ", ".join(_STATED)
        last = ", ".join(f"last.`{name}`" for name in (*_HEADER, *_STATED) if name != "state")
        ended = ", ".join(f"end.`{name}` AS end_{name}" for name in END_PLACE)
        inner = ", ".join(f"'{name}', `{name}`" for name in (*_HEADER, *_STATED))
        statements = f"""
            SELECT {_WHO}, {header}, {stated}, kind, ends, false AS known,
                   CAST(NULL AS STRUCT<{_KEPT_DDL}>) AS kept
            FROM instep_rows WHERE (class = '{DETECTOR}' AND NOT {_EVENT}) OR ends
            UNION ALL
            SELECT {_WHO}, {header}, {words}, '' AS kind, false AS ends, true AS known,
                   named_struct({", ".join(f"'{name}', {name}" for name in _KEPT)}) AS kept
            FROM instep_open
        """
        return f"""
            WITH statements AS ({statements}),
            shown AS (
                SELECT *, lag(named_struct('ends', ends, 'digest', digest)) OVER (
                    PARTITION BY {_WHO} ORDER BY ordinal) AS told
                FROM statements
            ), compared AS (
                SELECT *, lag(named_struct(
                    'lineage', lineage, 'partition', `partition`, 'ends', ends,
                    'record_offset', record_offset, 'appended_at', appended_at,
                    'digest', digest)) OVER (PARTITION BY {_WHO} ORDER BY ordinal) AS earlier
                FROM shown WHERE NOT {SHOWN}
            ), placed AS (
                SELECT *, lag(named_struct('ends', ends, 'state', state, 'severity', severity))
                    OVER (PARTITION BY {_WHO} ORDER BY ordinal) AS before
                FROM compared WHERE NOT {SAME}
            ), counted AS (
                SELECT *, count_if(NOT ends AND (before IS NULL OR before.ends)) OVER (
                    PARTITION BY {_WHO} ORDER BY ordinal
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number,
                    NOT known AND NOT ends AS news
                FROM placed
            ), episodes AS (
                SELECT {_WHO}, number, bool_or(known) AS known, max(kept) AS kept,
                    min_by(named_struct(
                        'ordinal', ordinal, 'at', coalesce(event_at, appended_at),
                        'spread', event_spread), ordinal) AS raise,
                    min_by(named_struct(
                        'at', coalesce(event_at, appended_at), 'spread', event_spread,
                        'ordinal', ordinal, 'lineage', lineage,
                        'partition', `partition`, 'record_offset', record_offset,
                        'appended_at', appended_at,
                        'by', CASE kind WHEN 'CREATE_UPDATE' THEN 'CLEAR' ELSE kind END),
                        ordinal) FILTER (WHERE ends) AS end,
                    max_by(named_struct({inner}), ordinal) FILTER (WHERE NOT ends) AS last,
                    max({_RANK.format("severity")}) FILTER (WHERE NOT ends) AS worst,
                    count_if(news) AS statements,
                    count_if(news AND NOT before.ends AND NOT severity <=> before.severity)
                        AS severity_changes,
                    count_if(news AND state = 'INTERMITTENT' AND (
                        before IS NULL OR before.ends OR before.state <> 'INTERMITTENT'))
                        AS intermittent_count
                FROM counted WHERE number > 0 GROUP BY {_WHO}, number
            ), timed AS (
                SELECT *, coalesce(kept.raised_at, raise.at) AS raised_at,
                       CASE WHEN end IS NOT NULL THEN
                           greatest(end.at, coalesce(kept.raised_at, raise.at)) END
                       AS cleared_at
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
            SELECT {_WHO}, known, {last}, raised_at, cleared_at, flapping_count,
                coalesce(kept.episode, raise.ordinal) AS episode,
                CASE WHEN kept IS NULL THEN raise.spread ELSE kept.raised_spread END
                    AS raised_spread, end.spread AS cleared_spread,
                (unix_micros(cleared_at) - unix_micros(raised_at)) / 1e6D AS duration_s,
                CASE WHEN end IS NULL THEN last.state ELSE 'CLEAR' END AS state,
                end.by AS ended_by, end.ordinal AS end_ordinal, end IS NULL AS open, {ended},
                try_element_at(array('WARNING', 'MINOR', 'MAJOR', 'CRITICAL'), CAST(nullif(
                    greatest(worst, {_RANK.format("kept.worst_severity")}), 0) AS INT))
                    AS worst_severity,
                severity_changes + coalesce(kept.severity_changes, 0) AS severity_changes,
                intermittent_count + coalesce(kept.intermittent_count, 0)
                    AS intermittent_count,
                statements + coalesce(kept.statements, 0) AS statements
            FROM flapping
        """


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
_KEPT_DDL: Final = ", ".join(f"{name}: {kind}" for name, kind in _KEPT.items())
