"""What an attempt proves to be absent, and what a late reader loses (A8, A9, A17, A19), in every
small case.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from instep.alignment.absence import (
    MAX_HOLDS,
    held_records,
    holds_all,
    is_held,
    judge_empty,
    reread_due,
    unguarded,
    with_holds,
    without_empty,
)
from instep.alignment.lag import Fidelity, LagMonitor, fidelity
from instep.alignment.plausibility import LastRecord, PlausibilityCheck
from instep.alignment.settings import AlignmentSettings
from instep.model.holds import EmptyReadings, Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import RecordHeader, RecordType, Unreadable
from instep.model.streams import Mode, StreamInfo, SweepEstimate
from tests.explore.decisions.compare import every, same, sequences

__all__ = ["empty_answers", "holds", "late_readers", "plausible_records", "unreadable_records"]

_US: Final = 1_000_000
_RECORD, _ELEMENT, _EMPTY = (
    UnprovenReason.UNREADABLE_RECORD,
    UnprovenReason.UNREADABLE_ELEMENT,
    UnprovenReason.EMPTY_ANSWER,
)


def _record(offset: int, at_us: int, partition: str = "p", token: str = "t") -> RecordHeader:
    return RecordHeader(
        "s", "k", RecordType.CREATE_UPDATE, token, at_us, partition=partition, offset=offset
    )


def holds() -> int:
    """Which unmarked entities stay, whatever the sweep removes (A17)."""
    cases = 0
    every_hold = [
        Hold(_RECORD, name, partition, digest, offset, 3, met)
        for name, partition, digest, offset, met in product(
            ("", "A"), (None, "p"), ("", "d"), (-1, 5), (False, True)
        )
    ]
    for hold, token, partition, offset, name, lineage in product(
        every_hold, ("", "t"), ("p", "q"), (-1, 4, 5, 6), ("A", "B"), (2, 3)
    ):
        cases += 1
        row = _record(offset, 9, partition, token)
        # It stands in another class, or in another partition, or its next record lies behind it.
        other_class = hold.entity_class == "A" and name == "B"
        placed = hold.partition is not None and token != ""
        other_place = placed and partition == "q"
        behind = placed and hold.met_before and lineage == 3 and 0 <= hold.offset < offset
        held = not (other_class or other_place or behind)
        same(is_held([hold], row, name, lineage), held, hold, row, name, lineage)
        same(is_held([], row, name, lineage), False, row)
    for pair in sequences(every_hold[::3], 2):
        cases += 1
        whole = any(one.entity_class == "" and one.partition is None for one in pair)
        same(holds_all(pair), whole, pair)
        for accepted in (frozenset[str](), frozenset("d"), frozenset({""})):
            left = tuple(one for one in pair if not (one.digest and one.digest in accepted))
            same(held_records(pair, accepted), left, pair, accepted)
        for readable in (None, frozenset("A"), frozenset("AB")):
            estimate = SweepEstimate(20, 9, {"A": (10, 4), "B": (8, 3), "C": (2, 2)})
            kept = 0
            for name, (_, unmarked) in estimate.by_class.items():
                by_hold = any(one.entity_class == name and one.partition is None for one in pair)
                if by_hold or not (readable is None or name in readable):
                    kept += unmarked
            left_to_sweep = 0 if whole else 9 - kept
            found = unguarded(estimate, pair, readable)
            same((found.total, found.unmarked), (20, left_to_sweep), pair, readable)
    mixed = [Hold(reason, "A") for reason in UnprovenReason]
    same(
        [one.reason for one in without_empty(mixed)],
        [reason for reason in UnprovenReason if reason is not _EMPTY],
    )
    return cases


_OPEN: Final = (Phase.ALIGNING, Phase.BASELINING, Phase.SWEEPING, Phase.SWEEP_HELD)


def unreadable_records() -> int:
    """What an attempt holds for what it cannot read (A17)."""
    cases = 0
    for case in every(
        phase=Phase,
        offsets=({}, {"p": 4}, {"p": 4, "q": 6}),
        key=(None, "k"),
        partition=(None, "p", "q"),
        offset=(-1, 5),
        marks_keys=(False, True),
        of_baseline=(False, True),
        before=(None, ("p", 3, "same"), ("p", 2, "same"), ("q", 3, "same"), ("p", 3, "other")),
        known=(0, 1, MAX_HOLDS - 1, MAX_HOLDS),
    ):
        cases += 1
        one = Unreadable(
            "s",
            b"text",
            "why",
            "t",
            case["key"],
            entity_class="A",
            partition=case["partition"],
            offset=case["offset"],
        )
        held_before: tuple[Hold, ...] = ()
        if case["before"]:
            partition, lineage, text = case["before"]
            digest = one.digest if text == "same" else "other"
            held_before = (Hold(_RECORD, "A", partition, digest, 2, lineage),)
        known = tuple(Hold(_RECORD, f"C{n}") for n in range(case["known"]))
        position = Position(
            phase=case["phase"],
            offsets=case["offsets"],
            lineage=3,
            holds=known,
            held_before=held_before,
        )
        found = with_holds(
            position, [one, one], of_baseline=case["of_baseline"], marks_keys=case["marks_keys"]
        )
        marked = case["key"] is not None and case["marks_keys"] and not case["of_baseline"]
        if case["phase"] not in _OPEN or marked:
            same(found, position, "nothing is held", case)
            continue
        if case["of_baseline"]:
            hold = Hold(_ELEMENT, "A", digest=one.digest)
        else:
            place, offset = case["partition"], case["offset"]
            if place is None and len(case["offsets"]) == 1:
                place = "p"
            if offset == -1 and place is not None:
                offset = case["offsets"].get(place, -1)
            hold = Hold(_RECORD, "A", place, one.digest, offset, 3)
            if case["before"] == ("p", 3, "same") and place == "p":
                hold = Hold(_RECORD, "A", place, one.digest, 2, 3, met_before=True)
            if case["before"] == ("q", 3, "same") and place == "q":
                hold = Hold(_RECORD, "A", place, one.digest, 2, 3, met_before=True)
        expected = (*known, hold)
        if len(expected) > MAX_HOLDS:
            expected = (Hold(hold.reason, digest=one.digest),)
        same(found.holds, expected, case)
        same(with_holds(found, [], marks_keys=True), found, "nothing was refused")
    return cases


def empty_answers() -> int:
    """When a class of which nothing is stated counts as gone (A19)."""
    cases = 0
    settings = AlignmentSettings(empty_confirm_s=12.0)
    now_us = 1_000 * _US
    for case in every(
        counts=((2, 2), (2, 1), (0, 0)),
        others=((1, 1), (1, 0)),
        readable=(False, True),
        stated=(False, True),
        since_s=(None, 11, 12, 13),
        elsewhere_s=(None, 13, 12, 11, 1),
        confirmed=(False, True),
        readings=(0, 1, 5, 20),
        rereads=((), (-1,), (0,), (7,)),
    ):
        cases += 1
        stream = StreamInfo(
            id="s",
            origin="o",
            kind="k",
            mode=Mode.BASELINE,
            readable=frozenset("A") if case["readable"] else frozenset(),
            absence_stated=frozenset("A") if case["stated"] else frozenset(),
        )
        since_s, elsewhere_s = case["since_s"], case["elsewhere_s"]
        readings = EmptyReadings(
            {} if since_s is None else {"A": now_us - since_s * _US},
            case["readings"],
            tuple(now_us + after_s * _US for after_s in case["rereads"]),
        )
        total, unmarked = case["counts"]
        estimate = SweepEstimate(9, 9, {"A": case["counts"], "B": case["others"]})
        found = judge_empty(
            readings,
            estimate,
            stream,
            settings,
            now_us=now_us,
            stated_elsewhere_us=0 if elsewhere_s is None else now_us - elsewhere_s * _US,
            confirmed=case["confirmed"],
        )
        empty = case["readable"] and not case["stated"] and total == unmarked > 0
        waited_s = since_s or 0
        # Something else of the provider is stated since then: here, or by another stream.
        met = case["others"][1] < case["others"][0] or unmarked < total
        elsewhere = elsewhere_s is not None and elsewhere_s <= waited_s
        gone = empty and (case["confirmed"] or (waited_s >= 12 and (met or elsewhere)))
        held = empty and not gone
        same(found.gone, ("A",) if gone else (), case)
        same(found.holds, (Hold(_EMPTY, "A"),) if held else (), case)
        held_since = {"A": now_us - waited_s * _US} if held else {}
        same(found.readings.since_us, held_since, case)
        count = case["readings"] + 1 if held else 0
        same(found.readings.readings, count, case)
        # It is read again: after two seconds, then twice as late each time, up to five minutes.
        again = {one_s for one_s in case["rereads"] if one_s > 0}
        if held:
            again.add(min(300, 2 * 2 ** (count - 1)))
        if gone:
            again |= {60, 300, 1_800}
        times = tuple(now_us + after_s * _US for after_s in sorted(again))
        same(found.readings.reread_at_us, times, case)
        for phase in (Phase.ALIGNED, Phase.ALIGNING):
            position = Position(phase=phase, empty=readings)
            due = phase is Phase.ALIGNED and case["rereads"] in ((-1,), (0,))
            same(reread_due(position, now_us), due, phase, case["rereads"])
    return cases


def late_readers() -> int:
    """What a late reader loses (A8; TR-548 3.17), and when it is tried again."""
    cases = 0
    for delay_s, compaction_s, retention_s in product(
        (0.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0), (None, 2.0), (None, 8.0)
    ):
        cases += 1
        if retention_s is not None and delay_s > retention_s:
            zone = Fidelity.LOST
        elif retention_s is not None and delay_s > 6.0:  # three quarters of it
            zone = Fidelity.AT_RISK
        elif compaction_s is not None and delay_s > compaction_s:
            zone = Fidelity.REDUCED
        else:
            zone = Fidelity.FULL
        found = fidelity(delay_s, compaction_s, retention_s)
        same(found, zone, delay_s, compaction_s, retention_s)
    settings = AlignmentSettings(
        lost_realigns=1, lost_retry_s=3.0, lost_retry_max_s=6.0, heartbeat_s=5.0
    )
    for case in every(
        log=(False, True),
        compacts=(False, True),
        keeps_s=(None, 8.0, 40.0),
        phase=(Phase.ALIGNED, Phase.ALIGNING),
        followed_s=(0, 8, 9),
        oldest_s=(0, 8, 9),
        began_s=(1, 9),
        watermark_s=(8, 9),
    ):
        cases += 1
        stream = StreamInfo(
            id="s",
            origin="o",
            kind="k",
            mode=Mode.LOG if case["log"] else Mode.BASELINE,
            compacts=case["compacts"],
            compaction_delay_s=2.0,
            tombstone_retention_s=case["keeps_s"],
            record_retention_s=None if case["compacts"] else case["keeps_s"],
        )
        now_us = 100 * _US
        lag = LagMonitor(stream, now_us, settings)
        lag.opened(now_us - case["followed_s"] * _US)
        position = Position(
            phase=case["phase"],
            attempt_started_at_us=now_us - case["began_s"] * _US,
            watermark_us=now_us - case["watermark_s"] * _US,
        )
        reason = lag.lost(position, now_us - case["oldest_s"] * _US, now_us)
        forgets = case["keeps_s"] is not None and (case["log"] or case["compacts"])
        late_s = max(case["followed_s"], case["oldest_s"])
        if not case["log"]:
            late_s = min(late_s, case["began_s"])
        keeps_s = case["keeps_s"] or 0
        replays = case["log"] and case["phase"] is Phase.ALIGNING and case["watermark_s"] <= keeps_s
        lost = forgets and late_s > keeps_s and not replays
        same(bool(reason), lost, "lost", case)
        same(lag.read_delay_s, late_s if lost else 0.0, "delay", case)
        # A connection that was followed a moment ago is not late by it any more.
        same(lag.lost(position, now_us, now_us), "", "followed", case)
        stored = Position(watermark_us=now_us - 3 * _US)
        due = {None: 5, 8.0: 2, 40.0: 5}[case["keeps_s"]]
        for age_s in (due, due + 1):
            stored = Position(watermark_us=now_us - age_s * _US)
            same(lag.heartbeat_due(stored), age_s > due, "heartbeat", age_s, case)
    for tries, in_time, after_s in product(range(1, 6), (False, True), (0, 2, 3, 5, 6, 7)):
        cases += 1
        stream = StreamInfo(id="s", origin="o", kind="k", tombstone_retention_s=8.0)
        lag = LagMonitor(stream, 0, settings)
        at_once = [lag.may_realign(100 * _US) for _ in range(tries)]
        same(at_once, [True, *(tries - 1) * [False]], "at once", tries)
        lag.read((100 if in_time else 80) * _US, 100 * _US, Phase.LOST)
        waits_s = 3 if tries <= 2 else 6  # twice as long each time, up to the longest
        recovers = in_time and after_s >= waits_s
        same(lag.recovered((100 + after_s) * _US), recovers, "recovers", tries, in_time, after_s)
        lag.read((100 if in_time else 80) * _US, 100 * _US, Phase.ALIGNED)
        same(lag.may_realign(100 * _US), in_time, "counted anew", tries, in_time)
        lag.silent(50 * _US, Phase.LOST)
        same((lag.watermark_us, lag.read_delay_s), (0, 0.0), "silent", tries)
        lag.silent(50 * _US, Phase.ALIGNED)
        lag.silent(40 * _US, Phase.ALIGNED)
        same(lag.watermark_us, 50 * _US, "silent", tries)
    return cases


_FASTEST: Final = 1_000_000
"""Records a second."""


def plausible_records() -> int:
    """Times and offsets that cannot be true (A9)."""
    cases = 0
    now_us = 100 * _US
    ahead_us = now_us + 60 * _US
    steps = [
        _record(offset, at_us)
        for offset, at_us in (
            (-1, now_us),
            (10, now_us),
            (10 + _FASTEST, now_us),
            (11 + _FASTEST, now_us),
            (12 + 2 * _FASTEST, now_us),
            (11 + 2 * _FASTEST, now_us + _US),
            (10, ahead_us),
            (11, ahead_us + 1),
            (12, now_us - 1),
        )
    ]
    steps.append(_record(5, ahead_us + 1, "q"))
    for known, records in product(
        (None, LastRecord(-1, now_us), LastRecord(10, now_us)), sequences(steps, 3)
    ):
        cases += 1
        check = PlausibilityCheck()
        deviations: dict[str, int] = {}
        before = {} if known is None else {"p": known}
        believed = check.believes(records, before, now_us)
        places = [one.offset for one in (*records, *before.values()) if one.offset >= 0]
        spread = max(places) - min(places) if places else 0
        in_time = all(one.appended_at_us <= ahead_us for one in records)
        same(believed, in_time and spread <= _FASTEST, "believes", known, records)
        found = check.mended(records, before, now_us, deviations)
        expected, told, ahead = _mended(records, known, now_us)
        same([(one.offset, one.appended_at_us) for one in found], expected, known, records)
        same(deviations, told, "deviations", known, records)
        same(check.ahead, ahead, "ahead", known, records)
        if len(records) == 1:
            fresh = PlausibilityCheck()
            only = fresh.believes_ordered(records[0], records[0], known, now_us)
            if records[0].partition == "p":
                same(only, not told, "ordered", known, records)
        same(check.believes([steps[1]], {}, now_us), not ahead, "afterwards", known, records)
        same(check.believes_ordered(steps[0], steps[0], None, now_us), not ahead, "after", records)
    return cases


def _mended(
    records: tuple[RecordHeader, ...], known: LastRecord | None, now_us: int
) -> tuple[list[tuple[int, int]], dict[str, int], set[str]]:
    last = {} if known is None else {"p": (known.offset, known.appended_at_us)}
    ahead: set[str] = set()
    doubted: dict[str, int] = {}
    told: dict[str, int] = {}
    mended = []
    for one in records:
        name, offset, at_us = one.partition, one.offset, one.appended_at_us
        before = last.get(name)
        if at_us > now_us + 60 * _US:
            told["append-time-ahead"] = told.get("append-time-ahead", 0) + 1
            # Alone it is as late as the one before it; where all are ahead, it is the clock.
            alone = before is not None and name not in ahead
            at_us = min(now_us, before[1]) if alone and before else now_us
            ahead.add(name)
        else:
            ahead.discard(name)
        jumps = False
        if before is not None and before[0] >= 0 and offset >= 0:
            seconds = 1 + max(0, at_us - before[1]) // _US
            goes_on = name in doubted and offset > doubted[name]
            jumps = not goes_on and offset - before[0] > _FASTEST * seconds
        if jumps:
            doubted[name] = offset
            offset = -1
            told["offset-ahead"] = told.get("offset-ahead", 0) + 1
        elif offset >= 0:
            doubted.pop(name, None)
        last[name] = (max(offset, before[0] if before else -1), at_us)
        mended.append((offset, at_us))
    return mended, told, ahead
