"""What may be spent on judging: a share of what the process takes, and of the time that passes."""

from __future__ import annotations

import pytest

from instep.conformance import JudgingBudget


class Times:
    """Times that are set."""

    def __init__(self) -> None:
        self.processor = self.clock = 0.0


def made(most_s: float = 1.0) -> tuple[Times, JudgingBudget]:
    times = Times()
    budget = JudgingBudget(lambda: times.processor, lambda: times.clock, most_s=most_s)
    return times, budget


def test_nothing_is_there_before_anything_was_done() -> None:
    _, budget = made()
    assert budget.left_s() == 0


def test_both_shares_are_added_and_what_is_spent_is_taken_off() -> None:
    times, budget = made()
    times.processor, times.clock = 10.0, 20.0
    assert budget.left_s() == pytest.approx(0.165)
    budget.spend(0.24)
    assert budget.left_s() == pytest.approx(-0.075)
    times.clock = 57.5
    assert budget.left_s() == pytest.approx(0.0)


def test_what_is_saved_up_is_bounded() -> None:
    times, budget = made(most_s=0.5)
    times.clock = 1e9
    assert budget.left_s() == 0.5


def test_what_is_wanted_is_not_there_before_it_is_said() -> None:
    times, budget = made()
    budget.spend(0.01)
    wait_s = budget.wait_s(0.005)
    # As fast as it can be: four processors are busy.
    times.clock, times.processor = wait_s, 4 * wait_s
    assert budget.left_s() == pytest.approx(0.005)
    assert budget.wait_s(0.005) == pytest.approx(0.0, abs=1e-9)
