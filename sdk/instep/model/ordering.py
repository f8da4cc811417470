"""Which of two statements is newer (A3), and one statement a key of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from instep.model.columns import (
    Columns,
    CompactedColumns,
    HeaderColumns,
    RecordColumns,
    last_indexes,
)
from instep.model.records import RecordChunk, RecordHeader

__all__ = ["compacted", "latest_per_key", "latest_records", "supersedes"]

S = TypeVar("S", bound=RecordHeader)


def supersedes(stored: RecordHeader, record: RecordHeader) -> bool:
    """Whether `stored` lies after `record` in the log, both being of one lineage.

    Offsets decide where both are known in one partition, append times else.
    """
    if stored.offset >= 0 and record.offset >= 0 and stored.partition == record.partition:
        return stored.offset > record.offset
    return stored.appended_at_us > record.appended_at_us


def latest_per_key(records: Iterable[S]) -> dict[str, S]:
    """The statement that counts for each key: the last, unless it is older than the one before it.

    Committing the fold leaves the store as committing record by record would, in one write a key.
    """
    compacted: dict[str, S] = {}
    get = compacted.get
    for record in records:
        key = record.key
        last = get(key)
        if (
            last is None
            # The usual case, told without a call.
            or (record.offset > last.offset >= 0 and record.partition == last.partition)
            or not supersedes(last, record)
        ):
            compacted[key] = record
    return compacted


def latest_records(records: Sequence[RecordHeader]) -> Sequence[RecordHeader]:
    """The statements that `latest_per_key` leaves."""
    return (
        records.latest_records()
        if isinstance(records, Columns)
        else list(latest_per_key(records).values())
    )


def compacted(chunk: RecordChunk) -> RecordChunk:
    """The same, its last words opened and the rest let go, where that is safe: as long as it is in
    the processor's cache, that costs a fraction of what it does once a large batch has piled up.

    Safe is a stretch of whole statements whose last words can all be read: where one cannot, those
    before it may be asked for.
    """
    columns = chunk.records
    if not isinstance(columns, HeaderColumns) or not chunk.whole:
        return chunk
    indexes = last_indexes(columns.keys)
    found = chunk.opened(columns.picked(indexes))
    if found.unreadable or not isinstance(found.records, RecordColumns):
        return chunk
    return msgspec.structs.replace(
        chunk,
        records=CompactedColumns(columns, found.records, indexes),
        open=None,
        deviations=dict(Counter(chunk.deviations) + Counter(found.deviations)),
    )
