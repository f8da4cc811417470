"""That a stream was continued is proven, or in doubt until a probe shows it (A2); gaps (A18), empty
logs (A19) and the order on one connection (A21): the real core against a model of a log.
"""

from __future__ import annotations

import msgspec
import pytest

from instep import Phase, Position, RecordType
from instep.alignment.effects import NoticeKind, ProbeOldest, Reopen
from instep.alignment.machine import Alignment
from instep.model.batches import CommitResult
from instep.model.position import ContinuityState, decode_position
from instep.model.records import RecordChunk
from instep.model.streams import Start
from tests.instep.alignment.driver_kit import KEYS, Driver, aligned
from tests.instep.alignment.model_log_kit import COMPACTION_DELAY_S, US
from tests.instep.scripted_source_kit import T0_US, record
from tests.prices.continuity import (
    Cuts,
    busy_cuts,
    cleaned_tail_cuts,
    idle_streams,
    idle_truncated_cuts,
    sparse_storm,
    truncated,
)

MINUTE_US = 60 * US


def rebuilt(driver: Driver, *, ahead: int, gone: int = 3) -> None:
    """The log is lost with the connection, and `gone` entities end; the new one counts on from
    `ahead` offsets behind the last one.
    """
    following = [at + ahead for at in driver.log._next]
    driver.close()
    for key in KEYS[:gone]:
        del driver.log.alive[key]
    driver.log.now_us += MINUTE_US
    driver.log.lose(elsewhere=False, begins_at=following)


def test_a_position_that_was_stored_before_opens() -> None:
    stored = b'{"token":"t","offsets":{"0":3},"phase":"aligned","attempt":2,"lineage":1}'
    assert decode_position(stored).continuity == ContinuityState()


# -- a log that was lost and rebuilt ---------------------------------------------------------------


@pytest.mark.parametrize(("offsets", "ahead"), [(True, 10), (True, 1), (False, 0)])
def test_a2_a_log_that_was_rebuilt_beyond_ours_is_no_continuation(
    offsets: bool, ahead: int
) -> None:
    driver = aligned(offsets=offsets)
    driver.wait(COMPACTION_DELAY_S + 60)
    rebuilt(driver, ahead=ahead)
    driver.open()
    assert driver.converges()
    assert sorted(driver.swept) == KEYS[:3]
    assert driver.probes == 1


def test_a2_right_behind_ours_it_is_found_where_something_suggests_a_restart() -> None:
    driver = aligned()
    rebuilt(driver, ahead=0)
    driver.core.restart_suggested()
    driver.open()
    assert driver.converges()
    assert sorted(driver.swept) == KEYS[:3]


def test_a2_an_empty_log_is_found_by_its_silence() -> None:
    driver = aligned()
    rebuilt(driver, ahead=0, gone=6)
    driver.log.entries.clear()
    driver.log.alive.clear()
    driver.run(300.0)
    assert driver.probes == 1
    assert driver.reached(Phase.SWEEP_HELD), "no stream of the provider has anything"
    assert driver.swept == []


def test_a19_an_empty_log_removes_standing_alarms_where_others_have_content() -> None:
    driver = aligned(keys=KEYS[:2])
    driver.close()
    driver.log.lose(elsewhere=False)
    driver.log.entries.clear()
    driver.log.alive.clear()
    driver.run(300.0)
    assert driver.reached(Phase.SWEEP_HELD)
    driver.others_stated = True
    driver.run(60.0)
    assert driver.reached(Phase.ALIGNED)
    assert sorted(driver.swept) == ["anchor-0", *KEYS[:2]]


def test_a19_a_log_that_is_filled_late_loses_nothing() -> None:
    driver = aligned()
    driver.close()
    driver.log.lose(elsewhere=False)
    filled, driver.log.entries = driver.log.entries, []
    driver.run(600.0)
    assert driver.reached(Phase.SWEEP_HELD)
    driver.log.entries = filled
    assert driver.converges()
    assert driver.swept == []


# -- what a probe costs, and when there is none ----------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_a2_1_000_cuts_of_a_busy_log_within_the_compaction_delay_cost_no_probe(
    partitions: int,
) -> None:
    assert busy_cuts(partitions) == Cuts(1_000, probes=0, most_at_once=0, attempts=1, equal=True)


def test_a2_1_000_cuts_with_a_cleaned_tail_cost_at_most_one_probe_each() -> None:
    assert cleaned_tail_cuts() == Cuts(1_000, 1_000, most_at_once=1, attempts=1, equal=True)


def test_a2_a_second_doubt_within_a_minute_opens_an_attempt() -> None:
    driver = aligned()
    for attempt, later_s in ((1, 61), (1, 61), (2, 1)):
        driver.close()
        driver.log.now_us += later_s * US
        driver.open(rewind=3)
        driver.deliver()
        if driver.feed is None:
            driver.open()
        assert driver.converges()
        assert driver.store.position.attempt == attempt
    assert driver.swept == []


def test_a2_a_second_connection_that_is_refused_is_asked_for_once() -> None:
    driver = aligned()
    driver.one_connection = True
    for _ in range(5):
        driver.be_away(120.0)
        driver.open(rewind=3)
        assert driver.converges()
        driver.crash()
        driver.open()
        assert driver.converges()
    assert driver.probes == 1
    assert driver.store.position.continuity.second_connection_refused
    assert driver.deviations["second-connection-refused"] == 1
    assert driver.swept == []


def test_a2_a_first_connection_that_a_second_one_closes_is_remembered() -> None:
    driver = aligned()
    driver.be_away(120.0)
    driver.open(rewind=3)
    driver.deliver()
    assert driver.probes == 1
    driver.core.second_connection_refused()
    driver.close()
    for _ in range(3):
        driver.be_away(120.0)
        driver.open(rewind=3)
        assert driver.converges()
    assert driver.probes == 1
    assert driver.deviations["second-connection-refused"] == 1


def test_a2_an_emulated_log_is_not_probed() -> None:
    driver = aligned()
    driver.emulated = True
    driver.be_away(60.0)
    driver.open(rewind=3)
    assert driver.converges()
    assert (driver.probes, driver.store.position.attempt) == (0, 2)


def test_a2_while_it_is_in_doubt_the_phase_says_so_and_is_durable() -> None:
    driver = aligned()
    driver.be_away(60.0)
    driver.open(rewind=3)
    chunk = driver.read()
    assert chunk is not None
    batch = driver.core.receive(chunk, driver.log.now_us)
    assert batch is not None
    assert (len(batch.records), batch.position.phase) == (0, Phase.CONFIRMING)
    driver.commit(batch)
    assert driver.core.status().phase is Phase.CONFIRMING
    assert [e for e in driver.core.effects() if isinstance(e, ProbeOldest)] == [ProbeOldest("0")]
    driver.crash()
    assert driver.core.status().phase is Phase.CONFIRMING
    driver.log.put("key-0")
    driver.open()
    driver.deliver()
    assert driver.reached(Phase.ALIGNED)
    assert driver.store.position.attempt == 1


def test_a2_an_attempt_that_was_in_doubt_goes_on_as_an_attempt() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver(3)
    driver.close()
    driver.open(rewind=2)
    driver.deliver(1)
    assert driver.probes == 1
    assert driver.reached(Phase.ALIGNING)
    assert driver.converges()
    assert driver.store.position.attempt == 2


def test_a2_a_log_that_does_not_reach_back_is_opened_again() -> None:
    """What came is not its oldest record either: it was cleaned between the two openings."""
    driver = aligned()
    driver.wait(COMPACTION_DELAY_S + 60)
    rebuilt(driver, ahead=10)
    driver.open()
    chunk = driver.read()
    assert chunk is not None
    del driver.log.entries[0], driver.log.alive["anchor-0"]
    driver.handle(chunk)
    assert driver.feed is None, "it is not taken over"
    assert driver.converges()


def test_a2_a_silent_stream_whose_record_comes_after_all_was_restarted() -> None:
    driver = aligned()
    driver.close()
    driver.open(restart=True)
    assert driver.feed is not None
    cursor, driver.feed.cursor = driver.feed.cursor, [10**6]  # The provider is slow.
    driver.wait_silently(60.0)
    assert driver.probes == 1
    assert driver.reached(Phase.ALIGNED)
    driver.feed.cursor = cursor
    driver.deliver()
    assert driver.converges()
    assert driver.store.position.attempt == 2


def test_a2_1_000_idle_streams_settle_within_60_s_of_a_restart_of_the_provider() -> None:
    """Each asks for one record; none is read again."""
    found = idle_streams()
    assert (found.probes, found.attempts) == (1_000, 0)
    assert found.settled_s < 60


# -- truncated logs --------------------------------------------------------------------------------


@pytest.mark.parametrize("by_bytes", [True, False])
def test_a2_an_idle_truncated_stream_that_is_cut_reads_no_baseline(by_bytes: bool) -> None:
    assert idle_truncated_cuts(by_bytes=by_bytes) == (0, 0)
    assert idle_truncated_cuts(by_bytes=by_bytes, ever=False) == (0, 0)


def test_a2_a_consumer_that_starts_knows_nothing_of_a_silent_log() -> None:
    """The provider may have been restarted meanwhile, and have lost an empty log."""
    stream, read = truncated()
    never_read = msgspec.structs.replace(
        read, token=None, offsets={}, appended_us={}, appended_at_us=0
    )
    core = Alignment(stream, never_read)
    assert core.start(T0_US + 4 * US) is Start.LATEST
    core.opened(T0_US + 4 * US)
    assert core.position.attempt == read.attempt + 1


def deliver(core: Alignment, *offsets: int, at_s: int) -> Position:
    now_us = T0_US + at_s * US
    batch = core.receive(RecordChunk([record(one) for one in offsets]), now_us)
    assert batch is not None
    core.committed(batch, CommitResult())
    return batch.position


def test_a18_a_gap_on_a_connection_calls_for_a_baseline_and_outlives_a_crash() -> None:
    stream, position = truncated()
    core = Alignment(stream, position)
    core.start(T0_US)
    core.opened(T0_US)
    assert deliver(core, 4, 5, at_s=9).continuity.gaps == 0
    stored = deliver(core, 6, 32, at_s=40)
    assert stored.offsets == {"0": 32}
    reason = "25 records are missing before offset 32 of partition 0: the last one was 6"
    assert Reopen(reason) in core.effects()
    core = Alignment(stream, decode_position(msgspec.json.encode(stored)))
    core.start(T0_US + 41 * US)
    core.opened(T0_US + 41 * US)
    assert core.tick(T0_US + 42 * US) is None
    assert [type(effect) for effect in core.effects()] == [Reopen]
    core.closed()
    assert core.start(T0_US + 43 * US) is Start.LATEST
    core.opened(T0_US + 43 * US)
    assert core.position.continuity == msgspec.structs.replace(
        core.position.continuity, gaps=0, called_by_gap=True
    )


def test_a18_sparse_offsets_cost_at_most_3_baselines_in_an_hour_of_storm() -> None:
    baselines, told = sparse_storm()
    assert told == 1
    assert baselines <= 3


# -- the order on one connection -------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [True, False])
def test_a21_a_clock_that_is_set_back_drops_nothing(offsets: bool) -> None:
    driver = aligned(offsets=offsets)
    driver.log.now_us -= 4 * US
    driver.log.end("key-0", RecordType.DELETE, RecordType.TOMBSTONE)
    driver.log.put("key-1")
    driver.log.put("key-2")
    driver.log.put("key-2")
    driver.deliver()
    driver.log.put("key-1")
    driver.deliver()
    assert driver.store.bodies == driver.log.bodies
    assert driver.probes == 0


@pytest.mark.parametrize("offsets", [True, False])
def test_a21_a_stream_that_is_restarted_without_closing_is_found(offsets: bool) -> None:
    driver = aligned(offsets=offsets)
    driver.close()
    driver.log.put("key-5")
    driver.open()
    driver.deliver()
    assert driver.feed is not None
    driver.wait(COMPACTION_DELAY_S + 60)
    del driver.log.alive["key-3"]
    driver.log.entries = [one for one in driver.log.entries if one.key != "key-3"]
    driver.feed.cursor = [-1]
    driver.feed.opened_seq = 10**6
    driver.deliver()
    assert driver.converges()
    assert driver.swept == ["key-3"]
    assert driver.store.position.attempt == 2


def test_a21_what_is_delivered_again_on_a_connection_opens_no_attempt() -> None:
    driver = aligned()
    driver.log.put("key-0")
    driver.deliver()
    assert driver.feed is not None
    driver.feed.cursor = [4]
    driver.feed.opened_seq = 10**6
    driver.deliver(2)
    driver.deliver()
    driver.log.put("key-1")
    driver.deliver()
    assert driver.store.bodies == driver.log.bodies
    assert (driver.probes, driver.store.position.attempt) == (1, 1)
    assert driver.count_notices(NoticeKind.CONFIRMING) == 1
