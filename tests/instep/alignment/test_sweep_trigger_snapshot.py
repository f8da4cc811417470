"""When a snapshot of current state is over (TR-548 3.19.2)."""

from __future__ import annotations

import msgspec
import pytest

from instep import Phase, Position, Record
from instep.alignment.sweep_trigger import PartitionProgress, SnapshotEndDetector
from instep.model.columns import HeaderArrays, RecordColumns
from tests.instep.alignment.test_sweep_trigger import SETTINGS, Follower, at, of
from tests.instep.scripted_source_kit import info, record

OPENED_S = 2_000


def snapshot(*offsets: int) -> SnapshotEndDetector:
    """Of records appended at their offset's second; the stream was opened at 2,000."""
    read = SnapshotEndDetector(at(OPENED_S), late_us=10_000_000)
    read.follow([record(offset) for offset in offsets], at(OPENED_S + 1))
    return read


def test_what_changes_under_the_snapshot_does_not_end_it() -> None:
    assert not snapshot(5, 2_001, 7, 2_003, 2_002).ended


def test_the_log_is_known_by_its_first_change_coming_again() -> None:
    assert snapshot(5, 2_001, 7, 2_001).ended
    assert not snapshot(5, 2_001, 2_001, 7).ended, "a frame that was sent twice"


@pytest.mark.parametrize(("at_s", "ended"), [(1_999, False), (2_001, True)])
def test_the_log_is_known_by_an_end_that_no_snapshot_holds(at_s: int, ended: bool) -> None:
    """A log that begins with none may keep a tombstone of before."""
    read = snapshot(5, 7)
    read.follow([record(at_s, ends=True)], at(OPENED_S + 1))
    assert read.ended is ended


def columns_of(records: list[Record]) -> RecordColumns:
    headers = HeaderArrays(
        "s",
        "0",
        [one.key for one in records],
        [one.offset for one in records],
        [one.appended_at_us for one in records],
        [one.kind for one in records],
        [one.token for one in records],
    )
    texts, names = [b""] * len(records), [""] * len(records)
    return RecordColumns(headers, names, texts, texts, None, names, whole=True)


@pytest.mark.parametrize("ends_s", [(7,), (7, 2_001, 2_003)])
def test_what_came_in_columns_counts_as_one_by_one(ends_s: tuple[int, ...]) -> None:
    """Of columns that are all older than the opening, only the last is looked at."""
    both = snapshot(2_001), snapshot(2_001)
    for offset_s in ends_s:
        records = [record(one) for one in range(offset_s - 3, offset_s)]
        for one, given in zip(both, (records, columns_of(records)), strict=True):
            one.follow(given, at(OPENED_S + 20))
        assert vars(both[0]) == vars(both[1])


def emulated() -> Follower:
    position = Position(attempt=2, phase=Phase.ALIGNING, attempt_started_at_us=at(OPENED_S))
    return Follower(position, may_start_with_snapshot=True)


@pytest.mark.parametrize("again", [5, 7])
def test_5_8_what_was_shown_before_is_of_a_snapshot_that_begins_anew(again: int) -> None:
    """A log behind the snapshot begins at the opening: it does not hold it."""
    read = snapshot(5, 7, 9)
    assert not read.begins_anew
    read.follow([record(again)], at(OPENED_S + 2))
    assert read.begins_anew


def test_5_8_what_comes_again_behind_columns_of_new_records_was_not_sent_twice() -> None:
    read = snapshot(5)
    read.follow(columns_of([record(2_001), record(2_002)]), at(OPENED_S + 2))
    read.follow([record(5)], at(OPENED_S + 3))
    assert read.begins_anew


def test_5_8_a_frame_of_a_snapshot_that_was_sent_twice_begins_nothing_anew() -> None:
    assert not snapshot(5, 7, 7, 2_001, 2_001).begins_anew


def test_5_8_a_log_behind_a_snapshot_that_goes_back_begins_anew() -> None:
    """It repeats what the snapshot has shown, in the order of its offsets."""
    read = snapshot(5, 2_009, 2_003)
    read.follow([record(2_001, ends=True), record(2_003), record(2_005)], at(OPENED_S + 20))
    read.follow([record(2_007), record(2_009)], at(OPENED_S + 20))
    assert read.ended
    assert not read.begins_anew
    read.follow([record(2_008)], at(OPENED_S + 21))
    assert read.begins_anew


@pytest.mark.parametrize("phase", [Phase.ALIGNING, Phase.SWEEPING, Phase.SWEEP_HELD])
def test_5_8_a_snapshot_that_begins_anew_is_told_in_each_phase_of_an_attempt(phase: Phase) -> None:
    """Else what has ended between the two would stay, with the mark of the first one."""
    follower = emulated()
    follower.follow(2_001, of("0", 5, 100), of("0", 60, 2_001))
    follower.follow(2_002, of("0", 58, 1_999), of("0", 60, 2_001))
    follower.position = msgspec.structs.replace(follower.position, phase=phase)
    assert not follower.progress.begins_anew
    follower.follow(2_003, of("0", 5, 100))
    assert follower.progress.begins_anew


def test_the_sweep_waits_for_the_end_of_a_snapshot() -> None:
    follower = emulated()
    follower.follow(2_001, of("0", 5, 100), of("0", 60, 2_001))
    assert not follower.due(2_001), "an entity that has not changed may follow"
    follower.follow(2_002, of("0", 7, 200), of("0", 60, 2_001))
    assert follower.due(2_002)


def test_in_a_busy_log_that_shows_no_end_time_does_and_in_a_quiet_one_silence() -> None:
    busy, quiet = emulated(), emulated()
    for now_s in range(2_001, 2_061):
        busy.follow(now_s, of("0", now_s, now_s))
        assert not busy.due(now_s)
    busy.follow(2_061, of("0", 2_061, 2_061))
    assert busy.due(2_061)
    quiet.follow(2_001, of("0", 60, 2_001))
    assert not quiet.due(2_010)
    assert quiet.due(2_011)


def test_while_records_come_late_no_time_shows_the_end_of_a_snapshot() -> None:
    """Its pages come slowly: an entity that has not changed may be in the next one."""
    slow = emulated()
    for now_s in range(2_015, 2_095, 5):
        slow.follow(now_s, of("0", now_s, now_s - 11))
        assert not slow.due(now_s)
    for now_s in range(2_095, 2_150, 5):
        slow.follow(now_s, of("0", now_s, now_s))
        assert not slow.due(now_s)
    slow.follow(2_150, of("0", 2_150, 2_150))
    assert slow.due(2_150)


def test_a_log_that_has_none_is_not_watched_for_a_snapshot() -> None:
    progress = PartitionProgress(info(), SETTINGS)
    progress.opened(Position(attempt=1, phase=Phase.ALIGNING), at(OPENED_S))
    offsets: dict[str, int] = {}
    position = Position(attempt=1, phase=Phase.ALIGNING)
    progress.follow([of("0", 60, 2_001)], offsets, position, {}, at(2_001))
    assert progress.sweep_due(position, at(2_001))
