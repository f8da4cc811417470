"""What is skipped is told at the first message, and counted until anything else comes."""

from __future__ import annotations

from instep.conformance import Event, MessageReceived, MessagesSkipped, MeteredRecorder, PongSent


class Taken:
    """Takes events, and has as much room as is set."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.room = 0
        self.record = MeteredRecorder(self.events.append, lambda: self.room, lambda: 7)

    @property
    def skipped(self) -> list[int]:
        return [one.messages for one in self.events if isinstance(one, MessagesSkipped)]


def test_the_first_message_that_is_skipped_is_told_at_once_and_the_others_later() -> None:
    taken = Taken()
    assert not taken.record.takes_next()
    assert taken.events == [MessagesSkipped(7, 0, 1)]
    taken.record.skip(999)
    assert taken.skipped == [1, 999]
    taken.record.skip(5)
    assert taken.skipped == [1, 999]
    taken.room = 100
    assert taken.record.takes_next()
    message = MessageReceived(8, 1, b"{}")
    taken.record(message)
    assert taken.events[2:] == [MessagesSkipped(7, 0, 5), message]


def test_what_comes_behind_any_event_is_told_at_once_again() -> None:
    taken = Taken()
    taken.record.skip(1)
    taken.record(PongSent(8, 1))
    taken.record.skip(2)
    assert taken.events == [MessagesSkipped(7, 0, 1), PongSent(8, 1), MessagesSkipped(7, 0, 2)]


def test_a_long_storm_is_told_now_and_then() -> None:
    taken = Taken()
    for _ in range(10_000):
        taken.record.takes_next()
    assert len(taken.skipped) < 500
    assert 9_840 <= sum(taken.skipped) <= 10_000


def test_without_a_bound_all_is_taken() -> None:
    events: list[Event] = []
    record = MeteredRecorder(events.append, None, lambda: 7)
    assert record.takes_next()
    assert record.room() == float("inf")
    assert not events
