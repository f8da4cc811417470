"""Where the partitions of a stream stand, and when an attempt has seen enough (A5)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from instep import AlignmentSettings, Mode, Position, Record
from instep.alignment.sweep_trigger import PartitionProgress
from instep.model.position import SweepBarrier
from instep.model.records import RecordHeader
from tests.instep.scripted_source_kit import T0_US, info, record

US = 1_000_000
SETTINGS = AlignmentSettings(quiet_s=10.0, unreached_quiet_s=60.0)
OPENED_S = 2_000
GOAL = Position(
    attempt=2,
    attempt_started_at_us=T0_US + OPENED_S * US,
    barrier=SweepBarrier("t", T0_US + 1_000 * US, {"0": 5, "1": 9}),
)


def at(seconds: float) -> int:
    return T0_US + int(seconds * US)


def of(partition: str, offset: int, at_s: float) -> Record:
    return msgspec.structs.replace(record(offset, at_s=at_s), partition=partition)


class Follower:
    """A `PartitionProgress` with the offsets that its driver keeps."""

    def __init__(self, position: Position = GOAL, **stream: object) -> None:
        self.position = position
        self.progress = PartitionProgress(info(**stream), SETTINGS)
        self.progress.opened(position, at(OPENED_S))
        self.offsets: dict[str, int] = {}
        self.deviations: dict[str, int] = {}

    def follow(self, now_s: float, *records: Record) -> Sequence[RecordHeader]:
        kept = self.progress.follow(
            list(records), self.offsets, self.position, self.deviations, at(now_s)
        )
        self.position = msgspec.structs.replace(self.position, offsets=dict(self.offsets))
        return kept

    def due(self, now_s: float) -> bool:
        return self.progress.sweep_due(self.position, at(now_s))


def test_each_partition_must_have_passed_by_itself() -> None:
    """A5: there is no order between partitions."""
    follower = Follower()
    follower.follow(2_002, of("0", 6, 2_001))
    assert not follower.due(2_002)
    follower.follow(2_003, of("1", 10, 2_002))
    assert follower.due(2_003)


def test_a_record_older_than_the_compaction_delay_does_not_pass() -> None:
    """A5: what it replaced may have been compacted away."""
    follower = Follower()
    follower.follow(2_602, of("0", 6, 2_001), of("1", 10, 2_002))
    assert not follower.due(2_602)


def test_no_time_shows_the_head_before_what_was_read_of_the_log_once() -> None:
    """The provider's clock was ahead for a while: old records state times after the opening."""
    follower = Follower()
    follower.follow(2_003, of("0", 4, 2_001), of("1", 10, 2_002))
    assert not follower.due(2_003)
    follower.follow(2_004, of("0", 5, 2_002))
    assert follower.due(2_004)


def test_a_record_that_may_be_older_than_the_opening_does_not_pass() -> None:
    """By as much as the provider's clock is known too badly."""
    follower = Follower()
    follower.progress.opened(follower.position, at(OPENED_S), clock_error_us=2 * US)
    follower.follow(2_003, of("0", 6, 2_002), of("1", 10, 2_002))
    assert not follower.due(2_003)
    assert not follower.progress.caught_up(at(2_003))
    follower.follow(2_004, of("0", 7, 2_002.1), of("1", 11, 2_002.1))
    assert follower.due(2_004)
    # As badly is known how old a record is.
    follower.follow(2_602, of("0", 8, 2_003), of("1", 12, 2_003))
    assert not follower.due(2_602)


def test_the_delay_that_is_not_declared_is_assumed() -> None:
    follower = Follower(compaction_delay_s=None)
    follower.follow(2_599, of("0", 6, 2_001), of("1", 10, 2_002))
    assert follower.due(2_599)


def test_silence_at_the_goal_is_enough_and_silence_before_it_must_be_longer() -> None:
    follower = Follower()
    follower.follow(2_001, of("0", 5, 900), of("1", 9, 1_000))
    assert not follower.due(2_010)
    assert follower.due(2_011)
    follower = Follower()
    follower.follow(2_001, of("0", 5, 900), of("1", 8, 950))
    assert not follower.due(2_060)
    assert follower.due(2_061)


def test_what_comes_once_more_is_no_silence() -> None:
    follower = Follower()
    read = of("0", 5, 900), of("0", 6, 950), of("1", 9, 1_000)
    follower.follow(2_001, *read)
    recent = follower.position.remember([one.token for one in read])
    follower.position = msgspec.structs.replace(follower.position, recent=recent)
    for now_s in range(2_009, 2_100, 9):
        assert not follower.follow(now_s, read[0])
        assert not follower.due(now_s)
    assert follower.due(2_110)


def test_while_one_partition_replays_the_silence_of_another_proves_nothing() -> None:
    follower = Follower()
    for now_s in range(2_001, 2_200, 50):
        follower.follow(now_s, of("0", now_s, 500 + now_s - 2_000))
        assert not follower.due(now_s)
    assert not follower.due(2_151 + 59)
    assert follower.due(2_151 + 60)


def test_while_one_partition_is_busy_at_its_head_the_silence_of_another_counts() -> None:
    follower = Follower()
    for now_s in range(2_001, 2_060, 5):
        follower.follow(now_s, of("0", now_s, now_s))
        assert not follower.due(now_s)
    assert follower.due(2_060)


def test_a_baseline_of_every_class_has_shown_all() -> None:
    newest = msgspec.structs.replace(GOAL, opened_at_newest=True)
    assert Follower(newest, mode=Mode.BASELINE).due(OPENED_S)
    assert not Follower(mode=Mode.BASELINE).due(OPENED_S)


def test_a_log_that_is_empty_is_known_by_its_silence() -> None:
    follower = Follower(Position(attempt=1))
    assert not follower.due(OPENED_S + 9)
    assert follower.due(OPENED_S + 10)


def test_caught_up_is_past_the_opening_or_silent() -> None:
    follower = Follower()
    follower.follow(2_001, of("0", 6, 2_001), of("1", 10, 1_500))
    assert not follower.progress.caught_up(at(2_002))
    assert follower.progress.caught_up(at(2_011))
    follower.follow(2_012, of("1", 11, 2_003))
    assert follower.progress.caught_up(at(2_012))


def test_what_was_just_delivered_is_dropped_and_else_what_goes_backwards_is_kept() -> None:
    tokens = [record(offset).token for offset in (3, 4, 5)]
    follower = Follower(Position(attempt=1, recent=Position().remember(tokens)))
    follower.follow(2_001, *[record(offset) for offset in (3, 4, 5)])
    again, older, newer = record(4), record(1), record(6)
    assert follower.follow(2_002, again, older, newer) == [older, newer]
    assert follower.deviations == {"offset-backwards": 1, "append-time-backwards": 1}
    assert follower.offsets == {"0": 6}


def test_a_record_that_one_delivery_repeats_is_dropped_with_an_end_between() -> None:
    """The store forgets what has ended: the statement would bring the entity back."""
    follower = Follower()
    statement, end = record(3), record(4, ends=True)
    after = of("1", 1, 0)
    delivered = [statement, end, after, msgspec.structs.replace(statement), after]
    assert follower.follow(2_001, *delivered) == [statement, end, after, after]
    assert "offset-backwards" not in follower.deviations
    assert follower.offsets == {"0": 4, "1": 1}


def test_the_oldest_of_a_delivery_is_of_what_is_new() -> None:
    follower = Follower(Position(token="token-5"))
    follower.offsets = {"0": 5}
    follower.follow(2_001, record(5), record(6, at_s=1_900), of("1", 1, 1_700))
    assert follower.progress.oldest_us == at(1_700)
    follower.follow(2_002, record(6))
    assert follower.progress.oldest_us == at(2_002)


def test_silence_counts_only_while_the_connection_is_proven_and_not_held_back() -> None:
    follower = Follower()
    follower.follow(2_001, of("0", 5, 900), of("1", 9, 1_000))
    follower.progress.listened(at(0), at(2_010))
    assert not follower.due(2_100)
    assert not follower.progress.caught_up(at(2_100))
    assert follower.progress.silent_s(at(2_100)) == 9
    follower.progress.listened(at(0), at(2_011))
    assert follower.due(2_100)
    follower.progress.listened(at(2_095), at(2_100))
    assert not follower.due(2_100)
    follower.progress.listened(at(2_090), at(2_100))
    assert follower.due(2_100)
