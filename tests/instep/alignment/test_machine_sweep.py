"""Rules A5 and A6 of the alignment: when the sweep comes, and when it is held."""

from __future__ import annotations

from instep import Phase, RecordType
from instep.alignment.effects import NoticeKind
from instep.model.records import RecordChunk, Unreadable
from instep.model.streams import StreamState, SweepEstimate
from tests.instep.alignment.driver_kit import KEYS, SETTINGS, TICK_S, Driver, aligned
from tests.instep.alignment.model_log_kit import (
    COMPACTION_DELAY_S,
    TOMBSTONE_RETENTION_S,
    US,
    ModelLog,
)


def test_a5_a_record_past_the_attempt_and_younger_than_the_delay_makes_the_sweep_due() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver()
    assert driver.decided(Phase.ALIGNING)
    driver.log.now_us += US
    driver.log.put("key-0")
    driver.deliver()
    assert driver.decided(Phase.SWEEPING)


def test_a5_a_record_past_the_compaction_delay_does_not() -> None:
    driver = aligned()
    driver.attempt()
    driver.log.now_us += US
    driver.log.put("key-0")
    driver.log.now_us += int(COMPACTION_DELAY_S * US)
    driver.deliver()
    assert driver.decided(Phase.ALIGNING)


def test_a5_a_quiet_network_comes_to_its_sweep() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver()
    driver.wait(SETTINGS.quiet_s - TICK_S)
    assert driver.decided(Phase.ALIGNING)
    driver.wait(10 * TICK_S)
    assert driver.reached(Phase.ALIGNED)


def test_a5_an_empty_log_comes_to_its_sweep() -> None:
    driver = Driver(ModelLog(anchored=False))
    assert driver.converges()
    driver.log.put("key-0")
    assert driver.converges()
    driver.log.end("key-0", RecordType.TOMBSTONE)
    driver.be_away(2 * TOMBSTONE_RETENTION_S)
    assert driver.log.entries == []
    assert driver.converges()
    assert driver.swept == ["key-0"]


def test_a5_an_announced_silence_proves_nothing() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver(2)
    driver.log.state = StreamState.PAUSED
    driver.wait(3600.0)
    assert driver.reached(Phase.ALIGNING)
    assert driver.converges()
    assert driver.swept == []


def test_a5_a_partition_that_still_replays_holds_the_sweep_back() -> None:
    driver = aligned(2)
    driver.attempt()
    for _ in range(3):  # One partition is fed for long, the other has not begun.
        driver.log.now_us += int(SETTINGS.unreached_quiet_s * US)
        driver.deliver(1, prefer=0)
        driver.tick()
        assert driver.decided(Phase.ALIGNING)
    assert driver.converges()
    assert driver.swept == []


def test_a5_what_is_delivered_again_after_a_reconnection_breaks_the_silence() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver(8)
    driver.close()
    driver.open(rewind=5)
    for _ in range(3):  # Each comes after a long time, but nothing says that it was a silence.
        driver.log.now_us += int(SETTINGS.unreached_quiet_s * US)
        driver.deliver(1)
        driver.tick()
        assert driver.decided(Phase.ALIGNING)
    assert driver.converges()
    assert driver.swept == []


def test_a5_what_cannot_be_read_breaks_the_silence() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver(8)
    for _ in range(3):  # Each comes after a long time, but nothing says that it was a silence.
        driver.log.now_us += int(SETTINGS.unreached_quiet_s * US)
        driver.handle(RecordChunk([], [Unreadable(driver.log.info.id, b"{", "no JSON")]))
        driver.tick()
        assert driver.decided(Phase.ALIGNING)


def test_a5_records_go_on_being_applied_while_the_sweep_runs() -> None:
    driver = aligned()
    for key in KEYS[:3]:
        driver.log.end(key, RecordType.TOMBSTONE)
    driver.deliver(0)
    driver.be_away(2 * TOMBSTONE_RETENTION_S)
    driver.open()
    driver.deliver()
    driver.log.now_us += US
    driver.log.put("key-7")
    driver.deliver()
    assert driver.decided(Phase.SWEEPING)
    driver.log.put("key-8")
    driver.deliver()
    assert driver.reached(Phase.SWEEPING)
    assert "key-8" in driver.store.entities
    assert driver.converges()


def test_a6_a_sweep_of_too_much_is_held_until_it_is_released() -> None:
    driver = aligned()
    driver.close()
    for key in KEYS[:5]:
        driver.log.end(key, RecordType.TOMBSTONE)
    driver.log.now_us += int(2 * TOMBSTONE_RETENTION_S * US)
    driver.log.compact()
    driver.open()
    driver.deliver()
    driver.wait(3600.0)
    assert driver.reached(Phase.SWEEP_HELD)
    assert driver.count_notices(NoticeKind.SWEEP_HELD) == 1
    held = driver.last_notice(NoticeKind.SWEEP_HELD)
    assert f"attempt {driver.core.durable.attempt} would remove 5 of " in held
    assert "`instep audit`" in held
    status = driver.core.status()
    assert (status.phase, status.sweep_held) == (Phase.SWEEP_HELD, True)
    assert status.attempt == driver.core.durable.attempt
    assert driver.swept == []
    driver.log.put("key-5")
    driver.deliver()
    driver.crash()
    driver.open()
    assert driver.decided(Phase.SWEEP_HELD)
    driver.core.release_sweep()
    assert driver.core.status().phase is Phase.SWEEP_HELD, "durable, until a batch carries it"
    assert not driver.core.status().sweep_held
    driver.wait(3600.0)
    assert driver.reached(Phase.ALIGNED)
    assert sorted(driver.swept) == KEYS[:5]
    attempt = driver.core.durable.attempt
    assert driver.last_notice(NoticeKind.ALIGNED) == (
        f"aligned by attempt {attempt}; its sweep removed 5 entities"
    )
    driver.attempt()
    driver.deliver()
    driver.wait(3600.0)
    assert driver.last_notice(NoticeKind.ALIGNED) == f"aligned by attempt {attempt + 1}"


def test_a6_a_sweep_of_little_is_not_held() -> None:
    driver = aligned()
    driver.be_away(0)
    for key in KEYS[:3]:
        driver.log.end(key, RecordType.TOMBSTONE)
    driver.log.now_us += int(2 * TOMBSTONE_RETENTION_S * US)
    driver.log.compact()
    driver.open()
    driver.deliver()
    driver.wait(3600.0)
    assert driver.reached(Phase.ALIGNED)
    assert sorted(driver.swept) == KEYS[:3]


def test_a6_a_few_are_not_too_much_whatever_their_share() -> None:
    driver = aligned()
    driver.attempt()
    driver.deliver()
    driver.core.sweep_estimated(SweepEstimate(total=4, unmarked=3))
    assert driver.decided(Phase.SWEEPING)
