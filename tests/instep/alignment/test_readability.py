"""What ends a connection of which little can be read, and what is read past."""

from __future__ import annotations

from instep.alignment.readability import Readability
from instep.model.records import Unreadable


def bad(number: int, first: int = 0) -> list[Unreadable]:
    return [Unreadable("s", b"%d" % n, "not JSON") for n in range(first, first + number)]


def test_single_records_end_nothing() -> None:
    it = Readability()
    it.opened()
    for n in range(1_000):
        it.received(1, bad(1, n))
    assert it.broken() is None
    assert not it.nothing_readable


def test_a_row_ends_it_from_the_last_good_position_then_from_the_oldest_then_never() -> None:
    it = Readability()
    it.opened()
    it.received(5, [])
    assert it.received(0, bad(19)) == 19
    assert it.broken() is None
    it.received(0, bad(1, 19))
    broken = it.broken()
    assert broken == ("20 of 25 records of the connection cannot be read: not JSON", False)
    it.opened()
    assert it.received(0, bad(20)) == 0, "the attempt has met them"
    broken = it.broken()
    assert broken is not None
    assert broken[1], "from the oldest"
    it.attempt_begun()
    it.opened()
    assert it.received(0, bad(500)) == 500
    assert it.broken() is None, "it is the records that are so"
    assert it.nothing_readable


def test_what_was_read_between_them_sends_it_to_the_oldest_at_once() -> None:
    it = Readability()
    it.opened()
    it.received(0, bad(10))
    it.received(1, [])
    it.received(0, bad(20))
    broken = it.broken()
    assert broken is not None
    assert broken[1]


def test_a_share_of_a_connection_ends_it() -> None:
    it = Readability()
    it.opened()
    for n in range(60):
        it.received(1, [])
        it.received(0, bad(2, 2 * n))
        if it.broken() is not None:
            break
    assert (it.refused, it.readable) == (100, 50)


def test_one_that_has_caught_up_begins_anew() -> None:
    it = Readability()
    for _ in range(2):
        it.opened()
        it.received(0, bad(20))
        assert it.broken() is not None
    it.opened()
    it.received(3, [])
    it.caught_up()
    it.received(0, bad(20))
    assert it.broken() is not None
