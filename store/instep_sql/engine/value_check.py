"""Values that a database has no place for: records that hold one go to quarantine (A11),
a peer's words are made storable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from instep.model.batches import Batch
from instep.model.records import Record, Unreadable

__all__ = ["split_storable", "storable_text", "to_unreadable", "without_nul"]


_NUL: Final = "\x00"


_ESCAPED_NUL: Final = b"\\u0000"


def split_storable(batch: Batch) -> Batch:
    """The batch with such records moved to what could not be read: PostgreSQL's text has no NUL."""
    fine = [record for record in batch.records if not _has_nul(record)]
    moved = [
        to_unreadable(record, "a NUL character in a key, token or name")
        for record in batch.records
        if _has_nul(record)
    ]
    return batch.replace(records=fine, unreadable=[*batch.unreadable, *moved])


def _has_nul(record: Record) -> bool:
    texts = (record.key, record.entity_class, record.token, record.partition, record.uuid)
    if any(_NUL in text for text in texts):
        return True
    # Of changes the store reads the body.
    return not record.whole and _ESCAPED_NUL in record.body


def to_unreadable(record: Record, reason: str) -> Unreadable:
    """A record that was read but cannot be kept, as the quarantine keeps it."""
    body = record.body.decode(errors="replace")
    raw = msgspec.json.encode({"entity-key": record.key, "kind": record.kind.name, "body": body})
    return Unreadable(record.stream, raw, reason, record.token)


def without_nul(value: str) -> str:
    """A provider's words as any database holds them: for those who look, not to compare."""
    return value.replace(_NUL, "\N{REPLACEMENT CHARACTER}")


def storable_text(value: str) -> str:
    """A peer's words as any database holds them. It is told apart by its other characters."""
    if value.isascii() and "\x00" not in value:
        return value
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
