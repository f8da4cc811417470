"""When an instance is left and when it is gone back to (TR-548 ST-4.2)."""

from __future__ import annotations

import pytest

from instep.errors import ConfigurationError
from instep_tapi.failover import FailOver, Instances

ABC = ("a", "b", "c")


def at(endpoint: str, endpoints: tuple[str, ...] = ABC, **settings: object) -> Instances:
    """Instances, of which this one is in use since 0 s."""
    instances = Instances(endpoints, FailOver(**settings))  # type: ignore[arg-type]
    assert instances.settled(endpoint, 0.0) is None
    return instances


def order(instances: Instances, now_s: float) -> str:
    tried: list[str] = []
    while (one := instances.next(tried, now_s)) is not None:
        tried.append(one)
    return "".join(tried)


def test_the_first_that_answers_is_used() -> None:
    assert order(Instances((*ABC, "a"), FailOver()), 0.0) == "abc"


def test_it_is_stayed_with_where_a_stream_is_open() -> None:
    instances = at("b")
    instances.opened("b")
    instances.failed("b", 1.0)
    assert order(instances, 1000.0) == "b"


def test_it_is_left_when_nothing_works_for_long_enough() -> None:
    instances = at("b", leave_after_s=5.0)
    instances.failed("b", 1.0)
    assert order(instances, 5.9) == "b"
    assert order(instances, 6.0) == "acb"


def test_round_robin_goes_on_to_the_one_after() -> None:
    instances = at("b", leave_after_s=0.0, policy="round-robin")
    instances.failed("b", 1.0)
    assert order(instances, 1.0) == "cab"
    assert instances.settled("c", 1.0) == "b"
    assert instances.preferred == ()


def test_a_connection_that_held_begins_the_count_anew() -> None:
    instances = at("a", leave_after_s=5.0)
    instances.failed("a", 0.0)
    instances.opened("a")
    instances.closed("a", 1.0, 100.0)
    assert order(instances, 104.0) == "a"
    assert order(instances, 105.0) == "bca"


def test_connections_that_do_not_hold_are_no_reason_to_stay() -> None:
    instances = at("a", leave_after_s=5.0)
    for second in range(6):
        instances.opened("a")
        instances.closed("a", float(second), second + 0.5)
    assert order(instances, 5.6) == "bca"


def test_a_refused_login_is_not_tried_again_soon() -> None:
    instances = at("a", refused_retry_s=300.0)
    assert instances.refused("a", 0.0)
    assert order(instances, 0.0) == "bc"
    assert order(instances, 299.0) == "bc"
    assert order(instances, 300.0) == "a"


def test_where_all_refuse_us_the_caller_is_told() -> None:
    instances = Instances(("a", "b"), FailOver())
    assert instances.refused("a", 0.0)
    assert not instances.refused("b", 0.0)
    assert order(instances, 0.0) == "ab"


def test_a_refused_stream_is_no_refused_login() -> None:
    instances = at("a")
    instances.opened("a")
    assert not instances.refused("a", 0.0)
    assert order(instances, 0.0) == "a"


def back_after_s(instances: Instances, now_s: float) -> float:
    """How long `a` is probed from now on until it is gone back to."""
    start_s = now_s
    while not instances.probed("a", now_s, healthy=True):
        now_s += 10.0
    assert instances.next((), now_s) == "a"
    instances.settled("a", now_s)
    return now_s - start_s


def leave(instances: Instances, now_s: float) -> None:
    instances.failed("a", now_s)
    assert instances.settled("b", now_s) == "a"


def test_the_preferred_is_gone_back_to_after_it_was_healthy_throughout() -> None:
    instances = at("b", fail_back_after_s=60.0)
    assert instances.to_probe(0.0) == ["a"]
    assert not instances.probed("a", 0.0, healthy=True)
    assert not instances.probed("a", 50.0, healthy=False)
    assert back_after_s(instances, 60.0) == 60.0
    assert instances.to_probe(200.0) == []


def test_one_that_comes_and_goes_has_to_be_healthy_ever_longer() -> None:
    instances = at("b", fail_back_after_s=60.0)
    waits = []
    now_s = 0.0
    for _ in range(6):
        waits.append(back_after_s(instances, now_s))
        now_s += waits[-1] + 30.0
        leave(instances, now_s)
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0]


def test_one_that_held_after_its_return_is_trusted_again() -> None:
    instances = at("b", fail_back_after_s=60.0)
    now_s = back_after_s(instances, 0.0)
    leave(instances, now_s + 30.0)
    now_s += 30.0
    now_s += back_after_s(instances, now_s) + 61.0
    leave(instances, now_s)
    assert back_after_s(instances, now_s) == 60.0


def test_where_going_back_fails_nothing_is_left() -> None:
    instances = at("b", fail_back_after_s=0.0)
    assert instances.probed("a", 0.0, healthy=True)
    assert order(instances, 0.0) == "ab"
    assert instances.settled("b", 0.0) is None
    assert order(instances, 0.0) == "b"


@pytest.mark.parametrize(
    ("name", "value"), [("probe_every_s", 0.0), ("leave_after_s", -1.0), ("refused_retry_s", -1.0)]
)
def test_values_that_cannot_work_are_named(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"fail_over.{name}"):
        FailOver(**{name: value}).check("source.fail_over")  # type: ignore[arg-type]
