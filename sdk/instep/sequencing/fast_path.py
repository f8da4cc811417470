"""Fast paths for the usual messages: next in order, or new in any order.

Each one does, for a whole list at once, exactly what the reference (`Sequencer._one_by_one`) does
with one message after the other. Where it does not apply it does nothing, and says so; then the
reference is used. A property test compares the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from instep.model.messages import MessageHeader
from instep.sequencing.state import BufferedMessage
from instep.sequencing.window import ReceiveWindow

__all__ = ["take_new", "take_next"]


def take_next(
    window: ReceiveWindow, messages: Sequence[MessageHeader], numbers: list[int], max_number: int
) -> bool:
    """Release messages that are the next ones, in order, with these `numbers`; returns whether it
    applies.

    It does where no message has expired. The caller has seen that nothing is buffered or skippable.
    """
    first = window.next_number
    after = first + len(messages)
    if not numbers or after > max_number + 1:
        return False
    if numbers[0] != first or numbers != list(range(first, after)):
        return False
    window.next_number = after
    window.add_received(messages, numbers)
    return True


def take_new(
    window: ReceiveWindow,
    messages: Sequence[MessageHeader],
    numbers: list[int],
    deliver: list[int],
    now_us: int,
) -> list[MessageHeader]:
    """Release or buffer messages that arrived in any order, with these `numbers`, and add them to
    the received ones; returns the messages, by number.

    Applies where all are new, there is room for all, nothing is skippable and nothing has expired.
    """
    buffered, first = window.buffered, window.next_number
    rising, new = sorted(numbers), dict(zip(numbers, messages, strict=True))
    if (
        len(new) < len(rising)
        or rising[0] < first
        or not buffered.keys().isdisjoint(new.keys())
        or not window.has_room(len(new), sum([m.size_bytes for m in messages]))
    ):
        return []
    accepted = list(map(new.__getitem__, rising))
    next_number, size_bytes = first, window.buffered_bytes
    take = buffered.pop
    # The next number is not buffered: it is among the new ones, or nothing is released.
    while next_number in new:
        while next_number in new:
            next_number += 1
        while (one := take(next_number, None)) is not None:
            size_bytes -= one.size_bytes
            next_number += 1
    if next_number > first:
        window.next_number = next_number
        window.received.add_range(first, next_number - 1)
        deliver += range(first, next_number)
    count = bisect_left(rising, next_number)
    if count < len(rising):
        window.received.add_sorted(rising[count:])
        deadlines = []
        for m in accepted[count:]:
            number, size, deadline_us = m.number, m.size_bytes, m.expires_at_us
            buffered[number] = BufferedMessage(number, m.digest, size, deadline_us, now_us)
            size_bytes += size
            if deadline_us:
                deadlines.append((deadline_us, number))
        window.add_deadlines(deadlines)
    window.buffered_bytes = size_bytes
    window.remember_contents(accepted, rising)
    return accepted
