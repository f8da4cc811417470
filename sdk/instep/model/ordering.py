"""Rule A3, once: which of two statements about an entity is newer, in Python and in SQL.

Theory. Statements compare within one *lineage*, which is one log of one provider. Where both have
an offset in the same partition, the offsets decide; append times decide else. Equal is never newer:
a statement that is repeated is written again, and marked.

This comparison is no order. With several partitions, or with offsets of which some are unknown,
append times against offsets can go round in a circle. So nothing sorts by it and no aggregate takes
the greatest by it: statements are applied one after the other, in the order of their arrival, each
compared with what is stored then. An end stores nothing, so what comes after it compares with
nothing (A4).

The SQL forms are texts, for SQLite, PostgreSQL, Spark and DataFusion. The same cases test them all
and `supersedes`.
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
    """Whether `stored` is newer than `incoming`, which then changes nothing (A3).

    Both are of one lineage. Offsets decide where both are known in one partition, append times
    else; of equal ones neither is newer.
    """
    if stored.offset >= 0 and incoming.offset >= 0 and stored.partition == incoming.partition:
        return stored.offset > incoming.offset
    return stored.appended_at_us > incoming.appended_at_us


class HasLineage(Protocol):
    """A statement that is kept with the lineage of the log that it was read from."""

    @property
    def record(self) -> RecordHeader: ...
    @property
    def lineage(self) -> int: ...


def is_later(one: HasLineage, other: HasLineage) -> bool:
    """Whether `one` was stated after `other`: in a log that was read later, or newer in the same.

    For two statements that are both stored. What comes in is of the lineage that is read now, and
    is compared with the stored statements of that lineage only.
    """
    if one.lineage != other.lineage:
        return one.lineage > other.lineage
    return supersedes(one.record, other.record)


class PlaceColumns(NamedTuple):
    """The names of the columns that tell where in a log a statement stands, as SQL has them."""

    lineage: str
    partition: str
    offset: str
    appended_at: str


SQL_PLACE: Final = PlaceColumns("lineage", "partition", '"offset"', "appended_at_us")
"""In the tables of SQLite and PostgreSQL."""
SPARK_PLACE: Final = PlaceColumns("lineage", "`partition`", "record_offset", "appended_at")
"""In Delta tables, as Spark and DataFusion read them."""


class Place(NamedTuple):
    """The SQL expressions of one statement's place in the log."""

    lineage: str
    """Empty for what is known to be of the other side's lineage."""
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
    """SQL for `supersedes`, and for being of one lineage: `stored` is newer than `incoming` (A3).

    True or false, and in parentheses. `nullable`: an expression may be NULL, as for a row that an
    outer join has not found; the answer is false then.
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
    """What has to be written so that the store is left as by one record after the other (A3, A4).

    Each round has one statement a key, and is written as a whole before the next. Nearly always
    there is one round, with the last statement of each key. There are more where no single
    statement stands for all, whatever is stored: an older statement after an end, or append times
    that contradict the offsets.

    Args:
        records: Statements of one lineage, in the order of arrival.
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
            or _stands_for(record, last)
        ):
            latest[key] = record
        elif supersedes(last, record) and _lives(last) and _stands_for(last, record):
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


def _stands_for(one: RecordHeader, other: RecordHeader) -> bool:
    """Whether whatever supersedes `one` supersedes `other`: it is as late by offset and by time."""
    return (
        one.partition == other.partition
        and (one.offset >= other.offset >= 0 or one.offset < 0 > other.offset)
        and one.appended_at_us >= other.appended_at_us
    )


def _lives(statement: RecordHeader) -> bool:
    """Whether it is known to end no entity; of an alarm's CLEAR the header does not tell."""
    return isinstance(statement, Record) and not statement.ends


def latest_records(records: Sequence[RecordHeader]) -> Sequence[RecordHeader]:
    """The statements of `rounds_per_key`, in an order in which they may be written."""
    if isinstance(records, Columns):
        return records.latest_records()
    return [one for written in rounds_per_key(records) for one in written.values()]


def compacted(chunk: RecordChunk) -> RecordChunk:
    """The chunk with only the latest record of each key decoded, where that is safe.

    Bodies that a later record of the same chunk makes needless are dropped, and so never parsed.
    It is done while the chunk is still in the processor's cache: once a large batch has piled up
    it costs many times as much. It is safe for columns of whole records whose latest ones can all
    be decoded; where one cannot, an earlier one may be needed, and the chunk is returned as it is.
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
