"""Reads event times in bulk as `facts.event_times` reads them: the envelopes of a batch, and in
Spark SQL (TR-548 3.10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from instep.ports.lake import EnvelopeColumns
from instep_tapi.facts.event_times import stated_time
from instep_tapi.facts.times import MAX_TIME_CHARS
from instep_tapi.lake.json_members import (
    bound,
    identity,
    members_of,
    named,
    text_of,
    trimmed,
)

__all__ = ["EVENT_SQL", "read_envelopes", "time_sql"]

_NOTHING: Final = msgspec.Raw()


class _Nested(msgspec.Struct, gc=False, rename="kebab"):
    primary_time_stamp: str | None = None


class _Time(msgspec.Struct, gc=False, rename="kebab"):
    primary_time_stamp: str | None = None
    approx_date_and_time: _Nested | None = None


class _Envelope(msgspec.Struct, gc=False, rename="kebab"):
    event_time_stamp: str | _Time | None = None
    parent_address: msgspec.Raw = _NOTHING


class _Address(msgspec.Struct, gc=False, rename="kebab"):
    parent_address: msgspec.Raw = _NOTHING


_read_all: Final = msgspec.json.Decoder(list[_Envelope]).decode
_read_address: Final = msgspec.json.Decoder(_Address).decode


def read_envelopes(envelopes: Sequence[bytes]) -> EnvelopeColumns:
    """Event times and parent-addresses of many envelopes."""
    # One call for all of them costs a third of one call each.
    joined = b"[" + b",".join([one or b"{}" for one in envelopes]) + b"]"
    try:
        read = _read_all(joined)
    except msgspec.DecodeError:
        return _read_each(envelopes)
    if b":approx-date-and-time" in joined:  # of another module: it counts before what is flat
        return _read_each(envelopes)
    # Nearly all times are one of the first two; they are not worth a call each.
    times = [
        time.primary_time_stamp
        if time.__class__ is _Time and time.approx_date_and_time is None
        else time
        if time.__class__ is str
        else None
        for time in [one.event_time_stamp for one in read]
    ]
    if None in times:
        times = [
            _other_time(one.event_time_stamp, envelope)
            if time is None and b"time-stamp" in envelope
            else time
            for time, one, envelope in zip(times, read, envelopes, strict=True)
        ]
    addresses = [one.parent_address for one in read]
    return EnvelopeColumns(times, [None if raw is _NOTHING else bytes(raw) for raw in addresses])


def _read_each(envelopes: Sequence[bytes]) -> EnvelopeColumns:
    times = [stated_time(one)[0] for one in envelopes]
    return EnvelopeColumns(times, [_address(one) for one in envelopes])


def _other_time(time: _Time | str | None, envelope: bytes) -> str | None:
    nested = time.approx_date_and_time if isinstance(time, _Time) else None
    return (nested and nested.primary_time_stamp) or stated_time(envelope)[0]


def _address(envelope: bytes) -> bytes | None:
    try:
        raw = _read_address(envelope or b"{}").parent_address
    except msgspec.DecodeError:
        return None
    return None if raw is _NOTHING else bytes(raw)


# -- the same in Spark SQL ---------------------------------------------------------------------

_LEAP_SECOND: Final = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:|\d{12})60(?:[.,]\d+)?"
_HOUR_24: Final = r"^(\d{4}-\d\d-\d\dT|\d{8})24(:00:00|0000)(?![.,]0*[1-9])"
_YANG: Final = r"^(\d{8})(\d{6}(?:[.,]\d{1,12})?)\s*((?:Z|[+-]\d\d:?\d\d)?)\z"
_DATE: Final = r"(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d)|-W(\d\d)(?:-(\d))?|W(\d\d)(\d)?)"
_CLOCK: Final = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?|(\d\d)(?:(\d\d)(?:[.,](\d+))?)?)?"
_ZONE: Final = r" ?(?:Z|([+-])(\d\d)(?::?(\d\d)(?::?(\d\d))?)?)"
_ISO: Final = rf"^{_DATE}[T ]{_CLOCK}(?:{_ZONE})?\z"
_PARTS: Final = "$1|$2$4|$3$5|$6$8|$7$9|$10|$11$14|$12$15|$13$16|$17|$18|$19|$20"
"""Year, month, day; week, day of the week; hour, minute, second, fraction; offset: sign, hours,
minutes, seconds."""
_DAY_US: Final = 86_400_000_000


def time_sql(stated: str) -> str:
    """SQL: the time of a text; null for what is no time. See `facts.times.read_time`."""
    return bound(
        f"upper({trimmed(stated)})",
        "spelled",
        f"CASE WHEN length(spelled) <= {MAX_TIME_CHARS} THEN "
        + bound(
            f"regexp_replace(spelled, r'{_LEAP_SECOND}', '$159.999999')",
            "leapt",
            bound(
                f"regexp_replace(regexp_replace(leapt, r'{_HOUR_24}', '$100$2'), "
                f"r'{_YANG}', '$1T$2$3')",
                "iso",
                f"CASE WHEN iso RLIKE r'{_ISO}' THEN "
                + bound(
                    f"split(regexp_replace(iso, r'{_ISO}', '{_PARTS}'), r'\\|')",
                    "p",
                    f"timestamp_micros({_micros()} + "
                    f"CASE WHEN leapt RLIKE r'{_HOUR_24}' THEN {_DAY_US} ELSE 0 END)",
                )
                + " END",
            ),
        )
        + " END",
    )


def _micros() -> str:
    def number(at: int) -> str:
        return f"coalesce(try_cast(nullif(p[{at}], '') AS INT), 0)"

    week, weekday = number(3), "coalesce(try_cast(nullif(p[4], '') AS INT), 1)"
    monday = "trunc(try_cast(concat(p[0], '-01-04') AS DATE), 'WEEK')"
    weeks = "weekofyear(try_cast(concat(p[0], '-12-28') AS DATE))"
    by_week = (
        f"CASE WHEN {week} BETWEEN 1 AND {weeks} AND {weekday} BETWEEN 1 AND 7 "
        f"THEN date_add({monday}, ({week} - 1) * 7 + {weekday} - 1) END"
    )
    by_month = "try_cast(concat(p[0], '-', p[1], '-', p[2]) AS DATE)"
    date = (
        f"CASE WHEN p[0] > '0000' THEN CASE WHEN p[3] <> '' THEN {by_week} ELSE {by_month} END END"
    )
    hour, minute, second = number(5), number(6), number(7)
    clock = (
        f"CASE WHEN {hour} < 24 AND {minute} < 60 AND {second} < 60 "
        f"THEN ({hour} * 3600 + {minute} * 60 + {second}) END"
    )
    offset = f"({number(10)} * 3600 + {number(11)} * 60 + {number(12)})"
    ahead = f"CASE WHEN {offset} < 86400 THEN {offset} * CASE p[9] WHEN '-' THEN -1 ELSE 1 END END"
    return (
        f"CAST(unix_date({date}) AS BIGINT) * {_DAY_US} "
        f"+ CAST(({clock}) - ({ahead}) AS BIGINT) * 1000000 "
        "+ try_cast(rpad(substr(p[8], 1, 6), 6, '0') AS INT)"
    )


_STAMP: Final = (
    "coalesce(get_json_object(envelope, '$[\\'event-time-stamp\\']'), "
    "CASE WHEN contains(envelope, ':event-time-stamp\"') THEN "
    f"get({named(members_of('array(envelope)'), 'event-time-stamp')}, 0).value END)"
)
_NESTED: Final = f"get({named('flat', 'approx-date-and-time')}, 0).value"


def _stated(name: str, read: Callable[[str], str]) -> str:
    return bound(text_of("told", name, "envelope"), "stated", read("stated"))


_DETAILS: Final = (
    f"named_struct('event_start_at', {_stated('start-time-stamp', time_sql)}, "
    f"'event_spread', {_stated('spread', identity)}, "
    f"'event_precision', {_stated('source-precision', identity)})"
)
_TOLD: Final = bound(
    members_of(f"array({_STAMP})"),
    "flat",
    bound(
        members_of(f"array({_NESTED})"),
        "nested",
        bound("CASE WHEN size(nested) > 0 THEN nested ELSE flat END", "told", _DETAILS),
    ),
)
_NAMES: Final = ("start-time-stamp", "spread", "source-precision")
EVENT_SQL: Final = (
    "CASE WHEN "
    + " OR ".join(f"contains(envelope, '{name}\"')" for name in _NAMES)
    + f" THEN {_TOLD} END"
)
"""SQL: how sure the event time is. To look for the names costs a tenth of parsing the envelope."""
