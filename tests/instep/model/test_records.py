"""The plain data that travels: what it costs and what it cannot do."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import msgspec
import pytest

from instep import Position, Record
from instep.model import Batch, RecordChunk, SweepStep, Unreadable
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


def test_batches_do_not_share_what_they_hold() -> None:
    one, other = Batch("s", Position(), 0), Batch("s", Position(), 0)
    one.deviations["odd"] = 1
    assert other.deviations == {}


def test_a_batch_is_opened_once_and_when_it_is_asked_for() -> None:
    asked = []

    def content() -> DecodedRecords:
        asked.append(1)
        return DecodedRecords([record(1)], [Unreadable("s", b"?", "no JSON")], {"odd": 2})

    batch = Batch("s", Position(), 0, content=content)
    assert "sealed" in repr(batch)
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
