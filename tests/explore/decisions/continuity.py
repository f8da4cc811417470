"""What a record shows of the log that it stands in (A2, A18, A21), in every small case.

The references are written from the rules, as sentences about one partition after the other.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from instep.alignment.continuity import (
    Continuity,
    ContinuityCheck,
    at_place_of_another,
    classify,
    ends_before,
    is_gap,
    is_new_log,
    proves_continued,
)
from instep.alignment.gaps import GapDetector, gap_due
from instep.model.position import (
    UNREACHABLE_OFFSET,
    ContinuityState,
    Phase,
    Position,
    SweepBarrier,
    recent_digest,
)
from instep.model.records import RecordHeader, RecordType
from tests.explore.decisions.compare import columns, every, same, sequences

__all__ = ["first_records", "gaps", "later_records", "probes", "returning", "sweeps_of_another_log"]

_OURS: Final = "ours"
"""The token of the last record that was committed."""
_US: Final = 1_000_000


def _record(
    offset: int, at_us: int, token: str = "x", *, ends: bool = False, partition: str = "p"
) -> RecordHeader:
    kind = RecordType.TOMBSTONE if ends else RecordType.CREATE_UPDATE
    return RecordHeader("s", "k", kind, token, at_us, partition=partition, offset=offset)


_RECORDS: Final = [
    _record(offset, at_us, token, ends=ends, partition=partition)
    for offset, at_us, token, ends, partition in product(
        (-1, 4, 5, 6, 7), (8, 9, 10), (_OURS, "before", "x"), (False, True), ("p", "q")
    )
]
_POSITIONS: Final = [
    Position(
        token=_OURS,
        offsets=offsets,
        appended_us=dict.fromkeys(offsets, 9),
        appended_at_us=9,
        unaligned_attempts=unaligned,
        recent=recent_digest("before") + recent_digest(_OURS),
        barrier=barrier,
    )
    for offsets, unaligned, barrier in product(
        ({}, {"p": 5}, {"p": 5, "q": 6}),
        (0, 1),
        (
            SweepBarrier(),
            SweepBarrier("b", 9, {"p": 6}, {"p": 9}),
            SweepBarrier("b", 9, {"q": 5}, {"q": 8}),
            SweepBarrier("b", 0, {"p": UNREACHABLE_OFFSET, "q": UNREACHABLE_OFFSET}),
        ),
    )
]


def _known(record: RecordHeader, position: Position) -> int:
    """The last offset that we know of its partition; -1: none."""
    goal = position.barrier.offsets if position.barrier.token else {}
    known = position.offsets.get(record.partition, goal.get(record.partition, -1))
    return -1 if known == UNREACHABLE_OFFSET else known


def _ends(record: RecordHeader) -> bool:
    return record.kind is RecordType.TOMBSTONE


def _is_ours_again(record: RecordHeader, position: Position) -> bool:
    """Our token, and our record: of our time, or the TOMBSTONE of our DELETE."""
    at_us = position.appended_us.get(record.partition, record.appended_at_us)
    return record.token == _OURS and (_ends(record) or record.appended_at_us == at_us)


def _is_of_new_log(record: RecordHeader, position: Position) -> bool:
    """Appended after all that we know of its partition, and yet no further."""
    known: Position | SweepBarrier = position
    if record.partition not in position.offsets and position.barrier.token:
        known = position.barrier
    if record.offset < 0 or record.partition not in known.offsets:
        return False
    newest_us = known.appended_us.get(record.partition, known.appended_at_us)
    if record.appended_at_us <= newest_us:
        return False
    place = known.offsets[record.partition]
    if record.offset == place and _ends(record) and record.token in ("before", _OURS):
        return False  # a TOMBSTONE at the place of its DELETE
    return record.offset <= place


def _classified(record: RecordHeader, position: Position, *, restart: bool) -> Continuity:
    if _is_ours_again(record, position):
        return Continuity.CONTINUED
    if _is_of_new_log(record, position):
        return Continuity.NEW_LOG
    if record.offset >= 0 and position.offsets:
        in_attempt = position.unaligned_attempts and record.partition not in position.offsets
        next_one = record.offset == _known(record, position) + 1 and not restart
        if in_attempt or next_one:
            return Continuity.CONTINUED
    return Continuity.DOUBTFUL


def first_records() -> int:
    """What the first record of a partition shows."""
    cases = 0
    for record, position in product(_RECORDS, _POSITIONS):
        given = record, position.offsets, position.barrier, position.unaligned_attempts
        same(is_new_log(record, position), _is_of_new_log(record, position), "new log", given)
        same(is_gap(record, position), record.offset > _known(record, position) + 1, "gap", given)
        for restart in (False, True):
            cases += 1
            found = classify(record, position, suggests_restart=restart)
            same(found, _classified(record, position, restart=restart), restart, given)
    return cases


def probes() -> int:
    """What the oldest record of the log proves."""
    cases = 0
    doubtful = _record(6, 10)
    for oldest, position, doubted in product(
        (None, *_RECORDS, _record(0, 9, "y")),
        _POSITIONS,
        (None, doubtful, _record(-1, 9), _record(0, 10)),
    ):
        cases += 1
        if oldest is None or (doubted is not None and _are_one(oldest, doubted)):
            proven = False
        elif oldest.token == _OURS:
            proven = _is_ours_again(oldest, position)
        else:
            newest_us = position.appended_us.get(oldest.partition, 9)
            before = oldest.partition in position.offsets and (
                0 <= oldest.offset < position.offsets[oldest.partition]
            )
            nameless = oldest.offset < 0 and not position.offsets
            proven = oldest.appended_at_us <= newest_us and (before or nameless)
        found = proves_continued(oldest, doubted, position)
        same(found, proven, oldest, doubted, position.offsets, position.appended_us)
    return cases


def _are_one(one: RecordHeader, other: RecordHeader) -> bool:
    if one.offset >= 0 and other.offset >= 0:
        return (one.partition, one.offset) == (other.partition, other.offset)
    return one.token == other.token


def sweeps_of_another_log() -> int:
    """What shows, in an attempt, that the log is another one than that of the store."""
    cases = 0
    goals = [
        SweepBarrier(None, 9, {"p": 6}, {"p": 9}),
        SweepBarrier("b", 9, {}, {}),
        SweepBarrier("b", 9, {"p": 6}, {"p": 9}),
        SweepBarrier("b", 9, {"p": 6}, {}),
        SweepBarrier(_OURS, 9, {"p": 6}, {"p": 9}),
        SweepBarrier("b", 9, {"p": 6, "q": 5}, {"p": 9, "q": 9}),
        SweepBarrier("b", 9, {"p": UNREACHABLE_OFFSET}, {}),
    ]
    for goal, offsets, at_us in product(
        goals, ({}, {"p": 5}, {"p": 6}, {"p": 7}, {"p": 6, "q": 5}, {"q": 9}), (8, 9, 10)
    ):
        cases += 1
        position = Position(offsets=offsets, appended_at_us=at_us)
        if goal.token is None:
            shorter = False
        elif not goal.offsets:
            shorter = at_us < goal.appended_at_us
        else:
            shorter = any(
                place != UNREACHABLE_OFFSET and offsets.get(name, -1) < place
                for name, place in goal.offsets.items()
            )
        same(ends_before(position, goal), shorter, "ends before", goal, offsets, at_us)
    few = [one for one in _RECORDS if one.token != "before" and one.offset in (-1, 5, 6)]
    for goal, one, other in product(goals, few, (None, few[0], few[-1])):
        cases += 1
        records = [one] if other is None else [one, other]
        expected = None
        for record in records if goal.token else ():
            at_goal = 0 <= record.offset == goal.offsets.get(record.partition, -1)
            known_us = goal.appended_us.get(record.partition)
            other_time = known_us is not None and record.appended_at_us != known_us
            other_name = len(goal.offsets) == 1 and record.token != goal.token
            if at_goal and not _ends(record) and (other_time or other_name):
                expected = record
                break
        same(at_place_of_another(records, goal), expected, "another", goal, records)
        in_columns = columns(records)
        if in_columns is not None:
            found = at_place_of_another(in_columns, goal)
            tokens = found and found.token, expected and expected.token
            same(tokens[0], tokens[1], "another, in columns", goal, records)
    same(at_place_of_another([], goals[2]), None, "nothing")
    return cases


def later_records() -> int:
    """The first two records after an opening: what is kept of them, and what they show."""
    cases = 0
    few = [
        _record(offset, at_us, token, partition=partition)
        for offset, at_us, token, partition in (
            (0, 7, "old", "p"),
            (4, 8, "before", "p"),
            (5, 9, _OURS, "p"),
            (5, 10, "x", "p"),
            (6, 10, "x", "p"),
            (7, 10, "y", "p"),
            (3, 8, "z", "q"),
            (6, 9, "w", "q"),
            (7, 10, "v", "q"),
            (-1, 9, "before", ""),
            (-1, 10, "u", ""),
            (-1, 9, _OURS, "p"),
        )
    ] + [_record(5, 9, _OURS, ends=True), _record(6, 10, "e", ends=True)]
    positions = [
        Position(
            token=_OURS,
            offsets=offsets,
            appended_us=dict.fromkeys(offsets, 9),
            appended_at_us=9,
            recent=recent_digest("before") + recent_digest(_OURS),
            unaligned_attempts=unaligned,
            barrier=barrier,
        )
        for offsets, unaligned, barrier in (
            ({}, 0, SweepBarrier()),
            ({"p": 5}, 0, SweepBarrier()),
            ({"p": 5, "q": 6}, 0, SweepBarrier()),
            ({"p": 5}, 1, SweepBarrier("b", 9, {"p": 4, "q": 6}, {"p": 8, "q": 9})),
            ({}, 1, SweepBarrier("b", 9, {"p": 4, "q": 6}, {"p": 8, "q": 9})),
        )
    ]
    for case in every(
        position=positions,
        resumed=(False, True),
        gapless=(False, True),
        snapshot=(False, True),
        restart=(False, True),
        proven=(None, "silent", "doubt"),
        young_us=(None, 8, 9),
        records=list(sequences(few, 2)),
    ):
        cases += 1
        _sift(**case)
    return cases


def _sift(  # noqa: C901 - one row of the table
    *,
    position: Position,
    resumed: bool,
    gapless: bool,
    snapshot: bool,
    restart: bool,
    proven: str | None,
    young_us: int | None,
    records: tuple[RecordHeader, ...],
) -> None:
    check = ContinuityCheck()
    check.opened(
        position, resumed=resumed, gapless=gapless, snapshot=snapshot, suggests_restart=restart
    )
    suspect = _record(5, 10, "x")
    if proven:
        check.prove(suspect, None if proven == "silent" else records[0])
    found = check.sift(records, position, young_us=young_us)

    restart, snapshot, gapless = restart and resumed, snapshot and resumed, gapless and resumed
    goals = position.barrier.offsets if position.barrier.token else {}
    unseen = {*position.offsets, *goals} | ({""} if resumed and not position.offsets else set())
    shown = not resumed or proven is not None
    kept: list[RecordHeader] = []
    finding: object = None
    redelivering: set[str] = set()

    def committed(record: RecordHeader) -> bool:
        if record.offset >= 0 and record.partition in position.offsets:
            return record.offset < position.offsets[record.partition]
        return record.token == "before"

    for record in records:
        partition = record.partition if record.offset >= 0 else ""
        if partition in unseen:
            what = _classified(record, position, restart=restart)
            last = position.offsets.get(record.partition)
            is_last = (
                record.token == _OURS
                if last is None or record.offset < 0
                else (record.offset == last)
            )
            known_us = position.appended_us.get(record.partition, 0)
            tells_gaps = gapless or (resumed and young_us is not None and known_us > young_us)
            if proven == "silent" and _are_one(record, suspect):
                what = Continuity.RESTARTED
            elif snapshot and what is Continuity.CONTINUED and is_last and not _ends(record):
                what = Continuity.DOUBTFUL
            elif (
                tells_gaps
                and what is not Continuity.NEW_LOG
                and record.offset > _known(record, position) + 1
            ):
                what = Continuity.GAP
            elif what is Continuity.DOUBTFUL and (not resumed or proven):
                what = Continuity.REDELIVERED if committed(record) else Continuity.CONTINUED
            if what not in (Continuity.CONTINUED, Continuity.REDELIVERED):
                kept, finding = [], (what, record)
                break
            unseen.discard(partition)
            shown = shown or partition in position.offsets or not position.offsets
            if what is Continuity.REDELIVERED:
                redelivering.add(partition)
                finding = (what, record)
        if partition in redelivering and committed(record):
            continue
        redelivering.discard(partition)
        kept.append(record)
    else:
        gap = gapless and kept and kept[0].offset > _known(kept[0], position) + 1
        if kept and not shown and not gap:
            kept, finding = [], (Continuity.DOUBTFUL, kept[0])
    given = (position.offsets, goals, resumed, gapless, snapshot, restart, proven, young_us)
    same((found[0], found[1] and tuple(found[1])), (kept, finding), given, records)


def returning() -> int:
    """What comes again on a connection that goes on (A21)."""
    cases = 0
    few = [one for one in _RECORDS if one.appended_at_us == 9 and one.partition == "p"]
    for position, one, other in product(_POSITIONS, few, (None, *few[::3])):
        cases += 1
        records = [one] if other is None else [one, other]
        check = ContinuityCheck()
        check.opened(position, resumed=True)
        expected = None
        for record in records:
            last = position.offsets.get(record.partition, -1)
            if record.offset < 0:
                again = record.token == "before"
            elif record.offset == last:
                again = not _ends(record) and record.token not in ("before", _OURS)
            else:
                again = record.offset < last
            if again:
                expected = record
                break
        same(check.came_again(records, position), expected, position.offsets, records)
    return cases


def gaps() -> int:
    """What is missing between records (A18): of each, what came since the one before it in its
    partition.
    """
    cases = 0
    few = [_record(offset, at_us) for offset, at_us in ((6, 8), (6, 10), (7, 10), (9, 10))]
    few += [_record(-1, 10), _record(5, 9, partition="q"), _record(8, 10, partition="q")]
    positions = [
        Position(offsets=offsets, appended_us=dict.fromkeys(offsets, 9))
        for offsets in ({}, {"p": 5}, {"p": 5, "q": 4})
    ]
    for position, young_us, unreadable, both in product(
        positions, (None, 8, 9), (0, 1, 2), sequences(few, 3)
    ):
        cases += 1
        found = GapDetector().missing(both, unreadable, position, young_us=young_us)
        same(
            found.split(":")[0],
            _first_gap(both, unreadable, position, young_us),
            position.offsets,
            young_us,
            unreadable,
            both,
        )
    for count, fruitless, since_s, phase in product(
        (0, 1, 2, 12), (0, 1, 2, 3), (5, 6, 11, 12, 3_599, 3_600), (Phase.ALIGNED, Phase.ALIGNING)
    ):
        cases += 1
        position = Position(
            phase=phase,
            attempt_started_at_us=_US,
            continuity=ContinuityState(gaps=count, fruitless_gaps=fruitless),
        )
        waits_s = 0 if fruitless < 2 else min(3 * 2**count, 3_600)
        due = bool(count and phase is Phase.ALIGNED and since_s >= waits_s)
        found_due = gap_due(position, 3.0, (since_s + 1) * _US)
        same(found_due, due, count, fruitless, since_s, phase)
    return cases


def _first_gap(
    records: tuple[RecordHeader, ...], unreadable: int, position: Position, young_us: int | None
) -> str:
    last = records[-1]
    if last.offset >= 0 and young_us is not None and last.appended_at_us <= young_us:
        # All of it is old: a log that is read from its oldest record.
        return ""
    places = dict(position.offsets)
    times_us = dict(position.appended_us)
    seen: dict[str, int] = {}
    """How many records without offset had come before the last one of each partition."""
    without = 0
    for index, record in enumerate(records):
        name, offset = record.partition, record.offset
        if offset < 0:
            without += 1
            continue
        known = places.get(name)
        if known is not None and offset > known + 1:
            missing = offset - known - 1
            young = young_us is None or times_us.get(name, 0) > young_us
            crossed = without > seen.get(name, 0)
            excused = crossed or missing <= unreadable
            if young and excused and not crossed:
                # A text was one record, and explains one offset once.
                unreadable -= missing
            if young and not excused:
                what = "1 record is" if missing == 1 else f"{missing} records are"
                return f"{what} missing before offset {offset} of partition {name}"
        if known is None or offset > known:
            places[name], times_us[name] = offset, record.appended_at_us
        seen[name] = without
        assert index < len(records)
    return ""
