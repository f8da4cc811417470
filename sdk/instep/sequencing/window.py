"""The book of a sequence's numbers: what was received, what waits, what delivery passes over.

It keeps count and decides nothing; `instep.sequencing.sequencer` does.
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
    """The live, changing side of the numbers in a `SequencerState`.

    Between two events: `received` includes what is held; `skippable` are the numbers from our turn
    on that need no message (cancelled, filled, by policy faulted, or released ahead of their turn
    where there is no order); our turn is neither held nor passed over.
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
        self._expiries: list[tuple[int, int]] = []
        self._index_expiries()

    # -- what is held ----------------------------------------------------------------------------

    def buffer(self, message: MessageHeader, now_us: int) -> bool:
        """A new message waits for its turn; False where there is no room for it (S8).

        `add_received` adds it to what was received.
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
        """Whether so many messages more, of so many bytes together, may be held (S8)."""
        settings = self._settings
        return (
            len(self.buffered) + messages <= settings.limit_messages
            and self.buffered_bytes + size_bytes <= settings.limit_bytes
        )

    def add_deadlines(self, deadlines: list[tuple[int, int]]) -> None:
        """Note `(expires_at_us, number)` of messages that are held now."""
        for deadline in deadlines:
            heappush(self._expiries, deadline)
        if len(self._expiries) > 2 * len(self.buffered) + 64:
            self._index_expiries()

    def release_ahead(self, number: int) -> None:
        """A new message is released before its turn: nothing more is wanted under its number."""
        self.skippable.add(number)
        self.received.add(number)

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

    def fault_buffered(self, reason: Refusal) -> list[int]:
        """The same, and the numbers are faulted instead of received."""
        numbers = self.discard_buffered()
        self.forget_received(numbers)
        for low, high in Ranges.of_numbers(numbers).pairs():
            self.faulted.set_range(low, high, reason)
        return numbers

    def forget_received(self, numbers: list[int]) -> None:
        """These were seen and do not count as received."""
        self.received.subtract(Ranges.of_numbers(numbers))
        self.highest_seen = max([self.highest_seen, *numbers])

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
        self.remember_contents(accepted, numbers)

    def remember_contents(self, accepted: Sequence[MessageHeader], numbers: list[int]) -> None:
        """Remember the last contents, to compare copies with them (S7)."""
        if self.faulted.lows:
            # New content after a fault is the content that counts (S7).
            self.faulted.subtract(Ranges.of_numbers(numbers))
        most = self._remembered
        contents = [(message.number, message.digest) for message in accepted[-most:]]
        if len(contents) < most:
            contents = (self.recent + contents)[-most:]
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

    def add_fault(self, number: int, reason: Refusal) -> None:
        """The number was answered with a fault; other content may come under it."""
        self.recent = [content for content in self.recent if content[0] != number]
        self.highest_seen = max(self.highest_seen, number)
        self.faulted.set_range(number, number, reason)
        if self._settings.fault_policy is FaultPolicy.SKIP and number >= self.next_number:
            self.skippable.add(number)

    def add_cancelled(self, numbers: Ranges) -> None:
        """Numbers that were not received never will be."""
        self.cancelled.update(numbers)
        self.faulted.subtract(numbers)
        self.skippable = self._skippable_ahead()

    def add_filled(self, numbers: Ranges) -> None:
        """The numbers count as received; no message will come for those that did not."""
        self.received.update(numbers)
        self.cancelled.subtract(numbers)
        self.faulted.subtract(numbers)
        self.skippable = self._skippable_ahead()

    def settle(self, through: int, *, deliver_buffered: bool) -> list[int]:
        """All up to `through` that is not cancelled counts as received; what is held up to there is
        released in its turn, or forgotten: its numbers, rising.
        """
        for low, high in (self.received | self.cancelled).gaps(self.next_number, through):
            self.received.add_range(low, high)
            self.faulted.remove(low, high)
        forgotten = []
        if not deliver_buffered:
            forgotten = sorted(number for number in self.buffered if number <= through)
            for number in forgotten:
                self.buffered_bytes -= self.buffered.pop(number).size_bytes
        self.skippable = self._skippable_ahead()
        return forgotten

    def lasting_ranges(self) -> int:
        """How many ranges are remembered for good, at least; held messages make others, bounded
        with them.
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
        return list(islice(there.gaps(self.next_number, highest), REPORTED_RANGES))
