"""Gaps between offsets, and offsets that turn out to be sparse (A18)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from instep import Position
from instep.alignment.gaps import GapDetector, gap_due, is_sparse
from instep.model.position import ContinuityState, Phase
from instep.model.records import Record
from tests.instep.scripted_source_kit import record

US = 1_000_000


def at(offset: int = 4, **more: int) -> Position:
    """A position after this offset of partition 0, and others."""
    return Position(offsets={"0": offset} | more, appended_us={"0": record(offset).appended_at_us})


def bare(one: Record) -> Record:
    return msgspec.structs.replace(one, offset=-1)


def of(partition: str, offset: int) -> Record:
    return msgspec.structs.replace(record(offset), partition=partition)


def missing(*records: Record, position: Position | None = None, unreadable: int = 0) -> bool:
    found = GapDetector().missing(records, unreadable, position or at(), young_us=None)
    return bool(found)


def test_a18_a_gap_counts_at_any_record() -> None:
    assert not missing(record(5), record(6))
    assert missing(record(6))
    assert missing(record(5), record(7))
    assert missing(record(5), record(7), record(8), record(9))


def test_a18_the_first_record_of_a_new_store_is_behind_nothing() -> None:
    assert not missing(record(5), record(6), position=Position())
    assert missing(record(5), record(7), position=Position())
    assert missing(record(5), of("1", 3), record(7), position=Position())


def test_a18_equal_offsets_are_no_gap_and_hide_none() -> None:
    assert not missing(record(5), record(5), record(6))
    assert missing(record(5), record(5), record(7))


def test_a18_each_partition_counts_by_itself() -> None:
    position = at(4, p=8)
    assert not missing(record(5), of("p", 9), record(6), of("p", 10), position=position)
    assert missing(record(5), of("p", 10), record(6), position=position)
    assert not missing(of("q", 7), record(5), position=position), "nothing is known of q"


def test_a18_nothing_is_told_across_a_record_without_offset() -> None:
    assert not missing(bare(record(5)), record(7))
    detector = GapDetector()
    position = at()
    assert not detector.missing([bare(record(5))], 0, position, young_us=None)
    assert not detector.missing([record(9)], 0, position, young_us=None)
    assert detector.missing([record(11)], 0, at(9), young_us=None)


def test_a18_each_text_that_could_not_be_read_may_be_one_record() -> None:
    assert not missing(record(6), unreadable=1)
    assert missing(record(8), unreadable=2)
    detector = GapDetector()
    assert not detector.missing([record(5)], 2, at(), young_us=None)
    assert not detector.missing([record(8)], 0, at(5), young_us=None)
    assert detector.missing([record(11)], 0, at(8), young_us=None)


@pytest.mark.parametrize("young", [True, False])
def test_a18_a_compacted_log_has_no_gap_above_its_compaction_delay(young: bool) -> None:
    young_us = record(4).appended_at_us - young
    found = GapDetector().missing([record(7), record(8)], 0, at(), young_us=young_us)
    assert bool(found) is young


def test_a18_the_offset_and_what_is_missing_are_told() -> None:
    text = GapDetector().missing([record(32)], 0, at(0), young_us=None)
    assert text == "31 records are missing before offset 32 of partition 0: the last one was 0"


def test_a18_gaps_of_sparse_offsets_cost_few_attempts() -> None:
    def due(after_s: float, **state: Any) -> bool:
        found = Position(phase=Phase.ALIGNED, continuity=ContinuityState(**state))
        return gap_due(found, 60.0, int(after_s * US))

    assert not due(9_999)
    assert due(0, gaps=1)
    assert due(0, gaps=1, fruitless_gaps=1)
    assert not due(119, gaps=1, fruitless_gaps=2)
    assert due(120, gaps=1, fruitless_gaps=2)
    assert not due(3_599, gaps=10_000, fruitless_gaps=2)
    assert due(3_600, gaps=10_000, fruitless_gaps=2)
    assert not is_sparse(ContinuityState(fruitless_gaps=1))
    open_attempt = Position(phase=Phase.ALIGNING, continuity=ContinuityState(gaps=1))
    assert not gap_due(open_attempt, 60.0, 0)


def test_a18_a_text_that_cannot_be_read_explains_one_offset_once() -> None:
    detector = GapDetector()
    assert not detector.missing([record(7)], 2, at(4), young_us=None)
    assert detector.missing([record(10)], 1, at(7), young_us=None)


def test_a18_a_text_explains_an_offset_of_one_partition() -> None:
    detector = GapDetector()
    position = at(4, p=8)
    assert not detector.missing([record(5), of("p", 9)], 0, position, young_us=None)
    assert not detector.missing([record(7)], 1, at(5, p=9), young_us=None)
    assert detector.missing([of("p", 11)], 0, at(7, p=9), young_us=None)


def test_a18_of_several_texts_those_that_are_left_explain_the_next() -> None:
    detector = GapDetector()
    # One of the three stood before the record, two may stand behind it.
    assert not detector.missing([record(6)], 3, at(4), young_us=None)
    assert not detector.missing([record(9)], 0, at(6), young_us=None)
    assert detector.missing([record(11)], 0, at(9), young_us=None)


def test_a18_what_came_without_offset_last_leaves_open_what_adjoins() -> None:
    gaps = GapDetector()
    adjoins = [gaps.adjoins]
    for one in (record(5), bare(record(6)), record(7)):
        gaps.missing([one], 0, at(), young_us=None)
        adjoins.append(gaps.adjoins)
    assert adjoins == [True, True, False, True]
