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
    9736: "the simulation took an opening for an earlier one in the same second",
    9788: "one delivery stated an entity, its end, and the same statement once more",
}


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_once_failed(seed: int) -> None:
    simulate(seed, as_first=True)


KEPT_FURTHER = {
    7: "the end of one of two statements named an address, and the row had the uuid for its key",
    188: "a baseline stated what is left of two in the row of the other one",
    68: "a statement at another place was taken for a move",
    920: "the simulation took a move for an entity that is gone",
    1582: "a compacted log forgot records before they were read",
    3651: "the same, behind a pause",
    6845: "the simulation missed what a snapshot had left out, because it ended further on",
    9944: "an attempt at the oldest record went on, after the store was away, as one at the newest",
    8804: "an end from before the baseline hid the row from the statement that came with it",
    4977: "a provider went back behind the baseline, and the end that came before came no more",
}


@pytest.mark.parametrize("seed", KEPT_FURTHER)
def test_a_further_seed_that_once_failed(seed: int) -> None:
    simulate(seed, as_second=True)


KEPT_PRESENT = {
    401: "the simulation missed an end of what was made anew, and a baseline had shown already",
    200025: "the simulated provider could not name the end of a snapshot of an empty log",
    200180: "the simulation missed the mark that an unreadable record set",
    310346: "the simulated provider showed a snapshot of a log that was lost, and not filled yet",
    311179: "a log was read again in an attempt, and behind a cut what ends what it stated",
    401803: "truncated past a reader before the first record of a partition: no offset shows it",
    312102: "the simulation took what came after a step of the provider's clock for older",
    6003277: "a snapshot was begun anew on an open connection, while a sweep was under way",
    6003840: "the simulated provider did not declare the retentions of its new log",
    7000086: "one partition began at its oldest record, and another one was taken for begun there",
    7100994: "the simulation took two attempts of one second for one that had not begun",
    7101429: "the simulation missed the end in a batch that went back behind it",
    40005343: "a snapshot was begun anew, and nothing of the first one came again: not promised",
    200625: "a log was found empty, and the next one taken for the one before the empty one",
}


@pytest.mark.parametrize("seed", KEPT_PRESENT)
def test_a_present_seed_that_once_failed(seed: int) -> None:
    simulate(seed, as_third=True)


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


@pytest.mark.parametrize("seed", [1, 4, 5, 10, 13])
def test_a_provider_that_sets_its_clock_back_hides_no_change(seed: int) -> None:
    """What it states then is older, by its time, than the baseline before: after its sweep no time
    is compared, and before it the clock is looked at again (A14).
    """
    log = LogOptions(storage="truncated", entities=8, change_every_s=1.5, duration_s=150.0)
    faults = FaultOptions(refuse_latest_p=1.0, provider_step_every_s=10.0, realign_every_s=20.0)
    simulate(seed, options=(log, faults))


@pytest.mark.parametrize("seed", range(3))
def test_a_baseline_is_dated_as_early_as_the_clock_may_be(seed: int) -> None:
    """Records are read again from the oldest, and compared with it by their times (A14)."""
    log = LogOptions(storage="truncated", entities=6, change_every_s=0.3, duration_s=60.0)
    faults = FaultOptions(latency_s=0.2, refuse_latest_p=1.0, skew=0, realign_every_s=5.0)
    simulate(seed, options=(log, faults))


_SLOW = LogOptions(entities=20, change_every_s=1.5, delivery_records=2, duration_s=120.0)


@pytest.mark.parametrize("seed", [8, 15])
def test_what_is_delivered_again_is_no_silence(seed: int) -> None:
    """After a reconnection: the stream is known to be replaying up to the last record (A5)."""
    faults = FaultOptions(
        latency_s=2.0, rewind_p=1.0, rewind_records=40, cut_every_s=12.0, realign_every_s=40.0
    )
    simulate(seed, options=(_SLOW, faults))


@pytest.mark.parametrize("seed", [0, 1])
def test_what_comes_once_more_is_no_silence(seed: int) -> None:
    """Within a connection."""
    faults = FaultOptions(latency_s=2.0, redeliver_p=0.6, realign_every_s=40.0)
    simulate(seed, options=(_SLOW, faults))


@pytest.mark.parametrize("seed", [33])
def test_a_snapshot_that_begins_with_a_known_record_is_known(seed: int) -> None:
    """It leaves out what has ended, here all that is older than our last record (3.19.2)."""
    log = LogOptions(storage="emulated", entities=5, duration_s=120.0)
    faults = FaultOptions(restart_p=1.0, outage_every_s=20.0, outage_s=20.0, mass_end_every_s=20.0)
    simulate(seed, options=(log, faults))


@pytest.mark.parametrize("latest", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_compacted_log_has_forgotten_is_not_swept(seed: int, latest: bool) -> None:
    """With a finite retention it forgets live entities too (4.3.5, A15)."""
    log = LogOptions(storage="forgetful", retention_s=60.0, change_every_s=6.0, duration_s=300.0)
    faults = FaultOptions(
        latency_s=0.3,
        refuse_latest_p=0.0 if latest else 1.0,
        cut_every_s=30.0,
        outage_every_s=100.0,
        mass_end_every_s=100.0,
        crash_every_s=80.0,
        realign_every_s=60.0,
    )
    simulate(seed, options=(log, faults))


def test_what_ends_while_a_rebuilt_log_is_empty_is_found_by_its_operator() -> None:
    """Behind a baseline, and before the first record: the log states it nowhere."""
    assert simulate(4_700_872, as_third=True).swept > 0


def test_an_old_record_that_comes_again_behind_a_new_baseline_is_no_new_one() -> None:
    """The entity has ended meanwhile, and the record was committed before the attempt (A21)."""
    assert simulate(5_005_154, as_third=True).swept > 0
