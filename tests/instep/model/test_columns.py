"""Columns of records give the same results as the same records one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from instep.model.columns import (
    CompactedAway,
    CompactedColumns,
    ConcatenatedColumns,
    HeaderArrays,
    HeaderColumns,
    RecordColumns,
    all_whole,
    concatenated,
    in_order,
)
from instep.model.ordering import compacted, latest_records
from instep.model.records import (
    DecodedRecords,
    Record,
    RecordChunk,
    RecordHeader,
    RecordType,
    Unreadable,
)


class _Kept(HeaderColumns[RecordHeader]):
    """Columns over statements that exist already; counts how often one is read."""

    def __init__(self, statements: list[RecordHeader]) -> None:
        super().__init__(_headers(statements))
        self.statements = statements
        self.built = 0

    def at(self, index: int) -> RecordHeader:
        self.built += 1
        return self.statements[index]

    def picked(self, indexes: Sequence[int]) -> _Kept:
        return _Kept([self.statements[index] for index in indexes])


def _headers(statements: Sequence[RecordHeader]) -> HeaderArrays:
    names = ("key", "offset", "appended_at_us", "kind", "token")
    columns: list[Any] = [[getattr(one, name) for one in statements] for name in names]
    return HeaderArrays("s", statements[0].partition if statements else "0", *columns)


def _records(keys: Sequence[str], first: int = 0) -> RecordColumns:
    headers = [_header(key, first + offset) for offset, key in enumerate(keys)]
    bodies = [bytearray(b"{%d}" % one.offset) for one in headers]
    envelopes = [bytearray(b"[%d]" % one.offset) for one in headers]
    ends = [one.offset % 3 == 0 for one in headers]
    uuids = [f"u{one.offset}" for one in headers]
    classes = [f"C{one.offset}" for one in headers]
    return RecordColumns(_headers(headers), classes, bodies, envelopes, ends, uuids, whole=True)


def _header(key: str, offset: int, at_us: int = 0, partition: str = "0") -> RecordHeader:
    return RecordHeader("s", key, RecordType.CREATE_UPDATE, f"t{offset}", at_us, partition, offset)


_KEYS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=30)


@given(keys=_KEYS)
def test_it_is_the_sequence_of_its_statements(keys: list[str]) -> None:
    statements = [_header(key, offset) for offset, key in enumerate(keys)]
    columns = _Kept(statements)
    assert list(columns) == statements
    assert (columns[0], columns[-1], columns[1:]) == (statements[0], statements[-1], statements[1:])
    with pytest.raises(IndexError):
        _ = columns[len(statements)]


@given(keys=_KEYS)
def test_its_latest_records_are_what_compacting_leaves(keys: list[str]) -> None:
    statements = [_header(key, offset) for offset, key in enumerate(keys)]
    columns = _Kept(statements)
    assert latest_records(columns) == latest_records(statements)
    assert columns.built == len(set(keys))


@given(keys=_KEYS, cuts=st.sets(st.integers(1, 29)))
def test_neighbours_are_concatenated(keys: list[str], cuts: set[int]) -> None:
    statements = [_header(key, offset, offset // 3) for offset, key in enumerate(keys)]
    edges = [0, *sorted(cut for cut in cuts if cut < len(keys)), len(keys)]
    parts = [_Kept(statements[low:high]) for low, high in pairwise(edges)]
    whole = concatenated(parts)
    assert isinstance(whole, ConcatenatedColumns)
    assert list(whole) == statements
    assert latest_records(whole) == latest_records(statements)


@given(keys=_KEYS, cut=st.integers(1, 29), count=st.integers(1, 40), compact=st.booleans())
def test_the_last_tokens_are_those_of_the_last_records(
    keys: list[str], cut: int, count: int, *, compact: bool
) -> None:
    statements = [_header(key, offset) for offset, key in enumerate(keys)]
    parts = [_Kept(part) for part in (statements[:cut], statements[cut:]) if part]
    whole = parts[0] if compact else concatenated(parts)
    assert isinstance(whole, HeaderColumns | ConcatenatedColumns)
    if compact:
        indexes = list(range(0, len(parts[0]), 2))
        whole = CompactedColumns(parts[0], _records(keys).picked(indexes), indexes)
    built = sum(part.built for part in parts)
    found = whole.last_tokens(count)
    assert sum(part.built for part in parts) == built
    assert list(found) == [one.token for one in list(whole)[-count:]]


@pytest.mark.parametrize(
    "after",
    [
        [_header("a", 7, 5)],
        [_header("a", 3, 5), _header("a", 4, 5)],
        [_header("a", 9, 4)],
        [_header("a", 9, 5, "1")],
    ],
    ids=["offset again", "offset back", "time back", "another partition"],
)
def test_what_does_not_go_on_from_there_stays_a_list(after: list[RecordHeader]) -> None:
    before = [_header("a", 6, 5), _header("b", 7, 5)]
    whole = concatenated([_Kept(before), _Kept(after)])
    assert whole == [*before, *after]
    assert concatenated([_Kept(before), after]) == [*before, *after]


@pytest.mark.parametrize(
    ("offsets", "times_us", "ordered"),
    [
        ([0, 1, 5], [1, 1, 2], True),
        ([3], [0], True),
        ([-1], [0], False),
        ([1, 1], [0, 0], False),
        ([2, 1], [0, 0], False),
        ([1, 2], [1, 0], False),
    ],
)
def test_offsets_grow_and_times_do_not_go_back(
    offsets: list[int], times_us: list[int], ordered: bool
) -> None:
    assert in_order(offsets, times_us) is ordered


def _read(statements: Sequence[RecordHeader]) -> DecodedRecords:
    """Decode all but the statements about `bad`, which cannot be read."""
    if any(one.key == "bad" for one in statements):
        return DecodedRecords([], [Unreadable("s", b"?", "it is bad")] * len(statements))
    nothing, alive = [b""] * len(statements), [False] * len(statements)
    texts = [""] * len(statements)
    headers = _headers(statements)
    records = RecordColumns(headers, texts, nothing, nothing, alive, texts, whole=True)
    return DecodedRecords(records, (), {"odd": len(statements)})


@given(keys=_KEYS)
def test_a_compacted_chunk_has_the_same_content_and_the_latest_records(keys: list[str]) -> None:
    statements = [_header(key, offset, offset) for offset, key in enumerate(keys)]
    chunk = RecordChunk(_Kept(statements), (), {"odd": 1}, decoder=_read)
    found = compacted(chunk)
    last = [offset for offset, key in enumerate(keys) if key not in keys[offset + 1 :]]
    assert [one.offset for one in found.records if isinstance(one, Record)] == last
    assert [one.offset for one in found.records if isinstance(one, CompactedAway)] == sorted(
        set(range(len(keys))) - set(last)
    )
    assert [(one.key, one.token) for one in found.records] == [
        (one.key, one.token) for one in statements
    ]
    assert {one.offset for one in latest_records(found.records)} == set(last)
    assert found.deviations == {"odd": 1 + len(last)}


def test_where_a_last_word_cannot_be_read_nothing_is_let_go() -> None:
    chunk = RecordChunk(
        _Kept([_header("a", 1), _header("bad", 2), _header("bad", 3)]), decoder=_read
    )
    assert compacted(chunk) is chunk
    for other in (RecordChunk(list(chunk.records), decoder=_read), replace(chunk, whole=False)):
        assert compacted(other) is other


@given(keys=_KEYS)
def test_records_in_columns_are_the_records(keys: list[str]) -> None:
    columns = _records(keys)
    records = list(columns)
    assert [one.key for one in records] == keys
    assert records == [columns[index] for index in range(len(keys))]
    for offset, one in enumerate(records):
        assert (one.body, one.envelope) == (b"{%d}" % offset, b"[%d]" % offset)
        assert (one.ends, one.uuid, one.entity_class) == (
            offset % 3 == 0,
            f"u{offset}",
            f"C{offset}",
        )
        assert isinstance(one.body, bytes)
    assert list(columns.latest_records()) == latest_records(records)
    assert list(columns.picked([len(keys) - 1, 0])) == [records[-1], records[0]]


@given(keys=_KEYS, more=_KEYS)
def test_records_that_follow_each_other_are_joined_column_by_column(
    keys: list[str], more: list[str]
) -> None:
    one, other = _records(keys), _records(more, len(keys))
    whole = concatenated([one, other])
    assert isinstance(whole, RecordColumns)
    assert list(whole) == [*one, *other]
    other.whole = False
    apart = concatenated([one, other])
    assert isinstance(apart, ConcatenatedColumns)
    assert list(apart) == list(whole)[: len(keys)] + list(other)


def test_a_change_among_them_is_detected() -> None:
    columns = _records("ab")
    assert all_whole(columns)
    assert all_whole(list(columns))
    columns.whole = False
    assert not all_whole(columns)
    assert not all_whole(list(columns))


_STEPS = st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.integers(0, 2), st.booleans())


@given(steps=st.lists(_STEPS, min_size=1, max_size=30), cuts=st.sets(st.integers(1, 29)))
def test_columns_are_compacted_as_their_records_are(
    steps: list[tuple[str, int, int, bool]], cuts: set[int]
) -> None:
    offset = at_us = 0
    records = []
    for key, later, later_us, ends in steps:
        offset, at_us = offset + later, at_us + later_us
        kind, token, body = RecordType.CREATE_UPDATE, f"t{offset}", b"{%d}" % offset
        records.append(Record("s", key, kind, token, at_us, "0", offset, "C", body, ends=ends))
    edges = [0, *sorted(cut for cut in cuts if cut < len(records)), len(records)]
    parts = [_columns(records[low:high]) for low, high in pairwise(edges)]
    expected = latest_records(records)
    assert list(latest_records(_columns(records))) == expected
    assert list(latest_records(concatenated(parts))) == expected
    chunks = [compacted(RecordChunk(_Kept(list(part)), decoder=_opened)) for part in parts]
    assert list(latest_records(concatenated([chunk.records for chunk in chunks]))) == expected


def _columns(records: Sequence[Record]) -> RecordColumns:
    names = ("entity_class", "body", "envelope", "ends", "uuid")
    columns: list[Any] = [[getattr(one, name) for one in records] for name in names]
    return RecordColumns(_headers(records), *columns, whole=True)


def _opened(records: Sequence[RecordHeader]) -> DecodedRecords:
    return DecodedRecords(_columns([one for one in records if isinstance(one, Record)]), ())


@given(keys=_KEYS, more=_KEYS)
def test_of_compacted_neighbours_the_latest_records_of_all_count(
    keys: list[str], more: list[str]
) -> None:
    statements = [_header(key, offset, offset) for offset, key in enumerate([*keys, *more])]
    parts = [_Kept(statements[: len(keys)]), _Kept(statements[len(keys) :])]
    whole = concatenated([compacted(RecordChunk(part, decoder=_read)).records for part in parts])
    assert isinstance(whole, ConcatenatedColumns)
    assert not any(part.built for part in parts)
    expected = latest_records(statements)
    assert [(one.key, one.offset) for one in latest_records(whole)] == [
        (one.key, one.offset) for one in expected
    ]
    assert [one.offset for one in whole] == [one.offset for one in statements]


_SLICES = st.slices(30) | st.integers(-31, 30)


@given(keys=_KEYS, more=_KEYS, index=_SLICES)
def test_every_kind_of_columns_is_indexed_as_a_list_is(
    keys: list[str], more: list[str], index: slice | int
) -> None:
    statements = [_header(key, offset) for offset, key in enumerate(keys)]
    records = _records(keys)
    compacted_columns = compacted(RecordChunk(records, decoder=_whole)).records
    assert isinstance(compacted_columns, CompactedColumns)
    joined = concatenated([_Kept(statements), _records(more, len(keys))])
    assert isinstance(joined, ConcatenatedColumns)
    kinds: list[tuple[Sequence[RecordHeader], list[RecordHeader]]] = [
        (_Kept(statements), list(statements)),
        (records, _plain(keys)),
        (compacted_columns, _plain_compacted(keys)),
        (joined, [*statements, *_plain(more, len(keys))]),
    ]
    for columns, plain in kinds:
        assert len(columns) == len(plain)
        assert list(columns) == plain
        assert list(reversed(columns)) == plain[::-1]
        assert _at(columns, index) == _at(plain, index)
        assert list(latest_records(columns)) == list({one.key: one for one in plain}.values())


def _at(statements: Sequence[RecordHeader], index: slice | int) -> object:
    try:
        return statements[index]
    except IndexError:
        return IndexError


def _whole(records: Sequence[RecordHeader]) -> DecodedRecords:
    """Columns of records are decoded already."""
    assert isinstance(records, RecordColumns)
    return DecodedRecords(records)


def _plain(keys: Sequence[str], first: int = 0) -> list[RecordHeader]:
    """As `_records`, each record built by itself."""
    return [
        Record(
            *("s", key, RecordType.CREATE_UPDATE, f"t{offset}", 0, "0", offset),
            f"C{offset}",
            b"{%d}" % offset,
            b"[%d]" % offset,
            ends=offset % 3 == 0,
            uuid=f"u{offset}",
        )
        for offset, key in enumerate(keys, first)
    ]


def _plain_compacted(keys: Sequence[str]) -> list[RecordHeader]:
    """Only the last record of each key has its body."""
    return [
        record
        if record.key not in keys[record.offset + 1 :]
        else CompactedAway(*(getattr(record, name) for name in RecordHeader.__struct_fields__))
        for record in _plain(keys)
    ]
