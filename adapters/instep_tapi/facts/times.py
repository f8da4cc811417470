"""Reads the times and durations of TAPI, in both formats of the field (TR-548 3.7.1, 3.10): that of
RFC 3339, which TR-548 shows (6.3), and `date-and-time` as its YANG describes it.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone

__all__ = ["duration_s", "epoch_us", "read_time", "time_us"]

# tapi-common:date-and-time as its YANG describes it: yyyyMMddhhmmss.s[Z|{+|-}HHMm]
_YANG_TIME = re.compile(
    r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:[.,](\d{1,12}))?"
    r"\s*(?:(Z)|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
# What no `datetime` holds, in either format: a leap second, and the end of a day as 24:00:00.
_LEAP_SECOND = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:|\d{12})60(?:[.,]\d+)?", re.ASCII)
_HOUR_24 = re.compile(r"(\d{4}-\d\d-\d\dT|\d{8})24(:00:00|0000)(?![.,]0*[1-9])", re.ASCII)
# Python takes any characters between the sixth decimal and the zone.
BROKEN_FRACTION = re.compile(r"[.,][0-9]{6,}(?![0-9Z+-]|$)")
UNBROKEN_CHARS = 27
"""A time of up to so many characters, 2021-04-28T14:14:28.777777Z, has no room for these."""
# As many decimals as a program may write: a sixth of a minute has seventeen.
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,40})?)\s*([a-z]*)", re.ASCII)
_MINUTE_S = 60.0
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
MAX_TIME_CHARS = 64
# An RFC 9557 suffix, as java.time writes it: the name repeats what the offset says.
_ZONE_NAME = re.compile(r"(?:\[!?[A-Z0-9_+\-/=:]{1,64}\])+$", re.ASCII)
# From 2001 to 2033: from a 2 on, digits may as well be a yyyyMMddhhmmss that was cut short.
_EPOCH_DIGITS = re.compile(r"(1(?:\d{9}|\d{12}|\d{15}|\d{18}))(?:\.(\d{1,12}))?", re.ASCII)
_EPOCH_US = {10: (1_000_000, 1), 13: (1_000, 1), 16: (1, 1), 19: (1, 1_000)}
"""By the number of digits: what the number is multiplied with and divided by to be microseconds."""
_UNITS_S = {
    **dict.fromkeys(("", "m", "min", "mins", "minute", "minutes"), _MINUTE_S),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}


def epoch_us(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC; a time that names no zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _US


def read_time(text: str) -> tuple[int, str | None]:
    """Microseconds since the epoch, and the kind of deviation if the spelling is one.

    RFC 3339 is what TR-548 shows (6.3), ``20211102223713.0-0500`` what the YANG describes. A leap
    second is read as the last microsecond before it, 24:00:00 as the beginning of the next day. So
    are seconds, milliseconds, microseconds and nanoseconds since 1970, told apart by their number
    of digits, and a time with the name of its zone behind the offset (RFC 9557).

    Raises `ValueError` or `OverflowError` for anything else.
    """
    text = text.strip().upper()
    if len(text) > MAX_TIME_CHARS:
        raise ValueError(f"a time of more than {MAX_TIME_CHARS} characters")
    if epoch := _EPOCH_DIGITS.fullmatch(text):
        return _since_1970(*epoch.groups()), "epoch-time"
    if named := _ZONE_NAME.search(text):
        at_us, deviation = read_time(text[: named.start()])
        if deviation == "time-without-zone":
            raise ValueError(f"{text!r} names a zone, and has no offset")
        return at_us, "zone-name"
    if leap := _LEAP_SECOND.match(text):
        return _read(f"{leap[1]}59.999999{text[leap.end() :]}")[0], "leap-second"
    if midnight := _HOUR_24.match(text):
        begun_us, _ = _read(f"{midnight[1]}00{text[midnight.end(1) + 2 :]}")
        return begun_us + _DAY_US, "hour-24"
    return _read(text)


def time_us(text: str | None) -> int | None:
    """The same, or None for what is no time: a date alone, for example, does not say when."""
    if text is None:
        return None
    # The usual spelling; what Python refuses is read again, a leap second for example.
    if text[10:11] == "T" and len(text) < UNBROKEN_CHARS + text.endswith("Z"):
        try:
            return epoch_us(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            pass
    try:
        return read_time(text)[0]
    except (ValueError, OverflowError):
        return None


def _since_1970(digits: str, fraction: str | None) -> int:
    times, parts = _EPOCH_US[len(digits)]
    part = int((fraction or "0").ljust(12, "0")) * times // 10**12
    return int(digits) * times // parts + part // parts


def _read(text: str) -> tuple[int, str | None]:
    if match := _YANG_TIME.fullmatch(text):
        *digits, fraction, utc, sign, hours, minutes = match.groups()
        year, month, day, hour, minute, second = map(int, digits)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        moment += timedelta(microseconds=int((fraction or "0").ljust(6, "0")[:6]))
        if sign:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            moment = moment.replace(tzinfo=timezone(offset if sign == "+" else -offset))
        return epoch_us(moment), None if utc or sign else "time-without-zone"
    # Python takes any character for the T.
    if "T" not in text and " " not in text:
        raise ValueError(f"{text!r} is no time")
    if len(text) > UNBROKEN_CHARS - 1 and BROKEN_FRACTION.search(text):
        raise ValueError(f"{text!r} is no time")
    moment = datetime.fromisoformat(text)
    return epoch_us(moment), "time-without-zone" if moment.tzinfo is None else None


def duration_s(value: object) -> float | None:
    """A retention or delay in seconds (TR-548 3.7.1): inf for FOREVER, None for no time.

    "Time in minutes" comes as ``10``, ``"10"``, ``"10 minutes"``, ``"0.05"``; bytes are no time.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    if isinstance(value, (int, float)):
        return float(value) * _MINUTE_S if 0 <= value < 1e12 and math.isfinite(value) else None
    text = value.strip().lower()
    if text == "forever":
        return math.inf
    match = _DURATION.fullmatch(text)
    unit_s = _UNITS_S.get(match[2]) if match else None
    return float(match[1]) * unit_s if match and unit_s else None
