"""Statements whose bodies nobody has looked into yet, and what a body says of its entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from instep.records import Kind, Record, Statement
from instep.stretch import Headers, HeaderStretch, RecordStretch, in_order
from instep_tapi.alarms import states_clear
from instep_tapi.bodies import Buffer, open_body, open_exact_body
from instep_tapi.frames import (
    NO_BODY,
    BadRecord,
    Exact,
    Fields,
    SealedBody,
    exact_body,
)
from instep_tapi.headers import MAX_OFFSET, check_text
from instep_tapi.names import ANY_CLASS, CLASSES_WITHOUT_CONTAINER, CONDITION_DETECTOR
from instep_tapi.places import read_places

__all__ = [
    "Sealed",
    "SealedStretch",
    "decode_body",
    "entity_of",
    "sealed_stretch",
    "unsealed",
    "uuid_of",
]

decode_body = msgspec.json.Decoder(Fields | None).decode
_MAY_BE_EMPTY = CLASSES_WITHOUT_CONTAINER - {ANY_CLASS}
EXACT_KINDS: Final = {
    "RECORD_TYPE_CREATE_UPDATE": Kind.CREATE_UPDATE,
    "RECORD_TYPE_DELETE": Kind.DELETE,
    "RECORD_TYPE_TOMBSTONE": Kind.TOMBSTONE,
}


class Sealed(Statement, frozen=True, gc=False):
    """A statement whose body nobody has asked for yet, and the frame that it came in."""

    body: SealedBody = None
    frame: bytes = b""


class SealedStretch(HeaderStretch[Sealed]):
    """Log-records spelled to the letter, as a stretch; made by `sealed_stretch`."""

    more = ("bodies", "frames")

    def __init__(
        self, headers: Headers, bodies: Sequence[SealedBody], frames: Sequence[bytes]
    ) -> None:
        super().__init__(headers)
        self.bodies = bodies
        self.frames = frames

    def at(self, index: int) -> Sealed:
        return Sealed(
            self.stream,
            self.keys[index],
            self.kinds[index],
            self.tokens[index],
            self.appended_at_us[index],
            self.partition,
            self.offsets[index],
            self.bodies[index],
            self.frames[index],
        )

    def opened(self, odd: list[str], *, with_uuid: bool, whole: bool) -> RecordStretch:
        """All of them, their bodies looked into. Raises what bad input raises."""
        said = [
            exact_entity(kind, body, odd)
            for kind, body in zip(self.kinds, self.bodies, strict=True)
        ]
        classes, bodies, envelopes, ends = zip(*said, strict=True)
        uuids = [""] * len(bodies)
        if with_uuid:
            uuids = [uuid_of(body) if body else "" for body in bodies]
        return RecordStretch(self.headers, classes, bodies, envelopes, ends, uuids, whole=whole)


def sealed_stretch(
    stream: str,
    exact: Exact,
    times_us: Callable[[Sequence[str]], list[int]],
) -> SealedStretch | None:
    """These records as a stretch, where they are one and need no closer look.

    Raises what `times_us` raises, and `ValueError` for an offset that is no number.
    """
    headers = exact.headers
    place = read_places([header.full_log_record_offset_id for header in headers])
    if place is None:
        return None
    partition, offsets = place
    appended_at_us = times_us([header.log_append_time_stamp for header in headers])
    if not in_order(offsets, appended_at_us) or offsets[-1] > MAX_OFFSET:
        return None
    keys = [header.entity_key for header in headers]
    tokens = [header.token for header in headers]
    if "\0" in "".join(keys) or "\0" in "".join(tokens):
        return None
    kinds = [EXACT_KINDS[header.record_type] for header in headers]
    read = Headers(stream, partition, keys, offsets, appended_at_us, kinds, tokens)
    return SealedStretch(read, exact.bodies, exact.frames)


class _Uuid(msgspec.Struct, gc=False):
    uuid: str = ""


_uuid = msgspec.json.Decoder(_Uuid)


def unsealed(statement: Statement, odd: list[str], *, with_uuid: bool, whole: bool) -> Record:
    """The record that a statement is, or was sealed from. Raises what bad input raises."""
    if not isinstance(statement, Sealed):
        return cast("Record", statement)
    kind = statement.kind
    entity_class, content, envelope, ends = exact_entity(kind, statement.body, odd)
    return Record(
        statement.stream,
        statement.key,
        kind,
        statement.token,
        statement.appended_at_us,
        statement.partition,
        statement.offset,
        entity_class,
        bytes(content),
        bytes(envelope),
        ends,
        uuid_of(content) if with_uuid and content else "",
        whole,
    )


def exact_entity(kind: Kind, body: SealedBody, odd: list[str]) -> tuple[str, Buffer, Buffer, bool]:
    """As `entity_of`, of a body spelled to the letter. Raises what bad input raises."""
    stated = exact_body(body)
    if stated is None or stated.entity is NO_BODY:
        if kind is Kind.CREATE_UPDATE:
            raise BadRecord("whether its class may be empty is judged by the liberal way")
        if stated is None:
            return "", b"", b"", True
    entity_class, content, envelope = open_exact_body(stated, odd)
    # Not by a call: of new keys, each record comes by here.
    if not (content.isascii() and envelope.isascii()):
        content.decode()
        envelope.decode()
    ends = kind is not Kind.CREATE_UPDATE or (
        entity_class == CONDITION_DETECTOR and states_clear(content)
    )
    return entity_class, content, envelope, ends


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


def uuid_of(content: Buffer) -> str:
    """The entity's own uuid, empty where it states none. Raises `BadRecord`."""
    try:
        uuid = _uuid.decode(content).uuid
    except msgspec.MsgspecError:
        return ""
    if uuid:
        check_text("uuid", uuid)
    return uuid
