"""Where a stream is opened and why, and what an opening from the start makes of the position."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from instep import Mode, Phase, Position
from instep.alignment.resume import baseline_due, from_the_start, new_attempt, resume_point
from instep.alignment.transitions import TRANSITIONS, AlignmentEvent
from instep.model import Start
from instep.model.position import UNREACHABLE_OFFSET, SweepBarrier
from tests.instep.scripted_source_kit import T0_US, info

US = 1_000_000
KEEPS_S = 4 * 3600
NOW_US = T0_US + 100 * US


def position(**changes: object) -> Position:
    fields: dict[str, object] = {
        "token": "t",
        "offsets": {"0": 7, "1": 5},
        "appended_us": {"0": T0_US, "1": T0_US - US},
        "appended_at_us": T0_US,
        "phase": Phase.ALIGNED,
        "attempt": 3,
        "lineage": 2,
        "origin": "a/1",
        "watermark_us": T0_US,
        "recent": b"12345678",
        "sweep_cursor": 9,
    }
    return Position(**(fields | changes))  # type: ignore[arg-type]


def open_at(
    at: Position, *, away_s: float = 100, realign_reason: str = "", **stream: object
) -> str:
    found = resume_point(
        info(**stream),
        at,
        watermark_us=T0_US,
        now_us=T0_US + int(away_s * US),
        realign_reason=realign_reason,
    )
    assert bool(found.reason) is isinstance(found.start, Start)
    return found.reason


def test_after_the_token_where_nothing_calls_for_an_attempt() -> None:
    assert resume_point(info(), position(), watermark_us=T0_US, now_us=NOW_US).start == "t"


@pytest.mark.parametrize(
    ("reason", "at", "realign_reason", "away_s", "stream"),
    [
        ("first alignment", Position(), "", 0, {}),
        ("the stream is served from elsewhere", position(), "", 0, {"origin": "b/1"}),
        ("the attempt had not come to a token", position(token=None), "", 0, {}),
        ("the attempt had not come to a token", position(phase=Phase.BASELINING), "", 0, {}),
        ("somebody asked", position(), "somebody asked", 0, {}),
        ("somebody asked", position(), "somebody asked", KEEPS_S + 1, {}),
    ],
)
def test_a_reason_opens_from_the_start(
    reason: str, at: Position, realign_reason: str, away_s: float, stream: dict[str, object]
) -> None:
    assert open_at(at, realign_reason=realign_reason, away_s=away_s, **stream) == reason


def test_away_longer_than_the_log_keeps() -> None:
    assert open_at(position(), away_s=KEEPS_S) == ""
    assert "longer than the log keeps" in open_at(position(), away_s=KEEPS_S + 1)
    assert open_at(position(), away_s=10**9, tombstone_retention_s=None) == ""
    assert open_at(position(), away_s=10**9, tombstone_retention_s=float("inf")) == ""

    def truncated(away_s: float) -> str:
        return open_at(position(), away_s=away_s, mode=Mode.BASELINE, record_retention_s=60.0)

    assert truncated(60) == ""
    assert truncated(61)


def test_a2_a_token_older_than_a_compacted_log_keeps_ends_is_not_resumed() -> None:
    """The provider restarts the stream there (TR-548 5.8), however short the absence was."""
    old = position(appended_at_us=T0_US - int((KEEPS_S + 1) * US))
    assert "older than the log keeps ends" in open_at(old, away_s=1)
    assert "older than" in open_at(old, away_s=1, may_start_with_snapshot=True)
    assert open_at(old, away_s=1, tombstone_retention_s=float("inf")) == ""
    interrupted = msgspec.structs.replace(old, unaligned_attempts=1)
    assert open_at(interrupted, away_s=1) == ""


def test_a2_in_a_truncated_log_an_old_token_costs_nothing() -> None:
    old = position(appended_at_us=T0_US - 10**6 * US)
    for bare in (old, msgspec.structs.replace(old, offsets={})):
        assert open_at(bare, away_s=1, mode=Mode.BASELINE, record_retention_s=60.0) == ""
        assert open_at(bare, away_s=1, mode=Mode.BASELINE, record_retention_s=None) == ""


def test_a15_a_compacted_log_that_forgets_keeps_neither_records_nor_ends_for_long() -> None:
    forgets: dict[str, Any] = {"mode": Mode.BASELINE, "compacts": True}
    for kept_s in ((60.0, 90.0), (90.0, 60.0), (60.0, None), (None, 60.0)):
        records_s, ends_s = kept_s
        retentions: dict[str, Any] = {
            "record_retention_s": records_s,
            "tombstone_retention_s": ends_s,
        }
        # Within an attempt, so that the age of the token says nothing.
        at = position(unaligned_attempts=1)
        assert open_at(at, away_s=60, **forgets, **retentions) == ""
        assert open_at(at, away_s=61, **forgets, **retentions)


SESSION = info(mode=Mode.BASELINE, resumable=False)


def test_a_session_is_never_resumed() -> None:
    def reason(at: Position, realign_reason: str = "") -> str:
        return resume_point(
            SESSION, at, watermark_us=T0_US, now_us=NOW_US, realign_reason=realign_reason
        ).reason

    assert reason(Position()) == "first alignment"
    assert reason(position()).startswith("a new session")
    assert reason(position(), "a message was lost") == "a message was lost"


def test_a_session_is_a_log_of_its_own_and_leaves_nothing_to_reach() -> None:
    at = position()
    for _ in range(50):
        # None of them comes to its end: what is kept must not grow with their number.
        found = resume_point(SESSION, at, watermark_us=T0_US, now_us=NOW_US)
        begun = new_attempt(SESSION, at, new_log=found.new_log, now_us=NOW_US)
        assert begun.lineage == at.lineage + 1
        assert begun.barrier == SweepBarrier()
        session = f"session-{begun.attempt}"
        at = position(
            phase=Phase.ALIGNING,
            attempt=begun.attempt,
            lineage=begun.lineage,
            offsets={session: 5},
            appended_us={session: T0_US},
            barrier=begun.barrier,
        )


def test_only_a_baseline_of_every_class_needs_nothing_of_the_past() -> None:
    node = frozenset({"NODE"})
    assert from_the_start(info(readable=node)) is Start.OLDEST
    assert from_the_start(info(mode=Mode.BASELINE, readable=node)) is Start.LATEST
    refused = info(mode=Mode.BASELINE, readable=node, latest_refused=True)
    assert from_the_start(refused) is Start.OLDEST
    series = info(mode=Mode.BASELINE, readable=node, states_series=True)
    assert from_the_start(series) is Start.OLDEST
    assert from_the_start(info(mode=Mode.BASELINE)) is Start.OLDEST
    assert from_the_start(info(mode=Mode.BASELINE, readable=node, classes=())) is Start.OLDEST


def attempt(at: Position, *, new_log: bool = False, now_us: int = NOW_US) -> Position:
    return new_attempt(info(), at, new_log=new_log, now_us=now_us)


def test_an_attempt_begins_with_nothing_but_its_reference() -> None:
    before = position()
    begun = attempt(before)
    assert begun.phase is Phase.ALIGNING
    assert (begun.attempt, begun.lineage, begun.attempt_started_at_us) == (4, 2, NOW_US)
    assert (begun.token, begun.offsets, begun.appended_us, begun.appended_at_us) == (
        None,
        {},
        {},
        0,
    )
    assert (begun.recent, begun.sweep_cursor) == (b"", 0)
    assert begun.barrier == SweepBarrier("t", T0_US, before.offsets, before.appended_us)
    assert (begun.ordinal, begun.records) == (before.ordinal, before.records)


def test_a_new_log_leaves_no_barrier_but_the_partitions() -> None:
    begun = attempt(position(), new_log=True)
    assert begun.lineage == 3
    assert begun.barrier == SweepBarrier(None, 0, dict.fromkeys("01", UNREACHABLE_OFFSET))


def test_an_attempt_started_anew_keeps_the_furthest_goal_of_each_partition() -> None:
    """A7: what it has marked stays marked."""
    goal = SweepBarrier("g", T0_US - US, {"0": 3, "2": 8}, {"0": T0_US - US, "2": T0_US - 2 * US})
    begun = attempt(position(phase=Phase.ALIGNING, barrier=goal))
    assert begun.barrier == SweepBarrier(
        "t",
        T0_US,
        {"0": 7, "1": 5, "2": 8},
        {"0": T0_US, "1": T0_US - US, "2": T0_US - 2 * US},
    )
    # One that came to its sweep has proved what exists: its own end is the goal.
    begun = attempt(position(phase=Phase.SWEEPING, barrier=goal))
    assert begun.barrier.offsets == {"0": 7, "1": 5}


def test_an_empty_log_hides_no_goal_of_before() -> None:
    """A2: what is stored is of the log before it, and the next one is compared with that."""
    goal = SweepBarrier("g", T0_US, {"0": 7}, {"0": T0_US})
    empty = msgspec.structs.replace(
        position(phase=Phase.SWEEP_HELD, barrier=goal), token=None, offsets={}, appended_us={}
    )
    begun = attempt(msgspec.structs.replace(empty, appended_at_us=0))
    assert begun.barrier == goal


def test_a_log_read_in_part_does_not_become_ours_when_it_is_read_anew() -> None:
    foreign = SweepBarrier(None, 0, {"0": UNREACHABLE_OFFSET})
    begun = attempt(position(phase=Phase.ALIGNING, barrier=foreign))
    assert begun.lineage == 3
    assert begun.barrier.token is None


def test_a_time_of_the_future_is_no_goal() -> None:
    begun = attempt(position(appended_at_us=NOW_US + 10**15))
    assert begun.barrier.appended_at_us == NOW_US


def test_who_reads_from_the_start_misses_nothing_of_before() -> None:
    begun = attempt(position(), now_us=T0_US + 10 * KEEPS_S * US)
    assert begun.watermark_us == T0_US + 10 * KEEPS_S * US - 600 * US


def test_3_19_2_a_snapshot_shows_nothing_that_ended_before_it() -> None:
    """A log that emulates compaction keeps changes and tombstones for one time: were it subtracted,
    no reconnection during the attempt would ever send the token.
    """
    emulated = info(
        may_start_with_snapshot=True, compaction_delay_s=KEEPS_S, tombstone_retention_s=KEEPS_S
    )
    begun = new_attempt(emulated, position(), new_log=False, now_us=NOW_US)
    assert begun.watermark_us == NOW_US
    read = msgspec.structs.replace(begun, token="t2")
    later_us = NOW_US + 300_000
    found = resume_point(emulated, read, watermark_us=read.watermark_us, now_us=later_us)
    assert found.start == "t2"


def test_a_lost_stream_is_opened_from_its_start() -> None:
    assert open_at(position(phase=Phase.LOST)).startswith("ends may have been missed")


def test_what_was_known_before_proves_nothing_of_what_an_attempt_will_mark() -> None:
    """A record read early may have been superseded already; and another log has another clock."""
    for new_log in (False, True):
        begun = attempt(position(watermark_us=NOW_US + US), new_log=new_log)
        assert begun.watermark_us == NOW_US - 600 * US


def test_a_baseline_that_was_owed_is_paid_by_the_next_attempt() -> None:
    owing = position(baseline_pending=True, attempt_started_at_us=T0_US)
    assert baseline_due(owing, 60.0, T0_US + 60 * US)
    assert not baseline_due(owing, 60.0, T0_US + 60 * US - 1)
    assert not baseline_due(position(), 60.0, T0_US + 60 * US)
    assert not attempt(owing).baseline_pending


def test_an_attempt_can_begin_in_every_phase() -> None:
    for phase in TRANSITIONS:
        assert (
            attempt(position(phase=phase)).phase
            is TRANSITIONS[phase][AlignmentEvent.ATTEMPT_OPENED]
        )
