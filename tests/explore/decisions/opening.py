"""Where a stream is opened, and what a new attempt keeps (A5, A7, A8, A15), in every small case.

The references are written from the rules, in their order.
"""

from __future__ import annotations

from typing import Final

from instep.alignment.resume import (
    baseline_due,
    from_the_start,
    is_compacted,
    is_gapless,
    new_attempt,
    resume_point,
    retention_s,
)
from instep.model.holds import Hold, UnprovenReason
from instep.model.position import (
    UNREACHABLE_OFFSET,
    ContinuityState,
    Phase,
    Position,
    SweepBarrier,
)
from instep.model.streams import Mode, Start, StreamInfo
from tests.explore.decisions.compare import every, same

__all__ = ["attempts", "logs", "openings"]

_US: Final = 1_000_000
_NOW_S: Final = 100


def _stream(**values: object) -> StreamInfo:
    return StreamInfo(id="s", origin="o", kind="k", **values)  # type: ignore[arg-type]


def logs() -> int:
    """What kind of log it is: how long it keeps records, whether it is compacted, has gaps."""
    cases = 0
    for case in every(
        mode=Mode,
        compacts=(False, True),
        compaction_delay_s=(None, 3.0),
        tombstone_retention_s=(None, 5.0),
        record_retention_s=(None, 4.0, 9.0),
        may_start_with_snapshot=(False, True),
        resumable=(False, True),
        classes=((), ("A",), ("A", "B")),
        readable=(frozenset(), frozenset("A"), frozenset("AB")),
        latest_refused=(False, True),
        states_series=(False, True),
    ):
        cases += 1
        stream = _stream(**case)
        log, compacts = case["mode"] is Mode.LOG, case["compacts"]
        ends_s, any_s = case["tombstone_retention_s"], case["record_retention_s"]
        # A15: of a log that forgets live entities the shorter of both counts.
        if log:
            keeps_s = ends_s
        elif compacts and ends_s is not None:
            keeps_s = ends_s if any_s is None or ends_s < any_s else any_s
        else:
            keeps_s = any_s
        same(retention_s(stream), keeps_s, "keeps", case)
        # 3.8.1.1: a log that states current state, and declares how it is compacted.
        declared = case["compaction_delay_s"] or ends_s
        snapshot = case["may_start_with_snapshot"]
        compacted = compacts or bool(log and declared and not snapshot)
        same(is_compacted(stream), compacted, "compacted", case)
        # A18: nothing leaves it between its ends.
        gapless = case["resumable"] and not compacted and not (log and snapshot)
        same(is_gapless(stream), gapless, "gapless", case)
        # A14: at the newest record, where the baseline shows all.
        shown = case["classes"] and all(name in case["readable"] for name in case["classes"])
        refused = case["latest_refused"] or case["states_series"]
        newest = bool(not log and shown and not refused)
        same(from_the_start(stream), Start.LATEST if newest else Start.OLDEST, "start", case)
    return cases


def openings() -> int:
    """Where a stream is opened, and why not after its token."""
    cases = 0
    for case in every(
        keeps_s=(None, 5.0),
        log=(False, True),
        compacts=(False, True),
        resumable=(False, True),
        origin=("o", "elsewhere"),
        attempt=(0, 1),
        token=(None, "t"),
        phase=(Phase.ALIGNED, Phase.ALIGNING, Phase.BASELINING, Phase.LOST),
        unaligned=(0, 1),
        age_s=(None, 4, 5, 6),
        away_s=(0, 5, 6),
        reason=("", "asked for"),
        new_log=(False, True),
        signs=(False, True),
    ):
        cases += 1
        stream = _stream(
            mode=Mode.LOG if case["log"] else Mode.BASELINE,
            compacts=case["compacts"] and not case["log"],
            tombstone_retention_s=case["keeps_s"],
            resumable=case["resumable"],
            may_start_with_snapshot=False,
        )
        age_s = case["age_s"]
        position = Position(
            token=case["token"],
            attempt=case["attempt"],
            phase=case["phase"],
            origin=case["origin"],
            unaligned_attempts=case["unaligned"],
            appended_at_us=0 if age_s is None else (_NOW_S - age_s) * _US,
        )
        found = resume_point(
            stream,
            position,
            watermark_us=(_NOW_S - case["away_s"]) * _US,
            now_us=_NOW_S * _US,
            realign_reason=case["reason"],
            new_log=case["new_log"],
            suggests_restart=case["signs"],
        )
        forgets = case["keeps_s"] is not None and (case["log"] or case["compacts"])
        first = case["attempt"] == 0
        moved = not first and case["origin"] != "o"
        session = not first and not moved and not case["resumable"]
        no_token = case["token"] is None or case["phase"] is Phase.BASELINING
        long_away = forgets and case["away_s"] > 5
        settled = age_s is not None and not case["unaligned"]
        too_old = forgets and settled and (age_s or 0) > 5
        lost = case["phase"] is Phase.LOST
        why = first or moved or session or no_token or lost or long_away or too_old
        # A2: nothing was ever read of it; where its log is silent still, nothing was missed.
        looks = no_token and case["phase"] is Phase.ALIGNED and not case["log"]
        looks = looks and not (first or moved or session or long_away)
        looks = looks and not (case["reason"] or case["signs"])
        same(found.was_silent, looks, "looks for a silent log", case)
        if looks:
            same((found.start, found.reason), (Start.OLDEST, ""), "from the oldest", case)
            continue
        anew = bool(why or case["reason"])
        same(isinstance(found.start, Start), anew, "from the start", case)
        same(bool(found.reason), anew, "a reason", case)
        if anew:
            same(found.new_log, bool(case["new_log"] or moved or session), "new log", case)
            if case["reason"] and not moved:
                same(found.reason, case["reason"], "the reason", case)
            elif not case["reason"]:
                told = {
                    "first": first,
                    "elsewhere": moved,
                    "session": session,
                    "had not come to a token": not (first or moved or session) and no_token,
                }
                for word, holds in told.items():
                    same(word in found.reason, holds, word, case)
        else:
            same((found.start, found.new_log), ("t", False), "after the token", case)
    for since_s, pending, phase in (
        (since_s, pending, phase)
        for since_s in (2, 3, 4)
        for pending in (False, True)
        for phase in (Phase.ALIGNED, Phase.ALIGNING)
    ):
        cases += 1
        position = Position(
            attempt_started_at_us=(_NOW_S - since_s) * _US, baseline_pending=pending, phase=phase
        )
        due = pending and phase is Phase.ALIGNED and since_s >= 3
        same(baseline_due(position, 3.0, _NOW_S * _US), due, since_s, pending, phase)
    return cases


_OPENABLE: Final = (Phase.UNALIGNED, Phase.ALIGNED, Phase.ALIGNING, Phase.CONFIRMING)
_HOLD: Final = Hold(UnprovenReason.UNREADABLE_RECORD)


def attempts() -> int:
    """What a new attempt keeps of the position before it (A5, A7, A17, A18)."""
    cases = 0
    for case in every(
        log=(False, True),
        resumable=(False, True),
        readable=(False, True),
        snapshot=(False, True),
        phase=_OPENABLE,
        token=(None, "t"),
        unaligned=(0, 2),
        offset=(None, 3, 7, UNREACHABLE_OFFSET),
        goal=(None, 5, UNREACHABLE_OFFSET),
        lineage=(0, 2),
        origin=("", "o", "elsewhere"),
        new_log=(False, True),
        gaps=(0, 2),
        by_gap=(False, True),
    ):
        if case["goal"] is None and case["phase"] is Phase.UNALIGNED and case["token"]:
            continue
        if not case["resumable"] and case["log"]:
            continue
        cases += 1
        _attempt(**case)
    return cases


def _attempt(
    *,
    log: bool,
    resumable: bool,
    readable: bool,
    snapshot: bool,
    phase: Phase,
    token: str | None,
    unaligned: int,
    offset: int | None,
    goal: int | None,
    lineage: int,
    origin: str,
    new_log: bool,
    gaps: int,
    by_gap: bool,
) -> None:
    stream = _stream(
        mode=Mode.LOG if log else Mode.BASELINE,
        resumable=resumable,
        classes=("A",),
        readable=frozenset("A") if readable else frozenset(),
        may_start_with_snapshot=snapshot,
        compaction_delay_s=3.0,
    )
    barrier = SweepBarrier(None if goal is None else "b", 120 * _US if goal == 5 else 0)
    if goal is not None:
        barrier = SweepBarrier("b", barrier.appended_at_us, {"p": goal, "q": 1}, {"p": 9})
    position = Position(
        token=token,
        offsets={} if offset is None else {"p": offset},
        appended_us={} if offset is None else {"p": 8},
        appended_at_us=90 * _US if token else 0,
        phase=phase,
        attempt=4,
        unaligned_attempts=unaligned,
        lineage=lineage,
        origin=origin,
        barrier=barrier,
        recent=b"recent--",
        holds=(_HOLD,) if gaps else (),
        continuity=ContinuityState(gaps=gaps, fruitless_gaps=2),
    )
    given = (log, resumable, readable, snapshot, phase, token, unaligned, offset, goal, lineage)
    given = (*given, origin, new_log, gaps, by_gap)  # type: ignore[assignment]
    found = new_attempt(stream, position, new_log=new_log, by_gap=by_gap, now_us=_NOW_S * _US)
    # A7: an attempt that was interrupted, or that began with an empty log, keeps the furthest goal.
    interrupted = phase is Phase.ALIGNING or (phase is Phase.CONFIRMING and unaligned > 0)
    keeps_goal = interrupted or (log and token is None)
    offsets, goals = position.offsets, barrier.offsets
    if keeps_goal:
        offsets = {
            name: max(offsets.get(name, -1), goals.get(name, -1)) for name in {*offsets, *goals}
        }
    at_us = max(position.appended_at_us, barrier.appended_at_us if keeps_goal else 0)
    from_now = min(at_us, _NOW_S * _US)
    was_new = new_log or lineage == 0 or (keeps_goal and UNREACHABLE_OFFSET in offsets.values())
    if was_new:
        # Nothing of it can be compared; a partition must have been met all the same.
        expected: object = (
            None,
            0,
            dict.fromkeys(offsets if resumable else (), UNREACHABLE_OFFSET),
            {},
        )
    else:
        times = {"p": 8} if offset is not None else {}
        if keeps_goal and goal is not None:
            times = {"p": 9}
        name = token or ("b" if keeps_goal and goal is not None else None)
        expected = (name, from_now, offsets, times)
    now = found.barrier
    same((now.token, now.appended_at_us, now.offsets, now.appended_us), expected, "goal", given)
    same(found.lineage, lineage + was_new, "lineage", given)
    # A16: one that has marked nothing yet is the same attempt.
    again = log and phase is Phase.ALIGNING and token is None
    same(found.attempt, 4 if again else 5, "attempt", given)
    same(found.unaligned_attempts, unaligned if again else unaligned + 1, "attempts", given)
    same(found.phase, Phase.ALIGNING if log else Phase.BASELINING, "phase", given)
    newest = not log and readable
    same(found.opened_at_newest, newest, "at the newest", given)
    # A21: behind a baseline what was read before may come again.
    keeps = newest and not was_new and offset is not None
    same(found.recent, b"recent--" if keeps else b"", "recent", given)
    same(found.watermark_us, (_NOW_S - (0 if snapshot else 3)) * _US, "watermark", given)
    # A18: gaps call for one attempt; what was learned is of one provider.
    same(found.continuity.gaps, 0, "gaps", given)
    moved = origin == "elsewhere"
    same(found.continuity.fruitless_gaps, 0 if moved else 2, "fruitless", given)
    called = by_gap or (gaps > 0 and not moved)
    same(found.continuity.called_by_gap, called, "called by a gap", given)
    same(found.held_before, position.holds, "held before", given)
    kept_nothing = (found.token, found.offsets, found.appended_us, found.holds, found.origin)
    same(kept_nothing, (None, {}, {}, (), "o"), "begins with nothing", given)
    same((found.baseline_pending, found.attempt_records), (False, 0), "begins anew", given)
