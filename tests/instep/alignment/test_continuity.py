"""What the first record after a connect proves about the log, case by case (A2), and a record that
comes again on a connection (A21).
"""

from __future__ import annotations

import msgspec
import pytest

from instep import Position, RecordType
from instep.alignment.continuity import (
    Continuity,
    ContinuityCheck,
    classify,
    proves_continued,
)
from instep.model.position import UNREACHABLE_OFFSET, SweepBarrier
from instep.model.records import Record, RecordHeader
from tests.instep.scripted_source_kit import record

COMMITTED = [record(offset) for offset in range(3, 9)]
YOUNG = 0
NEVER = 1 << 62


def after(*, offsets: bool = True) -> Position:
    """The position after records 3 to 8."""
    last = COMMITTED[-1]
    return Position(
        token=last.token,
        offsets={"0": last.offset} if offsets else {},
        appended_us={"0" if offsets else "": last.appended_at_us},
        appended_at_us=last.appended_at_us,
        attempt=1,
        lineage=1,
        recent=Position().remember([one.token for one in COMMITTED]),
    )


def bare(one: Record) -> Record:
    """The record in a log without offsets."""
    return msgspec.structs.replace(one, offset=-1, partition="")


@pytest.mark.parametrize(
    ("offset", "with_offsets", "without"),
    [
        (9, Continuity.CONTINUED, Continuity.DOUBTFUL),  # right behind ours
        (10, Continuity.DOUBTFUL, Continuity.DOUBTFUL),  # compacted between, or rebuilt
        (8, Continuity.CONTINUED, Continuity.CONTINUED),  # our own token
        (6, Continuity.DOUBTFUL, Continuity.DOUBTFUL),  # redelivered, or the oldest
        (1, Continuity.DOUBTFUL, Continuity.DOUBTFUL),
    ],
)
def test_a2_a_first_record(offset: int, with_offsets: Continuity, without: Continuity) -> None:
    assert classify(record(offset), after()) is with_offsets
    assert classify(bare(record(offset)), after(offsets=False)) is without


def test_a2_after_signs_of_a_restart_the_next_offset_proves_nothing() -> None:
    assert classify(record(9), after(), suggests_restart=True) is Continuity.DOUBTFUL
    assert classify(record(8), after(), suggests_restart=True) is Continuity.CONTINUED


@pytest.mark.parametrize("offsets", [True, False])
def test_a2_our_token_on_another_record_proves_nothing(offsets: bool) -> None:
    """Its token is made of its place, and another log has another record there."""
    other = record(8, at_s=100)
    first = other if offsets else bare(other)
    found = Continuity.NEW_LOG if offsets else Continuity.DOUBTFUL
    assert (
        classify(msgspec.structs.replace(first, token="token-8"), after(offsets=offsets)) is found
    )


@pytest.mark.parametrize("offset", [0, 7, 8])
def test_a_newer_record_at_an_older_place_is_of_a_new_log(offset: int) -> None:
    first = msgspec.structs.replace(record(offset, at_s=100), token=f"other-{offset}")
    assert classify(first, after()) is Continuity.NEW_LOG


def test_a_partition_that_had_nothing_yet_goes_on_at_its_very_first_record() -> None:
    first = msgspec.structs.replace(record(0, at_s=100), partition="1")
    assert classify(first, after()) is Continuity.CONTINUED
    later = msgspec.structs.replace(record(4, at_s=100), partition="1")
    assert classify(later, after()) is Continuity.DOUBTFUL
    # In an attempt that was interrupted, its reading has not begun.
    attempt = msgspec.structs.replace(after(), unaligned_attempts=1)
    assert classify(later, attempt) is Continuity.CONTINUED


def test_a2_a_partition_that_nothing_is_known_of_proves_nothing() -> None:
    """In an attempt that was interrupted the log may be another one, whose first record it is."""
    position = msgspec.structs.replace(after(), unaligned_attempts=1)
    of_another = msgspec.structs.replace(record(4, at_s=100), partition="1")
    check = ContinuityCheck()
    check.opened(position, resumed=True)
    kept, found = check.sift([of_another], position, young_us=None)
    assert (kept, found) == ([], (Continuity.DOUBTFUL, of_another))
    assert check.unproven
    # Behind a record of a partition that proves it, or behind a probe, there is no doubt.
    ours = record(9)
    assert check.sift([of_another, ours], position, young_us=None) == ([of_another, ours], None)
    check.opened(position, resumed=True)
    check.prove(record(4), of_another)
    assert check.sift([of_another], position, young_us=None) == ([of_another], None)


def test_a_record_of_another_partition_does_not_hide_a_new_log() -> None:
    """Partition 1 of the rebuilt log was committed before partition 0 was received."""
    position = after()
    newer_us = record(0, at_s=100).appended_at_us
    position = msgspec.structs.replace(
        position,
        token="other",
        appended_at_us=newer_us,
        offsets=position.offsets | {"1": 0},
        appended_us=position.appended_us | {"1": newer_us},
    )
    first = msgspec.structs.replace(record(0, at_s=100), token="other-0")
    assert classify(first, position) is Continuity.NEW_LOG


def test_what_was_committed_before_an_attempt_detects_a_new_log_too() -> None:
    before = after()
    position = Position(
        attempt=2,
        lineage=1,
        barrier=SweepBarrier(
            before.token, before.appended_at_us, before.offsets, before.appended_us
        ),
    )
    newer = msgspec.structs.replace(record(0, at_s=100), token="other-0")
    assert classify(newer, position) is Continuity.NEW_LOG
    foreign = msgspec.structs.replace(position, barrier=SweepBarrier(None, 0, {"0": 1 << 62}))
    for at, first in ((position, record(0)), (foreign, newer)):
        check = ContinuityCheck()
        check.opened(at, resumed=False)
        assert check.sift([first], at, young_us=NEVER) == ([first], None)


@pytest.mark.parametrize(
    ("oldest", "doubtful", "proves"),
    [
        (record(8), record(12), True),  # ours
        (record(4), record(12), True),  # before ours
        (record(4), None, True),  # the stream is silent
        (record(8, at_s=100), None, False),  # our token, another record
        (record(4, at_s=100), record(12), False),  # at an older place, appended later
        (record(10), record(12), False),  # later than ours
        (record(12), record(12), False),  # the doubtful one itself
        (record(6), record(6), False),
        (record(4), record(6), True),  # redelivered
        (None, record(12), False),
        (None, None, False),
    ],
)
def test_a2_what_a_probe_proves(
    oldest: Record | None, doubtful: Record | None, proves: bool
) -> None:
    assert proves_continued(oldest, doubtful, after()) is proves
    if proves or oldest is None:
        first, second = (one and bare(one) for one in (oldest, doubtful))
        assert proves_continued(first, second, after(offsets=False)) is proves


def test_a2_a_probe_of_a_partition_that_we_never_read_proves_nothing() -> None:
    foreign = msgspec.structs.replace(record(1), partition="7")
    assert not proves_continued(foreign, None, after())


def sift(
    check: ContinuityCheck, *offsets: int, position: Position | None = None
) -> tuple[list[int], Continuity | None]:
    records = [record(offset) for offset in offsets]
    kept, found = check.sift(records, position or after(), young_us=NEVER)
    return [one.offset for one in kept], found and found.continuity


def opened(position: Position | None = None, **how: bool) -> ContinuityCheck:
    check = ContinuityCheck()
    check.opened(position or after(), resumed=True, **how)
    return check


def test_what_is_delivered_again_is_dropped_up_to_the_last_committed() -> None:
    check = opened()
    assert sift(check, 5) == ([], Continuity.DOUBTFUL)
    check.prove(record(3), record(5))
    assert (sift(check, 5, 6), check.settled) == (([], Continuity.REDELIVERED), False)
    assert (sift(check, 7, 8, 9, 10), check.settled) == (([8, 9, 10], None), True)
    assert sift(check, 11) == ([11], None)


def test_a2_one_probe_is_about_the_whole_stream() -> None:
    position = msgspec.structs.replace(after(), offsets={"0": 8, "1": 3})
    check = opened(position)
    assert sift(check, 12, position=position) == ([], Continuity.DOUBTFUL)
    check.prove(record(3), record(12))
    assert sift(check, 12, position=position) == ([12], None)
    other = msgspec.structs.replace(record(20), partition="1")
    assert check.sift([other], position, young_us=NEVER) == ([other], None)
    assert check.settled


def test_a2_the_record_of_the_probe_of_a_silent_stream_shows_a_restart_when_it_comes() -> None:
    check = opened()
    check.prove(record(4), None)
    assert sift(check, 4, 9) == ([], Continuity.RESTARTED)
    check = opened()
    check.prove(record(4), None)
    assert sift(check, 12) == ([12], None)


def test_3_19_2_a_snapshot_that_begins_with_our_last_record_is_in_doubt() -> None:
    """All that was older has ended or was stated again; what has ended is left out."""
    assert sift(opened(snapshot=True), 8, 12) == ([], Continuity.DOUBTFUL)
    assert sift(opened(), 8, 12) == ([8, 12], None)
    # A snapshot shows no end: this one is the TOMBSTONE that shares the place of the last DELETE.
    tombstone = msgspec.structs.replace(record(8), kind=RecordType.TOMBSTONE, ends=True)
    kept, found = opened(snapshot=True).sift([tombstone], after(), young_us=NEVER)
    assert (kept, found) == ([tombstone], None)


def test_evidence_is_of_one_connection() -> None:
    check = opened()
    check.prove(record(3), record(5))
    check.opened(after(), resumed=True)
    assert sift(check, 5) == ([], Continuity.DOUBTFUL)


def test_no_record_is_used_while_one_is_in_doubt() -> None:
    assert sift(opened(), 0, 20) == ([], Continuity.DOUBTFUL)


def test_a_first_alignment_has_nothing_to_compare() -> None:
    check = ContinuityCheck()
    check.opened(Position(attempt=1), resumed=False)
    assert check.settled


def test_a18_each_partition_of_a_gapless_log_must_go_on_where_it_stood() -> None:
    position = msgspec.structs.replace(after(), offsets={"0": 8, "1": 3})
    first, behind = record(9), msgspec.structs.replace(record(5, at_s=50), partition="1")
    for gapless, found in ((True, Continuity.GAP), (False, Continuity.DOUBTFUL)):
        check = opened(position, gapless=gapless)
        assert check.sift([first], position, young_us=None) == ([first], None)
        kept, finding = check.sift([behind], position, young_us=None)
        assert (kept, finding) == ([], (found, behind))


def test_a18_above_the_compaction_delay_a_compacted_log_has_no_gap_either() -> None:
    young, old = after().appended_at_us - 1, after().appended_at_us
    for young_us, found in ((young, Continuity.GAP), (old, Continuity.DOUBTFUL)):
        kept, finding = opened().sift([record(12)], after(), young_us=young_us)
        assert (kept, finding) == ([], (found, record(12)))


@pytest.mark.parametrize(
    ("known_before", "first", "has_gap"),
    [
        ({}, 0, False),  # The very first of its partition.
        ({}, 1, True),
        ({"1": 4}, 5, False),
        ({"1": 4}, 6, True),  # Shown by the baseline, or lost since: undecidable.
        ({"1": UNREACHABLE_OFFSET}, 1, True),  # Known of another log.
    ],
)
def test_a_partition_not_received_in_the_attempt_must_begin_where_nothing_can_be_missing(
    known_before: dict[str, int], first: int, has_gap: bool
) -> None:
    new_log = UNREACHABLE_OFFSET in known_before.values()
    barrier = SweepBarrier(None if new_log else "t", offsets=known_before)
    position = msgspec.structs.replace(after(), barrier=barrier)
    new = msgspec.structs.replace(record(first, at_s=50), partition="1")
    stand = position.offsets | {"1": first}
    arrivals = ContinuityCheck()
    arrivals.opened(position, resumed=True, gapless=True)
    assert arrivals.has_gap([record(9), new], position, stand) is has_gap
    for resumed, gapless in ((False, True), (True, False)):
        arrivals.opened(position, resumed=resumed, gapless=gapless)
        assert not arrivals.has_gap([record(9), new], position, stand)


def came_again(*records: RecordHeader, position: Position | None = None) -> RecordHeader | None:
    check = ContinuityCheck()
    check.opened(position or after(), resumed=False)
    return check.came_again(records, position or after())


def test_a21_a_record_says_itself_that_it_was_there_before() -> None:
    assert came_again(record(9), record(11)) is None
    assert came_again(record(8), record(9)) is None, "our last one, sent twice"
    assert came_again(record(9), record(5)) == record(5)
    late = msgspec.structs.replace(record(2), token="never seen")
    assert came_again(late) == late
    bares = after(offsets=False)
    assert came_again(bare(record(9)), position=bares) is None
    assert came_again(bare(record(8)), position=bares) is None
    assert came_again(bare(record(5)), position=bares) == bare(record(5))


def test_a21_a_time_that_goes_back_says_nothing() -> None:
    assert came_again(record(9, at_s=-500)) is None
    assert came_again(bare(record(9, at_s=-500)), position=after(offsets=False)) is None


@pytest.mark.parametrize("offsets", [True, False])
def test_a21_what_a_probe_has_shown_holds_until_the_partition_goes_on(offsets: bool) -> None:
    given = (lambda one: one) if offsets else bare
    check, position = ContinuityCheck(), after(offsets=offsets)
    check.opened(Position(), resumed=False)
    again = [given(record(offset)) for offset in (5, 6)]
    assert check.came_again(again, position) == again[0]
    check.prove(given(record(3)), again[0])
    assert check.came_again(again, position) is None
    assert check.came_again([given(record(7)), given(record(9))], position) is None
    assert check.came_again(again, position) == again[0]
