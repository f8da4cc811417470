"""What an attempt proves to be absent (A17, A19)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from instep.alignment.absence import (
    MAX_HOLDS,
    EmptyVerdict,
    held_records,
    holds_all,
    is_held,
    judge_empty,
    reread_due,
    unguarded,
    with_holds,
)
from instep.alignment.settings import AlignmentSettings
from instep.model.holds import EmptyReadings, Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import Record, RecordType, Unreadable
from instep.model.streams import Mode, StreamInfo, SweepEstimate

S = 1_000_000
RECORD = UnprovenReason.UNREADABLE_RECORD
ALIGNING = Position(phase=Phase.ALIGNING, attempt=2, lineage=1, offsets={"0": 7})
STREAM = StreamInfo(
    id="s", origin="o", kind="tapi", mode=Mode.BASELINE, readable=frozenset({"NODE", "LINK"})
)


def bad(raw: bytes = b"?", **changes: object) -> Unreadable:
    return replace(Unreadable("s", raw, "odd"), **changes)


def row(offset: int, partition: str = "0", token: str = "t") -> Record:
    return Record("s", "k", RecordType.CREATE_UPDATE, token, 1, partition, offset, "NODE")


def test_a17_a_record_without_a_key_holds_its_partition() -> None:
    [hold] = with_holds(ALIGNING, [bad()]).holds
    assert hold == Hold(RECORD, "", "0", bad().digest, 7, 1)
    two = replace(ALIGNING, offsets={"0": 7, "1": 8})
    [hold] = with_holds(two, [bad(entity_class="NODE")]).holds
    assert (hold.partition, hold.entity_class) == (None, "NODE")


def test_a17_a_record_with_a_key_is_no_hold_where_the_store_marks_keys() -> None:
    assert with_holds(ALIGNING, [bad(key="k")], marks_keys=True).holds == ()
    assert len(with_holds(ALIGNING, [bad(key="k")]).holds) == 1


def test_a17_only_an_open_attempt_is_held() -> None:
    aligned = replace(ALIGNING, phase=Phase.ALIGNED)
    assert with_holds(aligned, [bad()]).holds == ()


def test_a17_the_same_record_in_the_next_attempt_holds_what_is_older() -> None:
    first = with_holds(ALIGNING, [bad(partition="0", offset=9)])
    again = replace(first, holds=(), held_before=first.holds, attempt=3)
    [hold] = with_holds(again, [bad(partition="0", offset=9)]).holds
    assert hold.met_before
    assert is_held([hold], row(9), "NODE", 1)
    assert not is_held([hold], row(10), "NODE", 1)
    assert is_held([hold], row(10), "NODE", 2)
    assert is_held([hold], row(-1, "", ""), "NODE", 1)
    assert not is_held([hold], row(3, "1"), "NODE", 1)
    another_log = replace(again, lineage=2)
    [hold] = with_holds(another_log, [bad(partition="0", offset=9)]).holds
    assert not hold.met_before


def test_a17_many_records_are_one_hold_of_the_stream() -> None:
    position = with_holds(ALIGNING, [bad(b"%d" % n) for n in range(MAX_HOLDS + 1)])
    assert len(position.holds) == 1
    assert holds_all(position.holds)


def test_a17_an_accepted_record_holds_nothing() -> None:
    holds = with_holds(ALIGNING, [bad(b"1"), bad(b"2")]).holds
    assert held_records(holds, frozenset({bad(b"1").digest})) == holds[1:]


def test_a17_what_is_held_does_not_count_for_the_guard() -> None:
    estimate = SweepEstimate(300, 250, {"NODE": (200, 200), "LINK": (100, 50)})
    assert unguarded(estimate, [], None).unmarked == 250
    assert unguarded(estimate, [Hold(RECORD, "NODE")], None).unmarked == 50
    assert unguarded(estimate, [Hold(RECORD)], None).unmarked == 0
    assert unguarded(estimate, [], frozenset({"NODE"})).unmarked == 200


def judged(
    by_class: dict[str, tuple[int, int]],
    now_s: int = 0,
    before: EmptyReadings | None = None,
    *,
    elsewhere_s: int = -1,
    confirmed: bool = False,
) -> EmptyVerdict:
    return judge_empty(
        before or EmptyReadings(),
        SweepEstimate(0, 0, by_class),
        STREAM,
        AlignmentSettings(),
        now_us=now_s * S,
        stated_elsewhere_us=elsewhere_s * S,
        confirmed=confirmed,
    )


def test_a19_none_counts_at_once_where_nothing_is_stored() -> None:
    assert judged({"NODE": (3, 0)}) == EmptyVerdict(EmptyReadings(), (), ())


def test_a19_none_is_no_statement_where_something_is_stored() -> None:
    found = judged({"NODE": (3, 3), "LINK": (2, 0)}, 100)
    assert found.holds == (Hold(UnprovenReason.EMPTY_ANSWER, "NODE"),)
    assert found.readings == EmptyReadings({"NODE": 100 * S}, 1, (105 * S,))


def test_a19_it_is_read_again_with_back_off() -> None:
    readings, waits, now_s = EmptyReadings(), [], 0
    for _ in range(9):
        readings = judged({"NODE": (3, 3)}, now_s, readings).readings
        waits.append(readings.reread_at_us[0] // S - now_s)
        now_s = readings.reread_at_us[0] // S
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(
    ("by_class", "elsewhere_s", "gone"),
    [
        ({"NODE": (3, 3), "LINK": (2, 1)}, -1, True),
        ({"NODE": (3, 3)}, 101, True),
        ({"NODE": (3, 3)}, 99, False),
        ({"NODE": (3, 3), "LINK": (2, 2)}, -1, False),
    ],
)
def test_a19_readings_that_agree_count_where_something_else_was_stated(
    by_class: dict[str, tuple[int, int]], elsewhere_s: int, *, gone: bool
) -> None:
    before = EmptyReadings({"NODE": 100 * S, "LINK": 100 * S}, 3, (129 * S,))
    early = judged(by_class, 129, before, elsewhere_s=elsewhere_s)
    assert not early.gone
    late = judged(by_class, 130, before, elsewhere_s=elsewhere_s)
    assert ("NODE" in late.gone) is gone
    if gone:
        assert late.readings.reread_at_us == (190 * S, 430 * S, 1_930 * S)


def test_a19_an_operator_confirms() -> None:
    assert judged({"NODE": (3, 3)}, 1, confirmed=True).gone == ("NODE",)


def test_a19_it_is_read_again_when_the_stream_is_aligned() -> None:
    empty = EmptyReadings({}, 0, (10 * S, 20 * S))
    aligned = replace(ALIGNING, phase=Phase.ALIGNED, empty=empty)
    assert not reread_due(aligned, 9 * S)
    assert reread_due(aligned, 10 * S)
    assert not reread_due(replace(aligned, phase=Phase.ALIGNING), 10 * S)


def test_a19_a_class_whose_absence_is_stated_is_not_doubted() -> None:
    estimate = SweepEstimate(3, 3, {"NODE": (3, 3), "ODD": (1, 1)})
    found = judge_empty(
        EmptyReadings(),
        estimate,
        replace(STREAM, absence_stated=frozenset({"NODE"})),
        AlignmentSettings(),
        now_us=0,
        stated_elsewhere_us=0,
        confirmed=False,
    )
    assert found.holds == ()
