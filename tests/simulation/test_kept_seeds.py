"""Seeds that once failed, each with what it found."""

from __future__ import annotations

import pytest

from tests.simulation.simulation import simulate

KEPT = {
    537: "the silence of a PAUSED provider that could not be asked was taken for the head",
}


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_once_failed(seed: int) -> None:
    simulate(seed)
