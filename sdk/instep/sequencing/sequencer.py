"""A numbered sequence at its receiver: the decisions, without I/O, clock or randomness.

One machine serves DIDComm's sender_order, the MessageNumber of WS-ReliableMessaging and SDPi, and
the SequenceNum of WS-Reliability. A `Sequencer` is one scope: a thread and sender, a sequence, a
subscription, a group. It knows numbers, sizes, deadlines and digests; bodies are the store's.

Theory of operation. `next_number` is the lowest number that is not accounted for. A message with
that number is released at once; one ahead of it is buffered. Delivery passes over a number without
a message only when it is cancelled, filled, faulted (expired, say) or given up (S2). Ranges
tell what was received, cancelled and faulted, so the state grows with gaps and not with messages.
`instep.sequencing.transitions` says which phases there are and what moves them; what a peer asks
for where it is not possible is refused, and changes nothing.

Nothing is true before it is durable (S3). Each call returns a `Decision`; the driver stores
what it says together with `checkpoint()` in one transaction (one for many decisions, if it likes),
then calls `committed`, then answers and carries out the effects. What is claimed towards the peer
(`acknowledged`, `cancelled`, `faulted`) is read from the committed state alone. A transaction that
failed is undone by `rolled_back`; a process that died goes on from the state it committed, and
calls `resumed`.

The driver's part beside that: `tick` at `due_us`. `now_us` never goes back within a sequencer.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from instep.model.messages import MessageHeader
from instep.model.ranges import Ranges
from instep.sequencing.effects import (
    AskResend,
    Decision,
    RealignSequence,
    ReportFault,
    ReportLoss,
    SequenceFailed,
)
from instep.sequencing.gaps import GapPolicy, GapTimer
from instep.sequencing.settings import FaultPolicy, IncompleteBehavior, SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import (
    FINAL,
    REFUSALS,
    Refusal,
    SequenceEvent,
    SequencePhase,
    SequenceRefusedError,
    phase_after,
)
from instep.sequencing.window import ReceiveWindow

__all__ = ["Sequencer"]


_NONE: Final = Ranges()
"""For a state, which nobody edits."""


class Sequencer:
    """One numbered sequence. The module says what it promises and how it is driven."""

    phase: SequencePhase

    def __init__(
        self, settings: SequencerSettings | None = None, state: SequencerState | None = None
    ) -> None:
        self.settings = settings or SequencerSettings()
        self.durable = state or SequencerState(next_number=self.settings.first_number)
        """As committed."""
        self._load(self.durable)

    def __repr__(self) -> str:
        return (
            f"<Sequencer {self.phase!s}, turn of {self.next_number}, {self.buffered_messages} held>"
        )

    @property
    def next_number(self) -> int:
        """The number whose turn it is."""
        return self._window.next_number

    @property
    def buffered_messages(self) -> int:
        """How many messages wait for their turn."""
        return len(self._window.buffered)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait for their turn."""
        return self._window.buffered_bytes

    # -- messages --------------------------------------------------------------------------------

    def receive(self, messages: Sequence[MessageHeader], now_us: int) -> Decision:
        """Messages arrived together: each is accepted, a duplicate, or refused (S1).

        Of two copies of a number the first counts.
        """
        outcome = self._begin(now_us)
        numbers = self.take_next(messages)
        if numbers:
            outcome.accepted, outcome.deliver = list(messages), numbers
            return self._end(outcome, now_us)
        window, stop = self._window, self._stop()
        numbers = [m.number for m in messages if not 0 < m.expires_at_us <= now_us]
        if (
            numbers
            and len(numbers) == len(messages)
            and not window.skippable.lows
            and max(numbers) < stop
        ):
            outcome.accepted = window.take_new(messages, numbers, outcome.deliver, now_us)
            if outcome.accepted:
                return self._end(outcome, now_us)
        # What arrived together need not wait for each other, so the lowest number goes first.
        self._one_by_one(sorted(messages, key=_NUMBER), stop, outcome, now_us)
        return self._end(outcome, now_us)

    def take_next(self, messages: Sequence[MessageHeader]) -> list[int]:
        """Accept and release messages that are the next ones, as nearly all are: their numbers.

        It is what `receive` begins with, and all that most messages need. None, and nothing is
        done, where it is not as simple: then `receive` them.
        """
        window = self._window
        first = window.next_number
        after = first + len(messages)
        if (
            window.buffered
            or window.skippable.lows
            or self._announced is not None
            or self.phase is not SequencePhase.OPEN
            or after > self.settings.max_number + 1
        ):
            return []
        numbers = [message.number for message in messages if not message.expires_at_us]
        if not numbers or numbers != list(range(first, after)):
            return []
        window.next_number = after
        window.add_received(messages, numbers)
        return numbers

    def _one_by_one(
        self, ordered: Sequence[MessageHeader], stop: int, outcome: Decision, now_us: int
    ) -> None:
        """The same for messages in the order of their numbers, whatever they are."""
        window, deliver = self._window, outcome.deliver
        buffered, skippable, next_number = window.buffered, window.skippable, window.next_number
        accept, release = outcome.accepted.append, deliver.append
        not_new: list[MessageHeader] = []
        for message in ordered:
            number = message.number
            if number == next_number < stop and not 0 < message.expires_at_us <= now_us:
                accept(message)
                release(number)
                next_number += 1
                if next_number in buffered or skippable:
                    next_number = window.advance(next_number, deliver)
            elif (
                number < next_number
                or number in buffered
                or 0 < message.expires_at_us <= now_us
                or (skippable and window.accounted_ahead(number))
            ):
                not_new.append(message)
            elif number >= stop:
                outcome.refused.append((message, self._refusal_beyond()))
            elif window.buffer(message, now_us):
                accept(message)
            else:
                outcome.refused.append((message, Refusal.FULL))
        window.next_number = next_number
        window.add_received(outcome.accepted, [message.number for message in outcome.accepted])
        for message in not_new:
            self._not_new(message, outcome)

    def fault(self, number: int, reason: Refusal, now_us: int) -> Decision:
        """We answer this number with a fault: it does not count as received, and other content may
        come under it (S7).

        Raises `SequenceRefusedError` where it was delivered or filled: that cannot be undone.
        """
        self._check_range(number, number)
        window = self._window
        if self.phase in REFUSALS:
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        if number in window.received and number not in window.buffered:
            raise SequenceRefusedError(reason, f"message {number} is settled: too late for a fault")
        outcome = self._begin(now_us)
        if number not in window.cancelled:
            self._fault([number], reason, outcome)
        return self._end(outcome, now_us)

    def cancel(self, low: int, high: int, now_us: int) -> Decision:
        """SequenceCancel: what was not received of `low`…`high` never will be (S5).

        What was received is acknowledged as usual. Raises `SequenceRefusedError`.
        """
        self._check_range(low, high)
        if self.phase in (SequencePhase.FAILED, SequencePhase.TERMINATED):
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        window = self._window
        numbers = Ranges.of(*window.received.gaps(low, high))
        self._check_gap_limit(len((window.cancelled | numbers).lows) - len(window.cancelled.lows))
        window.add_cancelled(numbers)
        return self._end(self._begin(now_us), now_us)

    def fill(self, low: int, high: int, now_us: int) -> Decision:
        """SequenceFill: `low`…`high` join the acknowledged ranges and leave the cancelled ones; no
        message will come for those not received (S5).

        Raises `SequenceRefusedError`; a closed sequence's acknowledgement is final.
        """
        self._check_range(low, high)
        if self.phase in FINAL:
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        if self.last_number is not None and high > self.last_number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{low}-{high} reaches beyond the last, {self.last_number}"
            )
        window = self._window
        filled = window.received.copy()
        filled.add_range(low, high)
        left = window.cancelled.copy()
        left.remove(low, high)
        before = len(window.received.lows) + len(window.cancelled.lows)
        self._check_gap_limit(len(filled.lows) + len(left.lows) - before)
        window.add_filled(low, high)
        return self._end(self._begin(now_us), now_us)

    # -- time and gaps ---------------------------------------------------------------------------

    def tick(self, now_us: int) -> Decision:
        """Time has passed: messages may have expired (S6), a gap's policy may act (S4)."""
        return self._end(self._begin(now_us), now_us)

    def due_us(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        since_us, due_us = self._gap_since_us(), self._window.next_expiry_us()
        if since_us is None:
            return due_us
        gap_due_us = self._gap_timer.due_us(since_us)
        return gap_due_us if due_us is None else min(due_us, gap_due_us)

    def announce(self, highest: int, now_us: int) -> Decision:
        """The sender has used the numbers up to `highest` (WS-RM 1.0 MaxMessageNumberUsed): those
        that did not come are missing from now on.
        """
        self._check_range(highest, highest)
        if self.last_number is not None and highest > self.last_number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{highest} is beyond the last, {self.last_number}"
            )
        self._note_announced(highest, now_us)
        return self._end(self._begin(now_us), now_us)

    def give_up(self, through: int, now_us: int, reason: str = "given up") -> Decision:
        """Go on without the numbers up to `through` that did not come (S2); what is held up to
        there is delivered. They are refused from now on.
        """
        self._check_range(through, through)
        outcome = self._begin(now_us)
        if self.phase not in REFUSALS:
            self._skip(min(through, self._stop() - 1), outcome, reason)
        return self._end(outcome, now_us)

    # -- the end ---------------------------------------------------------------------------------

    def last(self, number: int, now_us: int) -> Decision:
        """`number` is the last of the sequence; lower ones are still accepted.

        Raises `SequenceRefusedError` where a higher one was received, or another was the last.
        """
        phase = phase_after(self.phase, SequenceEvent.LAST_KNOWN)
        self._set_last(number, now_us)
        self.phase = phase
        return self._end(self._begin(now_us), now_us)

    def close(self, now_us: int, last_number: int | None = None) -> Decision:
        """Accept nothing new: the acknowledgement is final once this is committed.

        What is held behind gaps is delivered or discarded as `incomplete` says. Raises
        `SequenceRefusedError`.
        """
        phase = phase_after(self.phase, SequenceEvent.CLOSE)
        if last_number is not None:
            self._set_last(last_number, now_us)
        return self._finish(phase, now_us, "the sequence was closed")

    def terminate(self, now_us: int) -> Decision:
        """TerminateSequence: as `close`; after its commit the driver may reclaim everything."""
        phase = phase_after(self.phase, SequenceEvent.TERMINATE)
        return self._finish(phase, now_us, "the sequence was terminated")

    def reset(self) -> Decision:
        """The sender counts anew: nothing said of the old numbers holds. What is held is dropped,
        and reported as lost.
        """
        phase_after(self.phase, SequenceEvent.RESET)
        outcome = Decision(dropped=self._window.discard_buffered())
        if outcome.dropped:
            lost = list(Ranges.of_numbers(outcome.dropped).pairs())
            outcome.effects.append(ReportLoss(lost, "the sender began to count anew"))
        self._load(SequencerState(next_number=self.settings.first_number, epoch=self.epoch + 1))
        return outcome

    # -- durability and claims -------------------------------------------------------------------

    def checkpoint(self) -> SequencerState:
        """The state to store in the transaction that stores all outcomes since the last one."""
        window, gap_timer = self._window, self._gap_timer
        return SequencerState(
            next_number=window.next_number,
            phase=self.phase,
            received=window.received.copy(),
            cancelled=window.cancelled.copy() if window.cancelled else _NONE,
            faulted=window.faulted.copy() if window.faulted else _NONE,
            buffered=list(window.buffered.values()),
            last_number=self.last_number,
            announced=self._announced,
            announced_at_us=self._announced_at_us,
            asked_to=gap_timer.asked_to.copy(),
            acted_at_us=gap_timer.acted_at_us,
            recent=window.recent,
            epoch=self.epoch,
        )

    def committed(self, state: SequencerState) -> None:
        """This checkpoint is durable: from here on it is what we claim (S3)."""
        self.durable = state

    def rolled_back(self) -> None:
        """The transaction failed: all since the last commit is forgotten. The sender, which was
        told nothing of it, sends again.
        """
        self._load(self.durable)

    def resumed(self, now_us: int) -> None:
        """We were away: no gap is held against the sender for that time."""
        self._gap_timer.acted_at_us = now_us

    def acknowledged(self) -> Ranges:
        """The ranges to acknowledge (AcknowledgementRange); none that is cancelled (S5)."""
        received = self.durable.received.copy()
        if not self.settings.acknowledge_buffered:
            for buffered in self.durable.buffered:
                received.remove(buffered.number, buffered.number)
        return received

    def cancelled(self) -> Ranges:
        """The ranges promised never to be accepted (SequenceCancelAcknowledgement; S5)."""
        return self.durable.cancelled.copy()

    def faulted(self) -> Ranges:
        """The ranges answered with a fault and not replaced (ReplyRange/@fault; S6)."""
        return self.durable.faulted.copy()

    # -- around each event -----------------------------------------------------------------------

    def _load(self, state: SequencerState) -> None:
        self.phase = state.phase
        self.epoch = state.epoch
        """Counts the resets: numbers compare only within one epoch."""
        self.last_number = state.last_number
        self._announced = state.announced
        self._announced_at_us = state.announced_at_us
        self._gap_timer = GapTimer(self.settings, state.asked_to.copy(), state.acted_at_us)
        self._window = ReceiveWindow(self.settings, state)

    def _begin(self, now_us: int) -> Decision:
        """Nothing that has expired is delivered by what comes next (S6)."""
        outcome = Decision()
        expired = self._window.expired(now_us)
        if expired:
            self._fault(expired, Refusal.EXPIRED, outcome)
            self._window.advance(self.next_number, outcome.deliver)
        return outcome

    def _end(self, outcome: Decision, now_us: int) -> Decision:
        """Deliver what can be, act on gaps that are due, see whether the sequence is complete."""
        window = self._window
        if window.skippable.lows or window.next_number in window.buffered:
            window.advance(window.next_number, outcome.deliver)
        if window.buffered or self._announced is not None:
            while self._act_on_gap(now_us, outcome):
                pass
        if self.phase is SequencePhase.ENDING and self.next_number >= self._stop():
            self.phase = phase_after(self.phase, SequenceEvent.COMPLETED)
        return outcome

    def _finish(self, phase: SequencePhase, now_us: int, reason: str) -> Decision:
        """Nothing more will be accepted: settle what is held (IncompleteSequenceBehavior)."""
        outcome = self._begin(now_us)
        if self.phase not in REFUSALS:
            discarded = []
            if self.settings.incomplete is IncompleteBehavior.DISCARD:
                discarded = self._window.discard_buffered()
                outcome.dropped += discarded
            lost = self._window.skip(self._highest(), outcome.deliver)
            if lost or discarded:
                all_lost = Ranges.of(*lost) | Ranges.of_numbers(discarded)
                outcome.effects.append(ReportLoss(list(all_lost.pairs()), reason))
        self.phase = phase
        return outcome

    def _stop(self) -> int:
        """The number from which on none is accepted."""
        if self.phase in REFUSALS:
            return self.next_number
        return (self.settings.max_number if self.last_number is None else self.last_number) + 1

    def _check_range(self, low: int, high: int) -> None:
        first, top = self.settings.first_number, self.settings.max_number
        if not first <= low <= high <= top:
            raise SequenceRefusedError(
                Refusal.OUT_OF_RANGE, f"{low}-{high} is not within the numbers {first}-{top}"
            )

    # -- settled numbers and faults --------------------------------------------------------------

    def _not_new(self, message: MessageHeader, outcome: Decision) -> None:
        """A message that is no news: its number is settled or held, or its deadline has passed."""
        number, window = message.number, self._window
        if number in window.received:
            outcome.duplicates.append(message)
            digest = window.digest(number)
            if digest and message.digest and digest != message.digest:
                outcome.deviations.append(message)
            return
        if not self.settings.first_number <= number <= self.settings.max_number:
            refusal = Refusal.OUT_OF_RANGE
        elif number in window.cancelled:
            refusal = Refusal.CANCELLED
        elif number < window.next_number and self.phase not in FINAL:
            refusal = Refusal.GIVEN_UP
        elif self.phase in REFUSALS or number >= self._stop():
            refusal = self._refusal_beyond()
        else:
            refusal = Refusal.EXPIRED
            self._fault([number], refusal, outcome)
        outcome.refused.append((message, refusal))

    def _refusal_beyond(self) -> Refusal:
        """Why a number from `_stop` on, or any after the end, is refused."""
        top = Refusal.OUT_OF_RANGE if self.last_number is None else Refusal.BEYOND_LAST
        return REFUSALS.get(self.phase, top)

    def _fault(self, numbers: list[int], reason: Refusal, outcome: Decision) -> None:
        for number in numbers:
            if self._window.drop(number):
                outcome.dropped.append(number)
            self._window.add_fault(number)
        faulted = Ranges.of_numbers(numbers)
        outcome.effects.append(ReportFault(list(faulted.pairs()), reason))
        if self.settings.fault_policy is FaultPolicy.FAIL:
            self._fail(f"messages {faulted} were faulted: {reason!s}", outcome)
        else:
            self._enforce_gap_limit(outcome)

    def _fail(self, reason: str, outcome: Decision) -> None:
        """Nothing more is delivered; what was held is faulted, acknowledged or not."""
        self.phase = phase_after(self.phase, SequenceEvent.FAIL)
        faulted = self._window.fault_buffered()
        if faulted:
            pairs = list(Ranges.of_numbers(faulted).pairs())
            outcome.effects.append(ReportFault(pairs, Refusal.FAILED))
            # What came with this very event is not accepted at all; the rest was kept before.
            buffered = set(faulted)
            fresh = [message for message in outcome.accepted if message.number in buffered]
            outcome.accepted = [m for m in outcome.accepted if m.number not in buffered]
            outcome.refused += [(message, Refusal.FAILED) for message in fresh]
            outcome.dropped += sorted(buffered.difference(message.number for message in fresh))
        outcome.effects.append(SequenceFailed(reason))

    def _check_gap_limit(self, more_ranges: int) -> None:
        """Refuse a request that would have us remember too many ranges."""
        limit = self.settings.limit_gaps
        if more_ranges > 0 and self._window.lasting_ranges() + more_ranges > limit:
            raise SequenceRefusedError(
                Refusal.TOO_MANY_GAPS, f"the sequence would have more than {limit:,} gaps"
            )

    def _enforce_gap_limit(self, outcome: Decision) -> None:
        limit = self.settings.limit_gaps
        if self.phase not in REFUSALS and self._window.lasting_ranges() > limit:
            self._fail(f"the sequence has more than {limit:,} gaps", outcome)

    # -- gaps ------------------------------------------------------------------------------------

    def _highest(self) -> int:
        """The highest number known to be used; what was cancelled need not have been."""
        last = self._window.received.last
        return max(-1 if last is None else last, -1 if self._announced is None else self._announced)

    def _note_announced(self, highest: int, now_us: int) -> None:
        if self._announced is None or self._announced < self.next_number:
            self._announced_at_us = now_us
        self._announced = max(highest, -1 if self._announced is None else self._announced)

    def _set_last(self, number: int, now_us: int) -> None:
        self._check_range(number, number)
        if self.last_number not in (None, number):
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{number} cannot be the last: {self.last_number} is"
            )
        if self._highest() > number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{number} cannot be the last: {self._highest()} was used"
            )
        self.last_number = number
        self._note_announced(number, now_us)

    def _gap_since_us(self) -> int | None:
        """Since when the number whose turn it is is known to be missing; None when it is not."""
        if self.phase in REFUSALS:
            return None
        since_us = self._window.buffered_since_us()
        if self._announced is not None and self._announced >= self.next_number:
            at_us = self._announced_at_us
            since_us = at_us if since_us is None else min(since_us, at_us)
        return since_us

    def _act_on_gap(self, now_us: int, outcome: Decision) -> bool:
        """Let the policy act on the first gap; whether delivery went on, to another gap maybe."""
        since_us = self._gap_since_us()
        if since_us is None:
            return False
        window, highest = self._window, self._highest()
        policy = self._gap_timer.act(window.next_number, highest, since_us, now_us)
        if policy is GapPolicy.RESEND:
            outcome.effects.append(AskResend(window.missing(highest)))
        elif policy is GapPolicy.REALIGN:
            outcome.effects.append(RealignSequence(window.missing(highest)))
        elif policy is GapPolicy.FAIL:
            end = min(window.gap_end(), highest)
            gap = Ranges.of((window.next_number, end))
            self._fail(f"messages {gap} did not come in time", outcome)
        elif policy is GapPolicy.SKIP:
            end = min(window.gap_end(), highest)
            self._skip(end, outcome, "did not come in time")
            return True
        return False

    def _skip(self, through: int, outcome: Decision, reason: str) -> None:
        lost = self._window.skip(through, outcome.deliver)
        if lost:
            outcome.effects.append(ReportLoss(lost, reason))
        self._enforce_gap_limit(outcome)


_NUMBER = attrgetter("number")
