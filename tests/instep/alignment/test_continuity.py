"""What the first record after a connect proves about the log, case by case (A2)."""

from __future__ import annotations

import msgspec
import pytest

from instep import Position, RecordType
from instep.alignment.continuity import Continuity, ContinuityCheck, classify
from instep.model.position import UNREACHABLE_OFFSET, SweepBarrier
from tests.instep.scripted_source_kit import record

COMMITTED = [record(offset) for offset in range(3, 9)]


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


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(
    ("offset", "has_older_entity", "arrival"),
    [
        (9, None, Continuity.CONTINUED),
        (90, None, Continuity.CONTINUED),
        (8, None, Continuity.CONTINUED),  # The TOMBSTONE that shares the place of the last DELETE.
        (6, None, Continuity.UNDECIDED),
        (6, True, Continuity.REDELIVERED),
        (6, False, Continuity.RESTARTED),
        (1, None, Continuity.RESTARTED),
        (1, True, Continuity.RESTARTED),
    ],
)
def test_a_first_record(
    offsets: bool, offset: int, has_older_entity: bool | None, arrival: Continuity
) -> None:
    first = record(offset)
    if not offsets:
        first = msgspec.structs.replace(first, offset=-1, partition="")
    assert classify(first, after(offsets=offsets), has_older_entity=has_older_entity) is arrival


@pytest.mark.parametrize("offset", [0, 7, 8])
def test_a_newer_record_at_an_older_place_is_of_a_new_log(offset: int) -> None:
    first = msgspec.structs.replace(record(offset, at_s=100), token=f"other-{offset}")
    assert classify(first, after()) is Continuity.NEW_LOG


def test_a_partition_that_had_nothing_yet_proves_nothing() -> None:
    first = msgspec.structs.replace(record(0, at_s=100), partition="1")
    assert classify(first, after()) is Continuity.CONTINUED


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
    oldest, newer = record(0), msgspec.structs.replace(record(0, at_s=100), token="other-0")
    assert classify(oldest, position) is Continuity.CONTINUED
    assert classify(newer, position) is Continuity.NEW_LOG
    foreign = msgspec.structs.replace(position, barrier=SweepBarrier(None, 0, {"0": 1 << 62}))
    assert classify(newer, foreign) is Continuity.CONTINUED


def sift(arrivals: ContinuityCheck, *offsets: int) -> list[int]:
    kept, _ = arrivals.sift([record(offset) for offset in offsets], after())
    return [one.offset for one in kept]


def test_what_is_delivered_again_is_dropped_up_to_the_last_committed() -> None:
    arrivals = ContinuityCheck()
    arrivals.opened(after(), resumed=True, gapless=False)
    assert arrivals.sift([record(5)], after()) == ([], (Continuity.UNDECIDED, record(5)))
    arrivals.probe_answered("0", has_older_entity=True)
    assert (sift(arrivals, 5, 6), arrivals.settled) == ([], False)
    assert (sift(arrivals, 7, 8, 9, 10), arrivals.settled) == ([8, 9, 10], True)
    assert sift(arrivals, 11) == [11]


def test_3_19_2_a_snapshot_that_begins_with_a_known_record_is_no_redelivery() -> None:
    """It leaves out what has ended, and with it the record that was committed last."""
    for snapshot in (False, True):
        arrivals = ContinuityCheck()
        arrivals.opened(after(), resumed=True, gapless=False, snapshot=snapshot)
        arrivals.probe_answered("0", has_older_entity=True)
        assert sift(arrivals, 5) == []
        kept, found = arrivals.sift([record(6), record(9)], after())
        if snapshot:
            assert (kept, found) == ([], (Continuity.RESTARTED, record(9)))
        else:
            assert (kept, found) == ([record(9)], None)
    arrivals = ContinuityCheck()
    arrivals.opened(after(), resumed=True, gapless=False, snapshot=True)
    arrivals.probe_answered("0", has_older_entity=True)
    assert sift(arrivals, 5, 6, 6, 7, 8, 9) == [8, 9]


@pytest.mark.parametrize("partitions", [1, 2])
def test_3_19_2_a_snapshot_that_shows_our_last_record_leaves_others_out(partitions: int) -> None:
    """An entity may have ended between them, and after our last record as well."""
    position = after()
    if partitions == 2:
        position = msgspec.structs.replace(position, offsets={"0": 8, "1": 4})
    arrivals = ContinuityCheck()
    arrivals.opened(position, resumed=True, gapless=False, snapshot=True)
    arrivals.probe_answered("0", has_older_entity=True)
    kept, found = arrivals.sift([record(5), record(6), record(8), record(9)], position)
    assert (kept, found) == ([], (Continuity.RESTARTED, record(8)))


def test_3_19_2_a_snapshot_may_begin_with_the_record_that_was_committed_last() -> None:
    """All that was older has ended or was stated again; what has ended is left out."""
    for snapshot in (False, True):
        arrivals = ContinuityCheck()
        arrivals.opened(after(), resumed=True, gapless=False, snapshot=snapshot)
        if snapshot:
            assert arrivals.sift([record(8), record(12)], after()) == (
                [],
                (Continuity.RESTARTED, record(8)),
            )
        else:
            assert sift(arrivals, 8, 12) == [8, 12]
    # A snapshot shows no end: this one is the TOMBSTONE that shares the place of the last DELETE.
    arrivals = ContinuityCheck()
    arrivals.opened(after(), resumed=True, gapless=False, snapshot=True)
    tombstone = msgspec.structs.replace(record(8), kind=RecordType.TOMBSTONE, ends=True)
    assert arrivals.sift([tombstone], after()) == ([tombstone], None)


def test_evidence_is_of_one_connection() -> None:
    arrivals = ContinuityCheck()
    arrivals.opened(after(), resumed=True, gapless=False)
    arrivals.probe_answered("0", has_older_entity=True)
    arrivals.opened(after(), resumed=True, gapless=False)
    assert arrivals.sift([record(5)], after())[1] == (Continuity.UNDECIDED, record(5))


def test_no_record_is_used_after_a_restart() -> None:
    arrivals = ContinuityCheck()
    arrivals.opened(after(), resumed=True, gapless=False)
    assert arrivals.sift([record(0), record(20)], after()) == (
        [],
        (Continuity.RESTARTED, record(0)),
    )


def test_a_first_alignment_has_nothing_to_compare() -> None:
    arrivals = ContinuityCheck()
    arrivals.opened(Position(attempt=1), resumed=False, gapless=False)
    assert arrivals.settled


def test_each_partition_of_a_gapless_log_must_go_on_where_it_stood() -> None:
    position = msgspec.structs.replace(after(), offsets={"0": 8, "1": 3})
    first, behind = record(9), msgspec.structs.replace(record(5, at_s=50), partition="1")
    for gapless in (True, False):
        arrivals = ContinuityCheck()
        arrivals.opened(position, resumed=True, gapless=gapless)
        assert arrivals.sift([first], position) == ([first], None)
        found = ([], (Continuity.GAP, behind)) if gapless else ([behind], None)
        assert arrivals.sift([behind], position) == found


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
