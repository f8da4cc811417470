"""How sure an event time is, as the envelope of a row of `changes` states it (TR-548 3.10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from instep_spark.lake.sql.json_fields import json_path

__all__ = ["EVENT_DETAILS"]

_STAMP: Final = "event-time-stamp"


def _stated(name: str) -> str:
    """SQL: a member of the event time, flat as the YANG has it or nested as in TR-548 6.3."""
    flat = json_path(_STAMP, name, source="envelope")
    return f"coalesce({flat}, {json_path(_STAMP, 'approx-date-and-time', name, source='envelope')})"


def _time(stated: str) -> str:
    """SQL: the time of a text; one that names no zone is taken as UTC."""
    # 20211102223713.0-0500, as the YANG describes a date-and-time.
    spelled = (
        f"regexp_replace(trim(BOTH ' \t\r\n' FROM {stated}), "
        r"r'^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?=[.,Z+-]|$)', '$1-$2-$3T$4:$5:$6')"
    )
    zoned = rf"regexp_replace({spelled}, r'(?<!Z)(?<![+-]\d\d:?\d\d)\z', 'Z')"
    return f"try_cast({zoned} AS TIMESTAMP)"


def _identity(stated: str) -> str:
    """SQL: an identity without its prefixes."""
    return rf"regexp_replace({stated}, r'^\s*(?:[\w-]+:)?(?:SPREAD_|SOURCE_PRECISION_)?|\s+$', '')"


def _where_named(name: str, read: Callable[[str], str]) -> str:
    """SQL: what `read` makes of a member of the event time; null where the envelope does not name
    it. To look for the name costs a tenth of parsing the envelope, and most events state no start.
    """
    return f"CASE WHEN contains(envelope, '\"{name}\"') THEN {read(_stated(name))} END"


EVENT_DETAILS: Final = {
    "event_start_at": _where_named("start-time-stamp", _time),
    "event_spread": _where_named("spread", _identity),
    "event_precision": _where_named("source-precision", _identity),
}
"""How sure the event time is: column → SQL."""
