"""Tells where a CREATE_UPDATE of a CHANGE_ONLY stream looks like a part, as TAPI 2.1.3 has it, in a
stream that is declared by the model of 2.4 and later, where it is whole (TR-548 v3.2, 5.2). Pure.

It changes nothing: an entity may lose most of its members. But a provider that declares one edition
and states the other must not be misread without a word.
"""

from __future__ import annotations

from typing import Final

import msgspec

from instep.model.records import Record, RecordChunk, RecordType

__all__ = ["PART_STATED", "PartialUpdateDetector", "shows_2_4"]

PART_STATED: Final = "create-update-part"
"""The deviation."""
_SHARE: Final = 0.5
"""Less than this share of the members that entities of its class have is taken for a part."""
_OF_2_4: Final = (b'RECORD_TYPE_CREATE"', b'RECORD_TYPE_UPDATE"', b'RECORD_TYPE_CHANGE"')
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def shows_2_4(frame: bytes) -> bool:
    """Whether a record type of 2.4 and later is in a frame: who uses them means them."""
    return any(one in frame for one in _OF_2_4)


class PartialUpdateDetector:
    """Watches the records of one stream, until a record type of 2.4 comes."""

    def __init__(self) -> None:
        self._usual: dict[str, int] = {}
        """Class → most members that an entity of it has had."""

    def inspect(self, chunk: RecordChunk) -> RecordChunk:
        """The chunk, with the deviation where one of its records looks like a part."""
        found = sum(self._is_part(one) for one in chunk.records if isinstance(one, Record))
        if not found:
            return chunk
        deviations = {**chunk.deviations, PART_STATED: found}
        return msgspec.structs.replace(chunk, deviations=deviations)

    def _is_part(self, record: Record) -> bool:
        if record.kind is not RecordType.CREATE_UPDATE or record.ends or not record.body:
            return False
        try:
            count = len(_members(record.body))
        except (msgspec.DecodeError, RecursionError):
            return False
        usual = self._usual.get(record.entity_class, 0)
        self._usual[record.entity_class] = max(usual, count)
        return count < usual * _SHARE
