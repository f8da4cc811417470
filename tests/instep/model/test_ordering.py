"""Rule A3 in Python and SQLite, and what a batch is compacted to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from instep.model.ordering import (
    BOUND_PLACE,
    SQL_PLACE,
    Place,
    is_later,
    rounds_per_key,
    supersedes,
    supersedes_sql,
)
from instep.model.records import Record, RecordHeader, RecordType
from tests.instep.alignment.model_log_kit import Stored
from tests.instep.model.ordering_kit import CASES, NEWER, Case, null_query, pairs_query
from tests.instep_sql.store_kit import create_update, end_record


def _header(case: Case) -> RecordHeader:
    _, partition, offset, at_us = case
    return RecordHeader("s", "a", RecordType.CREATE_UPDATE, "t", at_us, partition, offset)


def test_a3_in_python() -> None:
    found = {
        (one, other)
        for (one, stored), (other, incoming) in product(enumerate(CASES), repeat=2)
        if stored.lineage == incoming.lineage and supersedes(_header(stored), _header(incoming))
    }
    assert found == NEWER


def test_a3_in_sqlite() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        assert set(database.execute(pairs_query())) == NEWER
        assert database.execute(null_query()).fetchall() == [(0, 1)]


def test_a3_in_sqlite_with_parameters() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE t (number, {', '.join(SQL_PLACE)})")
        rows = [(number, *case) for number, case in enumerate(CASES)]
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        query = f"SELECT number FROM t WHERE {supersedes_sql(Place.of('', SQL_PLACE), BOUND_PLACE)}"
        found = {
            (stored, incoming)
            for incoming, (lineage, partition, offset, at_us) in enumerate(CASES)
            for (stored,) in database.execute(query, (lineage, offset, partition, offset, at_us))
        }
    assert found == NEWER


def test_where_the_lineage_is_known_to_be_one_it_is_not_asked() -> None:
    stored = Place.of("stored", SQL_PLACE)
    assert "lineage" in supersedes_sql(stored, Place.of("excluded", SQL_PLACE))
    assert "lineage" not in supersedes_sql(stored._replace(lineage=""), stored)


def test_what_was_read_later_is_later_and_within_one_log_what_is_newer() -> None:
    def stored(at: int, lineage: int) -> Stored:
        return Stored(create_update("a", at), lineage, 1)

    assert is_later(stored(1, 2), stored(9, 1))
    assert not is_later(stored(9, 1), stored(1, 2))
    assert is_later(stored(9, 1), stored(1, 1))
    assert not is_later(stored(1, 1), stored(1, 1))


def _statement(key: str, partition: str, offset: int, at_us: int, *, ends: bool) -> Record:
    make = end_record if ends else create_update
    return make(key, at_us, partition=partition, offset=offset)


_STATEMENTS = st.builds(
    _statement,
    st.sampled_from("ab"),
    st.sampled_from(["0", "1"]),
    st.integers(-1, 3),
    st.integers(0, 3),
    ends=st.booleans(),
)
Store = dict[str, tuple[int, Record]]


def _apply(store: Store, record: Record) -> None:
    """A3 and A4, for one record of lineage 1."""
    lineage, stored = store.get(record.key, (0, record))
    if lineage == 1 and supersedes(stored, record):
        return
    store.pop(record.key, None)
    if not record.ends:
        store[record.key] = (1, record)


def _written(store: Store, records: list[Record]) -> Store:
    """What a store is left with that writes round by round."""
    store = dict(store)
    for written in rounds_per_key(records):
        assert all(key == record.key for key, record in written.items())
        for record in written.values():
            _apply(store, record)
    return store


@given(
    stored=st.dictionaries(
        st.sampled_from("ab"),
        st.tuples(st.integers(1, 2), _STATEMENTS.filter(lambda record: not record.ends)),
    ),
    records=st.lists(_STATEMENTS, max_size=12),
    data=st.data(),
)
def test_a_batch_leaves_what_one_record_after_the_other_leaves(
    stored: Store, records: list[Record], data: st.DataObject
) -> None:
    one_by_one = dict(stored)
    for record in records:
        _apply(one_by_one, record)
    assert _written(stored, records) == one_by_one
    cut = data.draw(st.integers(0, len(records)))
    assert _written(_written(stored, records[:cut]), records[cut:]) == one_by_one
    compacted = [record for written in rounds_per_key(records) for record in written.values()]
    assert _written(stored, compacted) == one_by_one


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans())))
def test_a_log_that_does_not_go_backwards_is_one_round(
    given_records: list[tuple[str, int, bool]],
) -> None:
    at, records = 0, []
    for key, later, ends in given_records:
        at += later
        records.append((end_record if ends else create_update)(key, at))
    assert rounds_per_key(records) == [{record.key: record for record in records}]


def test_an_older_record_of_what_lives_is_left_out() -> None:
    newer = create_update("a", 5)
    assert rounds_per_key([newer, create_update("a", 4), end_record("a", 3)]) == [{"a": newer}]


def test_after_an_end_an_older_record_counts() -> None:
    end, older = end_record("a", 5), create_update("a", 4)
    assert rounds_per_key([end, older]) == [{"a": end}, {"a": older}]


def test_records_may_be_distinguished_by_another_key() -> None:
    one, other = create_update("a", 1), create_update("b", 2)
    assert rounds_per_key([one, other], ["u", "u"]) == [{"u": other}]
