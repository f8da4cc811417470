"""When an event happened, as its statement has it: pure (TR-548 3.10, 4.8)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from instep.model.records import Record
from instep_tapi.facts.members import (
    UNREADABLE,
    identity,
    identity_member,
    plain_members,
    read_json,
    text_member,
)
from instep_tapi.facts.times import time_us

__all__ = ["ApproximateTime", "event_time", "read_envelope", "stated_time"]


class ApproximateTime(msgspec.Struct, frozen=True, gc=False):
    """An `approximate-date-and-time` (TR-548 3.10, 4.8), in microseconds since 1970."""

    at_us: int
    """The primary time-stamp; where none is stated, the append time."""
    from_us: int | None = None
    """The start time-stamp: with the spread BETWEEN, where the interval begins."""
    spread: str | None = None
    """AT, BEFORE, AFTER or BETWEEN. BEFORE, too, where the append time stands for it (4.8)."""
    precision: str | None = None
    """UNKNOWN, FREE_RUNNING or SYNCHRONIZED."""


class _Stamp(msgspec.Struct, rename="kebab", frozen=True, gc=False, forbid_unknown_fields=True):
    primary_time_stamp: str
    start_time_stamp: str | None = None
    spread: str | None = None
    source_precision: str | None = None


class _NestedStamp(
    msgspec.Struct, rename="kebab", frozen=True, gc=False, forbid_unknown_fields=True
):
    approx_date_and_time: _Stamp


class _Envelope(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    """With an event time as the YANG has it: flat."""

    event_time_stamp: _Stamp


class _NestingEnvelope(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    """With an event time as TR-548 6.3 has it."""

    event_time_stamp: _NestedStamp


_decode_flat: Final = msgspec.json.Decoder(_Envelope).decode
_decode_nested: Final = msgspec.json.Decoder(_NestingEnvelope).decode


def event_time(record: Record) -> ApproximateTime:
    """When it happened."""
    return _usual_time(record) or _any_time(record)


def _usual_time(record: Record) -> ApproximateTime | None:
    """What `_any_time` gives for the same envelope, or None where it may be another: a short cut,
    several times as fast.
    """
    # Then every text in it can be stored as it is, and no name has a module.
    if not record.envelope.isascii() or b"\\" in record.envelope or b":event-" in record.envelope:
        return None
    try:
        if b'"approx-date-and-time"' in record.envelope:
            stamp = _decode_nested(record.envelope).event_time_stamp.approx_date_and_time
        else:
            stamp = _decode_flat(record.envelope).event_time_stamp
    except UNREADABLE:
        return None
    at_us = time_us(stamp.primary_time_stamp)
    if at_us is None:
        return None
    return ApproximateTime(
        at_us,
        time_us(stamp.start_time_stamp or None),
        identity(stamp.spread),
        identity(stamp.source_precision),
    )


def _any_time(record: Record) -> ApproximateTime:
    primary, members = stated_time(record.envelope)
    at_us = time_us(primary)
    if at_us is None:
        return ApproximateTime(record.appended_at_us, spread="BEFORE")
    return ApproximateTime(
        at_us,
        time_us(text_member(members, "start-time-stamp")),
        identity_member(members, "spread"),
        identity_member(members, "source-precision"),
    )


def stated_time(envelope: bytes) -> tuple[str | None, dict[str, Any]]:
    """The primary time-stamp as it is spelled, and what else is stated about it: flat as the YANG
    has it or nested as in TR-548 6.3.
    """
    stated = read_envelope(envelope).get("event-time-stamp")
    members = plain_members(stated)
    members = plain_members(members.get("approx-date-and-time")) or members
    if isinstance(stated, str):
        return stated, members
    return text_member(members, "primary-time-stamp"), members


def _read_envelope(envelope: bytes | bytearray) -> dict[str, Any]:
    return plain_members(read_json(envelope))


read_envelope: Final = lru_cache(maxsize=1)(_read_envelope)
"""The members of an envelope, by their names without module. The time and the address of one
statement are read one after the other; nobody changes what is returned."""
