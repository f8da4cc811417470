"""What may be spent on judging: a share of what the process takes."""

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


def test_a_share_of_the_processor_is_there_and_what_is_spent_is_taken_off() -> None:
    times, budget = made()
    times.processor, times.clock = 10.0, 2_000.0
    assert budget.left_s() == pytest.approx(0.075)
    budget.spend(0.12)
    assert budget.left_s() == pytest.approx(-0.045)
    times.processor = 16.0
    assert budget.left_s() == pytest.approx(0.0)


def test_what_the_process_took_before_counts() -> None:
    budget = JudgingBudget(lambda: 2.0, lambda: 0.0, most_s=1.0)
    assert budget.left_s() == pytest.approx(0.015)


def test_time_that_passes_alone_gives_nothing() -> None:
    times, budget = made()
    times.clock = 1e9
    assert budget.left_s() == 0


def test_what_is_saved_up_is_bounded() -> None:
    times, budget = made(most_s=0.5)
    times.processor = 1e9
    assert budget.left_s() == 0.5


def test_what_is_wanted_is_not_there_before_it_is_said() -> None:
    times, budget = made()
    budget.spend(0.01)
    wait_s = budget.wait_s(0.005)
    # As fast as it can be: four processors are busy.
    times.clock, times.processor = wait_s, 4 * wait_s
    assert budget.left_s() == pytest.approx(0.005)
    assert budget.wait_s(0.005) == pytest.approx(0.0, abs=1e-9)
