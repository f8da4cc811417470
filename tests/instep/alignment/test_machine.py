"""Rules A1 to A4 of the alignment: the real core against a model of a log."""

from __future__ import annotations

import msgspec

from instep import RecordType
from instep.alignment.effects import NoticeKind, Reopen
from instep.model import CommitResult, Start
from tests.instep.alignment.driver_kit import Driver, aligned
from tests.instep.alignment.model_log_kit import TOMBSTONE_RETENTION_S, US, ModelLog


def test_a1_a_batch_that_was_not_committed_is_asked_for_again() -> None:
    driver = aligned()
    driver.log.put("key-0")
    chunk = driver.read()
    assert chunk is not None
    committed = driver.store.position
    batch = driver.core.receive(chunk, driver.log.now_us)
    assert batch is not None
    assert batch.position.token != committed.token
    driver.close()
    assert driver.core.start(driver.log.now_us) == committed.token
    assert driver.converges()


def test_a_realignment_that_the_feed_asks_for_follows_its_records() -> None:
    driver = aligned()
    driver.log.put("key-0")
    chunk = driver.read()
    assert chunk is not None
    asking = msgspec.structs.replace(chunk, realign="a message was lost")
    batch = driver.core.receive(asking, driver.log.now_us)
    assert batch is not None
    assert batch.position.token == chunk.records[-1].token
    driver.core.committed(batch, CommitResult())
    assert Reopen("a message was lost") in driver.core.effects()
    driver.core.closed()
    assert driver.core.durable == batch.position
    assert driver.core.start(driver.log.now_us) is Start.OLDEST


def test_a_realignment_that_the_feed_asks_for_outlives_a_commit_that_fails() -> None:
    driver = aligned()
    driver.log.put("key-0")
    chunk = driver.read()
    assert chunk is not None
    asking = msgspec.structs.replace(chunk, realign="a message was lost")
    assert driver.core.receive(asking, driver.log.now_us) is not None
    driver.core.closed()
    assert driver.core.realign_reason == "a message was lost"
    assert driver.core.start(driver.log.now_us) is Start.OLDEST


def test_a1_a_batch_whose_commit_was_not_confirmed_is_not_repeated() -> None:
    driver = aligned()
    driver.log.put("key-0")
    chunk = driver.read()
    assert chunk is not None
    batch = driver.core.receive(chunk, driver.log.now_us)
    assert batch is not None
    driver.store_commit(batch)
    driver.crash()
    driver.open()
    assert driver.feed is not None
    assert driver.feed.pending() == []
    assert driver.converges()


def test_a2_continued_opens_no_attempt() -> None:
    driver = aligned()
    driver.close()
    driver.log.put("key-0")
    driver.open()
    assert driver.converges()
    assert driver.store.position.attempt == 1
    assert driver.starts[-1] != Start.OLDEST


def test_a2_redelivered_a_little_opens_no_attempt() -> None:
    for offsets in (True, False):
        driver = aligned(offsets=offsets)
        driver.close()
        records = driver.store.position.records
        driver.open(rewind=3)
        assert driver.converges()
        assert driver.store.position.attempt == 1
        assert driver.count_notices(NoticeKind.REDELIVERED) == 1
        # The very last one is let through, its TOMBSTONE may share its place: nothing else is.
        assert driver.store.position.records == records + 1


def test_a2_redelivered_in_a_network_quiet_for_hours_opens_no_attempt() -> None:
    driver = aligned()
    driver.wait(0.9 * TOMBSTONE_RETENTION_S)
    driver.close()
    driver.open(rewind=3)
    assert driver.converges()
    assert driver.store.position.attempt == 1
    assert driver.count_notices(NoticeKind.LOST) == 0


def test_a2_restarted_from_the_oldest_is_taken_over_as_the_attempt() -> None:
    driver = aligned()
    openings = len(driver.starts)
    driver.close()
    driver.log.end("key-3", RecordType.DELETE, RecordType.TOMBSTONE)
    driver.log.compact()
    driver.open(restart=True)
    assert driver.converges()
    assert driver.store.position.attempt == 2
    assert driver.store.position.lineage == 1
    assert len(driver.starts) == openings + 1


def test_a2_of_several_partitions_the_first_record_proves_nothing() -> None:
    driver = aligned(3)
    driver.close()
    driver.open(restart=True)
    assert driver.converges()
    assert driver.store.position.attempt == 2
    assert driver.starts[-1] is Start.OLDEST
    assert driver.swept == []


def test_a2_a_partition_that_stays_silent_has_not_shown_where_it_begins() -> None:
    """One partition begins at its oldest record; the other goes on after our token, and nothing
    comes. Without a second connection, all its entities would be swept.
    """
    driver = aligned(2)
    driver.wait(3600.0)
    driver.close()
    driver.open()
    assert driver.feed is not None
    driver.feed.cursor[1] = -1
    openings = len(driver.starts)
    assert driver.converges()
    assert driver.swept == []
    assert driver.starts[openings] is Start.OLDEST
    # One attempt was enough: it was not taken for another log at its end.
    assert (driver.core.position.attempt, driver.core.position.lineage) == (2, 1)


def test_a2_what_came_before_the_restart_shows_is_marked_too() -> None:
    """The first partition goes on after our token, as if nothing had happened."""
    driver = Driver(ModelLog(2, anchored=False))
    for key in ("key-0", "key-1", "key-3"):
        driver.log.now_us += US
        driver.log.put(key)
    driver.settle()
    driver.close()
    driver.open(restart=True)
    driver.deliver(1, prefer=0)
    assert driver.converges()
    assert driver.swept == []


def test_a2_a_partition_of_which_nothing_was_read_shows_no_restart_of_another() -> None:
    """An attempt was interrupted when it had read one partition only. The other one begins at its
    oldest record, as it does wherever the stream goes on.
    """
    driver = Driver(ModelLog(2))
    for key in ("key-0", "key-1", "key-2", "key-3"):
        driver.log.now_us += US
        driver.log.put(key)
    driver.log.now_us += US
    driver.open()
    driver.deliver(3, prefer=1)
    assert list(driver.store.position.offsets) == ["1"]
    driver.close()
    driver.open()
    driver.deliver(3, prefer=0)
    assert driver.probes == 1
    driver.log.now_us += US
    driver.log.put("key-1")
    assert driver.converges()
    assert driver.swept == []


def test_a2_without_offsets_a_restart_is_taken_over_too() -> None:
    driver = aligned(offsets=False)
    openings = len(driver.starts)
    driver.close()
    driver.log.end("key-3", RecordType.TOMBSTONE)
    driver.open(restart=True)
    assert driver.converges()
    assert driver.store.position.attempt == 2
    assert (len(driver.starts), driver.probes) == (openings + 1, 1)


def test_an_idle_stream_that_is_restarted_at_each_reconnection_costs_one_reading() -> None:
    """Its last record is older than what the provider resumes from (TR-548 ST-0.7)."""
    driver = aligned()
    for _ in range(3):
        driver.wait(5 * TOMBSTONE_RETENTION_S)
        openings = len(driver.starts)
        driver.close()
        driver.open(restart=True)
        driver.deliver()
        assert driver.converges()
        assert len(driver.starts) == openings + 1
    assert driver.swept == []


def test_a3_a_new_log_is_another_lineage() -> None:
    for refuse in (False, True):
        driver = aligned()
        driver.close()
        driver.log.end("key-1", RecordType.TOMBSTONE)
        driver.log.lose(elsewhere=False)
        driver.open(refuse=refuse)
        assert driver.converges()
        assert driver.store.position.lineage == 2
        assert driver.swept == ["key-1"]


def test_a3_a_log_lost_before_an_attempt_is_known_by_its_first_record() -> None:
    """The attempt was opened for another reason, so no reconnect has reported the loss."""
    driver = aligned(keys=["key-0", "key-0", "key-0"])
    driver.core.realign("the operator asks for it")
    driver.carry_out()
    driver.log.lose(elsewhere=False)
    assert driver.converges()
    assert driver.swept == []
    assert driver.store.position.lineage == 2


def test_a3_a_log_with_the_offset_where_we_stand_is_another_one_if_it_is_newer() -> None:
    driver = aligned(keys=[])
    driver.close()
    driver.log.lose(elsewhere=False)
    driver.open()
    assert driver.converges()
    assert driver.store.position.lineage == 2


def test_a3_another_origin_is_another_lineage() -> None:
    driver = aligned()
    driver.close()
    driver.log.lose(elsewhere=True)
    driver.open()
    assert driver.starts[-1] is Start.OLDEST
    assert driver.converges()
    assert driver.store.position.lineage == 2


def test_a4_a_second_end_is_no_error() -> None:
    driver = aligned()
    driver.log.end("key-0", RecordType.DELETE, RecordType.TOMBSTONE)
    driver.log.end("key-1", RecordType.DELETE, RecordType.TOMBSTONE, shares=True)
    driver.log.end("key-2", RecordType.TOMBSTONE)
    driver.log.end("key-3", RecordType.DELETE)
    assert driver.converges()


def test_a4_an_end_that_shares_its_place_survives_the_border_of_a_connection() -> None:
    for offsets in (True, False):
        driver = aligned(offsets=offsets)
        driver.log.end("key-0", RecordType.DELETE, RecordType.TOMBSTONE, shares=True)
        driver.deliver(1)
        driver.close()
        driver.open(rewind=1)
        assert driver.converges()
        assert driver.store.position.attempt == 1
