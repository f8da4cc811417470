"""A receiver of one sequence in its plainest form, written from the rules S1 to S14.

It has sets of numbers and no ranges, takes one message after the other, and looks for everything
anew each time. Phases, policies and reasons are words. It imports nothing of what it judges; the
settings are handed to it as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Answer", "Message", "Receiver", "Refused"]

_US = 1_000_000
_OPEN = ("open", "ending")
_FINAL = ("closed", "failed", "terminated")
_BEYOND = {
    "complete": "beyond-last",
    "closed": "closed",
    "failed": "failed",
    "terminated": "terminated",
}
_REACH = 1_000


class Message(NamedTuple):
    """A message as it arrives."""

    number: int
    content: bytes
    size: int
    expires_us: int


class Waiting(NamedTuple):
    """A message that waits for its number to be next."""

    content: bytes
    size: int
    expires_us: int
    since_us: int


class Refused(Exception):
    """A request is refused, for this reason."""


class Answer:
    """What one envelope, or the time, led to."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, bytes]] = []
        self.deliver: list[int] = []
        self.dropped: dict[int, int] = {}
        """Messages that had waited, with their sizes."""
        self.duplicates: list[tuple[int, bytes]] = []
        self.changed: list[tuple[int, bytes]] = []
        self.uncompared: list[tuple[int, bytes]] = []
        self.refused: list[tuple[int, bytes, str]] = []
        self.ended: list[tuple[int, str, str, bool, bool]] = []
        """Number, end, who decided, whether its sender is told, whether it was discarded."""
        self.effects: list[tuple[str, tuple[int, ...], str]] = []
        """Kind, numbers, reason where the peer learns of it."""
        self.superseded: list[int] = []

    def end(
        self,
        numbers: Iterable[int],
        end: str,
        by: str = "receiver",
        *,
        told: bool = False,
        discarded: bool = False,
    ) -> None:
        self.ended += [(number, end, by, told, discarded) for number in numbers]

    def effect(self, kind: str, numbers: Iterable[int] = (), reason: str = "") -> None:
        self.effects.append((kind, tuple(sorted(numbers)), reason))

    def take_back(self, numbers: Collection[int]) -> list[tuple[int, bytes]]:
        """Messages of this very envelope that are not accepted after all."""
        back = [one for one in self.accepted if one[0] in numbers]
        self.accepted = [one for one in self.accepted if one not in back]
        gone = {number for number, _ in back}
        self.superseded = [number for number in self.superseded if number not in gone]
        return back


class Receiver:
    """One sequence, between two envelopes."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.phase = "open"
        self.next: int = settings.first_number
        self.received: frozenset[int] = frozenset()
        """Or filled; those that wait are among them."""
        self.cancelled: frozenset[int] = frozenset()
        self.passable: frozenset[int] = frozenset()
        """Discarded at the end, and not acknowledged: delivery passes them."""
        self.faulted: dict[int, str] = {}
        self.waiting: dict[int, Waiting] = {}
        self.recent: list[tuple[int, bytes]] = []
        self.last: int | None = None
        self.announced: int | None = None
        self.announced_us = 0
        self.highest_seen = -1
        self.tries: list[int] = []
        """For each time that the gap at `next` was acted on: the highest number known."""
        self.acted_us = self.running_us = self.resumed_us = 0
        self.expires_us = self.active_us = self.ended_us = self.copies_us = 0
        self.ended_in = ""

    def copy(self) -> Receiver:
        copy = object.__new__(Receiver)
        copy.__dict__.update(self.__dict__)
        copy.faulted, copy.waiting = self.faulted.copy(), self.waiting.copy()
        copy.recent, copy.tries = self.recent.copy(), self.tries.copy()
        return copy

    # -- what is called --------------------------------------------------------------------------

    def take(self, events: Sequence[tuple[str, Any]], now_us: int) -> Answer:
        """The events of one envelope. Raises `Refused`; the caller keeps what was before."""
        answer = Answer()
        if events and events[0][0] == "Reset":
            self._reset(answer)
            self._active(now_us)
            events = events[1:]
        else:
            self._begin(answer, now_us)
        if events:
            self._active(now_us)
        failed_before = self.phase == "failed"
        for kind, value in events:
            if kind == "Receive":
                self._receive(value, answer, now_us)
            elif self.phase != "failed" or failed_before:
                getattr(self, f"_{kind.lower()}")(value, answer, now_us)
            self._settle(answer)
        self._finish_call(answer, now_us)
        return answer

    def tick(self, now_us: int) -> Answer:
        return self.take([], now_us)

    def resume(self, now_us: int) -> None:
        """The process has started again (S4, S10)."""
        self.running_us = now_us
        self.acted_us = max(self.acted_us, now_us)
        if self.phase in _OPEN:
            self._active(now_us)

    def due_us(self) -> int | None:
        """When the time is to be acted on next (S14)."""
        times = [one.expires_us for one in self.waiting.values() if one.expires_us]
        since_us = self._gap_since_us()
        if since_us is not None:
            times.append(self._gap_due_us(since_us))
        ends_us = self._ends_us()
        if self.phase in _OPEN and ends_us is not None:
            times.append(ends_us)
        return min(times, default=None)

    def forget_us(self) -> int | None:
        """From when on it may be forgotten (S10)."""
        if not self.ended_us:
            return None
        keep_us = self.ended_us + int(self.settings.keep_ended_s * _US)
        longest_us = self.ended_us + int(self.settings.keep_copies_s * _US)
        return max(keep_us, min(self.copies_us, longest_us))

    def acknowledged(self) -> frozenset[int]:
        """What is claimed to be received (S3)."""
        return self.received - (
            set() if self.settings.acknowledge_buffered else self.waiting.keys()
        )

    def wanted(self) -> list[int]:
        """The numbers that are missing, and may still come (Nack)."""
        if self.phase not in _OPEN:
            return []
        highest = max(*self.received, self.highest_seen, self.announced or -1, -1)
        return [n for n in range(self.next, highest + 1) if not self._passes(n, waiting=True)]

    # -- around each event -----------------------------------------------------------------------

    def _active(self, now_us: int) -> None:
        if self.settings.idle_timeout_s:
            self.active_us = now_us

    def _ends_us(self) -> int | None:
        """When the sequence ends by itself (S10)."""
        idle_us = int(self.settings.idle_timeout_s * _US)
        times = [self.expires_us] if self.expires_us else []
        if idle_us and self.active_us:
            times.append(self.active_us + idle_us)
        return min(times, default=None)

    def _begin(self, answer: Answer, now_us: int) -> None:
        expired = [n for n, one in self.waiting.items() if 0 < one.expires_us <= now_us]
        if expired:
            self._fault_numbers(expired, "expired", answer)
            self._settle(answer)
        ends_us = self._ends_us()
        if self.phase in _OPEN and ends_us is not None and now_us >= ends_us:
            event = "expired" if ends_us == self.expires_us else "idle"
            self._end_sequence("closed", answer)
            if self.settings.on_timeout == "terminate":
                self.phase = "terminated"
            answer.effect("ended", reason=event)

    def _settle(self, answer: Answer) -> None:
        if self.phase == "failed":
            return
        self._advance(answer)
        if self.phase == "ending" and self.next >= self._stop():
            self.phase = "complete"

    def _finish_call(self, answer: Answer, now_us: int) -> None:
        self._settle(answer)
        while self._act_on_gap(answer, now_us):
            pass
        self._settle(answer)
        highest = max(self.received, default=None)
        if self.announced is not None and highest is not None and self.phase == "open":  # noqa: SIM102
            if self.announced < self.next and self.announced <= highest:
                self.announced = None
        if self.phase not in _OPEN and self.phase != self.ended_in:
            self.ended_us, self.ended_in = now_us, self.phase
        answer.end(answer.superseded, "superseded", "sender")

    # -- delivery --------------------------------------------------------------------------------

    def _passes(self, number: int, *, waiting: bool = False) -> bool:
        """Whether delivery goes on without a message of this number (S2)."""
        if number in self.waiting:
            return waiting
        return number in self.received | self.cancelled | self.passable or (
            number in self.faulted and self.settings.fault_policy == "skip"
        )

    def _advance(self, answer: Answer) -> None:
        while True:
            if self.waiting.pop(self.next, None) is not None:
                answer.deliver.append(self.next)
            elif not self._passes(self.next):
                return
            self.next += 1

    def _skip(self, through: int, answer: Answer) -> list[int]:
        """Deliver without what is missing up to here; returns that."""
        lost = []
        while self.next <= through:
            lost.append(self.next)
            self.next += 1
            self._advance(answer)
        return lost

    def _give_up(self, through: int, answer: Answer) -> None:
        lost = self._skip(through, answer)
        if lost:
            answer.effect("loss", lost)
            answer.end([n for n in lost if n not in self.faulted], "lost")
        self._bound_gaps(answer)

    def _highest(self) -> int:
        return max(*self.received, -1 if self.announced is None else self.announced, -1)

    def _stop(self) -> int:
        """The first number that is not accepted."""
        if self.phase not in _OPEN:
            return self.next
        return int(self.settings.max_number if self.last is None else self.last) + 1

    def _missing_to(self, highest: int) -> list[int]:
        there = self.received | self.cancelled | self.faulted.keys()
        return [n for n in range(self.next, highest + 1) if n not in there]

    # -- bounds ----------------------------------------------------------------------------------

    def _ranges(self) -> int:
        """Ranges that stay for good (S8)."""
        faults = sorted(self.faulted.items())
        fault_ranges = bool(faults) + sum(
            later[0] != one[0] + 1 or later[1] != one[1] for one, later in pairwise(faults)
        )
        return _count(self.received) + _count(self.cancelled) + fault_ranges - len(self.waiting)

    def _bound_gaps(self, answer: Answer) -> None:
        if self.phase in _OPEN and self._ranges() > self.settings.limit_gaps:
            self._fail(answer)

    def _check_gaps(self, more: int) -> None:
        if more > 0 and self._ranges() + more > self.settings.limit_gaps:
            raise Refused("too-many-gaps")

    def _jump(self) -> int:
        settings = self.settings
        return int(settings.limit_jump or settings.max_number + 1 - settings.first_number)

    def _check_range(self, *numbers: int) -> None:
        for number in numbers:
            if not self.settings.first_number <= number <= self.settings.max_number:
                raise Refused("out-of-range")

    def _check_open(self) -> None:
        if self.phase not in _OPEN:
            raise Refused(_BEYOND[self.phase])

    def _check_last(self, number: int) -> None:
        if self.last is not None and number > self.last:
            raise Refused("beyond-last")

    def _check_ahead(self, number: int) -> None:
        if number - self.next >= self._jump():
            raise Refused(self._too_far(number))

    def _too_far(self, number: int) -> str:
        reached = number - self.next < _REACH * self._jump()
        return "too-far-ahead" if reached else "out-of-reach"

    # -- messages --------------------------------------------------------------------------------

    def _receive(self, messages: Sequence[Message], answer: Answer, now_us: int) -> None:
        stop = self._stop()
        not_new: list[Message] = []
        accepted: list[Message] = []
        for one in sorted(messages, key=lambda message: message.number):
            number = one.number
            expired = 0 < one.expires_us <= now_us
            if number == self.next < stop and not expired:
                self._accept(one, accepted, answer)
                answer.deliver.append(number)
                self.next += 1
                self._advance(answer)
            elif number < self.next or number in self.received | self.cancelled:
                not_new.append(one)
            elif number >= stop:
                answer.refused.append((*one[:2], self._beyond()))
            elif number - self.next >= self._jump():
                answer.refused.append((*one[:2], self._too_far(number)))
            elif expired:
                not_new.append(one)
            elif not self.settings.ordered:
                self._accept(one, accepted, answer)
                answer.deliver.append(number)
            elif not self._has_room(one.size):
                answer.refused.append((*one[:2], "full"))
            else:
                self._accept(one, accepted, answer)
                self.waiting[number] = Waiting(one.content, one.size, one.expires_us, now_us)
        most = max(1, self.settings.remembered_contents)
        self.recent = [*self.recent, *(one[:2] for one in accepted)][-most:]
        self.copies_us = max([self.copies_us, *(one.expires_us for one in accepted)])
        changed = [one.number for one in not_new if self._not_new(one, answer)]
        if changed:
            self._changed_numbers(changed, answer)
        if not self.settings.ordered and accepted:
            if self._highest() >= self.next:
                self._note_announced(self._highest(), now_us)
            self._bound_gaps(answer)

    def _accept(self, one: Message, accepted: list[Message], answer: Answer) -> None:
        accepted.append(one)
        answer.accepted.append(one[:2])
        self.received |= {one.number}
        if self.faulted.pop(one.number, ""):
            answer.superseded.append(one.number)

    def _has_room(self, size: int) -> bool:
        held = sum(one.size for one in self.waiting.values())
        few = len(self.waiting) < self.settings.limit_messages
        return bool(few and held + size <= self.settings.limit_bytes)

    def _beyond(self) -> str:
        return _BEYOND.get(self.phase, "out-of-range" if self.last is None else "beyond-last")

    def _not_new(self, one: Message, answer: Answer) -> bool:
        """Whether it is a copy with other content (S7)."""
        number = one.number
        if self.phase == "terminated":
            answer.refused.append((*one[:2], "terminated"))
        elif number in self.received:
            answer.duplicates.append(one[:2])
            if number in self.waiting:
                known = self.waiting[number].content
            else:
                known = next((content for n, content in self.recent if n == number), b"")
            if not known:
                answer.uncompared.append(one[:2])
            elif known != one.content:
                answer.changed.append(one[:2])
                return True
        elif not self.settings.first_number <= number <= self.settings.max_number:
            answer.refused.append((*one[:2], "out-of-range"))
        elif number in self.cancelled:
            answer.refused.append((*one[:2], "cancelled"))
        elif number < self.next and self.phase not in _FINAL:
            answer.refused.append((*one[:2], "given-up"))
        elif self.phase not in _OPEN or number >= self._stop():
            answer.refused.append((*one[:2], self._beyond()))
        else:
            self._fault_numbers([number], "expired", answer)
            answer.refused.append((*one[:2], "expired"))
        return False

    def _changed_numbers(self, numbers: list[int], answer: Answer) -> None:
        policy = self.settings.on_changed
        if policy == "realign" and self.phase not in _FINAL:
            answer.effect("realign", set(numbers))
        elif policy == "fail" and self.phase in _OPEN:
            self._fail(answer)

    # -- faults and failures ---------------------------------------------------------------------

    def _take_waiting(self, numbers: Collection[int]) -> dict[int, int]:
        """Those of them that wait are removed; returns their sizes."""
        found = {n: one.size for n, one in self.waiting.items() if n in numbers}
        for number in found:
            del self.waiting[number]
        return found

    def _drop(self, numbers: dict[int, int], reason: str, answer: Answer) -> set[int]:
        """Messages that waited, with their sizes, go to the dead letter; those of this envelope are
        refused, or count as copies where there is no reason. Returns the numbers of these.
        """
        back = answer.take_back(numbers)
        if reason:
            answer.refused += [(*one, reason) for one in back]
        else:
            answer.duplicates += back
        fresh = {number for number, _ in back}
        answer.dropped |= {n: size for n, size in numbers.items() if n not in fresh}
        return fresh

    def _fault_numbers(self, numbers: Sequence[int], reason: str, answer: Answer) -> None:
        held = self._take_waiting(numbers)
        self.received = self.received.difference(held)
        kept = held.keys() - self._drop(held, reason, answer)
        new = {n for n in numbers if n not in kept and self.faulted.get(n) != reason}
        self.recent = [one for one in self.recent if one[0] not in numbers]
        for number in numbers:
            self.faulted[number] = reason
            self.highest_seen = max(self.highest_seen, number)
        expired = reason == "expired"
        answer.end(kept, "expired" if expired else "failed", told=True)
        answer.end(new, "expired" if expired else "refused", told=True)
        answer.effect("fault", set(numbers), reason)
        if self.phase in _OPEN:
            if self.settings.fault_policy == "fail":
                self._fail(answer)
            else:
                self._bound_gaps(answer)

    def _fault_waiting(self, reason: str, answer: Answer) -> None:
        held = self._take_waiting(set(self.waiting))
        numbers = set(held)
        self.received -= numbers
        self.recent = [one for one in self.recent if one[0] not in numbers]
        self.faulted |= dict.fromkeys(numbers, reason)
        self.highest_seen = max([self.highest_seen, *numbers])
        if numbers:
            answer.effect("fault", numbers, reason)
            fresh = self._drop(held, reason, answer)
            answer.end(numbers - fresh, "failed", told=True)
            answer.end(fresh, "refused", told=True)

    def _fail(self, answer: Answer) -> None:
        self.phase = "failed"
        if self.settings.incomplete == "fault":
            self._fault_waiting("failed", answer)
        answer.effect("failed")

    def _end_sequence(self, phase: str, answer: Answer) -> None:
        """What waits is delivered, discarded or faulted."""
        if self.phase in _OPEN:
            what, discarded, kept = self.settings.incomplete, set[int](), set[int]()
            if what == "fault":
                highest = self._highest()
                self._fault_waiting("closed", answer)
                answer.end(self._missing_to(highest), "lost")
            elif what == "discard":
                held = self._take_waiting(set(self.waiting))
                discarded = set(held)
                fresh = self._drop(held, "closed", answer)
                kept = discarded - fresh
                answer.end(kept, "failed", discarded=True)
                self.passable |= kept
                self.highest_seen = max([self.highest_seen, *discarded])
                self.received -= fresh if self.settings.acknowledge_buffered else discarded
            lost = set(self._skip(self._highest(), answer)) - kept
            if what != "fault":
                answer.end(lost - self.faulted.keys(), "lost")
            if lost or discarded:
                answer.effect("loss", lost | discarded)
        self.phase = phase

    # -- requests --------------------------------------------------------------------------------

    def _cancel(self, pairs: Sequence[tuple[int, int]], answer: Answer, _now_us: int) -> None:
        for pair in pairs:
            self._check_range(*pair)
        if self.phase in ("failed", "terminated"):
            raise Refused(_BEYOND[self.phase])
        numbers = _numbers(pairs) - self.received
        self._check_gaps(_count(self.cancelled | numbers) - _count(self.cancelled))
        answer.end(numbers - self.cancelled, "cancelled", "sender")
        self.cancelled |= numbers
        self._unfault(numbers)

    def _fill(self, pairs: Sequence[tuple[int, int]], answer: Answer, _now_us: int) -> None:
        for low, high in pairs:
            self._check_range(low, high)
            self._check_last(high)
            self._check_ahead(low)
        if self.phase in _FINAL:
            raise Refused(_BEYOND[self.phase])
        numbers = _numbers(pairs)
        received, cancelled = self.received | numbers, self.cancelled - numbers
        self._check_gaps(
            _count(received) + _count(cancelled) - _count(self.received) - _count(self.cancelled)
        )
        answer.end(numbers - self.received, "filled", "sender")
        self.received, self.cancelled = received, cancelled
        self._unfault(numbers)

    def _unfault(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.faulted.pop(number, None)

    def _fault(self, asked: tuple[int, str], answer: Answer, _now_us: int) -> None:
        number, reason = asked
        self._check_range(number)
        self._check_open()
        if number in self.received and number not in self.waiting:
            raise Refused(reason)
        if number not in self.cancelled:
            self._fault_numbers([number], reason, answer)

    def _changed(self, number: int, answer: Answer, _now_us: int) -> None:
        self._changed_numbers([number], answer)

    def _announce(self, highest: int, _answer: Answer, now_us: int) -> None:
        self._check_range(highest)
        self._check_last(highest)
        self._check_ahead(highest)
        self._note_announced(highest, now_us)

    def _note_announced(self, highest: int, now_us: int) -> None:
        if self.announced is None or self.announced < self.next:
            self.announced_us = now_us
        self.announced = max(highest, -1 if self.announced is None else self.announced)

    def _giveup(self, through: int, answer: Answer, _now_us: int) -> None:
        self._check_range(through)
        if self.phase in _OPEN:
            self._give_up(min(through, self._stop() - 1), answer)
        elif self.waiting:
            self._advance(answer)
            self._give_up(min(through, self._highest()), answer)

    def _realigned(self, asked: tuple[int, bool], answer: Answer, _now_us: int) -> None:
        through, deliver = asked
        self._check_range(through)
        if self.phase not in _OPEN:
            return
        upto = range(self.next, min(through, self._stop() - 1) + 1)
        missing = {n for n in upto if n not in self.received | self.cancelled}
        self.received |= missing
        self._unfault(missing)
        dropped = self._take_waiting(set() if deliver else set(upto))
        fresh = self._drop(dropped, "", answer)
        answer.end(missing | fresh, "filled")
        answer.end(dropped.keys() - fresh, "failed", discarded=True)

    def _replayed(self, number: int, _answer: Answer, _now_us: int) -> None:
        if (self.phase == "failed" or self.phase in _OPEN) and number in self.faulted:
            self.received |= {number}
            self.cancelled -= {number}
            self._unfault([number])

    def _last(self, number: int, _answer: Answer, now_us: int) -> None:
        if self.phase in _FINAL:
            raise Refused(_BEYOND[self.phase])
        self._check_range(number)
        if self.last not in (None, number) or self._highest() > number:
            raise Refused("beyond-last")
        self._check_ahead(number)
        self.last = number
        self._note_announced(number, now_us)
        if self.phase == "open":
            self.phase = "ending"

    def _close(self, _none: None, answer: Answer, _now_us: int) -> None:
        if self.phase in ("failed", "terminated"):
            raise Refused(_BEYOND[self.phase])
        self._end_sequence("closed", answer)

    def _terminate(self, _none: None, answer: Answer, _now_us: int) -> None:
        self._end_sequence("terminated", answer)

    def _resume(self, _none: None, _answer: Answer, now_us: int) -> None:
        if self.phase != "failed":
            raise Refused(_BEYOND[self.phase])
        self.phase = "open" if self.last is None else "ending"
        self.resumed_us, self.tries = now_us, []
        self.ended_us, self.ended_in = 0, ""

    def _renew(self, expires_us: int, _answer: Answer, _now_us: int) -> None:
        self._check_open()
        self.expires_us = expires_us

    def _reset(self, answer: Answer) -> None:
        answer.dropped = self._take_waiting(set(self.waiting))
        dropped = answer.dropped.keys()
        answer.end(self.received - dropped, "delivered")
        answer.end(self._missing_to(self._highest()), "lost", "sender")
        answer.end(dropped, "failed", "sender")
        if dropped:
            answer.effect("loss", dropped)
        running_us = self.running_us
        self.__dict__.update(Receiver(self.settings).__dict__)
        self.running_us = running_us

    # -- gaps ------------------------------------------------------------------------------------

    def _gap_since_us(self) -> int | None:
        """Since when the next number is known to be missing (S4)."""
        times = [one.since_us for one in self.waiting.values()]
        if self.announced is not None and self.announced >= self.next:
            times.append(self.announced_us)
        if self.phase not in _OPEN or not times:
            return None
        return max(min(times), self.running_us, self.resumed_us)

    def _gap_due_us(self, since_us: int) -> int:
        due_us = since_us + int(self.settings.gap_deadline_s * _US)
        if any(number >= self.next for number in self.tries):
            return max(due_us, self.acted_us + int(self.settings.gap_repeat_s * _US))
        return due_us

    def _act_on_gap(self, answer: Answer, now_us: int) -> bool:
        """Whether delivery has advanced."""
        since_us = self._gap_since_us()
        if since_us is None or now_us < self._gap_due_us(since_us):
            return False
        settings, highest = self.settings, self._highest()
        missing = [n for n in range(self.next, highest + 1) if not self._passes(n, waiting=True)]
        self.tries = [number for number in self.tries if number >= self.next]
        policy = str(settings.gap_policy)
        if policy in ("wait", "resend"):
            if len(self.tries) < settings.gap_attempts:
                self.tries.append(highest)
                self.acted_us = now_us
                if policy == "resend":
                    answer.effect("ask", missing)
                return False
            policy = str(settings.gap_last_resort)
        if policy == "realign":
            self.tries = self.tries or [highest]
            self.acted_us = now_us
            answer.effect("realign", missing)
        elif policy == "fail":
            self._fail(answer)
        else:
            end = self.next
            while end < highest and not self._passes(end + 1, waiting=True):
                end += 1
            self._give_up(end, answer)
            return True
        return False


def _numbers(pairs: Iterable[tuple[int, int]]) -> frozenset[int]:
    return frozenset(number for low, high in pairs for number in range(low, high + 1))


def _count(numbers: Collection[int]) -> int:
    """How many ranges these numbers make."""
    return sum(number - 1 not in numbers for number in numbers)
