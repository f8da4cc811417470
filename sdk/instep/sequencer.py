"""A numbered sequence at its receiver: the decisions, without I/O, clock or randomness.

One machine serves DIDComm's sender_order, the MessageNumber of WS-ReliableMessaging and SDPi, and
the SequenceNum of WS-Reliability. A `Sequencer` is one scope: a thread and sender, a sequence, a
subscription, a group. It knows numbers, sizes, deadlines and digests; bodies are the store's.

Theory of operation. The *turn* is the lowest number that is not settled. A message with that number
is released at once; one ahead of it is *held*. Delivery passes over a number without a message only
when it is cancelled, filled, faulted (expired, say) or given up (S2). Ranges tell what was
received, cancelled and faulted, so the state grows with gaps and not with messages.
`sequence_transitions` says which phases there are and what moves them; what a peer asks for where
it is not possible is refused, and changes nothing.

Nothing is true before it is durable (S3). Each call returns an `Outcome`; the driver stores
what it says together with `checkpoint()` in one transaction (one for many outcomes, if it likes),
then calls `committed`, then answers and carries out the effects. What is claimed towards the peer
(`acknowledged`, `cancelled`, `faulted`, `gap_detector`) is read from the committed state alone. A
transaction that failed is undone by `rolled_back`; a process that died goes on from the state it
committed, and calls `resumed`.

The driver's part beside that: `tick` at `due_us`. `now_us` never goes back within a sequencer.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from instep.ranges import Ranges
from instep.sequence_core import SequenceCore
from instep.sequence_effects import Numbered, Outcome, ReportLoss
from instep.sequence_state import SequencerState
from instep.sequence_transitions import (
    FINAL,
    REFUSALS,
    Refusal,
    SequenceEvent,
    SequencePhase,
    SequenceRefusedError,
    phase_after,
)

__all__ = ["Sequencer"]

_NUMBER = attrgetter("number")


class Sequencer(SequenceCore):
    """One numbered sequence. The module says what it promises and how it is driven."""

    # -- messages --------------------------------------------------------------------------------

    def receive(self, messages: Sequence[Numbered], now_us: int) -> Outcome:
        """Messages arrived together: each is accepted, a duplicate, or refused (S1).

        Of two copies of a number the first counts.
        """
        outcome = self._begin(now_us)
        numbers = self.take_next(messages)
        if numbers:
            outcome.accepted, outcome.deliver = list(messages), numbers
            return self._end(outcome, now_us)
        ledger, stop = self._ledger, self._stop()
        numbers = [m.number for m in messages if not 0 < m.expires_at_us <= now_us]
        if (
            numbers
            and len(numbers) == len(messages)
            and not ledger.passed.lows
            and max(numbers) < stop
        ):
            outcome.accepted = ledger.take_new(messages, numbers, outcome.deliver, now_us)
            if outcome.accepted:
                return self._end(outcome, now_us)
        # What arrived together need not wait for each other, so the lowest number goes first.
        self._one_by_one(sorted(messages, key=_NUMBER), stop, outcome, now_us)
        return self._end(outcome, now_us)

    def take_next(self, messages: Sequence[Numbered]) -> list[int]:
        """Accept and release messages that are the next ones, as nearly all are: their numbers.

        It is what `receive` begins with, and all that most messages need. None, and nothing is
        done, where it is not as simple: then `receive` them.
        """
        ledger = self._ledger
        first = ledger.next_number
        after = first + len(messages)
        if (
            ledger.held
            or ledger.passed.lows
            or self._announced is not None
            or self.phase is not SequencePhase.OPEN
            or after > self.settings.max_number + 1
        ):
            return []
        numbers = [message.number for message in messages if not message.expires_at_us]
        if not numbers or numbers != list(range(first, after)):
            return []
        ledger.next_number = after
        ledger.fold(messages, numbers)
        return numbers

    def _one_by_one(
        self, ordered: Sequence[Numbered], stop: int, outcome: Outcome, now_us: int
    ) -> None:
        """The same for messages in the order of their numbers, whatever they are."""
        ledger, deliver = self._ledger, outcome.deliver
        held, passed, turn = ledger.held, ledger.passed, ledger.next_number
        accept, release = outcome.accepted.append, deliver.append
        settled: list[Numbered] = []
        for message in ordered:
            number = message.number
            if number == turn < stop and not 0 < message.expires_at_us <= now_us:
                accept(message)
                release(number)
                turn += 1
                if turn in held or passed:
                    turn = ledger.advance(turn, deliver)
            elif (
                number < turn
                or number in held
                or 0 < message.expires_at_us <= now_us
                or (passed and ledger.settled_ahead(number))
            ):
                settled.append(message)
            elif number >= stop:
                outcome.refused.append((message, self._beyond()))
            elif ledger.hold(message, now_us):
                accept(message)
            else:
                outcome.refused.append((message, Refusal.FULL))
        ledger.next_number = turn
        ledger.fold(outcome.accepted, [message.number for message in outcome.accepted])
        for message in settled:
            self._settled(message, outcome)

    def fault(self, number: int, reason: Refusal, now_us: int) -> Outcome:
        """We answer this number with a fault: it does not count as received, and other content may
        come under it (S7).

        Raises `SequenceRefusedError` where it was delivered or filled: that cannot be undone.
        """
        self._check(number, number)
        ledger = self._ledger
        if self.phase in REFUSALS:
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        if number in ledger.received and number not in ledger.held:
            raise SequenceRefusedError(reason, f"message {number} is settled: too late for a fault")
        outcome = self._begin(now_us)
        if number not in ledger.cancelled:
            self._fault([number], reason, outcome)
        return self._end(outcome, now_us)

    def cancel(self, low: int, high: int, now_us: int) -> Outcome:
        """SequenceCancel: what was not received of `low`…`high` never will be (S5).

        What was received is acknowledged as usual. Raises `SequenceRefusedError`.
        """
        self._check(low, high)
        if self.phase in (SequencePhase.FAILED, SequencePhase.TERMINATED):
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        ledger = self._ledger
        numbers = Ranges.of(*ledger.received.gaps(low, high))
        self._guard(len((ledger.cancelled | numbers).lows) - len(ledger.cancelled.lows))
        ledger.add_cancelled(numbers)
        return self._end(self._begin(now_us), now_us)

    def fill(self, low: int, high: int, now_us: int) -> Outcome:
        """SequenceFill: `low`…`high` join the acknowledged ranges and leave the cancelled ones; no
        message will come for those not received (S5).

        Raises `SequenceRefusedError`; a closed sequence's acknowledgement is final.
        """
        self._check(low, high)
        if self.phase in FINAL:
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        if self.last_number is not None and high > self.last_number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{low}-{high} reaches beyond the last, {self.last_number}"
            )
        ledger = self._ledger
        filled = ledger.received.copy()
        filled.add_range(low, high)
        left = ledger.cancelled.copy()
        left.remove(low, high)
        before = len(ledger.received.lows) + len(ledger.cancelled.lows)
        self._guard(len(filled.lows) + len(left.lows) - before)
        ledger.add_filled(low, high)
        return self._end(self._begin(now_us), now_us)

    # -- time and gaps ---------------------------------------------------------------------------

    def tick(self, now_us: int) -> Outcome:
        """Time has passed: messages may have expired (S6), a gap's policy may act (S4)."""
        return self._end(self._begin(now_us), now_us)

    def due_us(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        since_us, due_us = self._gap_since_us(), self._ledger.next_expiry_us()
        if since_us is None:
            return due_us
        gap_due_us = self._clock.due_us(since_us)
        return gap_due_us if due_us is None else min(due_us, gap_due_us)

    def announce(self, highest: int, now_us: int) -> Outcome:
        """The sender has used the numbers up to `highest` (WS-RM 1.0 MaxMessageNumberUsed): those
        that did not come are missing from now on.
        """
        self._check(highest, highest)
        if self.last_number is not None and highest > self.last_number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{highest} is beyond the last, {self.last_number}"
            )
        self._announce(highest, now_us)
        return self._end(self._begin(now_us), now_us)

    def give_up(self, through: int, now_us: int, reason: str = "given up") -> Outcome:
        """Go on without the numbers up to `through` that did not come (S2); what is held up to
        there is delivered. They are refused from now on.
        """
        self._check(through, through)
        outcome = self._begin(now_us)
        if self.phase not in REFUSALS:
            self._skip(min(through, self._stop() - 1), outcome, reason)
        return self._end(outcome, now_us)

    # -- the end ---------------------------------------------------------------------------------

    def last(self, number: int, now_us: int) -> Outcome:
        """`number` is the last of the sequence; lower ones are still accepted.

        Raises `SequenceRefusedError` where a higher one was received, or another was the last.
        """
        phase = phase_after(self.phase, SequenceEvent.LAST_KNOWN)
        self._set_last(number, now_us)
        self.phase = phase
        return self._end(self._begin(now_us), now_us)

    def close(self, now_us: int, last_number: int | None = None) -> Outcome:
        """Accept nothing new: the acknowledgement is final once this is committed.

        What is held behind gaps is delivered or discarded as `incomplete` says. Raises
        `SequenceRefusedError`.
        """
        phase = phase_after(self.phase, SequenceEvent.CLOSE)
        if last_number is not None:
            self._set_last(last_number, now_us)
        return self._finish(phase, now_us, "the sequence was closed")

    def terminate(self, now_us: int) -> Outcome:
        """TerminateSequence: as `close`; after its commit the driver may reclaim everything."""
        phase = phase_after(self.phase, SequenceEvent.TERMINATE)
        return self._finish(phase, now_us, "the sequence was terminated")

    def reset(self) -> Outcome:
        """The sender counts anew: nothing said of the old numbers holds. What is held is dropped,
        and reported as lost.
        """
        phase_after(self.phase, SequenceEvent.RESET)
        outcome = Outcome(dropped=self._ledger.discard_held())
        if outcome.dropped:
            lost = list(Ranges.of_numbers(outcome.dropped).pairs())
            outcome.effects.append(ReportLoss(lost, "the sender began to count anew"))
        self._load(SequencerState(next_number=self.settings.first_number, epoch=self.epoch + 1))
        return outcome
