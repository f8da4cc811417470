"""Seeds that once failed, each with what it found. What a seed draws must not change any more, or
it proves nothing: new faults are drawn after all others.
"""

from __future__ import annotations

import pytest

from tests.simulation.alignment.options import FaultOptions, LogOptions
from tests.simulation.alignment.simulation import simulate

KEPT = {
    288: "the first record after a pause was one that a snapshot had changed",
    413: "the end of a message that came in fragments was taken for the end of a silence",
    537: "the silence of a PAUSED provider that could not be asked was taken for the head",
    599: "the simulation forgot what was dropped before it was read again",
    657: "the pages of a snapshot came more slowly than a silence lasts",
    2193: "the simulation asked for what a snapshot had left out, once the process was restarted",
    2353: "the provider's clock was ahead for a while, and its records looked like the head",
    2672: "a snapshot that showed our last record again was taken for a redelivery",
    3239: "a realignment was forgotten when the provider failed over and back before it was begun",
    4034: "the simulated provider changed the order of its partitions when it was healed",
    4276: "records from before an opening looked newer: the provider's clock was known to a second",
    5776: "a log that had lost records showed it in partitions only that were not received yet",
    5854: "the pages of a snapshot came slowly, and its end was believed after a time",
    6865: "a sweep was released while it was estimated again",
    7704: "records that came once more were taken for a silence, and it for the head of the log",
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


@pytest.mark.parametrize("seed", range(10))
def test_a_half_open_connection_is_not_taken_for_the_head_of_the_log(seed: int) -> None:
    """A peer is known to be dead later than its silence is taken for the end of a reading."""
    log = LogOptions(delivery_records=2, change_every_s=1.5)
    faults = FaultOptions(
        latency_s=0.3, half_open_every_s=8.0, dead_peer_s=20.0, realign_every_s=25.0
    )
    simulate(seed, options=(log, faults))


@pytest.mark.parametrize("seed", [*range(8), 22])
def test_a_snapshot_that_changes_under_way_is_read_to_its_end(seed: int) -> None:
    """Emulated compaction (TR-548 3.19.2): what changes while current state is streamed comes with
    its new time, before older entities, and looks like the head of the log.
    """
    log = LogOptions(storage="emulated", delivery_records=2, change_every_s=1.5)
    faults = FaultOptions(latency_s=0.3, realign_every_s=40.0)
    simulate(seed, options=(log, faults))
