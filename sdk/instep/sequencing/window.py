"""The numbers of one sequence: which were received, which are buffered, which delivery skips.

It keeps the counts; `instep.sequencing.sequencer` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from instep.model.messages import MessageHeader
from instep.model.ranges import Ranges
from instep.sequencing.effects import REPORTED_RANGES
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.state import BufferedMessage, SequencerState
from instep.sequencing.transitions import Refusal

__all__ = ["ReceiveWindow"]


class ReceiveWindow:
    """The receive window: the mutable form of the numbers in a `SequencerState`.

    Between two events: `received` includes the buffered numbers. `skippable` holds the numbers from
    `next_number` on that need no message: cancelled, filled, faulted where the policy skips them,
    or released before they were next where there is no order. `next_number` is neither buffered
    nor skippable.
    """

    def __init__(self, settings: SequencerSettings, state: SequencerState) -> None:
        self._settings = settings
        self.next_number = state.next_number
        self.received = state.received.copy()
        self.cancelled = state.cancelled.copy()
        self.faulted = state.faulted.copy()
        self.buffered = {buffered.number: buffered for buffered in state.buffered}
        self.buffered_bytes = sum(buffered.size_bytes for buffered in state.buffered)
        self.highest_seen = state.highest_seen
        self.recent = state.recent
        self._remembered = max(1, settings.remembered_contents)
        self.skippable = self._skippable_ahead()
        self.dropped_bytes: dict[int, int] = {}
        """Of buffered messages that were removed and not delivered, until the sequencer reports
        them: number → bytes."""
        self.superseded: list[int] = []
        """Numbers that were faulted and came again, until the sequencer records it."""
        self._expiries: list[tuple[int, int]] = []
        self._index_expiries()

    # -- buffered messages -----------------------------------------------------------------------

    def buffer(self, message: MessageHeader, now_us: int) -> bool:
        """Buffer a new message until its number is next; False where there is no room (S8).

        The caller passes it to `add_received` as well.
        """
        number, digest = message.number, message.digest
        size_bytes, expires_at_us = message.size_bytes, message.expires_at_us
        buffered = self.buffered
        if not self.has_room(1, size_bytes):
            return False
        buffered[number] = BufferedMessage(number, digest, size_bytes, expires_at_us, now_us)
        self.buffered_bytes += size_bytes
        if self.skippable:
            self.skippable.remove(number, number)
        if expires_at_us:
            self.add_deadlines([(expires_at_us, number)])
        return True

    def has_room(self, messages: int, size_bytes: int) -> bool:
        """Whether this many more messages, of `size_bytes` together, may be buffered (S8)."""
        settings = self._settings
        return (
            len(self.buffered) + messages <= settings.limit_messages
            and self.buffered_bytes + size_bytes <= settings.limit_bytes
        )

    def add_deadlines(self, deadlines: list[tuple[int, int]]) -> None:
        """Add the deadlines of newly buffered messages, as `(expires_at_us, number)`."""
        for deadline in deadlines:
            heappush(self._expiries, deadline)
        if len(self._expiries) > 2 * len(self.buffered) + 64:
            self._index_expiries()

    def release_ahead(self, number: int) -> None:
        """Record a new message released before its number was next: the number is skippable."""
        self.skippable.add(number)
        self.received.add(number)

    def drop(self, number: int) -> bool:
        """Remove a buffered message and its number from `received`; returns whether there was
        one.
        """
        buffered = self.buffered.pop(number, None)
        if buffered is None:
            return False
        self.buffered_bytes -= buffered.size_bytes
        self.dropped_bytes[number] = buffered.size_bytes
        self.received.remove(number, number)
        return True

    def discard_buffered(self) -> list[int]:
        """Remove all buffered messages; returns their numbers, rising. They stay received."""
        numbers = sorted(self.buffered)
        self.dropped_bytes |= {n: one.size_bytes for n, one in self.buffered.items()}
        self.buffered.clear()
        self._expiries.clear()
        self.buffered_bytes = 0
        self.skippable = self._skippable_ahead()
        return numbers

    def fault_buffered(self, reason: Refusal) -> list[int]:
        """Remove all buffered messages and mark their numbers as faulted instead of received;
        returns the numbers, rising.
        """
        numbers = self.discard_buffered()
        self.forget_received(numbers)
        for low, high in Ranges.of_numbers(numbers).pairs():
            self.faulted.set_range(low, high, reason)
        self.skippable = self._skippable_ahead()
        return numbers

    def forget_received(self, numbers: list[int]) -> None:
        """Remove numbers from `received`, and what their contents were; the highest of them is kept
        in `highest_seen`.
        """
        self.received.subtract(Ranges.of_numbers(numbers))
        self._forget_contents(numbers)

    def buffered_since_us(self) -> int | None:
        """When the oldest buffered message arrived, in microseconds since 1970: since then the
        next number is known to be missing. None: nothing is buffered.
        """
        return next(iter(self.buffered.values())).buffered_at_us if self.buffered else None

    def next_expiry_us(self) -> int | None:
        """When a buffered message may expire next, in microseconds since 1970; None: never."""
        return self._expiries[0][0] if self._expiries else None

    def pop_expired(self, now_us: int) -> list[int]:
        """The buffered numbers whose deadline has passed; each is returned once."""
        numbers = []
        while self._expiries and self._expiries[0][0] <= now_us:
            expires_at_us, number = heappop(self._expiries)
            buffered = self.buffered.get(number)
            # The heap keeps deadlines of messages that are gone, or came again with another.
            if buffered is not None and buffered.expires_at_us == expires_at_us:
                numbers.append(number)
        return numbers

    def _index_expiries(self) -> None:
        self._expiries = [
            (h.expires_at_us, h.number) for h in self.buffered.values() if h.expires_at_us
        ]
        heapify(self._expiries)

    # -- received numbers ------------------------------------------------------------------------

    def add_received(self, accepted: Sequence[MessageHeader], numbers: list[int]) -> None:
        """Add accepted messages, by rising number, and remember the digests of the last ones."""
        self.received.add_sorted(numbers)
        self.remember_contents(accepted, numbers)

    def remember_contents(self, accepted: Sequence[MessageHeader], numbers: list[int]) -> None:
        """Remember the digests of the last accepted messages, to compare copies with (S7)."""
        if self.faulted.lows:
            # New content after a fault is the content that counts (S7).
            self.superseded += [number for number in numbers if number in self.faulted]
            self.faulted.subtract(Ranges.of_numbers(numbers))
        most = self._remembered
        if len(accepted) == 1 < most:
            only = accepted[0]
            self.recent = [*self.recent[1 - most :], (only.number, only.digest)]
            return
        contents = [(message.number, message.digest) for message in accepted[-most:]]
        if len(contents) < most:
            contents = (self.recent + contents)[-most:]
        self.recent = contents

    def is_accounted_ahead(self, number: int) -> bool:
        """Whether a number ahead, not buffered, needs no message: it is filled or cancelled."""
        return number in self.received or number in self.cancelled

    def digest(self, number: int) -> bytes:
        """The digest of the content received under a number; empty where not remembered."""
        buffered = self.buffered.get(number)
        if buffered is not None:
            # However long it waits: `recent` may have forgotten it.
            return buffered.digest
        return next((digest for recent, digest in self.recent if recent == number), b"")

    def _forget_contents(self, numbers: list[int]) -> None:
        """Other content may arrive for these numbers."""
        self.recent = [content for content in self.recent if content[0] not in numbers]
        self.highest_seen = max([self.highest_seen, *numbers])

    def add_fault(self, number: int, reason: Refusal) -> None:
        """Record that the number was answered with a fault; other content may arrive for it."""
        self._forget_contents([number])
        self.faulted.set_range(number, number, reason)
        if self._settings.fault_policy is FaultPolicy.SKIP and number >= self.next_number:
            self.skippable.add(number)

    def add_cancelled(self, numbers: Ranges) -> None:
        """Record numbers as cancelled: they were not received and never will be (S5)."""
        self.cancelled.update(numbers)
        self.faulted.subtract(numbers)
        self.skippable = self._skippable_ahead()

    def add_filled(self, numbers: Ranges) -> None:
        """Record numbers as filled: they count as received, with or without a message (S5)."""
        self.received.update(numbers)
        self.cancelled.subtract(numbers)
        self.faulted.subtract(numbers)
        self.skippable = self._skippable_ahead()

    def settle(
        self, through: int, *, deliver_buffered: bool
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Count every number up to `through` as received, except the cancelled ones (S4).

        With `deliver_buffered`, buffered messages up to there stay, to be delivered in order; else
        they are removed. Returns the ranges that were missing, and the numbers removed, rising.
        """
        missing = list((self.received | self.cancelled).gaps(self.next_number, through))
        for low, high in missing:
            self.received.add_range(low, high)
            self.faulted.remove(low, high)
        forgotten = []
        if not deliver_buffered:
            forgotten = sorted(number for number in self.buffered if number <= through)
            for number in forgotten:
                size_bytes = self.dropped_bytes[number] = self.buffered.pop(number).size_bytes
                self.buffered_bytes -= size_bytes
        self.skippable = self._skippable_ahead()
        return missing, forgotten

    def lasting_ranges(self) -> int:
        """The least number of ranges that stay for good. Buffered messages add ranges too; these
        are bounded with the buffer.
        """
        ranges = len(self.received.lows) + len(self.cancelled.lows) + len(self.faulted.lows)
        return ranges - len(self.buffered)

    def _skippable_ahead(self) -> Ranges:
        skippable = self.received | self.cancelled
        if self._settings.fault_policy is FaultPolicy.SKIP:
            skippable.update(self.faulted.ranges())
        skippable.subtract(Ranges.of_numbers(self.buffered))
        if self.next_number > 0:
            skippable.remove(0, self.next_number - 1)
        return skippable

    # -- delivery --------------------------------------------------------------------------------

    def advance(self, number: int, deliver: list[int]) -> int:
        """Release the buffered messages from `number` on, skip the numbers that need none (S2), and
        append the released to `deliver`; returns the new `next_number`.
        """
        skippable, take = self.skippable, self.buffered.pop
        while True:
            first, size_bytes = number, 0
            while (one := take(number, None)) is not None:
                size_bytes += one.size_bytes
                number += 1
            if number > first:
                self.buffered_bytes -= size_bytes
                deliver += range(first, number)
            if not skippable or number not in skippable:
                self.next_number = number
                return number
            number = skippable.end_of(number)
            skippable.remove(0, number - 1)

    def skip(self, through: int, deliver: list[int]) -> list[tuple[int, int]]:
        """Skip every missing number up to `through` and release what is buffered; returns the
        ranges skipped.
        """
        lost = []
        while self.next_number <= through:
            first = self.next_number
            last = min(self.gap_end(), through)
            lost.append((first, last))
            self.advance(last + 1, deliver)
        return lost

    def gap_end(self) -> int:
        """The last number of the gap that begins at `next_number`; `max_number` where nothing lies
        behind it.
        """
        behind = (
            self.received.next_member(self.next_number),
            self.skippable.next_member(self.next_number),
        )
        ends = [number - 1 for number in behind if number is not None]
        return min(ends, default=self._settings.max_number)

    def missing(self, highest: int) -> list[tuple[int, int]]:
        """The lowest missing ranges from `next_number` to `highest`, at most `REPORTED_RANGES`."""
        there = self.received | self.skippable
        return list(islice(there.gaps(self.next_number, highest), REPORTED_RANGES))
