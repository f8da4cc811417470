"""Statements whose bodies nobody has looked into yet, and what a body says of its entity."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from instep.records import Kind, Record, Statement
from instep_tapi.alarms import states_clear
from instep_tapi.bodies import open_body
from instep_tapi.frames import NO_BODY, BadRecord, Fields
from instep_tapi.headers import check_text
from instep_tapi.names import ANY_CLASS, CLASSES_WITHOUT_CONTAINER, CONDITION_DETECTOR

__all__ = ["EXACT_KINDS", "Sealed", "decode_body", "entity_of", "unsealed", "uuid_of"]

decode_body = msgspec.json.Decoder(Fields | None).decode
_MAY_BE_EMPTY = CLASSES_WITHOUT_CONTAINER - {ANY_CLASS}
EXACT_KINDS: Final = {
    "RECORD_TYPE_CREATE_UPDATE": Kind.CREATE_UPDATE,
    "RECORD_TYPE_DELETE": Kind.DELETE,
    "RECORD_TYPE_TOMBSTONE": Kind.TOMBSTONE,
}


class Sealed(Statement, frozen=True, gc=False):
    """A statement whose body nobody has asked for yet, and the frame that it came in."""

    body: msgspec.Raw = NO_BODY
    frame: bytes = b""


class _Uuid(msgspec.Struct, gc=False):
    uuid: str = ""


_uuid = msgspec.json.Decoder(_Uuid)


def unsealed(statement: Statement, odd: list[str], *, with_uuid: bool, whole: bool) -> Record:
    """The record that a statement is, or was sealed from. Raises what bad input raises."""
    if not isinstance(statement, Sealed):
        return cast("Record", statement)
    kind, body = statement.kind, decode_body(statement.body)
    entity_class, content, envelope, ends = entity_of(kind, body, kind.name, odd)
    return Record(
        statement.stream,
        statement.key,
        kind,
        statement.token,
        statement.appended_at_us,
        statement.partition,
        statement.offset,
        entity_class,
        content,
        envelope,
        ends,
        uuid_of(content) if with_uuid and content else "",
        whole,
    )


def entity_of(
    kind: Kind, body: Fields | None, record_type: str, odd: list[str]
) -> tuple[str, bytes, bytes, bool]:
    """Class, content, envelope, and whether the statement ends its entity."""
    entity_class, content, envelope = open_body(body, odd) if body else ("", b"", b"")
    if kind is not Kind.CREATE_UPDATE:
        return entity_class, content, envelope, True
    if content:
        ends = entity_class == CONDITION_DETECTOR and states_clear(content)
        return entity_class, content, envelope, ends
    if entity_class not in _MAY_BE_EMPTY:
        raise BadRecord(f"{record_type.strip()} without the entity that it states (TR-548 3.10)")
    odd.append("container-missing")
    return entity_class, b"{}", envelope, False


def uuid_of(content: bytes) -> str:
    """The entity's own uuid, empty where it states none. Raises `BadRecord`."""
    try:
        uuid = _uuid.decode(content).uuid
    except msgspec.MsgspecError:
        return ""
    if uuid:
        check_text("uuid", uuid)
    return uuid
