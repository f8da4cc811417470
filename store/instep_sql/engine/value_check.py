"""Values that a database cannot store: a record with one goes to quarantine (A11)."""

from __future__ import annotations

from typing import Final

import msgspec

from instep.model.batches import Batch
from instep.model.records import Record, Unreadable

__all__ = ["split_storable", "to_unreadable"]


_NUL: Final = "\x00"


_ESCAPED_NUL: Final = b"\\u0000"


_INDEXED_BYTES: Final = 2_600
"""With its other columns, a row of an index is then below the limit of PostgreSQL."""


def split_storable(batch: Batch) -> Batch:
    """The batch with such records moved to `unreadable`: PostgreSQL's text type cannot hold a NUL
    character, and its indexes no key of more than 2,704 bytes.
    """
    reasons = [_unstorable(record) for record in batch.records]
    pairs = list(zip(batch.records, reasons, strict=True))
    storable = [record for record, reason in pairs if not reason]
    unstorable = [to_unreadable(record, reason) for record, reason in pairs if reason]
    return batch.replace(records=storable, unreadable=[*batch.unreadable, *unstorable])


def _unstorable(record: Record) -> str:
    """Why the record cannot be stored; empty where it can."""
    if _has_nul(record):
        return "a NUL character in a key, token or name"
    if any(len(text.encode()) > _INDEXED_BYTES for text in (record.key, record.uuid)):
        return f"a key or uuid of more than {_INDEXED_BYTES} bytes, too long for an index"
    return ""


def _has_nul(record: Record) -> bool:
    texts = (record.key, record.entity_class, record.token, record.partition, record.uuid)
    if any(_NUL in text for text in texts):
        return True
    # The store parses the bodies of partial updates.
    return not record.whole and _ESCAPED_NUL in record.body


def to_unreadable(record: Record, reason: str) -> Unreadable:
    """The quarantine entry of a record that was read but cannot be stored."""
    body = record.body.decode(errors="replace")
    raw = msgspec.json.encode({"entity-key": record.key, "kind": record.kind.name, "body": body})
    return Unreadable(record.stream, raw, reason, record.token)
