"""The event time of a row of `changes`, also where an older version landed it as null."""

from __future__ import annotations

from typing import Final

from instep_spark.lake.sql.json_fields import json_path

__all__ = ["EVENT_AT"]

_STAMP: Final = "event-time-stamp"
_STATED: Final = "coalesce({}, {}, {})".format(
    json_path(_STAMP, "primary-time-stamp", source="envelope"),
    json_path(_STAMP, "approx-date-and-time", "primary-time-stamp", source="envelope"),
    json_path(_STAMP, source="envelope"),
)
# 20211102223713.0-0500, as the YANG describes a date-and-time.
_SPELLED: Final = (
    rf"regexp_replace(trim({_STATED}), r'^(\d{{4}})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?=[.,Z+-]|$)',"
    " '$1-$2-$3T$4:$5:$6')"
)
_ZONED: Final = (
    f"CASE WHEN {_SPELLED} RLIKE r'(?:Z|[+-]\\d\\d:?\\d\\d)$' THEN {_SPELLED} "
    f"ELSE concat({_SPELLED}, 'Z') END"
)
EVENT_AT: Final = (
    "CASE WHEN event_at IS NOT NULL OR envelope IS NULL THEN event_at "
    f"ELSE try_cast({_ZONED} AS TIMESTAMP) END"
)
"""SQL: `event_at`, else the time that the envelope states (TR-548 3.10)."""
