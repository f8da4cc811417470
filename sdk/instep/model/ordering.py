"""Rule A3 in Python and in SQL: which of two records about an entity is newer.

Theory. Records compare within one *lineage*, which is one log of one provider. If both have an
offset in the same partition, the offsets decide, otherwise the append times. Equal is never newer:
a repeated record is written again, and marked.

This comparison is not an order. With several partitions, or if some offsets are unknown, append
times and offsets can form a cycle. So nothing sorts by it and no aggregate takes a maximum by it:
records are applied one by one, in the order of arrival, each compared with what is stored then. An
end stores nothing, so the record after it is compared with nothing (A4).

The SQL expressions run in SQLite, PostgreSQL, Spark and DataFusion. The same cases test them and
`supersedes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from instep.model.columns import (
    Columns,
    CompactedColumns,
    HeaderColumns,
    RecordColumns,
    last_indexes,
)
from instep.model.records import Record, RecordChunk, RecordHeader

__all__ = [
    "BOUND_PLACE",
    "SPARK_PLACE",
    "SQL_PLACE",
    "Place",
    "PlaceColumns",
    "compacted",
    "is_later",
    "latest_records",
    "rounds_per_key",
    "supersedes",
    "supersedes_sql",
]

S = TypeVar("S", bound=RecordHeader)


def supersedes(stored: RecordHeader, incoming: RecordHeader) -> bool:
    """Whether `stored` is newer than `incoming`, so that `incoming` changes nothing (A3).

    Both are of one lineage. Offsets decide if both are known and in one partition, otherwise append
    times. Of equal ones neither is newer.
    """
    if stored.offset >= 0 and incoming.offset >= 0 and stored.partition == incoming.partition:
        return stored.offset > incoming.offset
    return stored.appended_at_us > incoming.appended_at_us


class HasLineage(Protocol):
    """A record stored with the lineage of the log that it was read from."""

    @property
    def record(self) -> RecordHeader: ...
    @property
    def lineage(self) -> int: ...


def is_later(one: HasLineage, other: HasLineage) -> bool:
    """Whether `one` is later than `other`: of a log that was read later, or newer in the same log.

    For two stored records. An incoming record is of the current lineage, and is compared only with
    stored records of that lineage.
    """
    if one.lineage != other.lineage:
        return one.lineage > other.lineage
    return supersedes(one.record, other.record)


class PlaceColumns(NamedTuple):
    """The names of the SQL columns that hold a record's place in the log."""

    lineage: str
    partition: str
    offset: str
    appended_at: str


SQL_PLACE: Final = PlaceColumns("lineage", "partition", '"offset"', "appended_at_us")
"""In the tables of SQLite and PostgreSQL."""
SPARK_PLACE: Final = PlaceColumns("lineage", "`partition`", "record_offset", "appended_at")
"""In Delta tables, as Spark and DataFusion read them."""


class Place(NamedTuple):
    """The SQL expressions for a record's place in the log."""

    lineage: str
    """Empty if the record is known to be of the other side's lineage."""
    partition: str
    offset: str
    appended_at: str

    @classmethod
    def of(cls, row: str, columns: PlaceColumns) -> Place:
        """The columns of a row: of an alias such as `excluded`, or bare where `row` is empty."""
        prefix = f"{row}." if row else ""
        return cls(*(prefix + column for column in columns))


BOUND_PLACE: Final = Place("?", "?", "?", "?")
"""Parameters, which are bound in the order: lineage, offset, partition, offset, append time."""


def supersedes_sql(stored: Place, incoming: Place, *, nullable: bool = False) -> str:
    """SQL for `supersedes`: `stored` is of the lineage of `incoming` and newer (A3).

    The expression is true or false, and in parentheses. `nullable`: an operand may be NULL, as
    after an outer join without a match; the result is then false.
    """
    by_place = (
        f"CASE WHEN {stored.offset} >= 0 AND {incoming.offset} >= 0"
        f" AND {stored.partition} = {incoming.partition}"
        f" THEN {stored.offset} > {incoming.offset}"
        f" ELSE {stored.appended_at} > {incoming.appended_at} END"
    )
    if stored.lineage and incoming.lineage:
        by_place = f"{stored.lineage} = {incoming.lineage} AND {by_place}"
    return f"coalesce({by_place}, false)" if nullable else f"({by_place})"


def rounds_per_key(records: Iterable[S], keys: Iterable[str] | None = None) -> list[dict[str, S]]:
    """The records to write so that the store ends as if each record was applied alone (A3, A4).

    Each round has one record per key, and is written as a whole before the next one. Nearly always
    there is one round, with the last record of each key. There are more if no single record
    replaces all others, whatever is stored: an older record after an end, or append times that
    contradict the offsets.

    Args:
        records: Records of one lineage, in the order of arrival.
        keys: The key of each of them, where it is not the record's own.
    """
    latest: dict[str, S] = {}
    before: dict[str, list[S]] = {}
    get = latest.get
    given = None if keys is None else iter(keys)
    for record in records:
        key = record.key if given is None else next(given)
        last = get(key)
        if (
            last is None
            # The usual case, without a call.
            or (
                record.offset > last.offset >= 0
                and record.partition == last.partition
                and record.appended_at_us >= last.appended_at_us
            )
            or _replaces(record, last)
        ):
            latest[key] = record
        elif supersedes(last, record) and _lives(last) and _replaces(last, record):
            continue
        else:
            before.setdefault(key, []).append(last)
            latest[key] = record
    if not before:
        return [latest]
    rounds: list[dict[str, S]] = [{} for _ in range(1 + max(map(len, before.values())))]
    for key, last in latest.items():
        for written, record in zip(rounds, [*before.get(key, ()), last], strict=False):
            written[key] = record
    return rounds


def _replaces(one: RecordHeader, other: RecordHeader) -> bool:
    """Whether each record that supersedes `one` also supersedes `other`: `one` is as late by offset
    and by time.
    """
    return (
        one.partition == other.partition
        and (one.offset >= other.offset >= 0 or one.offset < 0 > other.offset)
        and one.appended_at_us >= other.appended_at_us
    )


def _lives(record: RecordHeader) -> bool:
    """Whether the record is known not to end its entity; the header does not show an
    alarm's CLEAR.
    """
    return isinstance(record, Record) and not record.ends


def latest_records(records: Sequence[RecordHeader]) -> Sequence[RecordHeader]:
    """The records of `rounds_per_key`, in an order in which they may be written."""
    if isinstance(records, Columns):
        return records.latest_records()
    return [one for written in rounds_per_key(records) for one in written.values()]


def compacted(chunk: RecordChunk) -> RecordChunk:
    """The chunk with only the latest record of each key decoded, where that is safe.

    A body that a later record of the same chunk replaces is dropped and never parsed. This is done
    while the chunk is still in the processor's cache; later, in a large batch, it costs many times
    as much. It is safe for columns of whole records whose latest records can all be decoded. If one
    cannot, an earlier record may be needed, and the chunk is returned unchanged.
    """
    columns = chunk.records
    if not isinstance(columns, HeaderColumns) or not chunk.whole:
        return chunk
    indexes = last_indexes(columns.keys)
    found = chunk.decode(columns.picked(indexes))
    if found.unreadable or not isinstance(found.records, RecordColumns):
        return chunk
    return msgspec.structs.replace(
        chunk,
        records=CompactedColumns(columns, found.records, indexes),
        decoder=None,
        deviations=dict(Counter(chunk.deviations) + Counter(found.deviations)),
    )
