"""Seeds that once failed, each with what it found."""

from __future__ import annotations

import pytest

from tests.simulation.options import FaultOptions, LogOptions
from tests.simulation.simulation import simulate

KEPT = {
    537: "the silence of a PAUSED provider that could not be asked was taken for the head",
    6865: "a sweep was released while its census was taken again",
}


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_once_failed(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize("seed", [59, 87])
def test_records_after_a_provider_went_back_are_not_taken_for_known(seed: int) -> None:
    """In a log without offsets: a record was stated again, and what follows it then skipped."""
    log = LogOptions(offsets=False, change_every_s=1.5, delivery_records=6, duration_s=200.0)
    faults = FaultOptions(latency_s=0.3, redeliver_p=0.1, crash_every_s=20.0)
    simulate(seed, options=(log, faults))
