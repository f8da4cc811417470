"""What is owed for a CHANGE of an entity that is not stored (TR-548 v3.2, 5.2), as a machine."""

from __future__ import annotations

import pytest

from instep.alignment.unknown_entities import (
    MAX_UNKNOWN,
    TRANSITIONS,
    absent_of,
    after_alignment,
    after_opening,
    changes_met,
    realignment_due,
    without_known,
)
from instep.model.position import Phase, Position, UnknownEntity, UnknownState
from instep.model.records import Record, RecordType

S = 1_000_000
ALIGNED = Position(phase=Phase.ALIGNED, attempt=1, attempt_started_at_us=100 * S)


def states(position: Position) -> dict[str, str]:
    return {key: one.state.value for key, one in position.unknown.items()}


def record(
    key: str, kind: RecordType = RecordType.CREATE_UPDATE, token: str = "t", uuid: str = ""
) -> Record:
    return Record("s", key, kind, token, 0, uuid=uuid)


def test_every_state_is_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(UnknownState)
    reached = {to for moves in TRANSITIONS.values() for to in moves.values()}
    assert reached == set(UnknownState)


def test_one_realignment_is_due_for_an_entity_and_no_further_one() -> None:
    met = changes_met(ALIGNED, {"n1": ""})
    assert states(met) == {"n1": "due"}
    assert absent_of(met, ["n1"]) == 0
    assert realignment_due(met, 60, 160 * S)
    sought = Position(phase=Phase.ALIGNING, unknown=after_opening(met.unknown))
    sought = changes_met(sought, {"n1": ""})
    assert states(sought) == {"n1": "sought"}
    assert not realignment_due(sought, 0, 999 * S)
    unknown, absent = after_alignment(sought.unknown)
    assert absent == 1
    over = changes_met(Position(phase=Phase.ALIGNED, unknown=unknown), {"n1": ""})
    assert states(over) == {"n1": "absent"}
    assert absent_of(over, ["n1"]) == 1
    assert not realignment_due(over, 0, 999 * S)


def test_a_realignment_waits_for_its_time_and_for_the_alignment() -> None:
    met = changes_met(ALIGNED, {"n1": ""})
    assert not realignment_due(met, 60, 159 * S)
    aligning = Position(phase=Phase.ALIGNING, unknown=met.unknown)
    assert not realignment_due(aligning, 0, 999 * S)


def test_what_is_met_while_an_attempt_is_open_has_an_attempt_of_its_own() -> None:
    met = changes_met(Position(phase=Phase.ALIGNING), {"n1": ""})
    unknown, absent = after_alignment(met.unknown)
    assert absent == 0
    assert unknown["n1"].state is UnknownState.DUE


@pytest.mark.parametrize(
    ("stated", "left"),
    [
        (record("n1"), {"n2": "due"}),
        (record("n1", RecordType.DELETE), {"n2": "due"}),
        (record("n1", RecordType.CHANGE), {"n1": "due", "n2": "due"}),
        (record("u2", token="", uuid="u2"), {"n1": "due"}),
        (record("u2"), {"n1": "due"}),
    ],
)
def test_what_is_stated_or_ends_is_known(stated: Record, left: dict[str, str]) -> None:
    met = changes_met(ALIGNED, {"n1": "", "n2": "u2"})
    assert states(without_known(met, [stated])) == left


def test_so_many_are_remembered_and_the_others_are_taken_as_absent() -> None:
    full = changes_met(ALIGNED, {f"n{n}": "" for n in range(MAX_UNKNOWN)})
    more = changes_met(full, {"one more": ""})
    assert more.unknown == full.unknown
    assert absent_of(more, ["one more", "n1"]) == 1


def test_an_entry_is_what_it_was_in_a_stored_position() -> None:
    assert UnknownEntity(UnknownState.DUE) == UnknownEntity(UnknownState.DUE, "")
