"""When a stream is audited: by the share an hour, and by what the provider keeps."""

from math import inf

import pytest

from instep.alignment.audit_schedule import AuditSchedule


@pytest.mark.parametrize(
    ("share", "retention_s", "every_s"),
    [
        (0.0, 600.0, inf),
        (1.0, None, 3600.0),
        (0.5, None, 7200.0),
        (0.5, inf, 7200.0),
        (0.01, 14_400.0, 7200.0),  # never slower than half the tombstone retention
        (60.0, 14_400.0, 60.0),
    ],
)
def test_the_interval(share: float, retention_s: float | None, every_s: float) -> None:
    assert AuditSchedule(share).every_s(retention_s) == every_s


def test_each_stream_has_its_turn_and_none_is_audited_while_it_is_not_aligned() -> None:
    schedule = AuditSchedule(1.0)
    streams: dict[str, float | None] = {"a": None, "b": 3600.0}
    schedule.follow(streams, 0.0)
    assert schedule.due(["a", "b"], 899.0) is None
    assert schedule.due(["a", "b"], 900.0) == "b"
    assert schedule.due(["a"], 900.0) is None
    schedule.passed("b", 3600.0, 1000.0)
    assert schedule.due(["a", "b"], 1800.0) == "a"
    # The most overdue comes first.
    assert schedule.due(["a", "b"], 3000.0) == "a"
    schedule.put_off("a", None, 3000.0)
    assert schedule.due(["a", "b"], 3000.0) == "b"
    schedule.passed("b", 3600.0, 3000.0)
    assert schedule.due(["a", "b"], 3059.0) is None
    assert schedule.due(["a", "b"], 3060.0) == "a"
    schedule.leave_out("a")
    assert schedule.due(["a", "b"], 1e12) == "b"


def test_a_stream_that_is_left_is_forgotten() -> None:
    schedule = AuditSchedule(1.0)
    schedule.follow({"a": None}, 0.0)
    schedule.passed("a", None, 0.0)
    schedule.follow({}, 10.0)
    schedule.follow({"a": None}, 20.0)
    assert schedule.due(["a"], 1820.0) == "a"


def test_none_is_audited_where_nothing_is_asked_for() -> None:
    schedule = AuditSchedule(0.0)
    schedule.follow({"a": 10.0}, 0.0)
    assert schedule.due(["a"], 1e12) is None
