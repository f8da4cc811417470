"""Reads members of a TAPI entity, whatever the names of their modules: pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from instep_sql.engine.value_check import storable_text

__all__ = ["UNREADABLE", "flag", "plain_members", "read_json", "text_member", "time_us"]

_YANG_TIME: Final = re.compile(
    r"(\d{14})(?:[.,](\d{1,12}))?\s*(?:Z|([+-])(\d\d):?(\d\d))?", re.ASCII
)
"""tapi-common:date-and-time as its YANG describes it: 20211102223713.0-0500."""
_LONGEST_TIME_CHARS: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode: Final = msgspec.json.Decoder().decode


def read_json(json: bytes | bytearray) -> Any:
    """The document; None for what is none."""
    try:
        return _decode(json) if json else None
    except UNREADABLE:
        return None


def plain_members(value: Any) -> dict[str, Any]:
    """The members of an object without the names of their modules; of anything else none."""
    if not isinstance(value, dict):
        return {}
    if ":" not in "".join(value):
        return value
    return {name.rpartition(":")[2]: inner for name, inner in value.items()}


def text_member(members: dict[str, Any], name: str) -> str | None:
    """A text that is stated and not empty, as a database can store it."""
    value = members.get(name)
    return storable_text(value) if isinstance(value, str) and value else None


def flag(value: Any) -> bool | None:
    """A truth value, also as a text; None for anything else."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    return value if isinstance(value, bool) else None


def time_us(text: str | None) -> int | None:
    """A time that names no zone is taken as UTC; None for what is no time."""
    if text is None or len(text) > _LONGEST_TIME_CHARS:
        return None
    text = text.strip()
    try:
        if match := _YANG_TIME.fullmatch(text):
            digits, fraction, sign, hours, minutes = match.groups()
            moment = datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            moment += timedelta(microseconds=int((fraction or "0").ljust(6, "0")[:6]))
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            moment = moment + offset if sign == "-" else moment - offset
        else:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _US
    except (ValueError, OverflowError):
        return None
