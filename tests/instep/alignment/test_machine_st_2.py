"""TR-548 use cases ST-2.1 (a client aligns) and ST-2.2 (a client realigns), step by step."""

from __future__ import annotations

from instep import Phase, RecordType
from instep.alignment.effects import EstimateSweep, NoticeKind
from instep.model import Start
from instep.model.records import RecordChunk
from tests.instep.alignment.driver_kit import KEYS, Driver, aligned
from tests.instep.alignment.model_log_kit import T0_US, TOMBSTONE_RETENTION_S, US, ModelLog


def test_st_2_1_step_1_the_attempt_counter_begins_at_1_and_its_time_is_kept() -> None:
    driver = Driver(ModelLog())
    driver.log.now_us += 5 * US
    driver.open()
    assert driver.starts == [Start.OLDEST]
    assert driver.core.position.attempt == 1
    assert driver.core.position.attempt_started_at_us == T0_US + 5 * US


def test_st_2_1_step_3_what_is_stated_is_stored_and_marked_and_what_ends_is_gone() -> None:
    driver = Driver(ModelLog())
    driver.log.put("key-0")
    driver.log.put("key-1")
    driver.log.end("key-1", RecordType.DELETE, RecordType.TOMBSTONE)
    driver.log.put("key-2")
    driver.log.end("key-2", RecordType.TOMBSTONE)
    driver.open()
    driver.deliver()
    assert driver.store.bodies == driver.log.bodies
    assert {stored.attempt for stored in driver.store.entities.values()} == {1}


def test_st_2_1_step_5_token_and_append_time_are_recorded_with_each_batch() -> None:
    driver = Driver(ModelLog())
    driver.open()
    for key in KEYS:
        driver.log.now_us += US
        driver.log.put(key)
        chunk = driver.read()
        assert chunk is not None
        driver.handle(chunk)
        last = chunk.records[-1]
        position = driver.store.position
        assert (position.token, position.appended_at_us) == (last.token, last.appended_at_us)
        assert position.offsets == {"0": last.offset}


def test_st_2_2_step_2_a_provider_driven_resync_is_asked_with_the_token() -> None:
    driver = aligned()
    token = driver.store.position.token
    driver.close()
    assert driver.core.start(driver.log.now_us) == token


def test_st_2_2_step_2_a_client_driven_resync_gives_no_token() -> None:
    driver = aligned()
    driver.core.realign("the operator asks for it")
    driver.carry_out()
    assert driver.feed is None
    assert driver.core.start(driver.log.now_us) is Start.OLDEST


def test_st_2_2_step_2_a_wish_is_kept_until_the_attempt_is_durable() -> None:
    driver = aligned()
    driver.core.realign("the operator asks for it")
    driver.carry_out()
    driver.open()
    driver.close()
    assert driver.core.position == driver.store.position
    driver.open()
    assert driver.starts[-2:] == [Start.OLDEST, Start.OLDEST]
    driver.deliver()
    driver.close()
    driver.open()
    assert driver.starts[-1] == driver.store.position.token


def test_st_2_2_step_4_the_attempt_is_counted_and_refers_to_what_was_committed() -> None:
    driver = aligned()
    before = driver.store.position
    driver.attempt()
    driver.deliver(1)
    position = driver.store.position
    assert position.attempt == before.attempt + 1
    assert position.attempt_started_at_us == driver.log.now_us
    assert position.barrier.token == before.token
    assert position.barrier.appended_at_us == before.appended_at_us
    assert position.barrier.offsets == before.offsets


def test_st_2_2_step_5_older_records_are_ignored_the_same_and_newer_ones_are_marked() -> None:
    driver = aligned()
    driver.log.put("key-0")  # Appended twice; the older one comes first again.
    driver.deliver()
    driver.attempt()
    driver.deliver(2)
    stored = driver.store.entities
    assert stored["anchor-0"].attempt == 2
    assert stored["key-0"].attempt == 1
    driver.deliver()
    assert stored["key-0"].attempt == 2
    assert driver.store.bodies == driver.log.bodies


def test_st_2_2_step_6_further_records_follow_while_the_attempt_is_open() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver(1)
    driver.log.put("key-9")
    driver.deliver()
    driver.deliver()
    assert driver.reached(Phase.ALIGNING)
    assert "key-9" in driver.store.entities


def test_st_2_2_step_7_what_the_attempt_did_not_mark_is_swept() -> None:
    driver = aligned()
    driver.log.end("key-0", RecordType.TOMBSTONE)
    driver.be_away(2 * TOMBSTONE_RETENTION_S)
    assert driver.converges()
    assert driver.swept == ["key-0"]


def test_st_2_2_step_7_the_sweep_is_estimated_once_an_attempt() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver()
    for seconds in (3600, 3601):
        driver.core.tick(driver.log.now_us + seconds * US)
    assert [e for e in driver.core.effects() if isinstance(e, EstimateSweep)] == [EstimateSweep(2)]


def test_st_2_2_step_8_once_the_sweep_is_complete_the_stream_is_aligned() -> None:
    driver = aligned()
    driver.attempt()
    driver.settle()
    assert driver.reached(Phase.ALIGNED)
    assert driver.count_notices(NoticeKind.ALIGNED) == 2


def test_a7_an_interrupted_attempt_goes_on_after_its_own_token() -> None:
    for ends in (Driver.close, Driver.crash):
        driver = aligned()
        driver.attempt()
        driver.deliver(3)
        marks = {key: stored.attempt for key, stored in driver.store.entities.items()}
        ends(driver)
        driver.open()
        assert driver.starts[-1] == driver.store.position.token
        assert driver.core.position.attempt == 2
        assert {k: s.attempt for k, s in driver.store.entities.items()} == marks
        assert driver.converges()
        assert driver.store.position.attempt == 2


def test_a7_an_interrupted_attempt_of_a_late_reader_is_not_begun_again() -> None:
    """Old records do not prove how long the reader was away: the attempt's start does."""
    driver = aligned()
    driver.be_away(2 * TOMBSTONE_RETENTION_S)
    driver.open()
    driver.deliver(2)
    driver.be_away(60.0)
    driver.open()
    assert driver.starts[-1] == driver.store.position.token
    assert driver.converges()
    assert driver.store.position.attempt == 2


def test_a7_an_attempt_started_anew_keeps_the_goal_of_every_partition() -> None:
    driver = aligned(2)
    goal = driver.store.position.offsets
    driver.attempt()
    driver.deliver(1_000, prefer=0)  # One partition whole, the other has not begun.
    assert driver.store.position.offsets.keys() == {"0"}
    driver.log.put("key-0")
    driver.deliver(1)
    driver.core.realign("again")
    driver.carry_out()
    driver.open()
    assert driver.core.position.barrier.offsets.keys() == goal.keys()
    assert driver.converges()
    assert driver.swept == []


def test_a_batch_that_was_never_committed_is_no_progress() -> None:
    """What was read and lost with the connection must not bring the sweep nearer."""
    driver = aligned()
    driver.attempt()
    driver.deliver(1)
    driver.log.now_us += US
    driver.log.put("key-9")
    replayed, live = driver.read(), driver.read()
    assert replayed is not None
    assert live is not None
    lost = RecordChunk([*replayed.records, *live.records])
    assert driver.core.receive(lost, driver.log.now_us) is not None
    driver.close()
    driver.open()
    driver.tick()
    assert driver.decided(Phase.ALIGNING)
    assert driver.converges()
    assert driver.swept == []
