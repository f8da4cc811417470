"""What every event of a numbered sequence shares: its state, what of it is durable and may be
claimed, and what follows from a change. The events themselves are in `instep.sequencer`.
"""

from __future__ import annotations

from typing import Final

from instep.gap_clock import GapClock
from instep.ranges import Ranges
from instep.received_orders import GapDetector, detect
from instep.sequence_effects import (
    AskResend,
    Numbered,
    Outcome,
    RealignSequence,
    ReportFault,
    ReportLoss,
    SequenceFailed,
)
from instep.sequence_ledger import Ledger
from instep.sequence_settings import FaultPolicy, GapPolicy, Incomplete, SequencerSettings
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

__all__ = ["SequenceCore"]

_NONE: Final = Ranges()
"""For a state, which nobody edits."""


class SequenceCore:
    """State, durability, claims and consequences."""

    def __init__(
        self, settings: SequencerSettings | None = None, state: SequencerState | None = None
    ) -> None:
        self.settings = settings or SequencerSettings()
        self.durable = state or SequencerState(next_number=self.settings.first_number)
        """As committed."""
        self._load(self.durable)

    def __repr__(self) -> str:
        return f"<Sequencer {self.phase!s}, turn of {self.next_number}, {self.held_messages} held>"

    @property
    def next_number(self) -> int:
        """The number whose turn it is."""
        return self._ledger.next_number

    @property
    def held_messages(self) -> int:
        """How many messages wait for their turn."""
        return len(self._ledger.held)

    @property
    def held_bytes(self) -> int:
        """How many bytes wait for their turn."""
        return self._ledger.held_bytes

    # -- durability and claims -------------------------------------------------------------------

    def checkpoint(self) -> SequencerState:
        """The state to store in the transaction that stores all outcomes since the last one."""
        ledger, clock = self._ledger, self._clock
        return SequencerState(
            next_number=ledger.next_number,
            phase=self.phase,
            received=ledger.received.copy(),
            cancelled=ledger.cancelled.copy() if ledger.cancelled else _NONE,
            faulted=ledger.faulted.copy() if ledger.faulted else _NONE,
            held=list(ledger.held.values()),
            last_number=self.last_number,
            announced=self._announced,
            announced_at_us=self._announced_at_us,
            asked_to=clock.asked_to.copy(),
            acted_at_us=clock.acted_at_us,
            recent=ledger.recent,
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
        self._clock.acted_at_us = now_us

    def pending(self) -> Ranges:
        """Numbers received that must not be claimed yet."""
        if self.epoch != self.durable.epoch:
            return self._ledger.received.copy()
        return self._ledger.received - self.durable.received

    def acknowledged(self) -> Ranges:
        """The ranges to acknowledge (AcknowledgementRange); none that is cancelled (S5)."""
        received = self.durable.received.copy()
        if not self.settings.acknowledge_held:
            for held in self.durable.held:
                received.remove(held.number, held.number)
        return received

    def cancelled(self) -> Ranges:
        """The ranges promised never to be accepted (SequenceCancelAcknowledgement; S5)."""
        return self.durable.cancelled.copy()

    def faulted(self) -> Ranges:
        """The ranges answered with a fault and not replaced (ReplyRange/@fault; S6)."""
        return self.durable.faulted.copy()

    def gap_detector(self, sender: str) -> GapDetector:
        """Our element of `received_orders` for this sender (DIDComm)."""
        state = self.durable
        return detect(sender, state.received, state.cancelled, self.settings.first_number)

    # -- around each event -----------------------------------------------------------------------

    def _load(self, state: SequencerState) -> None:
        self.phase = state.phase
        self.epoch = state.epoch
        """Counts the resets: numbers compare only within one epoch."""
        self.last_number = state.last_number
        self._announced = state.announced
        self._announced_at_us = state.announced_at_us
        self._clock = GapClock(self.settings, state.asked_to.copy(), state.acted_at_us)
        self._ledger = Ledger(self.settings, state)

    def _begin(self, now_us: int) -> Outcome:
        """Nothing that has expired is delivered by what comes next (S6)."""
        outcome = Outcome()
        expired = self._ledger.expired(now_us)
        if expired:
            self._fault(expired, Refusal.EXPIRED, outcome)
            self._ledger.advance(self.next_number, outcome.deliver)
        return outcome

    def _end(self, outcome: Outcome, now_us: int) -> Outcome:
        """Deliver what can be, act on gaps that are due, see whether the sequence is complete."""
        ledger = self._ledger
        if ledger.passed.lows or ledger.next_number in ledger.held:
            ledger.advance(ledger.next_number, outcome.deliver)
        if ledger.held or self._announced is not None:
            while self._act(now_us, outcome):
                pass
        if self.phase is SequencePhase.ENDING and self.next_number >= self._stop():
            self.phase = phase_after(self.phase, SequenceEvent.COMPLETED)
        return outcome

    def _finish(self, phase: SequencePhase, now_us: int, reason: str) -> Outcome:
        """Nothing more will be accepted: settle what is held (IncompleteSequenceBehavior)."""
        outcome = self._begin(now_us)
        if self.phase not in REFUSALS:
            discarded = []
            if self.settings.incomplete is Incomplete.DISCARD:
                discarded = self._ledger.discard_held()
                outcome.dropped += discarded
            lost = self._ledger.skip(self._highest(), outcome.deliver)
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

    def _check(self, low: int, high: int) -> None:
        first, top = self.settings.first_number, self.settings.max_number
        if not first <= low <= high <= top:
            raise SequenceRefusedError(
                Refusal.OUT_OF_RANGE, f"{low}-{high} is not within the numbers {first}-{top}"
            )

    # -- settled numbers and faults --------------------------------------------------------------

    def _settled(self, message: Numbered, outcome: Outcome) -> None:
        """A message that is no news: its number is settled or held, or its deadline has passed."""
        number, ledger = message.number, self._ledger
        if number in ledger.received:
            outcome.duplicates.append(message)
            digest = ledger.digest(number)
            if digest and message.digest and digest != message.digest:
                outcome.deviations.append(message)
            return
        if not self.settings.first_number <= number <= self.settings.max_number:
            refusal = Refusal.OUT_OF_RANGE
        elif number in ledger.cancelled:
            refusal = Refusal.CANCELLED
        elif number < ledger.next_number and self.phase not in FINAL:
            refusal = Refusal.GIVEN_UP
        elif self.phase in REFUSALS or number >= self._stop():
            refusal = self._beyond()
        else:
            refusal = Refusal.EXPIRED
            self._fault([number], refusal, outcome)
        outcome.refused.append((message, refusal))

    def _beyond(self) -> Refusal:
        """Why a number from `_stop` on, or any after the end, is refused."""
        top = Refusal.OUT_OF_RANGE if self.last_number is None else Refusal.BEYOND_LAST
        return REFUSALS.get(self.phase, top)

    def _fault(self, numbers: list[int], reason: Refusal, outcome: Outcome) -> None:
        for number in numbers:
            if self._ledger.drop(number):
                outcome.dropped.append(number)
            self._ledger.add_fault(number)
        faulted = Ranges.of_numbers(numbers)
        outcome.effects.append(ReportFault(list(faulted.pairs()), reason))
        if self.settings.fault_policy is FaultPolicy.FAIL:
            self._fail(f"messages {faulted} were faulted: {reason!s}", outcome)
        else:
            self._bound(outcome)

    def _fail(self, reason: str, outcome: Outcome) -> None:
        """Nothing more is delivered; what was held is faulted, acknowledged or not."""
        self.phase = phase_after(self.phase, SequenceEvent.FAIL)
        faulted = self._ledger.fault_held()
        if faulted:
            pairs = list(Ranges.of_numbers(faulted).pairs())
            outcome.effects.append(ReportFault(pairs, Refusal.FAILED))
            # What came with this very event is not accepted at all; the rest was kept before.
            held = set(faulted)
            fresh = [message for message in outcome.accepted if message.number in held]
            outcome.accepted = [m for m in outcome.accepted if m.number not in held]
            outcome.refused += [(message, Refusal.FAILED) for message in fresh]
            outcome.dropped += sorted(held.difference(message.number for message in fresh))
        outcome.effects.append(SequenceFailed(reason))

    def _guard(self, more_ranges: int) -> None:
        """Refuse a request that would have us remember too many ranges."""
        limit = self.settings.limit_gaps
        if more_ranges > 0 and self._ledger.lasting_ranges() + more_ranges > limit:
            raise SequenceRefusedError(
                Refusal.TOO_MANY_GAPS, f"the sequence would have more than {limit:,} gaps"
            )

    def _bound(self, outcome: Outcome) -> None:
        limit = self.settings.limit_gaps
        if self.phase not in REFUSALS and self._ledger.lasting_ranges() > limit:
            self._fail(f"the sequence has more than {limit:,} gaps", outcome)

    # -- gaps ------------------------------------------------------------------------------------

    def _highest(self) -> int:
        """The highest number known to be used; what was cancelled need not have been."""
        last = self._ledger.received.last
        return max(-1 if last is None else last, -1 if self._announced is None else self._announced)

    def _announce(self, highest: int, now_us: int) -> None:
        if self._announced is None or self._announced < self.next_number:
            self._announced_at_us = now_us
        self._announced = max(highest, -1 if self._announced is None else self._announced)

    def _set_last(self, number: int, now_us: int) -> None:
        self._check(number, number)
        if self.last_number not in (None, number):
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{number} cannot be the last: {self.last_number} is"
            )
        if self._highest() > number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{number} cannot be the last: {self._highest()} was used"
            )
        self.last_number = number
        self._announce(number, now_us)

    def _gap_since_us(self) -> int | None:
        """Since when the number whose turn it is is known to be missing; None when it is not."""
        if self.phase in REFUSALS:
            return None
        since_us = self._ledger.held_since_us()
        if self._announced is not None and self._announced >= self.next_number:
            at_us = self._announced_at_us
            since_us = at_us if since_us is None else min(since_us, at_us)
        return since_us

    def _act(self, now_us: int, outcome: Outcome) -> bool:
        """Let the policy act on the first gap; whether delivery went on, to another gap maybe."""
        since_us = self._gap_since_us()
        if since_us is None:
            return False
        ledger, highest = self._ledger, self._highest()
        policy = self._clock.act(ledger.next_number, highest, since_us, now_us)
        if policy is GapPolicy.RESEND:
            outcome.effects.append(AskResend(ledger.missing(highest)))
        elif policy is GapPolicy.REALIGN:
            outcome.effects.append(RealignSequence(ledger.missing(highest)))
        elif policy is GapPolicy.FAIL:
            end = min(ledger.gap_end(), highest)
            gap = Ranges.of((ledger.next_number, end))
            self._fail(f"messages {gap} did not come in time", outcome)
        elif policy is GapPolicy.SKIP:
            end = min(ledger.gap_end(), highest)
            self._skip(end, outcome, "did not come in time")
            return True
        return False

    def _skip(self, through: int, outcome: Outcome, reason: str) -> None:
        lost = self._ledger.skip(through, outcome.deliver)
        if lost:
            outcome.effects.append(ReportLoss(lost, reason))
        self._bound(outcome)
