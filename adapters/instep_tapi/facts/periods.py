"""What one statement says about periods of measurement: pure (TR-548 3.9.2.6, 3.9.2.7; the members
are those of tapi-oam, of both editions).

A history-data states one period that is over. A current-data states the period under way, or the
last one where it is streamed at its end, and may contain the periods before it; an oam-job may
contain all of them. From TAPI 2.4 on, the history of an end point stands in its pm-data, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from instep.model.records import Record
from instep.model.storable import LONGEST_UUID_CHARS
from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.containment import HISTORY_CLASSES, LOCAL_CLASSES, SERIES_CLASSES
from instep_tapi.facts.members import flag, plain_members, read_json, text_member
from instep_tapi.facts.places import read_places
from instep_tapi.facts.times import time_us

__all__ = ["MEASURING", "Period", "read_periods"]

_JOB: Final = "OAM_JOB"
MEASURING: Final = SERIES_CLASSES | {_JOB}
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
_INNER: Final = frozenset(
    member
    for name in MEASURING
    for member, inner in CLASS_MODEL.places[name].contains.items()
    if inner in HISTORY_CLASSES
)
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
    series = here.get(0) or record.key
    if record.entity_class in HISTORY_CLASSES:
        period = _history(members, here.get(1, series), 0)
        return [] if period is None else [period]
    return list(_periods(record.entity_class, members, series, record.appended_at_us))


def _periods(
    entity_class: str, members: dict[str, Any], series: str, appended_at_us: int
) -> Iterator[Period]:
    """The periods within an entity, then its own."""
    length_us = _length_us(members)
    for member, inner in CLASS_MODEL.places[entity_class].contains.items():
        for one in _list(members, member) if inner in MEASURING else ():
            local = text_member(one, "local-id")
            if inner in HISTORY_CLASSES:
                period = _history(one, series, length_us)
                if period is not None:
                    yield period
            elif local is not None and len(f"{series}/{local}") <= LONGEST_UUID_CHARS:
                yield from _periods(inner, one, f"{series}/{local}", appended_at_us)
    stated = text_member(members, "period-start-time") or text_member(members, "timestamp")
    end_us = _end_us(time_us(stated), length_us)
    if entity_class in LOCAL_CLASSES and end_us is not None:
        elapsed_us = _interval_us(members.get("elapsed-time"))
        over = appended_at_us >= end_us if elapsed_us is None else elapsed_us >= length_us
        yield _period(members, series, length_us, end_us, complete=over)


def _history(members: dict[str, Any], series: str, length_us: int) -> Period | None:
    length_us = _length_us(members) or length_us
    begin_us = time_us(text_member(members, "period-start-time"))
    end_us = time_us(text_member(members, "period-end-time"))
    if end_us is None:
        end_us = _end_us(begin_us, length_us)
    if end_us is None:
        return None
    if not length_us and begin_us is not None:
        length_us = max(0, end_us - begin_us)
    return _period(members, series, length_us, end_us, complete=True)


def _period(
    members: dict[str, Any], series: str, length_us: int, end_us: int, *, complete: bool
) -> Period:
    own = {name: value for name, value in members.items() if name not in _INNER}
    suspect = flag(_stated(members, "suspect-interval-flag"))
    return Period(series, length_us, end_us, complete, suspect, _encode(own))


def _stated(members: dict[str, Any], name: str) -> Any:
    """A member of the period; from TAPI 2.4 on some stand in its pm-data-pac."""
    return members.get(name, plain_members(members.get("pm-data-pac")).get(name))


def _end_us(begin_us: int | None, length_us: int) -> int | None:
    """The end of a period; None where it is not known, or later than a database can tell."""
    if begin_us is None or not 0 < length_us <= _HIGHEST_US - begin_us:
        return None
    return begin_us + length_us


def _length_us(members: dict[str, Any]) -> int:
    return _interval_us(_stated(members, "granularity-period")) or 0


def _interval_us(value: Any) -> int | None:
    """A `time-interval`, which states a number for each unit, or a `time-period`, which is one."""
    members = plain_members(value)
    if "period" not in members:
        return _time_period_us(members)
    known = [_time_period_us(one) for one in _list(members, "period")]
    stated = [us for us in known if us is not None]
    whole = bool(stated) and len(stated) == len(known) and sum(stated) <= _HIGHEST_US
    return sum(stated) if whole else None


def _time_period_us(members: dict[str, Any]) -> int | None:
    """Its number is a text in JSON, as all of 64 bits are (RFC 7951)."""
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
