"""One statement a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.fold import fold, newer
from instep.records import Record
from tests.instep_sql.made import ended, said


def test_the_last_statement_of_a_key_counts() -> None:
    folded = fold([said("a", 1), said("b", 2), said("a", 3), ended("b", 4), said("c", 5)])
    assert [(r.key, r.appended_at_us, r.ends) for r in folded.values()] == [
        ("a", 3, False),
        ("b", 4, True),
        ("c", 5, False),
    ]


def test_a_statement_after_an_end_leaves_the_statement() -> None:
    assert not fold([said("a", 1), ended("a", 2), said("a", 2)])["a"].ends


def test_an_older_record_does_not_replace_a_newer_one() -> None:
    assert fold([ended("a", 5), said("a", 4)])["a"].ends


def test_offsets_compare_only_within_a_partition() -> None:
    one, two = said("a", 5, partition="0", offset=9), said("a", 7, partition="1", offset=1)
    assert not newer(one, two)
    assert newer(two, one)
    assert newer(said("a", 5, offset=-1), said("a", 4, offset=10))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans())), st.data())
def test_folding_in_two_steps_is_folding_in_one(
    given_records: list[tuple[str, int, bool]], data: st.DataObject
) -> None:
    records: list[Record] = [
        ended(key, at) if ends else said(key, at) for key, at, ends in given_records
    ]
    cut = data.draw(st.integers(0, len(records)))
    assert fold([*fold(records[:cut]).values(), *records[cut:]]) == fold(records)
