"""Reads log-record-headers: type, place in the log, and the mandatory texts (TR-548 3.10).

The place tells the order of what happened to an entity, and no event time does (TR-548 3.11).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import msgspec

from instep.model.records import RecordType
from instep_tapi.facts.names import (
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    STREAMING_MODULE,
    short_identity,
    strip_module,
)
from instep_tapi.facts.times import read_time
from instep_tapi.wire.framing import (
    BadRecord,
    Fields,
    decode_fields,
)

__all__ = [
    "DEFAULT_TYPE",
    "MAX_OFFSET",
    "PLACE_ENTRIES",
    "LogRecordHeader",
    "NameValue",
    "RecordTypeReading",
    "check_text",
    "partition_and_offset",
    "plain_members",
    "read_header",
    "read_record_type",
    "text_of",
]


DEFAULT_TYPE = "RECORD_TYPE_INFORMATION"
"""Of a record that states none, from 2.4 on."""
MAX_OFFSET = 2**63 - 1
PLACE_ENTRIES = 2
"""Of a full-log-record-offset-id, partition and offset are read; with more, all of it is kept."""


_MODULE = f"{STREAMING_MODULE}:"


_OFFSET_NAMES = ("offset", "partition-offset", "sequence-number")


_YANG_NAME = re.compile(r"(?:tapi-[a-z-]+:)?RECORD_TYPE_[A-Z_]+")


class RecordTypeReading(NamedTuple):
    """What a record-type says."""

    kind: RecordType | None
    """None for an information record, which states nothing of an entity (v3.2, 3.10)."""
    whole: bool | None = None
    """Whether the record states its entity whole; None where that depends on the stream."""
    deviations: tuple[str, ...] = ()


_RECORD_TYPES = {
    "CREATE_UPDATE": RecordTypeReading(RecordType.CREATE_UPDATE),
    "DELETE": RecordTypeReading(RecordType.DELETE),
    "TOMBSTONE": RecordTypeReading(RecordType.TOMBSTONE),
    # TAPI 2.4 and later (v3.2, 5.2).
    "CREATE": RecordTypeReading(RecordType.CREATE_UPDATE, whole=True),
    "UPDATE": RecordTypeReading(RecordType.CREATE_UPDATE, whole=True),
    "CHANGE": RecordTypeReading(RecordType.CHANGE, whole=False),
    "INFORMATION": RecordTypeReading(None),
}


_READ_MEMBERS = frozenset(
    {
        "token",
        "log-append-time-stamp",
        "entity-key",
        "record-type",
        "full-log-record-offset-id",
        # It is about the bytes of the record, which are not kept.
        "record-authenticity-token",
    }
)


_text = msgspec.json.Decoder(str)


@lru_cache(maxsize=256)
def read_record_type(text: str) -> RecordTypeReading:
    """What a record-type says. Raises `BadRecord` for a text that is too long to be one."""
    if len(text) > MAX_NAME_CHARS:
        raise BadRecord("a record-type that is too long to be one")
    name = short_identity(text)
    if name not in _RECORD_TYPES:
        return RecordTypeReading(RecordType.CREATE_UPDATE, deviations=("record-type-unknown",))
    deviations = ("identity-blanks",) if text != text.strip() else ()
    if not _YANG_NAME.fullmatch(text.strip()):
        deviations = (*deviations, "identity-spelling")
    return _RECORD_TYPES[name]._replace(deviations=deviations)


def check_text(name: str, text: str) -> None:
    """Refuse what cannot be a key of a store. Raises `BadRecord`."""
    if not text:
        raise BadRecord(f"an empty {name} (mandatory, TR-548 3.10)")
    if len(text) > MAX_TEXT_CHARS:
        raise BadRecord(f"a {name} of {len(text)} characters; at most {MAX_TEXT_CHARS} are taken")
    if "\0" in text:
        raise BadRecord(f"a {name} with a NUL character")


def partition_and_offset(ids: list[NameValue], deviations: list[str]) -> tuple[str, int]:
    """Partition and offset of a full-log-record-offset-id; -1 where no offset is stated.

    The names are the YANG's examples; their order and other entries do not matter.
    """
    if len(ids) == 2:
        one, other = ids
        if one.value_name == "partition" and other.value_name == "offset":
            return _partition_and_offset(one.value, other.value, deviations)
    named = {item.value_name.strip().lower().replace(" ", "-"): item.value for item in ids}
    for name in _OFFSET_NAMES:
        if name in named:
            return _partition_and_offset(named.get("partition", ""), named[name], deviations)
    deviations.append("offset-missing")
    return str(named.get("partition", "")), -1


def _partition_and_offset(
    partition: str | int, offset: str | int, deviations: list[str]
) -> tuple[str, int]:
    if not isinstance(partition, str) or not isinstance(offset, str):
        deviations.append("number-for-text")
        partition = str(partition)
    try:
        number = int(offset)
    except ValueError:
        number = -1
    if not 0 <= number <= MAX_OFFSET:
        deviations.append("offset-unreadable")
        number = -1
    return partition, number


def read_header(
    raw: bytes | msgspec.Raw, deviations: list[str], *, needs_type: bool = True
) -> tuple[LogRecordHeader, int, Fields]:
    """A header in any spelling, its append time, and the members that are not read, such as
    tapi-context. Raises `BadRecord`, or what msgspec raises; with `needs_type` also where no
    record-type is stated, which is empty else.
    """
    members = plain_members(raw, deviations)
    stamp = text_of(members, "log-append-time-stamp", deviations)
    try:
        appended_at_us, deviation = read_time(stamp)
    except (ValueError, OverflowError):
        reason = f"log-append-time-stamp {stamp[:64]!r} is no time (TR-548 3.10)"
        raise BadRecord(reason) from None
    if deviation:
        deviations.append(deviation)
    typed = needs_type or "record-type" in members
    header = LogRecordHeader(
        token=text_of(members, "token", deviations),
        log_append_time_stamp=stamp,
        entity_key=text_of(members, "entity-key", deviations),
        record_type=text_of(members, "record-type", deviations) if typed else "",
    )
    if "full-log-record-offset-id" in members:
        try:
            header.full_log_record_offset_id = _offset_id(members["full-log-record-offset-id"])
        except msgspec.MsgspecError:
            deviations.append("offset-unreadable")
    rest = {name: members[name] for name in sorted(members.keys() - _READ_MEMBERS)}
    return header, appended_at_us, rest


def plain_members(raw: bytes | msgspec.Raw, deviations: list[str], *, top: bool = False) -> Fields:
    """The members of an object of tapi-streaming by their names without module; at the `top` of a
    text they must have one (RFC 7951 4).

    Where two have one name, that without module counts, then that of tapi-streaming.
    """
    fields = decode_fields(raw)
    members: Fields = {}
    for name, value in fields.items():
        if ":" not in name:
            members[name] = value
        elif name.startswith(_MODULE):
            if not top:
                deviations.append("needless-prefix")
            own = name.removeprefix(_MODULE)
            members[own] = fields.get(own, value)
        else:
            members.setdefault(strip_module(name), value)
    return members


def text_of(members: Fields, name: str, deviations: list[str]) -> str:
    """A mandatory text; a number is taken by its digits, as written. Raises `BadRecord`."""
    raw = bytes(members[name]) if name in members else b"null"
    if raw == b"null":
        raise BadRecord(f"no {name} in the log-record-header (mandatory, TR-548 3.10)")
    if raw[:1] == b'"':
        return _text.decode(raw)
    if raw[:1] in b"{[tf":
        raise BadRecord(f"the {name} is neither text nor number (TR-548 3.10)")
    deviations.append("number-for-text")
    return raw.decode()


class NameValue(msgspec.Struct, rename="kebab", gc=False):
    """An entry of full-log-record-offset-id; a number is let in and counted (TR-548 3.10)."""

    value_name: str
    value: str | int


_offset_id = msgspec.json.Decoder(list[NameValue]).decode


class LogRecordHeader(msgspec.Struct, rename="kebab", gc=False):
    """log-record-header as the YANG and the published examples have it (TR-548 3.10)."""

    token: str
    log_append_time_stamp: str
    entity_key: str
    record_type: str
    full_log_record_offset_id: list[NameValue] = []
