"""Rows held column by column are written as rows that are tuples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_sql.engine.dialect import ColumnRows, columns_of
from instep_sql.engine.sqlite import _statements


def _both(count: int) -> tuple[ColumnRows, list[tuple[Any, ...]]]:
    keys, bodies = [f"k{at}" for at in range(count)], [b"%d" % at for at in range(count)]
    return ColumnRows(keys, range(count), bodies), list(
        zip(keys, range(count), bodies, strict=True)
    )


@given(st.integers(1, 9), st.slices(9))
def test_they_are_a_sequence_of_the_same_tuples(count: int, some: slice) -> None:
    by_column, plain = _both(count)
    assert len(by_column) == len(plain)
    assert list(by_column) == plain
    assert [by_column[at] for at in range(-count, count)] == [
        plain[at] for at in range(-count, count)
    ]
    assert list(by_column[some]) == plain[some]
    assert [list(one) for one in columns_of(by_column)] == [list(one) for one in columns_of(plain)]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 3_071, 3_072, 7_003])
def test_the_statements_of_sqlite_are_the_same(count: int) -> None:
    by_column, plain = _both(count)
    statements = list(_statements("INSERT ", "(?, ?, ?)", by_column, ""))
    assert statements == list(_statements("INSERT ", "(?, ?, ?)", plain, ""))
    bound = [value for _, values in statements for value in values]
    assert bound == [value for row in plain for value in row]
    assert [text.count("?") for text, _ in statements] == [len(values) for _, values in statements]
