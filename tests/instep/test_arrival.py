"""What a first record tells, case by case (A2)."""

from __future__ import annotations

import msgspec
import pytest

from instep import Position
from instep.arrival import Arrival, Arrivals, classify
from instep.position import UNREACHABLE_OFFSET, Reference
from tests.instep.scripted import record

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
    ("offset", "holds_before", "arrival"),
    [
        (9, None, Arrival.CONTINUED),
        (90, None, Arrival.CONTINUED),
        (8, None, Arrival.CONTINUED),  # The TOMBSTONE that shares the place of the last DELETE.
        (6, None, Arrival.UNDECIDED),
        (6, True, Arrival.REWOUND),
        (6, False, Arrival.RESTARTED),
        (1, None, Arrival.RESTARTED),
        (1, True, Arrival.RESTARTED),
    ],
)
def test_a_first_record(
    offsets: bool, offset: int, holds_before: bool | None, arrival: Arrival
) -> None:
    first = record(offset)
    if not offsets:
        first = msgspec.structs.replace(first, offset=-1, partition="")
    assert classify(first, after(offsets=offsets), holds_before=holds_before) is arrival


@pytest.mark.parametrize("offset", [0, 7, 8])
def test_a_newer_record_at_an_older_place_is_of_another_log(offset: int) -> None:
    first = msgspec.structs.replace(record(offset, at_s=100), token=f"other-{offset}")
    assert classify(first, after()) is Arrival.ANOTHER_LOG


def test_a_partition_that_had_nothing_yet_tells_nothing() -> None:
    first = msgspec.structs.replace(record(0, at_s=100), partition="1")
    assert classify(first, after()) is Arrival.CONTINUED


def test_a_record_of_another_partition_does_not_hide_another_log() -> None:
    """Partition 1 of the rebuilt log was committed before partition 0 was heard."""
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
    assert classify(first, position) is Arrival.ANOTHER_LOG


def test_what_was_committed_before_an_attempt_tells_another_log_too() -> None:
    before = after()
    position = Position(
        attempt=2,
        lineage=1,
        reference=Reference(
            before.token, before.appended_at_us, before.offsets, before.appended_us
        ),
    )
    oldest, newer = record(0), msgspec.structs.replace(record(0, at_s=100), token="other-0")
    assert classify(oldest, position) is Arrival.CONTINUED
    assert classify(newer, position) is Arrival.ANOTHER_LOG
    foreign = msgspec.structs.replace(position, reference=Reference(None, 0, {"0": 1 << 62}))
    assert classify(newer, foreign) is Arrival.CONTINUED


def sift(arrivals: Arrivals, *offsets: int) -> list[int]:
    kept, _ = arrivals.sift([record(offset) for offset in offsets], after())
    return [one.offset for one in kept]


def test_what_is_delivered_again_is_dropped_up_to_the_last_committed() -> None:
    arrivals = Arrivals()
    arrivals.opened(after(), resumed=True, gapless=False)
    assert arrivals.sift([record(5)], after()) == ([], (Arrival.UNDECIDED, record(5)))
    arrivals.evidence("0", holds_before=True)
    assert (sift(arrivals, 5, 6), arrivals.settled) == ([], False)
    assert (sift(arrivals, 7, 8, 9, 10), arrivals.settled) == ([8, 9, 10], True)
    assert sift(arrivals, 11) == [11]


def test_evidence_is_of_one_connection() -> None:
    arrivals = Arrivals()
    arrivals.opened(after(), resumed=True, gapless=False)
    arrivals.evidence("0", holds_before=True)
    arrivals.opened(after(), resumed=True, gapless=False)
    assert arrivals.sift([record(5)], after())[1] == (Arrival.UNDECIDED, record(5))


def test_no_record_is_used_after_a_restart() -> None:
    arrivals = Arrivals()
    arrivals.opened(after(), resumed=True, gapless=False)
    assert arrivals.sift([record(0), record(20)], after()) == ([], (Arrival.RESTARTED, record(0)))


def test_a_first_alignment_has_nothing_to_tell() -> None:
    arrivals = Arrivals()
    arrivals.opened(Position(attempt=1), resumed=False, gapless=False)
    assert arrivals.settled


def test_each_partition_of_a_gapless_log_must_go_on_where_it_stood() -> None:
    position = msgspec.structs.replace(after(), offsets={"0": 8, "1": 3})
    first, behind = record(9), msgspec.structs.replace(record(5, at_s=50), partition="1")
    for gapless in (True, False):
        arrivals = Arrivals()
        arrivals.opened(position, resumed=True, gapless=gapless)
        assert arrivals.sift([first], position) == ([first], None)
        found = ([], (Arrival.HOLE, behind)) if gapless else ([behind], None)
        assert arrivals.sift([behind], position) == found


@pytest.mark.parametrize(
    ("known_before", "first", "hole"),
    [
        ({}, 0, False),  # The very first of its partition.
        ({}, 1, True),
        ({"1": 4}, 5, False),
        ({"1": 4}, 6, True),  # Shown by the baseline, or lost since: who can say?
        ({"1": UNREACHABLE_OFFSET}, 1, True),  # Known of another log.
    ],
)
def test_a_partition_unheard_in_the_attempt_must_begin_where_nothing_can_be_missing(
    known_before: dict[str, int], first: int, hole: bool
) -> None:
    another_log = UNREACHABLE_OFFSET in known_before.values()
    reference = Reference(None if another_log else "t", offsets=known_before)
    position = msgspec.structs.replace(after(), reference=reference)
    new = msgspec.structs.replace(record(first, at_s=50), partition="1")
    stand = position.offsets | {"1": first}
    arrivals = Arrivals()
    arrivals.opened(position, resumed=True, gapless=True)
    assert arrivals.hole([record(9), new], position, stand) is hole
    for resumed, gapless in ((False, True), (True, False)):
        arrivals.opened(position, resumed=resumed, gapless=gapless)
        assert not arrivals.hole([record(9), new], position, stand)
