"""Seeds that once failed, each with what it found."""

from __future__ import annotations

import pytest

from tests.simulation.simulation import simulate

KEPT = {
    143: "closing a store that is failing",
    193: "a realignment asked for while the store could not be asked was forgotten",
    1795: "what ended while a provider was down and has left its truncated log",
    1833: "a snapshot that does not show that it is one",
}


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_once_failed(seed: int):
    simulate(seed)
