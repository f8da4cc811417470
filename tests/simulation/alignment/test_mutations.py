"""Each deliberate mistake is found, and within how many seeds."""

from __future__ import annotations

import pytest

from tests.simulation.alignment.mutations import (
    CAUGHT_BY_A_TEST,
    MUTATIONS,
    applied,
    seeds_until_caught,
)

_MOST_SEEDS = 200


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_can_still_be_made(name: str) -> None:
    with applied(name):
        pass


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_found(name: str) -> None:
    seeds = seeds_until_caught(name, _MOST_SEEDS)
    assert seeds is not None, f"{name}: not found within {_MOST_SEEDS} seeds"
    print(f"{name}: found within {seeds} seeds")


@pytest.mark.parametrize("name", CAUGHT_BY_A_TEST)
def test_a_mistake_is_found_by_its_test(name: str) -> None:
    _, test = CAUGHT_BY_A_TEST[name]
    test()
    with applied(name), pytest.raises(AssertionError):
        test()
