"""The position: what it remembers of the last records, and that it survives being stored."""

from __future__ import annotations

import msgspec

from instep import Phase, Position
from instep.model.position import RECENT_RECORDS, SweepBarrier, recent_digest


def test_the_last_records_are_remembered_and_no_more() -> None:
    tokens = [f"token-{number}" for number in range(RECENT_RECORDS + 5)]
    position = Position()
    for start in range(0, len(tokens), 7):
        recent = position.remember(tokens[start : start + 7])
        position = msgspec.structs.replace(position, recent=recent)
    assert [position.recently(token) for token in tokens[:5]] == [False] * 5
    assert all(position.recently(token) for token in tokens[5:])
    assert len(position.recent) == RECENT_RECORDS * 8
    assert position.remember(tokens) == position.recent


def test_a_digest_across_the_border_of_two_is_none() -> None:
    one, other = recent_digest("one"), recent_digest("other")
    position = Position(recent=one[4:] + other + one[:4])
    assert not position.recently("one")
    assert not position.recently("other")
    assert Position(recent=other + one).recently("one")


def test_a_digest_is_the_same_in_every_process_for_it_is_stored() -> None:
    assert recent_digest("token").hex() == "3f01c29a866b9b74"


def test_a_position_survives_being_stored() -> None:
    position = Position(
        token="t",
        offsets={"0": 1},
        appended_us={"0": 5},
        appended_at_us=5,
        phase=Phase.SWEEPING,
        barrier=SweepBarrier("r", 4, {"0": 0}, {"0": 4}),
        recent=recent_digest("t"),
    )
    assert msgspec.json.decode(msgspec.json.encode(position), type=Position) == position


def test_a_position_of_before_append_times_by_partition_can_be_read() -> None:
    stored = b'{"token":"t","offsets":{"0":1},"barrier":{"offsets":{"0":0}}}'
    position = msgspec.json.decode(stored, type=Position)
    assert (position.appended_us, position.barrier.appended_us) == ({}, {})
