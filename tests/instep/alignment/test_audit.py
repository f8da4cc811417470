"""When an audit may judge (TR-548 ST-2.3; A12)."""

from __future__ import annotations

import pytest

from instep import Mode, Phase, Position
from instep.alignment.audit import CatchUpDetector, check_auditable, check_standing
from instep.errors import AuditError
from tests.instep.scripted_source_kit import T0_US, info, record

S = 1_000_000


def arriving() -> CatchUpDetector:
    return CatchUpDetector(5.0, 60.0, T0_US)


def at(*, offset: int = -1) -> Position:
    return Position(offsets={"0": offset} if offset >= 0 else {})


def test_an_empty_log_has_arrived_when_it_is_silent() -> None:
    one = arriving()
    assert not one.arrived(T0_US + 4 * S)
    assert one.arrived(T0_US + 5 * S)


def test_a_record_after_the_moment_is_arrival() -> None:
    """A12: the audit has passed the moment at which it compared."""
    one = arriving()
    one.heard([record(7, at_s=-1)], T0_US + S)
    assert not one.arrived(T0_US + S)
    one.heard([record(8, at_s=1)], T0_US + S)
    assert one.arrived(T0_US + S)


def test_the_main_streams_position_must_be_passed_too() -> None:
    one = arriving()
    one.aim(at(offset=9), T0_US)
    one.heard([record(8, at_s=1)], T0_US + S)
    assert not one.arrived(T0_US + S + 59 * S)
    one.heard([record(9, at_s=1)], T0_US + S)
    assert one.arrived(T0_US + S)


def test_what_was_compacted_away_is_waited_for_longer() -> None:
    one = arriving()
    one.aim(at(offset=9), T0_US)
    one.heard([record(8, at_s=1)], T0_US)
    assert not one.arrived(T0_US + 59 * S)
    assert one.arrived(T0_US + 60 * S)


def test_silence_before_the_aim_proves_nothing() -> None:
    one = arriving()
    one.heard([record(9, at_s=-1)], T0_US)
    one.aim(at(offset=9), T0_US + 100 * S)
    assert not one.arrived(T0_US + 104 * S)
    assert one.arrived(T0_US + 105 * S)


def test_a_silence_that_the_provider_explains_proves_nothing() -> None:
    one = arriving()
    one.silence_from(T0_US + 100 * S)
    assert not one.arrived(T0_US + 104 * S)


def test_every_partition_must_have_arrived() -> None:
    """A12: one that is still behind may bring a change."""
    one = arriving()
    one.aim(Position(offsets={"0": 3, "1": 3}), T0_US)
    one.heard([record(3, at_s=1)], T0_US)
    assert not one.arrived(T0_US + 59 * S)


def test_a_reading_that_begins_after_a_position_has_passed_it() -> None:
    one = CatchUpDetector(5.0, 60.0, T0_US, at(offset=9))
    one.aim(at(offset=9), T0_US)
    assert not one.arrived(T0_US + 4 * S)
    assert one.arrived(T0_US + 5 * S)


def test_a_moment_to_come_is_waited_for() -> None:
    one = arriving()
    one.aim(at(offset=9), T0_US + 5 * S)
    one.heard([record(9, at_s=4)], T0_US + 4 * S)
    one.silence_from(T0_US + 4 * S)
    assert not one.arrived(T0_US + 9 * S)
    assert one.arrived(T0_US + 10 * S)
    one.heard([record(10, at_s=6)], T0_US + 6 * S)
    assert one.arrived(T0_US + 6 * S)


def test_a_stream_that_nothing_can_be_held_against_is_refused() -> None:
    for good in (
        info(),
        info(partial_updates=True),
        info(mode=Mode.BASELINE, readable=frozenset({"NODE"})),
    ):
        check_auditable(good)
    with pytest.raises(AuditError, match="no GET shows any of its classes"):
        check_auditable(info(mode=Mode.BASELINE))


def test_a_session_is_refused() -> None:
    session = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}), resumable=False)
    with pytest.raises(AuditError, match="a second session"):
        check_auditable(session)


def test_an_alignment_voids_an_audit() -> None:
    good = Position(phase=Phase.ALIGNED, origin="a/1", attempt=2)
    held = Position(phase=Phase.SWEEP_HELD, origin="a/1", attempt=2)
    check_standing(info(), good, None)
    check_standing(info(), held, good)
    for bad, why in (
        (Position(phase=Phase.ALIGNING, origin="a/1", attempt=2), "aligning"),
        (Position(phase=Phase.ALIGNED, origin="b/1", attempt=2), "another log"),
        (Position(phase=Phase.ALIGNED, origin="a/1", attempt=3), "meanwhile"),
    ):
        with pytest.raises(AuditError, match=why) as caught:
            check_standing(info(), bad, good)
        assert caught.value.retriable
