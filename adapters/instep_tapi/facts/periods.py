"""What one statement says about periods of measurement: pure (TR-548 3.9.2.6, 3.9.2.7; the members
are those of tapi-oam).

A pm-history-data states one period that is over. A pm-current-data states the period under way, or
the last one where it is streamed at its end, and may contain the periods before it; an oam-job may
contain all of them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from instep.model.records import Record
from instep.model.storable import LONGEST_UUID_CHARS
from instep_tapi.facts.members import flag, plain_members, read_json, text_member
from instep_tapi.facts.places import read_places
from instep_tapi.facts.times import time_us

__all__ = ["MEASURING", "Period", "read_periods"]

_HISTORY: Final = "PM_HISTORY_DATA"
_CURRENT: Final = "PM_CURRENT_DATA"
_JOB: Final = "OAM_JOB"
MEASURING: Final = frozenset({_HISTORY, _CURRENT, _JOB})
"""The classes whose statements have periods."""
_UNITS_US: Final = {
    "DAYS": 86_400_000_000,
    "HOURS": 3_600_000_000,
    "MINUTES": 60_000_000,
    "SECONDS": 1_000_000,
    "MILLISECONDS": 1_000,
    "MICROSECONDS": 1,
}
"""Months and years have no fixed length, and nothing is measured for less than a microsecond."""
_HIGHEST_US: Final = 2**63 - 1
_encode: Final = msgspec.json.Encoder().encode


class Period(msgspec.Struct, frozen=True, gc=False):
    """One period of a series, in microseconds since 1970."""

    series: str
    """See `Measurement.series`."""
    length_us: int
    """The granularity-period; 0 where it is not stated or has no fixed length."""
    end_us: int
    complete: bool
    """Whether it was over when this was measured."""
    suspect: bool | None
    """`suspect-interval-flag`."""
    body: bytes
    """The statement, without the periods that it contains."""


def read_periods(record: Record) -> list[Period]:
    """The periods that a statement has; none where no time can be read."""
    members = plain_members(read_json(record.body))
    places, _ = read_places(
        text_member(members, "uuid") or record.uuid, record.envelope, record.body
    )
    here = {distance: uuid for place, distance, _, uuid in places if place == 0}
    own = here.get(0) or record.key
    if record.entity_class == _HISTORY:
        period = _history(members, here.get(1, own), 0)
        return [] if period is None else [period]
    if record.entity_class == _CURRENT:
        return _current(members, own, record.appended_at_us)
    found: list[Period] = []
    for one in _list(members, "pm-current-data"):
        local = text_member(one, "local-id")
        if local is not None and len(f"{own}/{local}") <= LONGEST_UUID_CHARS:
            found += _current(one, f"{own}/{local}", record.appended_at_us)
    return found


def _current(members: dict[str, Any], series: str, appended_at_us: int) -> list[Period]:
    length_us = _length_us(members)
    contained = [_history(one, series, length_us) for one in _list(members, "pm-history-data")]
    found = [period for period in contained if period is not None]
    begin_us = time_us(text_member(members, "timestamp"))
    if begin_us is not None and length_us:
        end_us = begin_us + length_us
        elapsed_us = _elapsed_us(members)
        over = appended_at_us >= end_us if elapsed_us is None else elapsed_us >= length_us
        found.append(_period(members, series, length_us, end_us, complete=over))
    return found


def _history(members: dict[str, Any], series: str, length_us: int) -> Period | None:
    end_us = time_us(text_member(members, "period-end-time"))
    if end_us is None:
        return None
    return _period(members, series, _length_us(members) or length_us, end_us, complete=True)


def _period(
    members: dict[str, Any], series: str, length_us: int, end_us: int, *, complete: bool
) -> Period:
    own = {name: value for name, value in members.items() if name != "pm-history-data"}
    suspect = flag(members.get("suspect-interval-flag"))
    return Period(series, length_us, end_us, complete, suspect, _encode(own))


def _length_us(members: dict[str, Any]) -> int:
    return _interval_us(members.get("granularity-period")) or 0


def _elapsed_us(members: dict[str, Any]) -> int | None:
    """`elapsed-time`, which states a number for each unit."""
    parts = _list(plain_members(members.get("elapsed-time")), "period")
    known = [us for us in map(_interval_us, parts) if us is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _interval_us(value: Any) -> int | None:
    """A `time-period`; its number is a text in JSON, as all of 64 bits are (RFC 7951)."""
    members = plain_members(value)
    unit_us = _UNITS_US.get(text_member(members, "unit") or "")
    stated = members.get("value")
    if isinstance(stated, str) and stated.isascii() and stated.isdigit() and len(stated) <= 20:
        stated = int(stated)
    if unit_us is None or type(stated) is not int or not 0 <= stated * unit_us <= _HIGHEST_US:
        return None
    return stated * unit_us


def _list(members: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = members.get(name)
    return [plain_members(one) for one in value] if isinstance(value, list) else []
