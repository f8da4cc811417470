"""When an instance is left and when it is gone back to (TR-548 ST-4.2)."""

from __future__ import annotations

import pytest

from instep.errors import ConfigurationError
from instep_tapi.endpoints.failover import EndpointFailover
from instep_tapi.options import FailOver

ABC = ("a", "b", "c")


def at(endpoint: str, endpoints: tuple[str, ...] = ABC, **settings: object) -> EndpointFailover:
    """Instances, of which this one is in use since 0 s."""
    failover = EndpointFailover(endpoints, FailOver(**settings))  # type: ignore[arg-type]
    assert failover.selected(endpoint, 0.0) is None
    return failover


def order(failover: EndpointFailover, now_s: float) -> str:
    tried: list[str] = []
    while (one := failover.next(tried, now_s)) is not None:
        tried.append(one)
    return "".join(tried)


def test_the_first_that_answers_is_used() -> None:
    assert order(EndpointFailover((*ABC, "a"), FailOver()), 0.0) == "abc"


def test_it_is_stayed_with_where_a_stream_is_open() -> None:
    failover = at("b")
    failover.opened("b")
    failover.failed("b", 1.0)
    assert order(failover, 1000.0) == "b"


def test_it_is_left_when_nothing_works_for_long_enough() -> None:
    failover = at("b", leave_after_s=5.0)
    failover.failed("b", 1.0)
    assert order(failover, 5.9) == "b"
    assert order(failover, 6.0) == "acb"


def test_round_robin_goes_on_to_the_one_after() -> None:
    failover = at("b", leave_after_s=0.0, policy="round-robin")
    failover.failed("b", 1.0)
    assert order(failover, 1.0) == "cab"
    assert failover.selected("c", 1.0) == "b"
    assert failover.preferred == ()


def test_a_connection_that_held_begins_the_count_anew() -> None:
    failover = at("a", leave_after_s=5.0)
    failover.failed("a", 0.0)
    failover.opened("a")
    failover.closed("a", 1.0, 100.0)
    assert order(failover, 104.0) == "a"
    assert order(failover, 105.0) == "bca"


def test_connections_that_do_not_hold_are_no_reason_to_stay() -> None:
    failover = at("a", leave_after_s=5.0)
    for second in range(6):
        failover.opened("a")
        failover.closed("a", float(second), second + 0.5)
    assert order(failover, 5.6) == "bca"


def test_a_refused_login_is_not_tried_again_soon() -> None:
    failover = at("a", refused_retry_s=300.0)
    assert failover.refused("a", 0.0)
    assert order(failover, 0.0) == "bc"
    assert order(failover, 299.0) == "bc"
    assert order(failover, 300.0) == "a"


def test_where_all_refuse_us_the_caller_gets_an_error() -> None:
    failover = EndpointFailover(("a", "b"), FailOver())
    assert failover.refused("a", 0.0)
    assert not failover.refused("b", 0.0)
    assert order(failover, 0.0) == "ab"


def test_a_refused_stream_is_no_refused_login() -> None:
    failover = at("a")
    failover.opened("a")
    assert not failover.refused("a", 0.0)
    assert order(failover, 0.0) == "a"


def back_after_s(failover: EndpointFailover, now_s: float) -> float:
    """Return for how long `a` is probed, from now on, until the stream goes back to it."""
    start_s = now_s
    while not failover.probed("a", now_s, healthy=True):
        now_s += 10.0
    assert failover.next((), now_s) == "a"
    failover.selected("a", now_s)
    return now_s - start_s


def leave(failover: EndpointFailover, now_s: float) -> None:
    failover.failed("a", now_s)
    assert failover.selected("b", now_s) == "a"


def test_the_preferred_is_gone_back_to_after_it_was_healthy_throughout() -> None:
    failover = at("b", fail_back_after_s=60.0)
    assert failover.to_probe(0.0) == ["a"]
    assert not failover.probed("a", 0.0, healthy=True)
    assert not failover.probed("a", 50.0, healthy=False)
    assert back_after_s(failover, 60.0) == 60.0
    assert failover.to_probe(200.0) == []


def test_one_that_comes_and_goes_has_to_be_healthy_ever_longer() -> None:
    failover = at("b", fail_back_after_s=60.0)
    waits = []
    now_s = 0.0
    for _ in range(6):
        waits.append(back_after_s(failover, now_s))
        now_s += waits[-1] + 30.0
        leave(failover, now_s)
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0]


def test_one_that_held_after_its_return_is_trusted_again() -> None:
    failover = at("b", fail_back_after_s=60.0)
    now_s = back_after_s(failover, 0.0)
    leave(failover, now_s + 30.0)
    now_s += 30.0
    now_s += back_after_s(failover, now_s) + 61.0
    leave(failover, now_s)
    assert back_after_s(failover, now_s) == 60.0


def test_where_going_back_fails_nothing_is_left() -> None:
    failover = at("b", fail_back_after_s=0.0)
    assert failover.probed("a", 0.0, healthy=True)
    assert order(failover, 0.0) == "ab"
    assert failover.selected("b", 0.0) is None
    assert order(failover, 0.0) == "b"


@pytest.mark.parametrize(
    ("name", "value"), [("probe_every_s", 0.0), ("leave_after_s", -1.0), ("refused_retry_s", -1.0)]
)
def test_values_that_cannot_work_are_named(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"fail_over.{name}"):
        FailOver(**{name: value}).check("source.fail_over")  # type: ignore[arg-type]
