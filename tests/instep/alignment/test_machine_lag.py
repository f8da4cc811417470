"""Rules A8 to A11 of the alignment: lag, deviations, unreadable records."""

from __future__ import annotations

import msgspec

from instep import Mode, Phase, Position, RecordType
from instep.alignment.effects import Notice, NoticeKind, Reopen
from instep.alignment.lag import Fidelity
from instep.alignment.machine import Alignment
from instep.model import Start
from instep.model.batches import CommitResult
from instep.model.records import RecordChunk, Unreadable
from instep.model.streams import StreamState, SweepEstimate
from tests.instep.alignment.driver_kit import SETTINGS, Driver, aligned
from tests.instep.alignment.model_log_kit import (
    COMPACTION_DELAY_S,
    STREAM,
    TOMBSTONE_RETENTION_S,
    US,
    ModelLog,
)
from tests.instep.scripted_source_kit import T0_US, info, record


def test_a8_away_longer_than_the_tombstone_retention_realigns() -> None:
    driver = aligned()
    driver.log.end("key-0", RecordType.TOMBSTONE)
    driver.be_away(TOMBSTONE_RETENTION_S + 3600)
    assert driver.core.start(driver.log.now_us) is Start.OLDEST
    assert driver.converges()
    assert driver.swept == ["key-0"]


def test_a8_an_attempt_interrupted_until_its_tombstones_expired_begins_anew() -> None:
    """It has marked an entity again whose tombstone lies further on; both leave the log before it
    comes back, and the oldest record that is left looks like the next one.
    """
    driver = aligned(keys=["key-0"])
    driver.wait(3600.0)
    driver.log.end("key-0", RecordType.TOMBSTONE)
    driver.deliver()
    driver.wait(300.0)
    driver.core.realign("a test asks for it")
    driver.carry_out()
    driver.open()
    driver.deliver(2)
    assert "key-0" in driver.store.entities
    driver.be_away(TOMBSTONE_RETENTION_S - 200.0)
    driver.log.put("key-1")
    driver.open()
    assert driver.starts[-1] is Start.OLDEST
    assert driver.converges()


def test_a8_a_reader_too_slow_realigns_without_waiting_to_be_dropped() -> None:
    driver = aligned()
    driver.log.put("key-0")
    driver.log.end("key-1", RecordType.TOMBSTONE)
    driver.log.now_us += int((TOMBSTONE_RETENTION_S + 1) * US)
    driver.deliver(1)
    assert driver.feed is None
    assert driver.core.lag.fidelity is Fidelity.LOST
    assert driver.count_notices(NoticeKind.LOST) == 1
    assert driver.converges()


def test_a8_a_pause_past_the_retention_realigns_even_if_what_follows_is_new() -> None:
    driver = aligned()
    driver.log.state = StreamState.PAUSED
    driver.log.end("key-0", RecordType.TOMBSTONE)
    driver.wait(TOMBSTONE_RETENTION_S + 3600)
    driver.log.compact()
    driver.log.put("key-1")
    driver.log.state = StreamState.ACTIVE
    driver.deliver()
    assert driver.converges()
    assert driver.swept == ["key-0"]


def test_a8_3_17_3_a_wrong_clock_is_never_called_aligned() -> None:
    driver = aligned()
    ahead_us = int(3 * TOMBSTONE_RETENTION_S * US)
    for _ in range(20):
        driver.log.put("key-0")
        chunk = driver.read()
        assert chunk is not None
        driver.commit(driver.core.receive(chunk, driver.log.now_us + ahead_us))
        driver.carry_out()
        if driver.feed is None:
            driver.open()
    assert len([start for start in driver.starts[1:] if start is Start.OLDEST]) == (
        SETTINGS.lost_realigns
    )
    assert driver.reached(Phase.LOST)
    status = driver.core.status()
    assert (status.phase, status.fidelity) == (Phase.LOST, Fidelity.LOST)
    assert driver.count_notices(NoticeKind.LOST) == SETTINGS.lost_realigns + 1
    driver.log.put("key-0")
    assert driver.converges()


def read_late(driver: Driver) -> None:
    """Be busy for longer than tombstones are kept, then read."""
    driver.log.now_us += int((TOMBSTONE_RETENTION_S + 60) * US)
    driver.log.compact()
    driver.deliver()


def test_a8_3_17_3_after_the_last_realignment_an_end_may_be_missed_and_that_is_said() -> None:
    driver = aligned()
    for _ in range(SETTINGS.lost_realigns):
        driver.log.put("key-0")
        read_late(driver)
        assert driver.feed is None
        driver.open()
    driver.deliver()
    driver.log.end("key-1", RecordType.DELETE, RecordType.TOMBSTONE)
    read_late(driver)
    driver.log.put("key-0")
    read_late(driver)
    assert "key-1" in driver.store.entities
    assert driver.reached(Phase.LOST)
    watermark_us = driver.store.position.watermark_us
    read_late(driver)
    assert driver.store.position.watermark_us == watermark_us
    # Read in time again, it realigns; nobody has to ask for it.
    assert driver.converges()
    assert driver.swept == ["key-1"]


def test_a8_a_doubt_on_a_lost_stream_realigns_it() -> None:
    """Connected again, it stands still until ends have left the log, and is lost. What comes first
    then is not what lies behind our place.
    """
    driver = aligned()
    driver.core.reconfigure(msgspec.structs.replace(SETTINGS, lost_realigns=0))
    driver.close()
    driver.log.put("key-0")
    driver.log.put("key-0")
    driver.log.now_us += int((COMPACTION_DELAY_S + 1) * US)
    driver.log.compact()
    driver.open()
    driver.log.now_us += int((TOMBSTONE_RETENTION_S + 1) * US)
    driver.tick()
    assert driver.core.status().phase is Phase.LOST
    driver.deliver()
    assert driver.feed is None
    assert driver.converges()


def test_a8_a_lost_stream_realigns_at_growing_intervals_only() -> None:
    driver = aligned()
    waits_s = []
    for _ in range(SETTINGS.lost_realigns + 4):
        driver.log.put("key-0")
        read_late(driver)
        lost_us = driver.log.now_us
        while driver.feed is not None:
            driver.wait(SETTINGS.quiet_s)
        waits_s.append((driver.log.now_us - lost_us) // US)
        driver.open()
    # 60 s and their doubles, looked at every 40 s.
    assert waits_s == [0, 0, 80, 120, 240, 480]


def test_a8_a_process_that_finds_the_stream_lost_reads_it_from_its_start() -> None:
    driver = aligned()
    for _ in range(SETTINGS.lost_realigns + 1):
        driver.log.put("key-0")
        read_late(driver)
        if driver.feed is None:
            driver.open()
    assert driver.reached(Phase.LOST)
    driver.crash()
    driver.open()
    assert driver.starts[-1] is Start.OLDEST
    assert driver.converges()


def test_a8_right_after_an_alignment_it_is_known_what_the_store_may_lack() -> None:
    driver = Driver(ModelLog())
    driver.open()
    driver.deliver()
    driver.log.now_us += US
    driver.log.put("key-0")
    driver.deliver()
    while not driver.reached(Phase.ALIGNED):
        driver.tick()
    assert driver.store.position.watermark_us == driver.log.now_us


def test_a9_an_offset_going_backwards_is_counted_and_left_to_the_store() -> None:
    driver = aligned()
    driver.log.put("key-0")
    driver.log.put("key-1")
    chunk = driver.read()
    assert chunk is not None
    first, second = chunk.records
    batch = driver.core.receive(RecordChunk([second, first]), driver.log.now_us)
    assert batch is not None
    assert batch.deviations == {"offset-backwards": 1}
    assert batch.records == [second, first]
    # The place of the token: after a loss the stream goes on behind it, and nothing is left out.
    assert batch.position.offsets == {"0": first.offset}


def test_a9_an_append_time_going_backwards_is_counted() -> None:
    driver = aligned()
    driver.log.now_us += US
    driver.log.put("key-0")
    driver.log.now_us -= 2 * US
    driver.log.put("key-1")
    chunk = driver.read()
    assert chunk is not None
    batch = driver.core.receive(chunk, driver.log.now_us)
    assert batch is not None
    assert batch.deviations == {"append-time-backwards": 1}


def test_a10_deviations_of_the_frames_travel_with_the_batch() -> None:
    driver = aligned()
    batch = driver.core.receive(RecordChunk([], deviations={"odd-prefix": 2}), driver.log.now_us)
    assert batch is not None
    assert batch.deviations == {"odd-prefix": 2}


def test_a11_what_cannot_be_read_travels_with_the_batch_and_moves_no_token() -> None:
    driver = aligned()
    token = driver.store.position.token
    unreadable = Unreadable(STREAM, b"{", "not JSON")
    batch = driver.core.receive(RecordChunk([], [unreadable]), driver.log.now_us)
    assert batch is not None
    assert batch.unreadable == [unreadable]
    assert batch.position.token == token


def aligned_by_baseline(offsets: dict[str, int], **changes: object) -> Alignment:
    """A stream that was aligned and is open again, after these offsets."""
    stream = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}), **changes)
    position = Position(
        phase=Phase.ALIGNED, attempt=1, lineage=1, token="t", offsets=offsets,
        origin=stream.origin, attempt_started_at_us=T0_US, watermark_us=T0_US,
        opened_at_newest=True,
    )  # fmt: skip
    core = Alignment(stream, position)
    core.start(T0_US)
    core.opened(T0_US)
    return core


def goes_on(core: Alignment, offset: int) -> None:
    """The stream goes on right behind our offset, which proves that it was continued (A2)."""
    batch = core.receive(RecordChunk([record(offset, at_s=-1_000)]), T0_US)
    assert batch is not None
    core.committed(batch, CommitResult())


def test_a_tombstone_of_what_only_the_baseline_knew_is_not_forgotten_in_a_crash() -> None:
    core = aligned_by_baseline({"0": 0})
    batch = core.receive(RecordChunk([record(1, ends=True)]), T0_US)
    assert batch is not None
    core.committed(batch, CommitResult(unresolved_keys=("key-1",)))
    # Another process begins with what the sink has stored: the position, and that it owes one.
    core = Alignment(core.stream, core.durable)
    core.start(T0_US + 2 * US)
    core.opened(T0_US + 2 * US)
    core.tick(T0_US + 59 * US)
    assert not core.realign_reason
    core.effects()
    core.tick(T0_US + 60 * US)
    assert [type(effect) for effect in core.effects()] == [Reopen]
    core.closed()
    assert core.start(T0_US + 61 * US) is Start.LATEST
    core.opened(T0_US + 61 * US)
    assert not core.position.baseline_pending


def test_a_partition_that_may_have_lost_records_calls_for_a_baseline() -> None:
    core = aligned_by_baseline({"1": 3})
    position = core.durable
    # The partition that was received has nothing new. Of this one, whatever was before 7 may be
    # lost.
    assert core.receive(RecordChunk([record(7)]), T0_US) is None
    assert [type(effect) for effect in core.effects()] == [Reopen]
    assert core.position == position
    core.closed()
    assert core.start(T0_US) is Start.LATEST
    core.opened(T0_US)
    assert core.receive(RecordChunk([record(8)]), T0_US) is not None


def test_a15_a_compacted_log_that_forgets_may_have_gaps() -> None:
    """It is read in baseline mode, and what its compaction removed was not missed."""
    core = aligned_by_baseline({"0": 3}, compacts=True, tombstone_retention_s=60.0)
    goes_on(core, 4)
    assert core.receive(RecordChunk([record(7)]), T0_US) is not None
    assert not core.realign_reason


def test_a8_a15_records_that_a_log_may_have_forgotten_unread_call_for_a_baseline() -> None:
    """A compacted log shows no gap: what it forgets before it is read, only the delay shows."""
    core = aligned_by_baseline({"0": 3}, compacts=True, record_retention_s=60.0)
    goes_on(core, 4)
    core.tick(T0_US + 60 * US)
    assert core.receive(RecordChunk([record(7, at_s=9)]), T0_US + 69 * US) is not None
    assert not core.realign_reason
    assert core.receive(RecordChunk([record(8, at_s=9)]), T0_US + 70 * US) is None
    assert "61 s late" in core.realign_reason


def test_a8_a15_what_was_stated_before_a_baseline_was_not_missed() -> None:
    """Where the stream is opened at its oldest record, these are as old as the log."""
    core = aligned_by_baseline({"0": 3}, compacts=True, record_retention_s=60.0)
    goes_on(core, 4)
    assert core.receive(RecordChunk([record(7, at_s=-60)]), T0_US + 50 * US) is not None
    assert not core.realign_reason


def test_a14_what_goes_back_behind_the_baseline_is_dropped() -> None:
    """Its entity may have ended since, and the store forgets ends."""
    core = aligned_by_baseline({"0": 3}, compacts=True)
    goes_on(core, 4)
    batch = core.receive(RecordChunk([record(7)]), T0_US + 8 * US)
    assert batch is not None
    core.committed(batch, CommitResult())
    again = RecordChunk([record(5, at_s=-1), record(6)])
    assert core.receive(again, T0_US + 9 * US) is not None
    core.probed(record(1, at_s=-2_000))
    batch = core.receive(again, T0_US + 9 * US)
    assert batch is not None
    assert [one.offset for one in batch.records] == [6]


def test_a14_rows_of_a_baseline_compare_with_no_record_that_comes_later() -> None:
    """Where the stream is opened at its newest record; where old ones come again, times decide."""
    for readable, lineage in (({"NODE"}, 0), (set[str](), 1)):
        stream = info(mode=Mode.BASELINE, readable=frozenset(readable))
        core = Alignment(stream, Position())
        core.start(T0_US)
        core.opened(T0_US)
        assert core.baseline_page([record(1)]).lineage == lineage
        assert core.position.lineage == 1


def test_5_10_1_a_stream_that_cannot_be_opened_at_its_newest_record_is_at_its_oldest() -> None:
    """Then old records come again, and their times decide against the baseline (A14)."""
    stream = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
    core = Alignment(stream, Position())
    assert core.start(T0_US) is Start.LATEST
    core.token_refused()
    core.closed()
    assert core.start(T0_US) is Start.OLDEST
    core.opened(T0_US)
    assert core.baseline_page([record(1)]).lineage == 1
    assert core.position.attempt == 1


def test_a14_whoever_goes_on_with_an_attempt_knows_where_it_was_opened() -> None:
    """The store was away, or the process restarted: the refusal of the provider is forgotten."""
    stream = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
    core = Alignment(stream, Position())
    core.start(T0_US)
    core.token_refused()
    core.closed()
    core.start(T0_US)
    core.opened(T0_US)
    core.baseline_read(T0_US)
    batch = core.receive(RecordChunk([record(1)]), T0_US + US)
    assert batch is not None
    again = Alignment(stream, batch.position)
    assert again.start(T0_US + 2 * US) == "token-1"
    again.opened(T0_US + 2 * US)
    assert again.compares_baseline


def test_5_10_1_refused_after_the_opening_costs_a_second_attempt_at_most() -> None:
    stream = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
    core = Alignment(stream, Position())
    core.start(T0_US)
    core.opened(T0_US)
    core.committed(core.baseline_page([record(1)]), CommitResult())
    core.token_refused()
    core.closed()
    assert core.start(T0_US) is Start.OLDEST


def test_a_stream_of_what_no_resource_shows_tells_that_it_is_aligned_with_less() -> None:
    core = aligned_by_baseline({"0": 0}, unprovable=frozenset({"CONDITION_DETECTOR"}))
    core.realign("again")
    core.closed()
    core.start(T0_US)
    core.opened(T0_US)
    core.baseline_read(T0_US)
    core.tick(T0_US + 600 * US)
    core.sweep_estimated(SweepEstimate(0, 0))
    for result in (CommitResult(sweep_done=True), CommitResult()):
        batch = core.tick(T0_US + 601 * US)
        assert batch is not None
        core.committed(batch, result)
    told = {effect.kind: effect.text for effect in core.effects() if isinstance(effect, Notice)}
    assert "CONDITION_DETECTOR" in told[NoticeKind.UNPROVEN]
    assert NoticeKind.ALIGNED in told
