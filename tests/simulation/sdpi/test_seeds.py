"""Seeds of the reports of a BICEPS provider: never wrong, and equal in the end."""

from __future__ import annotations

import pytest

from instep_sdpi.containment import Containment
from instep_sdpi.wire.entities import descriptor_key
from tests.simulation.sdpi.simulation import simulate_sdpi
from tests.simulation.seeds import run_sdpi

SEEDS = 40
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_seeds(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulate_sdpi(seed)


def test_a_seed_makes_the_same_story_each_time() -> None:
    assert simulate_sdpi(3).rpartition(",")[0] == simulate_sdpi(3).rpartition(",")[0]


def test_states_that_outlive_their_descriptor_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Containment, "within", lambda _, handle: [descriptor_key(handle)])
    found = next(filter(None, map(run_sdpi, range(40))), "")
    assert "was confirmed" in found
    assert "python -m tests.simulation --sdpi-seed" in found
