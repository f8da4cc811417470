"""Consecutive records of a log, held column by column, so that a decision about all of them needs
no loop over single records.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice, repeat
from operator import attrgetter, le, lt
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, overload

from instep.model.records import Record, RecordHeader, RecordType

__all__ = [
    "Columns",
    "CompactedAway",
    "CompactedColumns",
    "ConcatenatedColumns",
    "HeaderArrays",
    "HeaderColumns",
    "RecordColumns",
    "all_whole",
    "concatenated",
    "in_order",
    "last_indexes",
]


S_co = TypeVar("S_co", bound=RecordHeader, covariant=True)


class Columns(Sequence[S_co]):
    """Consecutive records of one partition: offsets grow, append times do not go back.

    A record is built when it is accessed: of many records about few entities, only the latest
    record of each key is built.
    """

    stream: str
    partition: str
    keys: Sequence[str]

    @abstractmethod
    def at(self, index: int) -> S_co:
        """The record at an index, counted from 0."""

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> S_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[S_co]: ...
    def __getitem__(self, index: int | slice) -> S_co | list[S_co]:
        which = range(len(self))[index]
        return self.at(which) if isinstance(which, int) else list(map(self.at, which))

    def __iter__(self) -> Iterator[S_co]:
        return map(self.at, range(len(self)))

    def latest_records(self) -> Sequence[S_co]:
        """The latest record per key (A3): the last one, because the records are in order."""
        return list(map(self.at, last_indexes(self.keys)))

    @abstractmethod
    def last_tokens(self, count: int) -> Sequence[str]:
        """The tokens of the last `count` records, in order; no record is built."""


class HeaderArrays(NamedTuple):
    """The headers of consecutive records, column by column; all columns have one length."""

    stream: str
    partition: str
    keys: Sequence[str]
    offsets: Sequence[int]
    appended_at_us: Sequence[int]
    kinds: Sequence[RecordType]
    tokens: Sequence[str]


class HeaderColumns(Columns[S_co]):
    """Columns of which all headers are available."""

    more: ClassVar[tuple[str, ...]] = ()
    """The names of further columns, in the order of the constructor's arguments."""

    def __init__(self, headers: HeaderArrays) -> None:
        self.headers = headers
        self.stream, self.partition, self.keys = headers[:3]
        self.offsets, self.appended_at_us, self.kinds, self.tokens = headers[3:]

    def picked(self, indexes: Sequence[int]) -> Self:
        """The records at these indexes, in this order."""
        return self._made([[column[index] for index in indexes] for column in self.columns()])

    def followed_by(self, others: Sequence[Self]) -> Self:
        """These records and those of `others`, as one object."""
        joined = list(map(list, self.columns()))
        for other in others:
            for column, more in zip(joined, other.columns(), strict=True):
                column.extend(more)
        return self._made(joined)

    def last_tokens(self, count: int) -> Sequence[str]:
        return self.tokens[-count:]

    def columns(self) -> list[Sequence[Any]]:
        """All columns, those of the headers first."""
        return [*self.headers[2:], *(getattr(self, name) for name in self.more)]

    def _made(self, columns: Sequence[Sequence[Any]]) -> Self:
        return type(self)(*self._parts(columns))

    def _parts(self, columns: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        header_columns = len(HeaderArrays._fields) - 2
        headers = HeaderArrays(self.stream, self.partition, *columns[:header_columns])
        return (headers, *columns[header_columns:])


class RecordColumns(HeaderColumns[Record]):
    """Columns of whole records. A store writes the columns and builds no `Record`.

    Bodies and envelopes may be `bytearray`, which database drivers take as they are. `ends` is as
    of `Record`: None follows from the kinds. Raises `ValueError` as `Record` does.
    """

    more = ("classes", "bodies", "envelopes", "ends", "uuids")

    def __init__(
        self,
        headers: HeaderArrays,
        classes: Sequence[str],
        bodies: Sequence[bytes | bytearray],
        envelopes: Sequence[bytes | bytearray],
        ends: Sequence[bool] | None,
        uuids: Sequence[str],
        *,
        whole: bool,
    ) -> None:
        super().__init__(headers)
        self.classes = classes
        self.bodies = bodies
        self.envelopes = envelopes
        self.ends = _checked_ends(headers, ends)
        self.uuids = uuids
        self.whole = whole

    def at(self, index: int) -> Record:
        return Record(
            self.stream,
            self.keys[index],
            self.kinds[index],
            self.tokens[index],
            self.appended_at_us[index],
            self.partition,
            self.offsets[index],
            self.classes[index],
            bytes(self.bodies[index]),
            bytes(self.envelopes[index]),
            self.ends[index],
            self.uuids[index],
            self.whole,
        )

    def __iter__(self) -> Iterator[Record]:
        return map(
            Record,
            repeat(self.stream),
            self.keys,
            self.kinds,
            self.tokens,
            self.appended_at_us,
            repeat(self.partition),
            self.offsets,
            self.classes,
            map(bytes, self.bodies),
            map(bytes, self.envelopes),
            self.ends,
            self.uuids,
            repeat(self.whole),
        )

    def latest_records(self) -> RecordColumns:
        """The latest record per key (A3)."""
        if len(set(self.keys)) == len(self.keys):
            return self
        return self.picked(last_indexes(self.keys))

    def _made(self, columns: Sequence[Sequence[Any]]) -> Self:
        return type(self)(*self._parts(columns), whole=self.whole)


def _checked_ends(headers: HeaderArrays, ends: Sequence[bool] | None) -> Sequence[bool]:
    """What ends: by the kinds where nothing is given; else none of those that do is missing."""
    kinds = headers.kinds
    if ends is None:
        ends = [kind is not RecordType.CREATE_UPDATE and kind.ends_entity for kind in kinds]
    elif kinds.count(RecordType.CREATE_UPDATE) < len(kinds):
        for key, kind, end in zip(headers.keys, kinds, ends, strict=True):
            if kind.ends_entity and not end:
                # The record says it in its own words.
                Record(headers.stream, key, kind, "", 0, ends=end)
    return ends


class CompactedAway(RecordHeader, frozen=True, gc=False):
    """The header of a record whose body was dropped: a later record replaces it, the source is not
    to keep its class, or it states no entity. It moves the position, and is not committed.
    """


class CompactedColumns(Columns[RecordHeader]):
    """Columns after compaction: all headers, but only the latest record per key.

    Args:
        whole: All records before compaction; their headers are kept, their bodies are dropped.
        kept: The latest record per key …
        indexes: … and the index of each in `whole`.
    """

    def __init__(
        self, whole: HeaderColumns[RecordHeader], kept: RecordColumns, indexes: Sequence[int]
    ) -> None:
        self.stream = whole.stream
        self.partition = whole.partition
        self.keys = whole.keys
        self._headers = whole.headers
        self._kept = kept
        self._indexes = indexes

    @cached_property
    def _places(self) -> dict[int, int]:
        return {index: place for place, index in enumerate(self._indexes)}

    def at(self, index: int) -> RecordHeader:
        place = self._places.get(index)
        if place is not None:
            return self._kept.at(place)
        stream, partition, keys, offsets, appended_at_us, kinds, tokens = self._headers
        at_us = appended_at_us[index]
        return CompactedAway(
            stream, keys[index], kinds[index], tokens[index], at_us, partition, offsets[index]
        )

    def latest_records(self) -> RecordColumns:
        """The latest record per key (A3)."""
        return self._kept

    def last_tokens(self, count: int) -> Sequence[str]:
        return self._headers.tokens[-count:]


class ConcatenatedColumns(Columns[RecordHeader]):
    """Columns that follow each other, as one object."""

    def __init__(self, parts: Sequence[Columns[RecordHeader]]) -> None:
        self.stream = parts[0].stream
        self.partition = parts[0].partition
        self._parts = parts
        self._begins = [0, *accumulate(map(len, parts))]

    @cached_property
    def keys(self) -> list[str]:  # type: ignore[override]  # built at the first access
        return [key for part in self._parts for key in part.keys]

    def __len__(self) -> int:
        return self._begins[-1]

    def at(self, index: int) -> RecordHeader:
        part = bisect_right(self._begins, index) - 1
        return self._parts[part].at(index - self._begins[part])

    def latest_records(self) -> Sequence[RecordHeader]:
        """The latest record per key (A3)."""
        latest_by_part = [part.latest_records() for part in self._parts]
        opened = [one for one in latest_by_part if isinstance(one, RecordColumns)]
        if len(opened) == len(latest_by_part):
            return opened[0].followed_by(opened[1:]).latest_records()
        return list({one.key: one for part in latest_by_part for one in part}.values())

    def last_tokens(self, count: int) -> Sequence[str]:
        tokens: list[str] = []
        for part in reversed(self._parts):
            if len(tokens) >= count:
                break
            tokens[:0] = part.last_tokens(count - len(tokens))
        return tokens


def last_indexes(keys: Sequence[str]) -> list[int]:
    """The index of the last occurrence of each key."""
    return list(dict(zip(keys, range(len(keys)), strict=True)).values())


def all_whole(records: Sequence[Record]) -> bool:
    """Whether all records are whole: none is a partial update."""
    if isinstance(records, RecordColumns):
        return records.whole
    return all(map(_whole, records))


_whole: Final = attrgetter("whole")


def in_order(offsets: Sequence[int], appended_at_us: Sequence[int]) -> bool:
    """Whether offsets are known and grow, and append times do not go back."""
    return (
        offsets[0] >= 0
        and all(map(lt, offsets, islice(offsets, 1, None)))
        and all(map(le, appended_at_us, islice(appended_at_us, 1, None)))
    )


def concatenated(parts: Sequence[Sequence[RecordHeader]]) -> Sequence[RecordHeader]:
    """The parts joined in order; columns if they follow each other in one partition."""
    column_parts = [part for part in parts if isinstance(part, Columns)]
    if len(column_parts) < len(parts) or not all(map(_follows, column_parts[1:], column_parts)):
        return [record for part in parts for record in part]
    opened = [one for one in column_parts if isinstance(one, RecordColumns)]
    if len(opened) == len(column_parts) and len({one.whole for one in opened}) == 1:
        return opened[0].followed_by(opened[1:])
    return ConcatenatedColumns(column_parts)


def _follows(columns: Columns[RecordHeader], before: Columns[RecordHeader]) -> bool:
    first, last = columns[0], before[-1]
    return (
        first.partition == last.partition
        and last.offset < first.offset
        and last.appended_at_us <= first.appended_at_us
    )
