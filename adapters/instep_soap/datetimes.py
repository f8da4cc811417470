"""Points in time of XML Schema (``2026-01-31T12:00:00Z``), in microseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

__all__ = ["read_datetime_us", "write_datetime"]

_DATETIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)


def read_datetime_us(text: str) -> int | None:
    """The microseconds since 1970 of an xs:dateTime, 0 at least; without a time zone it is UTC.
    None: it is none, or of a year that is not 1 to 9999.
    """
    found = _DATETIME.fullmatch(text.strip())
    if found is None:
        return None
    whole, fraction, zone = found.groups()
    second_us = _second_us(f"{whole}{zone or 'Z'}")
    if second_us is None:
        return None
    return max(0, second_us + (int((fraction + "000000")[:6]) if fraction else 0))


# The times of the messages of one second differ in their fractions only.
@lru_cache(maxsize=64)
def _second_us(text: str) -> int | None:
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _US
    except (ValueError, OverflowError):
        return None


def write_datetime(at_us: int) -> str:
    """A point in time in UTC: ``2026-01-31T12:00:00.5Z``."""
    at = _EPOCH + timedelta(microseconds=at_us)
    fraction = f".{at.microsecond:06}".rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"
