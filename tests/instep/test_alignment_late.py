"""Rules 8 to 11 of the alignment: lateness, deviations, what cannot be read."""

from __future__ import annotations

from instep import Kind, Start
from instep.effects import NoticeKind
from instep.fidelity import Zone
from instep.records import Delivery, StreamState, Unreadable
from tests.instep.logdriver import SETTINGS, aligned
from tests.instep.logmodel import STREAM, TOMBSTONE_RETENTION_S, US


def test_rule_8_away_longer_than_the_tombstone_retention_realigns() -> None:
    driver = aligned()
    driver.log.end("key-0", Kind.TOMBSTONE)
    driver.be_away(TOMBSTONE_RETENTION_S + 3600)
    assert driver.core.start(driver.log.now_us) is Start.OLDEST
    assert driver.converges()
    assert driver.swept == ["key-0"]


def test_rule_8_a_reader_too_slow_realigns_without_waiting_to_be_dropped() -> None:
    driver = aligned()
    driver.log.put("key-0")
    driver.log.end("key-1", Kind.TOMBSTONE)
    driver.log.now_us += int((TOMBSTONE_RETENTION_S + 1) * US)
    driver.deliver(1)
    assert driver.feed is None
    assert driver.core.lateness.zone is Zone.LOST
    assert driver.told(NoticeKind.LOST) == 1
    assert driver.converges()


def test_rule_8_a_pause_past_the_retention_realigns_even_if_what_follows_is_new() -> None:
    driver = aligned()
    driver.log.state = StreamState.PAUSED
    driver.log.end("key-0", Kind.TOMBSTONE)
    driver.wait(TOMBSTONE_RETENTION_S + 3600)
    driver.log.compact()
    driver.log.put("key-1")
    driver.log.state = StreamState.ACTIVE
    driver.deliver()
    assert driver.converges()
    assert driver.swept == ["key-0"]


def test_rule_8_a_wrong_clock_does_not_realign_for_ever() -> None:
    driver = aligned()
    ahead_us = int(3 * TOMBSTONE_RETENTION_S * US)
    for _ in range(20):
        driver.log.put("key-0")
        delivery = driver.read()
        assert delivery is not None
        driver.commit(driver.core.receive(delivery, driver.log.now_us + ahead_us))
        driver.carry_out()
        if driver.feed is None:
            driver.open()
    assert driver.told(NoticeKind.LOST) == SETTINGS.lost_realigns


def test_rule_9_an_offset_going_backwards_is_counted_and_left_to_the_store() -> None:
    driver = aligned()
    driver.log.put("key-0")
    driver.log.put("key-1")
    delivery = driver.read()
    assert delivery is not None
    first, second = delivery.records
    batch = driver.core.receive(Delivery([second, first]), driver.log.now_us)
    assert batch is not None
    assert batch.deviations == {"offset-backwards": 1}
    assert batch.records == [second, first]
    assert batch.position.offsets == {"0": second.offset}


def test_rule_9_an_append_time_going_backwards_is_counted() -> None:
    driver = aligned()
    driver.log.now_us += US
    driver.log.put("key-0")
    driver.log.now_us -= 2 * US
    driver.log.put("key-1")
    delivery = driver.read()
    assert delivery is not None
    batch = driver.core.receive(delivery, driver.log.now_us)
    assert batch is not None
    assert batch.deviations == {"append-time-backwards": 1}


def test_rule_10_deviations_of_the_frames_travel_with_the_batch() -> None:
    driver = aligned()
    batch = driver.core.receive(Delivery([], deviations={"odd-prefix": 2}), driver.log.now_us)
    assert batch is not None
    assert batch.deviations == {"odd-prefix": 2}


def test_rule_11_what_cannot_be_read_travels_with_the_batch_and_moves_no_token() -> None:
    driver = aligned()
    token = driver.store.position.token
    unreadable = Unreadable(STREAM, b"{", "not JSON")
    batch = driver.core.receive(Delivery([], [unreadable]), driver.log.now_us)
    assert batch is not None
    assert batch.unreadable == [unreadable]
    assert batch.position.token == token
