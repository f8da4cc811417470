"""The plain data that travels: what it costs and what it cannot do."""

from __future__ import annotations

import copy
import gc
import pickle
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from instep import Position, Record, RecordType
from instep.model import Batch, RecordChunk, SweepStep, Unreadable
from instep.model.columns import HeaderArrays, RecordColumns
from instep.model.records import DecodedRecords, RecordHeader
from tests.instep.scripted_source_kit import record


def test_a_record_is_nothing_that_the_collector_must_follow() -> None:
    assert not gc.is_tracked(record(1))


def test_a_record_cannot_be_altered() -> None:
    one = record(1)
    with pytest.raises(AttributeError):
        one.key = "other"  # type: ignore[misc]


def test_a_record_survives_being_stored() -> None:
    for one in (record(1), record(2, ends=True)):
        assert msgspec.json.decode(msgspec.json.encode(one), type=Record) == one


UPDATE, DELETE, TOMBSTONE, CHANGE = RecordType


@pytest.mark.parametrize(
    ("kind", "given", "ends"),
    [
        (UPDATE, {}, False),
        (DELETE, {}, True),
        (TOMBSTONE, {}, True),
        (UPDATE, {"ends": None}, False),
        (CHANGE, {}, False),
        (CHANGE, {"ends": True}, True),  # CLEAR
        (DELETE, {"ends": None}, True),
        (UPDATE, {"ends": False}, False),
        (UPDATE, {"ends": True}, True),  # CLEAR
        (DELETE, {"ends": True}, True),
        (TOMBSTONE, {"ends": True}, True),
    ],
)
def test_a4_what_ends_follows_from_the_kind(
    kind: RecordType, given: dict[str, Any], ends: bool
) -> None:
    made = Record("s", "k", kind, "t", 1, **given)
    assert made.ends is ends
    assert made == Record("s", "k", kind, "t", 1, ends=ends)
    again = msgspec.json.decode(msgspec.json.encode(made), type=Record)
    assert again == made == copy.copy(made) == pickle.loads(pickle.dumps(made))
    assert hash(again) == hash(made)


@pytest.mark.parametrize("kind", [DELETE, TOMBSTONE])
@pytest.mark.parametrize("given", [False, 0, "no"])
def test_a_record_that_contradicts_itself_is_refused(kind: RecordType, given: Any) -> None:
    told = f"a {kind.name} of 'k' with ends={given!r} contradicts itself"
    with pytest.raises(ValueError, match=re.escape(told)):
        Record("s", "k", kind, "t", 1, ends=given)
    update = Record("s", "k", UPDATE, "t", 1)
    with pytest.raises(ValueError, match="contradicts itself"):
        msgspec.structs.replace(update, kind=kind)
    assert msgspec.structs.replace(update, kind=kind, ends=True).ends
    stored = msgspec.json.encode({**msgspec.to_builtins(update), "kind": int(kind)})
    with pytest.raises(msgspec.ValidationError, match="contradicts itself"):
        msgspec.json.decode(stored, type=Record)


@pytest.mark.parametrize("kind", ["DELETE", 1, 2, None])
def test_a_kind_is_a_record_type(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"a RecordType, not {kind!r}"):
        Record("s", "k", kind, "t", 1)


def test_columns_follow_the_kinds_too() -> None:
    kinds = [UPDATE, DELETE, TOMBSTONE, UPDATE]
    headers = HeaderArrays("s", "0", list("abcd"), [1, 2, 3, 4], [1, 2, 3, 4], kinds, list("1234"))

    def columns(ends: list[bool] | None) -> RecordColumns:
        texts, contents = [""] * 4, [b"{}"] * 4
        return RecordColumns(headers, texts, contents, contents, ends, texts, whole=True)

    by_kind = columns(None)
    assert [one.ends for one in by_kind] == [False, True, True, False]
    clear = columns([False, True, True, True])
    assert [one.ends for one in clear] == [False, True, True, True]
    for picked in (by_kind.latest_records(), by_kind.picked([1, 3]), by_kind.followed_by([clear])):
        assert all(one.ends for one in picked if one.kind is not UPDATE)
    with pytest.raises(ValueError, match="a TOMBSTONE of 'c' with ends=False contradicts itself"):
        columns([False, True, False, True])


def test_batches_do_not_share_what_they_hold() -> None:
    one, other = Batch("s", Position(), 0), Batch("s", Position(), 0)
    one.deviations["odd"] = 1
    assert other.deviations == {}


def test_a_batch_is_decoded_once_and_when_it_is_asked_for() -> None:
    asked = []

    def content() -> DecodedRecords:
        asked.append(1)
        return DecodedRecords([record(1)], [Unreadable("s", b"?", "no JSON")], {"odd": 2})

    batch = Batch("s", Position(), 0, content=content)
    assert "not decoded" in repr(batch)
    assert not asked
    assert batch.records == [record(1)]
    assert (len(batch.unreadable), batch.deviations) == (1, {"odd": 2})
    assert "1 records" in repr(batch)
    assert asked == [1]


def test_a_batch_can_be_made_again_with_changes() -> None:
    batch = Batch("s", Position(), 3, [record(1)], sweep=SweepStep(2), by_uuid=True)
    other = batch.replace(records=[], position=Position(ordinal=9))
    assert (other.records, other.position.ordinal, other.expects_ordinal) == ([], 9, 3)
    assert (other.sweep, other.by_uuid) == (SweepStep(2), True)
    assert batch.records == [record(1)]


def test_decoding_keeps_what_was_found_before() -> None:
    def opens(_statements: Sequence[RecordHeader]) -> DecodedRecords:
        return DecodedRecords([record(1)], [Unreadable("s", b"b", "two")], {"odd": 1, "other": 1})

    bad = Unreadable("s", b"a", "one")
    lazy = RecordChunk([record(1), record(2)], [bad], {"odd": 1}, 7, opens)
    chunk = lazy.decoded()
    assert (list(chunk.records), chunk.decoder, chunk.size_bytes) == ([record(1)], None, 7)
    assert [each.reason for each in chunk.unreadable] == ["one", "two"]
    assert chunk.deviations == {"odd": 2, "other": 1}
    assert chunk.decoded() is chunk
