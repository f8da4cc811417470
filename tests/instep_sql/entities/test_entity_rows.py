"""Rows made from columns are the rows that the same records give one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep_sql.entities.entity_rows import write_rounds
from tests.instep_sql.store_kit import create_update, end_record, record_columns

_PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=20)


@given(pairs=_PAIRS)
def test_columns_give_the_same_rows_as_their_records(pairs: list[tuple[str, bool]]) -> None:
    records = record_columns(pairs)
    [(upserts, ends)] = write_rounds(records, 7, 3, composed=False)
    [one_by_one] = write_rounds(list(records), 7, 3, composed=False)
    assert (sorted(upserts), sorted(ends)) == (sorted(one_by_one[0]), sorted(one_by_one[1]))
    assert len(upserts) + len(ends) == len({key for key, _ in pairs})


def test_a_row_has_the_columns_in_their_order() -> None:
    [([row], [end])] = write_rounds(
        record_columns([("a", False), ("b", True)]), 7, 3, composed=False
    )
    assert row == ("a", "NODE", "t0", "0", 0, 0, "u0", b"[0]", b"{0}")
    assert end == (7, "b", 3, 1, "0", 1, 1)


def test_st_4_1_the_uuid_is_filled_in_whatever_the_mode() -> None:
    records = [
        create_update("a", 1, b'{"uuid":"u1","x":1}'),
        create_update("b", 2, b'{ "x" : 1, "uuid" : "u2" }'),
        create_update("c", 3, b'{"x":{"uuid":"u3"}}'),
        create_update("d", 4, b'{"uuid":"u4\\u0000"}'),
        create_update("e", 5, b'{"detector-uuid":"u5"}', entity_class="CONDITION_DETECTOR"),
        end_record("f", 6, entity_class="NODE"),
    ]
    [(rows, _)] = write_rounds(records, 7, 3, composed=False)
    assert [(key, uuid) for key, *_, uuid, _, _ in rows] == [
        ("a", "u1"),
        ("b", "u2"),
        ("c", ""),
        ("d", ""),
        ("e", ""),
    ]
