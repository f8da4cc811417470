"""A stretch of the log decides as the same statements one by one would."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from instep.fold import fold, folded, last_words
from instep.records import Delivery, Kind, Opened, Record, Statement, Unreadable
from instep.stretch import (
    Headers,
    HeaderStretch,
    Joined,
    RecordStretch,
    Superseded,
    all_whole,
    in_order,
    joined,
)


class _Kept(HeaderStretch[Statement]):
    """A stretch of statements that exist already; counts how often one is asked for."""

    def __init__(self, statements: list[Statement]) -> None:
        super().__init__(_headers(statements))
        self.statements = statements
        self.built = 0

    def at(self, index: int) -> Statement:
        self.built += 1
        return self.statements[index]

    def picked(self, indexes: Sequence[int]) -> _Kept:
        return _Kept([self.statements[index] for index in indexes])


def _headers(statements: Sequence[Statement]) -> Headers:
    names = ("key", "offset", "appended_at_us", "kind", "token")
    columns: list[Any] = [[getattr(one, name) for one in statements] for name in names]
    return Headers("s", statements[0].partition if statements else "0", *columns)


def _records(keys: Sequence[str], first: int = 0) -> RecordStretch:
    said = [_said(key, first + offset) for offset, key in enumerate(keys)]
    bodies = [bytearray(b"{%d}" % one.offset) for one in said]
    envelopes = [bytearray(b"[%d]" % one.offset) for one in said]
    ends = [one.offset % 3 == 0 for one in said]
    uuids = [f"u{one.offset}" for one in said]
    classes = [f"C{one.offset}" for one in said]
    return RecordStretch(_headers(said), classes, bodies, envelopes, ends, uuids, whole=True)


def _said(key: str, offset: int, at_us: int = 0, partition: str = "0") -> Statement:
    return Statement("s", key, Kind.CREATE_UPDATE, f"t{offset}", at_us, partition, offset)


_KEYS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=30)


@given(keys=_KEYS)
def test_it_is_the_sequence_of_its_statements(keys: list[str]) -> None:
    statements = [_said(key, offset) for offset, key in enumerate(keys)]
    stretch = _Kept(statements)
    assert list(stretch) == statements
    assert (stretch[0], stretch[-1], stretch[1:]) == (statements[0], statements[-1], statements[1:])
    with pytest.raises(IndexError):
        _ = stretch[len(statements)]


@given(keys=_KEYS)
def test_its_last_words_are_what_folding_leaves(keys: list[str]) -> None:
    statements = [_said(key, offset) for offset, key in enumerate(keys)]
    stretch = _Kept(statements)
    assert last_words(stretch) == list(fold(statements).values())
    assert stretch.built == len(set(keys))


@given(keys=_KEYS, cuts=st.sets(st.integers(1, 29)))
def test_neighbours_are_joined_to_one_stretch(keys: list[str], cuts: set[int]) -> None:
    statements = [_said(key, offset, offset // 3) for offset, key in enumerate(keys)]
    edges = [0, *sorted(cut for cut in cuts if cut < len(keys)), len(keys)]
    parts = [_Kept(statements[low:high]) for low, high in pairwise(edges)]
    whole = joined(parts)
    assert isinstance(whole, Joined)
    assert list(whole) == statements
    assert last_words(whole) == list(fold(statements).values())


@pytest.mark.parametrize(
    "after",
    [
        [_said("a", 7, 5)],
        [_said("a", 3, 5), _said("a", 4, 5)],
        [_said("a", 9, 4)],
        [_said("a", 9, 5, "1")],
    ],
    ids=["offset again", "offset back", "time back", "another partition"],
)
def test_what_does_not_go_on_from_there_stays_a_list(after: list[Statement]) -> None:
    before = [_said("a", 6, 5), _said("b", 7, 5)]
    whole = joined([_Kept(before), _Kept(after)])
    assert whole == [*before, *after]
    assert joined([_Kept(before), after]) == [*before, *after]


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


def _read(statements: Sequence[Statement]) -> Opened:
    """What is said of `bad` cannot be read."""
    if any(one.key == "bad" for one in statements):
        return Opened([], [Unreadable("s", b"?", "it is bad")] * len(statements))
    nothing, alive = [b""] * len(statements), [False] * len(statements)
    texts = [""] * len(statements)
    headers = _headers(statements)
    records = RecordStretch(headers, texts, nothing, nothing, alive, texts, whole=True)
    return Opened(records, (), {"odd": len(statements)})


@given(keys=_KEYS)
def test_a_folded_delivery_says_the_same_and_keeps_the_last_words(keys: list[str]) -> None:
    statements = [_said(key, offset, offset) for offset, key in enumerate(keys)]
    delivery = Delivery(_Kept(statements), (), {"odd": 1}, open=_read)
    found = folded(delivery)
    last = [offset for offset, key in enumerate(keys) if key not in keys[offset + 1 :]]
    assert [one.offset for one in found.records if isinstance(one, Record)] == last
    assert [one.offset for one in found.records if isinstance(one, Superseded)] == sorted(
        set(range(len(keys))) - set(last)
    )
    assert [(one.key, one.token) for one in found.records] == [
        (one.key, one.token) for one in statements
    ]
    assert {one.offset for one in last_words(found.records)} == set(last)
    assert found.deviations == {"odd": 1 + len(last)}


def test_where_a_last_word_cannot_be_read_nothing_is_let_go() -> None:
    delivery = Delivery(_Kept([_said("a", 1), _said("bad", 2), _said("bad", 3)]), open=_read)
    assert folded(delivery) is delivery
    for other in (Delivery(list(delivery.records), open=_read), replace(delivery, whole=False)):
        assert folded(other) is other


@given(keys=_KEYS)
def test_records_in_columns_are_the_records(keys: list[str]) -> None:
    stretch = _records(keys)
    records = list(stretch)
    assert [one.key for one in records] == keys
    assert records == [stretch[index] for index in range(len(keys))]
    for offset, one in enumerate(records):
        assert (one.body, one.envelope) == (b"{%d}" % offset, b"[%d]" % offset)
        assert (one.ends, one.uuid, one.entity_class) == (
            offset % 3 == 0,
            f"u{offset}",
            f"C{offset}",
        )
        assert isinstance(one.body, bytes)
    assert list(stretch.last_words()) == list(fold(records).values())
    assert list(stretch.picked([len(keys) - 1, 0])) == [records[-1], records[0]]


@given(keys=_KEYS, more=_KEYS)
def test_records_that_follow_each_other_are_joined_column_by_column(
    keys: list[str], more: list[str]
) -> None:
    one, other = _records(keys), _records(more, len(keys))
    whole = joined([one, other])
    assert isinstance(whole, RecordStretch)
    assert list(whole) == [*one, *other]
    other.whole = False
    apart = joined([one, other])
    assert isinstance(apart, Joined)
    assert list(apart) == list(whole)[: len(keys)] + list(other)


def test_a_change_among_them_is_told() -> None:
    stretch = _records("ab")
    assert all_whole(stretch)
    assert all_whole(list(stretch))
    stretch.whole = False
    assert not all_whole(stretch)
    assert not all_whole(list(stretch))


@given(keys=_KEYS, more=_KEYS)
def test_of_folded_neighbours_the_last_words_of_all_count(keys: list[str], more: list[str]) -> None:
    statements = [_said(key, offset, offset) for offset, key in enumerate([*keys, *more])]
    parts = [_Kept(statements[: len(keys)]), _Kept(statements[len(keys) :])]
    whole = joined([folded(Delivery(part, open=_read)).records for part in parts])
    assert isinstance(whole, Joined)
    assert not any(part.built for part in parts)
    expected = list(fold(statements).values())
    assert [(one.key, one.offset) for one in last_words(whole)] == [
        (one.key, one.offset) for one in expected
    ]
    assert [one.offset for one in whole] == [one.offset for one in statements]
