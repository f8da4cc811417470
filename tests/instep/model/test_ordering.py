"""One statement a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.model.ordering import latest_per_key, supersedes
from instep.model.records import Record
from tests.instep_sql.store_kit import create_update, end_record


def test_the_last_statement_of_a_key_counts() -> None:
    folded = latest_per_key(
        [
            create_update("a", 1),
            create_update("b", 2),
            create_update("a", 3),
            end_record("b", 4),
            create_update("c", 5),
        ]
    )
    assert [(r.key, r.appended_at_us, r.ends) for r in folded.values()] == [
        ("a", 3, False),
        ("b", 4, True),
        ("c", 5, False),
    ]


def test_a_statement_after_an_end_leaves_the_statement() -> None:
    assert not latest_per_key([create_update("a", 1), end_record("a", 2), create_update("a", 2)])[
        "a"
    ].ends


def test_an_older_record_does_not_replace_a_newer_one() -> None:
    assert latest_per_key([end_record("a", 5), create_update("a", 4)])["a"].ends


def test_offsets_compare_only_within_a_partition() -> None:
    one, two = (
        create_update("a", 5, partition="0", offset=9),
        create_update("a", 7, partition="1", offset=1),
    )
    assert not supersedes(one, two)
    assert supersedes(two, one)
    assert supersedes(create_update("a", 5, offset=-1), create_update("a", 4, offset=10))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans())), st.data())
def test_folding_in_two_steps_is_folding_in_one(
    given_records: list[tuple[str, int, bool]], data: st.DataObject
) -> None:
    records: list[Record] = [
        end_record(key, at) if ends else create_update(key, at) for key, at, ends in given_records
    ]
    cut = data.draw(st.integers(0, len(records)))
    assert latest_per_key(
        [*latest_per_key(records[:cut]).values(), *records[cut:]]
    ) == latest_per_key(records)
