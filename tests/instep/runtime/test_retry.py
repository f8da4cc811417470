"""How connections are spaced (A16)."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from instep import ConsumerSettings, Environment
from instep.runtime.retry import ReconnectPacing

STALLED_AFTER = 3


def pacing(seed: int = 1, **settings: Any) -> ReconnectPacing:
    made = ConsumerSettings(**settings)
    return ReconnectPacing(made, Environment(rng=random.Random(seed)))


def failed(of: ReconnectPacing, times: int = 1) -> list[float]:
    return [of.wait_s(fruitful=False, reopens=False, stalled=False) for _ in range(times)]


@given(st.integers(0, 1_000_000), st.booleans())
def test_a16_at_most_eight_connections_in_the_first_minute_that_come_no_further(
    seed: int, reopens: bool
) -> None:
    """Each reads the same and is closed at once; or every second one is opened again first."""
    now_s, connections, waits = 0.0, 0, pacing(seed)
    while now_s < 60.0:
        connections += 1
        again = reopens and connections % 2 == 0
        stalled = connections > STALLED_AFTER
        now_s += waits.wait_s(fruitful=False, reopens=again, stalled=stalled)
    assert connections <= 8


def test_a16_after_them_a_provider_that_mends_is_met_within_seconds() -> None:
    waits = pacing()
    failed(waits, 100)
    for _ in range(100):
        assert 10 < waits.wait_s(fruitful=False, reopens=False, stalled=True) <= 15


def test_a16_failures_are_spaced_more_and_more_up_to_a_bound() -> None:
    waits = pacing(reconnect_initial_s=1.0, reconnect_max_s=8.0)
    for longest_s, wait_s in zip([1, 2, 4, 8, 8, 8], failed(waits, 6), strict=True):
        assert longest_s / 2 <= wait_s <= longest_s


def test_a16_only_a_fruitful_connection_resets_the_back_off() -> None:
    waits = pacing()
    failed(waits, 5)
    assert waits.wait_s(fruitful=False, reopens=True, stalled=False) == 0
    assert waits.failures == 5
    assert waits.wait_s(fruitful=True, reopens=False, stalled=False) == 0
    assert failed(waits)[0] <= 0.5


def test_a16_to_open_again_costs_no_wait_once() -> None:
    waits = pacing()
    assert waits.wait_s(fruitful=False, reopens=True, stalled=False) == 0
    assert waits.wait_s(fruitful=False, reopens=True, stalled=False) > 0
    assert waits.wait_s(fruitful=True, reopens=True, stalled=False) == 0
    assert waits.wait_s(fruitful=False, reopens=True, stalled=False) > 0


def test_a_consumer_gives_up_after_so_many_failures_in_a_row() -> None:
    waits = pacing(reconnect_attempts=2)
    found = []
    for _ in range(3):
        failed(waits)
        found.append(waits.exhausted)
    assert found == [False, True, True]
    for_ever = pacing()
    failed(for_ever, 100)
    assert not for_ever.exhausted
