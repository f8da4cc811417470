"""Where a stream is opened, and the position of a new attempt (A5, A7, A8). Pure functions."""

from __future__ import annotations

from typing import Final

import msgspec

from instep.alignment.transitions import AlignmentEvent, phase_after
from instep.alignment.unknown_entities import after_opening
from instep.model.position import (
    UNREACHABLE_OFFSET,
    ContinuityState,
    Phase,
    Position,
    SweepBarrier,
)
from instep.model.streams import Mode, Start, StreamInfo

__all__ = [
    "NEVER_READ",
    "ResumePoint",
    "baseline_due",
    "from_the_start",
    "is_compacted",
    "is_gapless",
    "new_attempt",
    "resume_point",
    "retention_s",
]

NEVER_READ: Final = "its log holds records, and none was ever read"
"""The reason of an attempt that opens at the oldest record, so that it comes to a token."""
_US = 1_000_000


class ResumePoint(msgspec.Struct, frozen=True):
    """Where to open a stream, and the reason where it is not opened after the token."""

    start: str | Start
    reason: str = ""
    new_log: bool = False
    was_silent: bool = False
    """Whether nothing was ever read of the stream, and its log is looked at from its oldest record:
    where it is silent still, nothing was missed. No attempt begins by that.
    """


def retention_s(stream: StreamInfo) -> float | None:
    """How long a consumer may be away before records that it needs leave the log, in seconds: in a
    log that forgets, those of live entities, too (A15). None: not known.
    """
    if stream.mode is Mode.LOG:
        return stream.tombstone_retention_s
    kept_s = [stream.record_retention_s]
    if stream.compacts:
        kept_s.append(stream.tombstone_retention_s)
    return min((one_s for one_s in kept_s if one_s is not None), default=None)


def is_compacted(stream: StreamInfo) -> bool:
    """Whether the log is compacted as a whole: each record stays until a newer one of its entity
    is older than the compaction delay (TR-548 3.8.1.1).
    """
    stated = stream.compaction_delay_s is not None or stream.tombstone_retention_s is not None
    in_log = stream.mode is Mode.LOG and stated and not stream.may_start_with_snapshot
    return stream.compacts or in_log


def is_gapless(stream: StreamInfo) -> bool:
    """Whether the log is never compacted between its ends: TRUNCATED, FULL_HISTORY."""
    if not stream.resumable:
        # A session has no log: its feed finds what is missing, and asks for a realignment.
        return False
    if stream.mode is Mode.LOG:
        return not is_compacted(stream) and not stream.may_start_with_snapshot
    return not stream.compacts


def resume_point(
    stream: StreamInfo,
    position: Position,
    *,
    watermark_us: int,
    now_us: int,
    realign_reason: str = "",
    new_log: bool = False,
    suggests_restart: bool = False,
) -> ResumePoint:
    """Decide where to open: after our token, as after a short loss (ST-0.7) and in an interrupted
    attempt (A7), or from the start, for one of eight reasons.

    A token that is older than a compacted log keeps ends makes the provider restart the stream
    (TR-548 5.8), however short the absence was. Of another log it proves nothing.

    `realign_reason` is a reason that is known already (a restart, a refused token, a request of the
    operator). `watermark_us` is the provider's time up to which nothing can be missing.
    `suggests_restart`: the provider may have been restarted since it was read last.
    """
    keeps_s = retention_s(stream)
    away_s = (now_us - watermark_us) / _US
    is_long_away = keeps_s is not None and away_s > keeps_s
    reason = realign_reason
    if position.attempt == 0:
        reason = reason or "first alignment"
    elif position.origin != stream.origin:
        reason = "the stream is served from elsewhere"
        new_log = True
    elif not stream.resumable:
        reason = reason or "a new session: nothing tells what was missed since the last one"
        new_log = True
    elif position.token is None or position.phase is Phase.BASELINING:
        silent = stream.mode is Mode.BASELINE and position.phase is Phase.ALIGNED
        if silent and not (is_long_away or reason or suggests_restart):
            return ResumePoint(Start.OLDEST, was_silent=True)
        reason = reason or "the attempt had not come to a token"
    elif position.phase is Phase.LOST:
        reason = reason or "ends may have been missed: it was read too late"
    elif keeps_s is not None and is_long_away:
        # A long loss (ST-0.8): deletes of the meantime may have left the log, and no first record
        # could show that they are absent.
        reason = reason or f"away for {away_s:,.0f} s, longer than the log keeps ({keeps_s:,.0f} s)"
    elif _token_expired(stream, position, now_us):
        reason = reason or "its last record is older than the log keeps ends"
    if not reason and position.token is not None:
        return ResumePoint(position.token)
    start = Start.OLDEST if realign_reason == NEVER_READ else from_the_start(stream)
    return ResumePoint(start, reason, new_log)


def _token_expired(stream: StreamInfo, position: Position, now_us: int) -> bool:
    keeps_s = stream.tombstone_retention_s
    if keeps_s is None or not (is_compacted(stream) or stream.mode is Mode.LOG):
        return False
    # An attempt reads old records, and begins anew where the provider wants it.
    age_s = (now_us - position.appended_at_us) / _US
    settled = position.appended_at_us and not position.unaligned_attempts
    return bool(settled) and age_s > keeps_s


def from_the_start(stream: StreamInfo) -> Start:
    """Where an attempt opens: at the newest record where the baseline shows every class of the
    stream and the provider can open it there, else at the oldest.
    """
    readable = bool(stream.classes) and stream.readable.issuperset(stream.classes)
    latest = stream.mode is Mode.BASELINE and readable and not stream.latest_refused
    return Start.LATEST if latest and not stream.states_series else Start.OLDEST


def baseline_due(position: Position, least_s: float, now_us: int) -> bool:
    """Whether a pending baseline is read now: at least `least_s` after the one before began."""
    since_s = (now_us - position.attempt_started_at_us) / _US
    return position.baseline_pending and position.phase is Phase.ALIGNED and since_s >= least_s


def new_attempt(
    stream: StreamInfo,
    position: Position,
    *,
    new_log: bool,
    by_gap: bool = False,
    at_oldest: bool = False,
    now_us: int,
) -> Position:
    """The position at the opening of an attempt (TR-548 ST-2.1 step 1, ST-2.2 step 4). `by_gap`: a
    gap in the offsets has called for it. `at_oldest`: it was opened at the oldest record, whatever
    the baseline shows.

    Raises `IllegalTransition` in a phase that allows none.
    """
    baseline = stream.mode is Mode.BASELINE
    barrier = SweepBarrier(
        position.token, position.appended_at_us, position.offsets, position.appended_us
    )
    confirming = position.phase is Phase.CONFIRMING and position.unaligned_attempts > 0
    read_nothing = position.token is None and not baseline
    if confirming or read_nothing or position.phase in (Phase.ALIGNING, Phase.BASELINING):
        # Started anew, or after a log that was empty, an attempt keeps the furthest goal: what was
        # committed before the first try (A7). The stored entities are of that log still.
        barrier = _furthest(position.barrier, barrier)
        # So it does with a log whose predecessor's offsets still stand in the store.
        new_log = new_log or UNREACHABLE_OFFSET in barrier.offsets.values()
    # What was committed before now cannot be newer than now, whatever a provider's clock said.
    barrier = msgspec.structs.replace(barrier, appended_at_us=min(barrier.appended_at_us, now_us))
    new_log = new_log or position.lineage == 0
    superseded_s = 0.0 if stream.may_start_with_snapshot else stream.compaction_delay_s or 0.0
    # One that had marked nothing when it was interrupted is the same attempt still.
    untouched = position.phase is Phase.ALIGNING and position.token is None and not baseline
    if new_log:
        # Times and offsets of another log cannot be compared. Only the names of its partitions
        # stay, and not even they where each session has partitions of its own.
        partitions = barrier.offsets if stream.resumable else ()
        barrier = SweepBarrier(None, 0, dict.fromkeys(partitions, UNREACHABLE_OFFSET))
    opened_at_newest = not at_oldest and from_the_start(stream) is Start.LATEST
    # Tokens of before would make a reading of the log look like a redelivery. Where it begins at
    # its newest record, one that comes again may be of an entity that has ended since (A21).
    keeps_recent = opened_at_newest and not new_log and bool(position.offsets)
    recent = position.recent if keeps_recent else b""
    continuity = position.continuity
    if position.origin not in ("", stream.origin):
        continuity = ContinuityState()
    continuity = msgspec.structs.replace(
        continuity, gaps=0, called_by_gap=by_gap or continuity.gaps > 0
    )
    return msgspec.structs.replace(
        position,
        phase=phase_after(
            position.phase,
            AlignmentEvent.BASELINE_OPENED if baseline else AlignmentEvent.ATTEMPT_OPENED,
        ),
        token=None,
        offsets={},
        appended_us={},
        appended_at_us=0,
        attempt=position.attempt + (not untouched),
        attempt_started_at_us=now_us,
        opened_at_newest=opened_at_newest,
        attempt_records=0,
        unreadable=0,
        unaligned_attempts=position.unaligned_attempts + (not untouched),
        barrier=barrier,
        lineage=position.lineage + new_log,
        origin=stream.origin,
        # A reading from the start misses nothing of what left the log before now. But a record read
        # early may have been superseded up to a compaction delay before; a snapshot shows none of
        # these. And the watermark of another log is of another clock.
        watermark_us=now_us - int(superseded_s * _US),
        recent=recent,
        sweep_cursor=0,
        sweep_removed=0,
        unproven=0,
        baseline_pending=False,
        continuity=continuity,
        holds=(),
        held_before=position.holds or position.held_before,
        unknown=after_opening(position.unknown),
    )


def _furthest(one: SweepBarrier, other: SweepBarrier) -> SweepBarrier:
    return SweepBarrier(
        other.token or one.token,
        max(one.appended_at_us, other.appended_at_us),
        _highest(one.offsets, other.offsets),
        _highest(one.appended_us, other.appended_us),
    )


def _highest(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, -1), other.get(name, -1)) for name in one | other}
