"""Statements whose bodies nobody has looked into yet, and what a body says of its entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from instep.records import Kind, Record, Statement
from instep.stretch import Stretch, in_order
from instep_tapi.alarms import states_clear
from instep_tapi.bodies import open_body, open_exact_body
from instep_tapi.frames import NO_BODY, BadRecord, ExactBody, ExactLogRecord, Fields
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

    body: ExactBody | None = None
    frame: bytes = b""


class SealedStretch(Stretch):
    """Log-records spelled to the letter, as a stretch; made by `sealed_stretch`."""

    __slots__ = ("_frames", "_items")

    def __init__(
        self,
        stream: str,
        items: Sequence[ExactLogRecord],
        frames: Sequence[bytes],
        partition: str,
        keys: list[str],
        tokens: list[str],
        offsets: list[int],
        appended_at_us: list[int],
    ) -> None:
        kinds = [EXACT_KINDS[item.log_record_header.record_type] for item in items]
        super().__init__(stream, partition, keys, kinds, tokens, offsets, appended_at_us)
        self._items = items
        self._frames = frames

    def at(self, index: int) -> Sealed:
        return Sealed(
            self.stream,
            self.keys[index],
            self.kinds[index],
            self.tokens[index],
            self.appended_at_us[index],
            self.partition,
            self.offsets[index],
            self._items[index].log_record_body,
            self._frames[index],
        )

    def opened(self, odd: list[str], *, with_uuid: bool, whole: bool) -> list[Record]:
        """All of them, their bodies looked into. Raises what bad input raises."""
        stream, partition = self.stream, self.partition
        records = []
        for item, key, kind, token, offset, at_us in zip(
            self._items,
            self.keys,
            self.kinds,
            self.tokens,
            self.offsets,
            self.appended_at_us,
            strict=True,
        ):
            entity_class, content, envelope, ends = exact_entity(kind, item.log_record_body, odd)
            uuid = uuid_of(content) if with_uuid and content else ""
            records.append(
                Record(
                    stream,
                    key,
                    kind,
                    token,
                    at_us,
                    partition,
                    offset,
                    entity_class,
                    content,
                    envelope,
                    ends,
                    uuid,
                    whole,
                )
            )
        return records


def sealed_stretch(
    stream: str,
    items: Sequence[ExactLogRecord],
    frames: Sequence[bytes],
    times_us: Callable[[Sequence[str]], list[int]],
) -> SealedStretch | None:
    """These records of these frames as a stretch, where they are one and need no closer look.

    Raises what `times_us` raises, and `ValueError` for an offset that is no number.
    """
    headers = [item.log_record_header for item in items]
    place = read_places([header.full_log_record_offset_id for header in headers])
    if place is None:
        return None
    partition, offsets = place
    appended_at_us = times_us([header.log_append_time_stamp for header in headers])
    if not in_order(offsets, appended_at_us) or offsets[-1] > MAX_OFFSET:
        return None
    lacking = [
        item.log_record_header.record_type
        for item in items
        if (body := item.log_record_body) is None or body.entity is NO_BODY
    ]
    if "RECORD_TYPE_CREATE_UPDATE" in lacking:
        return None
    keys = [header.entity_key for header in headers]
    tokens = [header.token for header in headers]
    if "\0" in "".join(keys) or "\0" in "".join(tokens):
        return None
    return SealedStretch(stream, items, frames, partition, keys, tokens, offsets, appended_at_us)


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
        content,
        envelope,
        ends,
        uuid_of(content) if with_uuid and content else "",
        whole,
    )


def exact_entity(
    kind: Kind, body: ExactBody | None, odd: list[str]
) -> tuple[str, bytes, bytes, bool]:
    """As `entity_of`, of a body spelled to the letter."""
    if body is None:
        return "", b"", b"", True
    entity_class, content, envelope = open_exact_body(body, odd)
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


def uuid_of(content: bytes) -> str:
    """The entity's own uuid, empty where it states none. Raises `BadRecord`."""
    try:
        uuid = _uuid.decode(content).uuid
    except msgspec.MsgspecError:
        return ""
    if uuid:
        check_text("uuid", uuid)
    return uuid
