"""The book of a sequence's numbers: what was received, what waits, what delivery passes over.

It keeps count and decides nothing; `instep.sequencing.sequencer` does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from instep.model.messages import MessageHeader
from instep.model.ranges import Ranges
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.state import REMEMBERED_DIGESTS, BufferedMessage, SequencerState

__all__ = ["ReceiveWindow"]

_REPORTED_RANGES = 256
"""Most ranges in one request or report; the lowest go first."""


class ReceiveWindow:
    """The live, changing side of the numbers in a `SequencerState`.

    Between two events: `received` includes what is held; `skippable` are the numbers from our turn
    on that need no message (cancelled, filled, by policy faulted); our turn is neither held nor
    passed over.
    """

    def __init__(self, settings: SequencerSettings, state: SequencerState) -> None:
        self._settings = settings
        self.next_number = state.next_number
        self.received = state.received.copy()
        self.cancelled = state.cancelled.copy()
        self.faulted = state.faulted.copy()
        self.buffered = {buffered.number: buffered for buffered in state.buffered}
        self.buffered_bytes = sum(buffered.size_bytes for buffered in state.buffered)
        self.recent = state.recent
        self.skippable = self._skippable_ahead()
        self._expiries: list[tuple[int, int]] = []
        self._index_expiries()

    # -- what is held ----------------------------------------------------------------------------

    def buffer(self, message: MessageHeader, now_us: int) -> bool:
        """A new message waits for its turn; False where there is no room for it (S8).

        `add_received` adds it to what was received.
        """
        number, digest = message.number, message.digest
        size_bytes, expires_at_us = message.size_bytes, message.expires_at_us
        settings, buffered = self._settings, self.buffered
        if len(buffered) >= settings.limit_messages:
            return False
        if self.buffered_bytes + size_bytes > settings.limit_bytes:
            return False
        buffered[number] = BufferedMessage(number, digest, size_bytes, expires_at_us, now_us)
        self.buffered_bytes += size_bytes
        if self.skippable:
            self.skippable.remove(number, number)
        if expires_at_us:
            heappush(self._expiries, (expires_at_us, number))
            if len(self._expiries) > 2 * len(buffered) + 64:
                self._index_expiries()
        return True

    def take_new(
        self, messages: Sequence[MessageHeader], numbers: list[int], deliver: list[int], now_us: int
    ) -> list[MessageHeader]:
        """Release or hold messages that came in any order, with these `numbers`, and add them to
        what was received: the messages, by number. None of them, and nothing is done, unless all
        are new and there is room for all.

        For as long as nothing is passed over, and nothing has expired.
        """
        buffered, first, settings = self.buffered, self.next_number, self._settings
        rising, new = sorted(numbers), dict(zip(numbers, messages, strict=True))
        if (
            len(new) < len(rising)
            or rising[0] < first
            or not buffered.keys().isdisjoint(new.keys())
            or len(buffered) + len(new) > settings.limit_messages
            or self.buffered_bytes + sum([m.size_bytes for m in messages]) > settings.limit_bytes
        ):
            return []
        accepted = list(map(new.__getitem__, rising))
        next_number, size_bytes = first, self.buffered_bytes
        take = buffered.pop
        # Our turn is not held, so it is among the new ones, or nothing is released.
        while next_number in new:
            while next_number in new:
                next_number += 1
            while (one := take(next_number, None)) is not None:
                size_bytes -= one.size_bytes
                next_number += 1
        if next_number > first:
            self.next_number = next_number
            self.received.add_range(first, next_number - 1)
            deliver += range(first, next_number)
        count = bisect_left(rising, next_number)
        if count < len(rising):
            self.received.add_sorted(rising[count:])
            for m in accepted[count:]:
                number, size, deadline_us = m.number, m.size_bytes, m.expires_at_us
                buffered[number] = BufferedMessage(number, m.digest, size, deadline_us, now_us)
                size_bytes += size
                if deadline_us:
                    heappush(self._expiries, (deadline_us, number))
            if len(self._expiries) > 2 * len(buffered) + 64:
                self._index_expiries()
        self.buffered_bytes = size_bytes
        self._remember_contents(accepted, rising)
        return accepted

    def drop(self, number: int) -> bool:
        """Forget what is held under a number, as if it had never come; whether there was any."""
        buffered = self.buffered.pop(number, None)
        if buffered is None:
            return False
        self.buffered_bytes -= buffered.size_bytes
        self.received.remove(number, number)
        return True

    def discard_buffered(self) -> list[int]:
        """Forget all that is held; the numbers, rising. They stay received."""
        numbers = sorted(self.buffered)
        self.buffered.clear()
        self._expiries.clear()
        self.buffered_bytes = 0
        self.skippable = self._skippable_ahead()
        return numbers

    def fault_buffered(self) -> list[int]:
        """The same, and the numbers are faulted instead of received."""
        numbers = self.discard_buffered()
        faulted = Ranges.of_numbers(numbers)
        self.received.subtract(faulted)
        self.faulted.update(faulted)
        return numbers

    def buffered_since_us(self) -> int | None:
        """When the oldest of what is held came: since then our turn is known to be missing."""
        return next(iter(self.buffered.values())).buffered_at_us if self.buffered else None

    def next_expiry_us(self) -> int | None:
        """When something held may expire next."""
        return self._expiries[0][0] if self._expiries else None

    def expired(self, now_us: int) -> list[int]:
        """The held numbers whose deadline has come, each once."""
        numbers = []
        while self._expiries and self._expiries[0][0] <= now_us:
            expires_at_us, number = heappop(self._expiries)
            buffered = self.buffered.get(number)
            if buffered is not None and buffered.expires_at_us == expires_at_us:
                numbers.append(number)
        return numbers

    def _index_expiries(self) -> None:
        self._expiries = [
            (h.expires_at_us, h.number) for h in self.buffered.values() if h.expires_at_us
        ]
        heapify(self._expiries)

    # -- what was received -----------------------------------------------------------------------

    def add_received(self, accepted: Sequence[MessageHeader], numbers: list[int]) -> None:
        """Add what was accepted, with rising numbers, and remember the last contents."""
        self.received.add_sorted(numbers)
        self._remember_contents(accepted, numbers)

    def _remember_contents(self, accepted: Sequence[MessageHeader], numbers: list[int]) -> None:
        if self.faulted.lows:
            # New content after a fault is the content that counts (S7).
            self.faulted.subtract(Ranges.of_numbers(numbers))
        contents = [(message.number, message.digest) for message in accepted[-REMEMBERED_DIGESTS:]]
        if len(contents) < REMEMBERED_DIGESTS:
            contents = (self.recent + contents)[-REMEMBERED_DIGESTS:]
        self.recent = contents

    def accounted_ahead(self, number: int) -> bool:
        """Whether no message is wanted under a number that is not held: filled or cancelled."""
        return number in self.skippable and (number in self.received or number in self.cancelled)

    def digest(self, number: int) -> bytes:
        """The content received under a number; empty where it is not remembered."""
        buffered = self.buffered.get(number)
        if buffered is not None:
            return buffered.digest
        return next((digest for recent, digest in self.recent if recent == number), b"")

    def add_fault(self, number: int) -> None:
        """The number was answered with a fault; other content may come under it."""
        self.recent = [content for content in self.recent if content[0] != number]
        self.faulted.add(number)
        if self._settings.fault_policy is FaultPolicy.SKIP and number >= self.next_number:
            self.skippable.add(number)

    def add_cancelled(self, numbers: Ranges) -> None:
        """Numbers that were not received never will be."""
        self.cancelled.update(numbers)
        self.faulted.subtract(numbers)
        self.skippable = self._skippable_ahead()

    def add_filled(self, low: int, high: int) -> None:
        """The numbers count as received; no message will come for those that did not."""
        self.received.add_range(low, high)
        self.cancelled.remove(low, high)
        self.faulted.remove(low, high)
        self.skippable = self._skippable_ahead()

    def lasting_ranges(self) -> int:
        """How many ranges are remembered for good, at least; held messages make others, bounded
        with them.
        """
        ranges = len(self.received.lows) + len(self.cancelled.lows) + len(self.faulted.lows)
        return ranges - len(self.buffered)

    def _skippable_ahead(self) -> Ranges:
        skippable = self.received | self.cancelled
        if self._settings.fault_policy is FaultPolicy.SKIP:
            skippable.update(self.faulted)
        skippable.subtract(Ranges.of_numbers(self.buffered))
        if self.next_number > 0:
            skippable.remove(0, self.next_number - 1)
        return skippable

    # -- delivery --------------------------------------------------------------------------------

    def advance(self, number: int, deliver: list[int]) -> int:
        """Release what is held from `number` on, passing over what needs no message: our turn."""
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
        """Pass over every missing number up to `through`, releasing what is held: the missing."""
        lost = []
        while self.next_number <= through:
            first = self.next_number
            last = min(self.gap_end(), through)
            lost.append((first, last))
            self.advance(last + 1, deliver)
        return lost

    def gap_end(self) -> int:
        """The last number of the gap that begins at our turn; the highest there is, where nothing
        lies behind it.
        """
        behind = (
            self.received.next_member(self.next_number),
            self.skippable.next_member(self.next_number),
        )
        ends = [number - 1 for number in behind if number is not None]
        return min(ends, default=self._settings.max_number)

    def missing(self, highest: int) -> list[tuple[int, int]]:
        """What has not come of the numbers from our turn to `highest`, the first ranges of it."""
        there = self.received | self.skippable
        return list(islice(there.gaps(self.next_number, highest), _REPORTED_RANGES))
