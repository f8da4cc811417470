"""Reads event times in bulk: Arrow parses the usual spelling, the others are parsed one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

__all__ = ["parse_timestamps"]

_TYPE: Final = pa.timestamp("us", tz="UTC")
_YANG: Final = re.compile(r"(\d{14})(?:[.,](\d{1,12}))?\s*(?:Z|([+-])(\d\d):?(\d\d))?", re.ASCII)
"""tapi-common:date-and-time as its YANG describes it: 20211102223713.0-0500."""
_LONGEST_CHARS: Final = 64


def parse_timestamps(texts: Sequence[str | None]) -> pa.Array:
    """Return the times of these texts; null where a text is no time. A time that names no zone is
    taken as UTC.
    """
    try:
        return pa.array(texts, pa.string()).cast(_TYPE)
    except pa.ArrowInvalid:
        return pa.array([_parse_timestamp(text) for text in texts], _TYPE)


def _parse_timestamp(text: str | None) -> datetime | None:
    if text is None or len(text) > _LONGEST_CHARS:
        return None
    text = text.strip()
    try:
        if match := _YANG.fullmatch(text):
            digits, fraction, sign, hours, minutes = match.groups()
            moment = datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            moment += timedelta(microseconds=int((fraction or "0").ljust(6, "0")[:6]))
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            return moment + offset if sign == "-" else moment - offset
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
