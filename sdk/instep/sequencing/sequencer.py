"""A numbered sequence at its receiver: the decisions, without I/O, clock or randomness.

One machine serves DIDComm's sender_order, the MessageNumber of WS-ReliableMessaging and SDPi, and
the SequenceNum of WS-Reliability. A `Sequencer` is one scope: a thread and sender, a sequence, a
subscription, a group. It knows numbers, sizes, deadlines and digests; the store keeps the bodies.

Theory of operation. `next_number` is the lowest number that is not accounted for. A message with
that number is released at once; one ahead of it is buffered, or, where `ordered` is off, released
as well. Delivery skips a number without a message only when it is cancelled, filled, faulted (for
example expired), realigned or given up (S2). Ranges record the numbers that were received,
cancelled and faulted, so the state grows with gaps and not with messages.
`instep.sequencing.transitions` lists the phases and their transitions. A request that the phase
does not allow is refused and changes nothing.

`apply` takes the events of one envelope (`instep.sequencing.events`) and decides them as a whole
or, with `SequenceRefusedError`, not at all (S11). `receive` is `apply` for an envelope of messages
only, as nearly all are.

Nothing is claimed before it is durable (S3). Each call returns a `Decision`. The driver stores it
together with `checkpoint()` in one transaction, which may hold many decisions; then it calls
`committed`; then it answers and carries out the effects. Claims towards the peer (`claims`) are
read from the committed state alone. `roll_back` undoes a transaction that failed. A new process
starts from the committed state and calls `resume`.

The driver also calls `tick` at `due_us`, and forgets the sequence from `reclaimable_at_us` on
(S10). `now_us`, in microseconds since 1970, never goes back within a sequencer.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import msgspec

from instep.model.messages import CONTENT_BYTES, MessageHeader
from instep.model.ranges import RangeMap, Ranges
from instep.sequencing import fast_path
from instep.sequencing.claims import Claims
from instep.sequencing.effects import (
    AskResend,
    Decision,
    Pairs,
    RealignSequence,
    ReportFault,
    ReportLoss,
    SequenceEnded,
    SequenceFailed,
)
from instep.sequencing.ends import DecidedBy, EndedNumbers, NumberEnd
from instep.sequencing.events import (
    Announce,
    Cancel,
    Changed,
    Close,
    EndRequest,
    Fault,
    Fill,
    GiveUp,
    Last,
    NumberRequest,
    Realigned,
    Receive,
    Renew,
    Replayed,
    Reset,
    Resume,
    SequencerInput,
    Terminate,
)
from instep.sequencing.gaps import GapPolicy, GapTimer
from instep.sequencing.lifetime import Lifetime
from instep.sequencing.settings import (
    ChangedContentPolicy,
    FaultPolicy,
    IncompleteBehavior,
    SequencerSettings,
    TimeoutBehavior,
)
from instep.sequencing.state import BufferedMessage, SequencerState
from instep.sequencing.transitions import (
    FINAL,
    REFUSALS,
    Refusal,
    SequenceEvent,
    SequencePhase,
    SequenceRefusedError,
    phase_after,
    phase_after_request,
)
from instep.sequencing.window import ReceiveWindow

__all__ = ["Sequencer"]


_NONE: Final = Ranges()
_NO_FAULTS: Final = RangeMap[Refusal]()
_NONE_BUFFERED: Final[list[BufferedMessage]] = []
_NOTHING_ASKED: Final[list[int]] = []
"""Shared by states, which are never edited: each list more is one more for the garbage collector,
in each of a hundred sequences of a commit.
"""
_REACH_IN_JUMPS: Final = 1_000
"""A number so many times `limit_jump` ahead is out of reach."""


class Sequencer:
    """One numbered sequence at its receiver: decides what is delivered, buffered, refused and
    acknowledged (S1 to S14).

    Promised: until a `Reset`, each number is delivered at most once and, where `ordered`, in rising
    order (S1, S2). A refused request changes nothing. Claims towards the peer cover durable state
    only (S3). The module's docstring describes the calls that a driver makes.
    """

    phase: SequencePhase

    def __init__(
        self, settings: SequencerSettings | None = None, state: SequencerState | None = None
    ) -> None:
        """Start from a committed state. The settings stored in it override `settings` (S9)."""
        opened_with = state.settings if state else None
        self.settings = opened_with or settings or SequencerSettings()
        self.durable = state or SequencerState(next_number=self.settings.first_number)
        """As committed."""
        self._request_queued = False
        self._running_since_us = 0
        self._load(self.durable)

    @classmethod
    def open(
        cls,
        settings: SequencerSettings,
        now_us: int,
        *,
        attributes: bytes = b"",
        expires_at_us: int = 0,
    ) -> Sequencer:
        """Open a sequence explicitly (CreateSequence, Subscribe), with the settings of the peer's
        request (S9). The driver commits its `checkpoint` before it answers message 1.

        `attributes` are the adapter's own; `expires_at_us` is in microseconds since 1970, 0 for
        never. Raises `SequenceRefusedError` where that time has passed. The driver refuses a name
        that exists already (EXISTS), and messages to a name that was not opened (UNKNOWN).
        """
        if 0 < expires_at_us <= now_us:
            raise SequenceRefusedError(Refusal.EXPIRED, "the sequence would have expired already")
        state = SequencerState(
            next_number=settings.first_number,
            settings=settings,
            attributes=attributes,
            expires_at_us=expires_at_us,
            active_at_us=now_us if settings.idle_timeout_s else 0,
        )
        return cls(None, state)

    def __repr__(self) -> str:
        return (
            f"<Sequencer {self.phase!s}, next number {self.next_number}, "
            f"{self.buffered_messages} buffered>"
        )

    @property
    def next_number(self) -> int:
        """The next expected number: the lowest one that is not accounted for."""
        return self._window.next_number

    @property
    def buffered_messages(self) -> int:
        """How many messages are buffered until their numbers are next."""
        return len(self._window.buffered)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of messages are buffered until their numbers are next."""
        return self._window.buffered_bytes

    @property
    def reclaimable_at_us(self) -> int | None:
        """From when on the driver may forget the sequence and its name, in microseconds since 1970
        (S10); None while the sequence has not ended.
        """
        return self._lifetime.forget_at_us()

    # -- events ----------------------------------------------------------------------------------

    def apply(self, events: Sequence[SequencerInput], now_us: int) -> Decision:
        """Decide the events of one envelope, in their order, as a whole (S11).

        Raises `SequenceRefusedError` where one of the requests is not possible; then nothing has
        changed. A message that is not accepted raises nothing: it is in `Decision.refused`. When
        one of the events fails the sequence, the requests after it are ignored.
        """
        before = self.checkpoint()
        try:
            return self._apply(events, now_us)
        except BaseException:
            self._load(before)
            raise

    def receive(self, messages: Sequence[MessageHeader], now_us: int) -> Decision:
        """Decide messages alone: `apply` of one `Receive`, for an envelope or a group of them
        without requests.
        """
        numbers = self.take_next(messages, now_us)
        if numbers:
            # Nothing was buffered, skipped or announced: nothing else can be due.
            return Decision(accepted=list(messages), deliver=numbers)
        outcome = self._begin(now_us)
        self._lifetime.restart_idle_time(now_us)
        self._receive(messages, outcome, now_us)
        return self._end(outcome, now_us)

    def take_next(self, messages: Sequence[MessageHeader], now_us: int) -> list[int]:
        """Accept and release messages that are exactly the next ones; returns their numbers.

        This is the fast path of `receive`, and enough for most messages. An empty list means that
        nothing was done: call `receive` with the messages.
        """
        if self._announced is not None or self.phase is not SequencePhase.OPEN:
            return []
        window, lifetime = self._window, self._lifetime
        if window.buffered or window.skippable.lows or window.faulted.lows:
            return []
        ends_at_us = lifetime.due_us()
        if ends_at_us is not None and now_us >= ends_at_us:
            return []
        numbers = [m.number for m in messages if not m.expires_at_us]
        with_deadlines = len(numbers) < len(messages)
        if with_deadlines:
            numbers = _unexpired(messages, now_us)
        if not fast_path.take_next(window, messages, numbers, self.settings.max_number):
            return []
        lifetime.restart_idle_time(now_us)
        if with_deadlines:
            lifetime.note_deadlines(messages)
        return numbers

    def tick(self, now_us: int) -> Decision:
        """Act on the time: expire messages (S6), apply a gap's policy (S4), end the sequence
        (S10).
        """
        return self._end(self._begin(now_us), now_us)

    def due_us(self) -> int | None:
        """When `tick` is to be called next, in microseconds since 1970; None while nothing is
        due: a driver needs no clock of ours (S14).
        """
        ends_at_us = None if self.phase in REFUSALS else self._lifetime.due_us()
        if not self._window.buffered and self._announced is None:
            # Nothing is missing, and nothing can expire.
            return ends_at_us
        due_us, since_us = self._window.next_expiry_us(), self.gap_since_us()
        if since_us is not None:
            due_us = _earlier(due_us, self._gap_due_us(since_us))
        return _earlier(due_us, ends_at_us)

    # -- durability and claims -------------------------------------------------------------------

    def checkpoint(self) -> SequencerState:
        """The state to store in the transaction that stores all outcomes since the last one."""
        window, gap_timer, lifetime = self._window, self._gap_timer, self._lifetime
        # In the order of the fields, without their names: with names it takes twice as long, in
        # each commit of each sequence.
        return SequencerState(
            window.next_number,
            self.phase,
            window.received.copy(),
            window.cancelled.copy() if window.cancelled.lows else _NONE,
            window.faulted.copy() if window.faulted.lows else _NO_FAULTS,
            list(window.buffered.values()) if window.buffered else _NONE_BUFFERED,
            self.last_number,
            self._announced,
            self._announced_at_us,
            gap_timer.asked_to.copy() if gap_timer.asked_to else _NOTHING_ASKED,
            gap_timer.acted_at_us,
            window.recent,
            self.epoch,
            self.durable.settings,
            self.durable.attributes,
            window.highest_seen,
            lifetime.expires_at_us,
            lifetime.active_at_us,
            lifetime.ended_at_us,
            lifetime.copies_until_us,
            self.reason,
            self.resumed_at_us,
            self.content_changed,
        )

    def committed(self, state: SequencerState) -> None:
        """Record that this checkpoint is durable: claims are read from it from now on (S3)."""
        self.durable = state

    def roll_back(self) -> None:
        """Undo all decisions since the last commit, because their transaction failed (S3). The
        sender received no answer, so it sends again.
        """
        self._load(self.durable)

    def resume(self, now_us: int) -> None:
        """Restart the times of gap and idleness: the sender is not charged for our downtime."""
        self._running_since_us = now_us
        self._gap_timer.acted_at_us = max(self._gap_timer.acted_at_us, now_us)
        if self.phase not in REFUSALS:
            self._lifetime.restart_idle_time(now_us)

    def adopt(self, settings: SequencerSettings) -> None:
        """Use other settings from the next decision on, and keep them with the state (S9).

        For a sequence that messages opened before any of the protocol that declares its policies.
        """
        state = self.checkpoint()
        self.settings = settings
        self.durable = msgspec.structs.replace(self.durable, settings=settings)
        self._load(state)

    def note_request_queued(self) -> None:
        """Record that `AskResend` waits to be sent. The gap's time stops until `note_request_sent`:
        the sender cannot answer a request that it has not received (S12).
        """
        self._request_queued = True

    def note_request_sent(self, now_us: int) -> None:
        """Record that the request was sent, or failed for good: the gap's time runs again."""
        if self._request_queued:
            self._request_queued = False
            self._gap_timer.acted_at_us = max(self._gap_timer.acted_at_us, now_us)

    def claims(self, state: SequencerState | None = None) -> Claims:
        """The claims of this checkpoint, true once it is committed (S3); without `state`, those of
        the last one committed.
        """
        return Claims(state or self.durable, self.settings)

    # -- around each event -----------------------------------------------------------------------

    def _load(self, state: SequencerState) -> None:
        self.phase = state.phase
        self.epoch = state.epoch
        """Counts the resets: numbers compare only within one epoch."""
        self.reason = state.reason
        """Why the sequence has failed; empty: it has not."""
        self.resumed_at_us = state.resumed_at_us
        self.content_changed = state.content_changed
        self.last_number = state.last_number
        self._announced = state.announced
        self._announced_at_us = state.announced_at_us
        self._gap_timer = GapTimer(self.settings, state.asked_to.copy(), state.acted_at_us)
        self._window = ReceiveWindow(self.settings, state)
        self._lifetime = Lifetime(self.settings, state)

    def _apply(self, events: Sequence[SequencerInput], now_us: int) -> Decision:
        if events and isinstance(events[0], Reset):
            outcome, events = self._reset(now_us), events[1:]
        else:
            outcome = self._begin(now_us)
        if events:
            self._lifetime.restart_idle_time(now_us)
        failed_before = self.phase is SequencePhase.FAILED
        for event in events:
            if isinstance(event, Receive):
                numbers = self.take_next(event.messages, now_us)
                if numbers:
                    outcome.accepted = [*outcome.accepted, *event.messages]
                    outcome.deliver = [*outcome.deliver, *numbers] if outcome.deliver else numbers
                else:
                    self._receive(event.messages, outcome, now_us)
            elif self.phase is SequencePhase.FAILED and not failed_before:
                # An event before it in the envelope failed the sequence: no mistake of the peer.
                continue
            elif isinstance(event, (Last, Close, Terminate, Renew, Resume, Reset)):
                self._end_request(event, outcome, now_us)
            else:
                self._number_request(event, outcome, now_us)
            # Before the next event: an envelope is decided as its sender meant it, in order (S11).
            self._settle(outcome)
        return self._end(outcome, now_us)

    def _number_request(self, event: NumberRequest, outcome: Decision, now_us: int) -> None:
        match event:
            case Cancel():
                self._cancel(event.ranges, outcome)
            case Fill():
                self._fill(event.ranges, outcome)
            case Fault():
                self._answer_with_fault(event.number, event.reason, outcome)
            case Changed():
                self._apply_changed_content([event.number], outcome)
            case Announce():
                self._check_used(event.highest)
                self._note_announced(event.highest, now_us)
            case GiveUp():
                self._check_range(event.through, event.through)
                if self.phase not in REFUSALS:
                    self._skip(min(event.through, self._stop() - 1), outcome, event.reason)
                elif self._window.buffered:
                    # It has failed, and what it kept waits for this.
                    self._window.advance(self.next_number, outcome.deliver)
                    self._skip(min(event.through, self._highest()), outcome, event.reason)
            case Realigned():
                self._realign(event, outcome)
            case Replayed():
                # A sequence that has failed may be resumed; after an end nothing is accepted.
                goes_on = self.phase is SequencePhase.FAILED or self.phase not in REFUSALS
                if goes_on and event.number in self._window.faulted:
                    self._window.add_filled(Ranges.of((event.number, event.number)))

    def _end_request(self, event: EndRequest, outcome: Decision, now_us: int) -> None:
        match event:
            case Last():
                phase = phase_after_request(self.phase, SequenceEvent.LAST_KNOWN)
                self._set_last(event.number, now_us)
                self.phase = phase
            case Close():
                phase = phase_after_request(self.phase, SequenceEvent.CLOSE)
                if event.last_number is not None:
                    self._set_last(event.last_number, now_us)
                self._finish(phase, outcome, "the sequence was closed")
            case Terminate():
                phase = phase_after_request(self.phase, SequenceEvent.TERMINATE)
                self._finish(phase, outcome, "the sequence was terminated")
            case Resume():
                self.phase = phase_after_request(self.phase, SequenceEvent.RESUME)
                if self.last_number is not None:
                    self.phase = phase_after(self.phase, SequenceEvent.LAST_KNOWN)
                self.reason, self.resumed_at_us = "", now_us
                self._gap_timer.asked_to.clear()
                self._lifetime.note_resumed()
            case Renew():
                self._check_open()
                self._lifetime.expires_at_us = max(0, event.expires_at_us)
            case Reset():
                raise AssertionError("a Reset is the first event of its envelope")

    def _begin(self, now_us: int) -> Decision:
        """Expire messages (S6) and the sequence (S10) before the next event is decided."""
        outcome = Decision()
        window = self._window
        expired = window.pop_expired(now_us)
        if expired:
            # Also where it was acknowledged already: the sender must learn of it (S6).
            self._fault(expired, Refusal.EXPIRED, outcome)
            self._settle(outcome)
        if self._lifetime.may_end and self.phase not in REFUSALS:
            ended = self._lifetime.timeout(now_us)
            if ended is not None:
                self._time_out(ended, outcome)
        return outcome

    def _settle(self, outcome: Decision) -> None:
        """Deliver all buffered messages that are next; detect that the sequence is complete."""
        window = self._window
        if self.phase is SequencePhase.FAILED:
            return
        if window.skippable.lows or window.next_number in window.buffered:
            window.advance(window.next_number, outcome.deliver)
        if self.phase is SequencePhase.ENDING and window.next_number >= self._stop():
            self.phase = phase_after(self.phase, SequenceEvent.COMPLETED)

    def _end(self, outcome: Decision, now_us: int) -> Decision:
        """Deliver all messages that are next, act on gaps that are due, note the final phase."""
        window = self._window
        self._settle(outcome)
        if window.buffered or self._announced is not None:
            while self._act_on_gap(now_us, outcome):
                pass
            self._settle(outcome)
            self._forget_announced()
        if self.phase is not SequencePhase.OPEN:
            self._lifetime.note_phase(self.phase, now_us)
        if window.superseded:
            came = Ranges.of_numbers(window.superseded)
            window.superseded = []
            why = "other content came after a fault"
            self._note_end(came, NumberEnd.SUPERSEDED, why, outcome, by=DecidedBy.SENDER)
        return outcome

    def _note_end(
        self,
        numbers: Ranges,
        end: NumberEnd,
        reason: str,
        outcome: Decision,
        *,
        by: DecidedBy = DecidedBy.RECEIVER,
        told: bool = False,
        discarded: bool = False,
    ) -> None:
        """Record how numbers have ended (S13)."""
        outcome.ended += [
            EndedNumbers(low, high, end, reason, by, self.epoch, told, discarded)
            for low, high in numbers.pairs()
        ]

    def _note_lost(self, numbers: Ranges, reason: str, outcome: Decision) -> None:
        """Record that no message came. One that came and was faulted keeps that end (S13)."""
        self._note_end(numbers - self._window.faulted.ranges(), NumberEnd.LOST, reason, outcome)

    def _reset(self, now_us: int) -> Decision:
        phase = phase_after_request(self.phase, SequenceEvent.RESET)
        window, highest, reason = self._window, self._highest(), "the sequence began to count anew"
        missing = self._missing_to(highest)
        outcome = Decision(dropped=window.discard_buffered(), dropped_bytes=window.dropped_bytes)
        dropped = Ranges.of_numbers(outcome.dropped)
        # After it, the state tells of the new count alone.
        delivered = window.received - dropped
        self._note_end(delivered, NumberEnd.DELIVERED, "", outcome)
        self._note_end(missing, NumberEnd.LOST, reason, outcome, by=DecidedBy.SENDER)
        self._note_end(dropped, NumberEnd.FAILED, reason, outcome, by=DecidedBy.SENDER)
        if outcome.dropped:
            outcome.effects.append(ReportLoss(list(dropped.pairs()), reason))
        fresh = SequencerState(
            next_number=self.settings.first_number, phase=phase, epoch=self.epoch + 1
        )
        self._load(fresh)
        self._lifetime.restart_idle_time(now_us)
        return outcome

    def _time_out(self, event: SequenceEvent, outcome: Decision) -> None:
        """The sequence ends by itself."""
        self._finish(phase_after(self.phase, event), outcome, f"the sequence is {event!s}")
        if self.settings.on_timeout is TimeoutBehavior.TERMINATE:
            # Two steps, as a Close and a Terminate of the peer: what is buffered is settled first.
            self.phase = phase_after(self.phase, SequenceEvent.TERMINATE)
        outcome.effects.append(SequenceEnded(event))

    def _finish(self, phase: SequencePhase, outcome: Decision, reason: str) -> None:
        """Accept nothing more; deliver, discard or fault the buffered."""
        if self.phase not in REFUSALS:
            discarded, kept = [], Ranges()
            if self.settings.incomplete is IncompleteBehavior.FAULT:
                highest = self._highest()
                self._fault_buffered(Refusal.CLOSED, reason, outcome)
                # Behind them nothing is known any more: `skip` does not see what was missing.
                self._note_end(self._missing_to(highest), NumberEnd.LOST, reason, outcome)
            elif self.settings.incomplete is IncompleteBehavior.DISCARD:
                discarded = self._window.discard_buffered()
                fresh = self._drop(discarded, Refusal.CLOSED, outcome)
                kept = Ranges.of_numbers(discarded) - Ranges.of_numbers(fresh)
                self._note_end(kept, NumberEnd.FAILED, reason, outcome, discarded=True)
                claimed = self.settings.acknowledge_buffered
                # What was acknowledged stays so, although it is never delivered: an
                # acknowledgement cannot be taken back.
                self._window.forget_received(fresh if claimed else discarded)
                self._window.skippable.subtract(Ranges.of_numbers(fresh))
            lost = Ranges.of(*self._window.skip(self._highest(), outcome.deliver))
            # What came with the request was refused, and is missing where delivery passes it (S13).
            lost.subtract(kept)
            if self.settings.incomplete is not IncompleteBehavior.FAULT:
                self._note_lost(lost, reason, outcome)
            if lost or discarded:
                all_lost = lost | Ranges.of_numbers(discarded)
                outcome.effects.append(ReportLoss(list(all_lost.pairs()), reason))
        self.phase = phase

    def _stop(self) -> int:
        """The first number that is not accepted any more."""
        if self.phase in REFUSALS:
            # Not the last number: what is missing below it is not accepted either.
            return self.next_number
        return (self.settings.max_number if self.last_number is None else self.last_number) + 1

    def _check_range(self, low: int, high: int) -> None:
        first, top = self.settings.first_number, self.settings.max_number
        if not first <= low <= high <= top:
            raise SequenceRefusedError(
                Refusal.OUT_OF_RANGE, f"{low}-{high} is not within the numbers {first}-{top}"
            )

    def _check_open(self) -> None:
        if self.phase in REFUSALS:
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")

    def _check_used(self, number: int) -> None:
        """Check a number that the sender reports as used. Raises `SequenceRefusedError`."""
        self._check_range(number, number)
        if self.last_number is not None and number > self.last_number:
            raise SequenceRefusedError(
                Refusal.BEYOND_LAST, f"{number} is beyond the last, {self.last_number}"
            )
        self._check_jump(number)

    def _check_jump(self, number: int) -> None:
        ahead = number - self._window.next_number
        if ahead >= self._jump():
            raise SequenceRefusedError(
                self._refusal_ahead(ahead),
                f"{number} is more than {self.settings.limit_jump:,} numbers ahead",
            )

    def _refusal_ahead(self, ahead: int) -> Refusal:
        """Why a number is refused that is so far ahead (S8). A sender must still have every message
        between, to send it or to send it again: a thousand times what is allowed no sender has, so
        the number would never come within what is allowed.
        """
        out_of_reach = ahead >= _REACH_IN_JUMPS * self._jump()
        return Refusal.OUT_OF_REACH if out_of_reach else Refusal.TOO_FAR_AHEAD

    def _jump(self) -> int:
        """The distance ahead of the next number from which on a number is refused."""
        settings = self.settings
        return settings.limit_jump or settings.max_number + 1 - settings.first_number

    # -- messages --------------------------------------------------------------------------------

    def _receive(self, messages: Sequence[MessageHeader], outcome: Decision, now_us: int) -> None:
        """Decide messages that `take_next` does not, by the faster path where it applies; both
        decide the same.
        """
        accepted: list[MessageHeader] = []
        numbers = [m.number for m in messages if not m.expires_at_us]
        with_deadlines = len(numbers) < len(messages)
        if with_deadlines:
            numbers = _unexpired(messages, now_us)
        window = self._window
        if (
            numbers
            and len(numbers) == len(messages)
            and self.settings.ordered
            and not window.skippable.lows
            and max(numbers) < min(self._stop(), window.next_number + self._jump())
        ):
            accepted = fast_path.take_new(window, messages, numbers, outcome.deliver, now_us)
            outcome.accepted += accepted
        if not accepted:
            accepted = self._one_by_one(messages, outcome, now_us)
        if with_deadlines:
            self._lifetime.note_deadlines(accepted)

    def _one_by_one(
        self, messages: Sequence[MessageHeader], outcome: Decision, now_us: int
    ) -> list[MessageHeader]:
        """Decide any messages one after the other (S1); returns those accepted. The reference for
        `instep.sequencing.fast_path`.

        Messages that arrived together are taken by rising number, so none waits for another.
        """
        window, deliver = self._window, outcome.deliver
        buffered, skippable, next_number = window.buffered, window.skippable, window.next_number
        stop, ordered = self._stop(), self.settings.ordered
        accepted: list[MessageHeader] = []
        accept, release = accepted.append, deliver.append
        not_new: list[MessageHeader] = []
        for message in sorted(messages, key=_NUMBER):
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
                or (skippable and window.is_accounted_ahead(number))
            ):
                not_new.append(message)
            elif (refusal := self._take_ahead(message, number - next_number, now_us)) is None:
                accept(message)
                if not ordered:
                    release(number)
            elif refusal is Refusal.EXPIRED:
                # Its number is faulted, which may fail the sequence: after those that are accepted.
                not_new.append(message)
            else:
                outcome.refused.append((message, refusal))
        window.next_number = next_number
        window.add_received(accepted, [message.number for message in accepted])
        outcome.accepted += accepted
        changed = [m.number for m in not_new if self._not_new(m, outcome)]
        if changed:
            self._apply_changed_content(changed, outcome)
        if not ordered and accepted:
            highest = self._highest()
            if highest >= window.next_number:
                # Nothing is buffered behind the gap, but the gap is known from now on (S4).
                self._note_announced(highest, now_us)
            self._enforce_gap_limit(outcome)
        return accepted

    def _take_ahead(self, message: MessageHeader, ahead: int, now_us: int) -> Refusal | None:
        """Buffer a new message that is `ahead` of the next number (S2), or, where there is no
        order, note it as released. Returns why it is refused, expired among them (S6); None: it is
        accepted.
        """
        number = message.number
        if number >= self._stop():
            return self._refusal_beyond()
        if ahead >= self._jump():
            return self._refusal_ahead(ahead)
        if 0 < message.expires_at_us <= now_us:
            return Refusal.EXPIRED
        if not self.settings.ordered:
            self._window.release_ahead(number)
        elif not self._window.buffer(message, now_us):
            return Refusal.FULL
        return None

    def _not_new(self, message: MessageHeader, outcome: Decision) -> bool:
        """Decide a message that is not new (S1): its number is accounted for or buffered, or its
        deadline has passed. Returns whether it is a copy with other content (S7).
        """
        number, window = message.number, self._window
        if number in window.received and self.phase is not SequencePhase.TERMINATED:
            outcome.duplicates.append(message)
            if not message.digest:
                # Its protocol compares no contents.
                return False
            digest = window.digest(number)
            if not digest:
                # Received too long ago, or filled: only the store may still know (S7).
                outcome.uncompared.append(message)
            elif digest[:CONTENT_BYTES] != message.digest[:CONTENT_BYTES]:
                outcome.deviations.append(message)
                return True
            elif digest != message.digest:
                outcome.other_headers.append(message)
            return False
        if self.phase is SequencePhase.TERMINATED:
            # Copies too: after its end the sequence acknowledges nothing (UnknownSequence).
            outcome.refused.append((message, Refusal.TERMINATED))
            return False
        if not self.settings.first_number <= number <= self.settings.max_number:
            refusal = Refusal.OUT_OF_RANGE
        elif number in window.cancelled:
            refusal = Refusal.CANCELLED
        elif number < window.next_number and self.phase not in FINAL:
            # Not received, cancelled or buffered, and yet passed: delivery went on without it.
            refusal = Refusal.GIVEN_UP
        elif self.phase in REFUSALS or number >= self._stop():
            refusal = self._refusal_beyond()
        else:
            refusal = Refusal.EXPIRED
            self._fault([number], refusal, outcome)
        outcome.refused.append((message, refusal))
        return False

    def _apply_changed_content(self, numbers: list[int], outcome: Decision) -> None:
        """Apply the policy for copies with other content, without a fault between (S7)."""
        changed = Ranges.of_numbers(numbers)
        self.content_changed += len(numbers)
        policy = self.settings.on_changed
        if policy is ChangedContentPolicy.REALIGN and self.phase not in FINAL:
            outcome.effects.append(RealignSequence(list(changed.pairs())))
        elif policy is ChangedContentPolicy.FAIL and self.phase not in REFUSALS:
            self._fail(f"messages {changed} came again with other content", outcome)

    # -- requests --------------------------------------------------------------------------------

    def _cancel(self, ranges: Pairs, outcome: Decision) -> None:
        """Promise that what was not received will never be accepted (S5)."""
        for low, high in ranges:
            self._check_range(low, high)
        if self.phase in (SequencePhase.FAILED, SequencePhase.TERMINATED):
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        window = self._window
        numbers = Ranges()
        for low, high in ranges:
            # What was received is acknowledged as usual: the two never overlap (S5).
            for gap in window.received.gaps(low, high):
                numbers.add_range(*gap)
        self._check_gap_limit(len((window.cancelled | numbers).lows) - len(window.cancelled.lows))
        new = numbers - window.cancelled
        window.add_cancelled(numbers)
        self._note_end(new, NumberEnd.CANCELLED, "", outcome, by=DecidedBy.SENDER)

    def _fill(self, ranges: Pairs, outcome: Decision) -> None:
        """Count numbers as received that no message will have, cancelled ones too (S5)."""
        for low, high in ranges:
            self._check_range(low, high)
            if self.last_number is not None and high > self.last_number:
                raise SequenceRefusedError(
                    Refusal.BEYOND_LAST,
                    f"{low}-{high} reaches beyond the last, {self.last_number}",
                )
            self._check_jump(low)
        if self.phase in FINAL:
            # Not COMPLETE: until it is closed, a fill may still take numbers from the cancelled.
            raise SequenceRefusedError(REFUSALS[self.phase], f"the sequence is {self.phase!s}")
        window, numbers = self._window, Ranges.of(*ranges)
        after = len((window.received | numbers).lows) + len((window.cancelled - numbers).lows)
        before = len(window.received.lows) + len(window.cancelled.lows)
        self._check_gap_limit(after - before)
        new = numbers - window.received
        window.add_filled(numbers)
        self._note_end(new, NumberEnd.FILLED, "", outcome, by=DecidedBy.SENDER)

    def _answer_with_fault(self, number: int, reason: Refusal, outcome: Decision) -> None:
        self._check_range(number, number)
        self._check_open()
        window = self._window
        if number in window.received and number not in window.buffered:
            raise SequenceRefusedError(reason, f"message {number} is settled: too late for a fault")
        # A cancelled number is accepted never again: a fault would invite other content.
        if number not in window.cancelled:
            self._fault([number], reason, outcome)

    def _realign(self, event: Realigned, outcome: Decision) -> None:
        self._check_range(event.through, event.through)
        if self.phase in REFUSALS:
            # The driver obtained the state while the sequence ended: nothing to refuse.
            return
        through = min(event.through, self._stop() - 1)
        settled = self._window.settle(through, deliver_buffered=event.deliver_buffered)
        missing, dropped = Ranges.of(*settled[0]), settled[1]
        fresh = self._drop(dropped, None, outcome)
        why = "its state was obtained in another way"
        self._note_end(missing | Ranges.of_numbers(fresh), NumberEnd.FILLED, why, outcome)
        kept = Ranges.of_numbers(dropped) - Ranges.of_numbers(fresh)
        self._note_end(kept, NumberEnd.FAILED, why, outcome, discarded=True)

    # -- refusals, faults and dropped messages ---------------------------------------------------

    def _refusal_beyond(self) -> Refusal:
        """Why a number from `_stop` on, or any after the end, is refused."""
        top = Refusal.OUT_OF_RANGE if self.last_number is None else Refusal.BEYOND_LAST
        return REFUSALS.get(self.phase, top)

    def _fault(self, numbers: list[int], reason: Refusal, outcome: Decision) -> None:
        held = [number for number in numbers if self._window.drop(number)]
        fresh = self._drop(held, reason, outcome)
        kept = Ranges.of_numbers(held) - Ranges.of_numbers(fresh)
        again = [number for number in numbers if self._window.faulted.get(number) is reason]
        new = Ranges.of_numbers(numbers) - kept - Ranges.of_numbers(again)
        for number in numbers:
            self._window.add_fault(number, reason)
        expired = reason is Refusal.EXPIRED
        end = NumberEnd.EXPIRED if expired else NumberEnd.FAILED
        self._note_end(kept, end, reason.value, outcome, told=True)
        end = NumberEnd.EXPIRED if expired else NumberEnd.REFUSED
        self._note_end(new, end, reason.value, outcome, told=True)
        faulted = Ranges.of_numbers(numbers)
        outcome.effects.append(ReportFault(list(faulted.pairs()), reason))
        if self.phase in REFUSALS:
            # What it kept when it failed may expire after its end, too.
            return
        if self.settings.fault_policy is FaultPolicy.FAIL:
            self._fail(f"messages {faulted} were faulted: {reason!s}", outcome)
        else:
            self._enforce_gap_limit(outcome)

    def _fail(self, reason: str, outcome: Decision) -> None:
        """Fail the sequence: deliver nothing more. What is buffered stays, for an operator (S13),
        unless its sender must be told that it will not be delivered.
        """
        self.phase = phase_after(self.phase, SequenceEvent.FAIL)
        self.reason = reason
        if self.settings.incomplete is IncompleteBehavior.FAULT:
            self._fault_buffered(Refusal.FAILED, reason, outcome)
        outcome.effects.append(SequenceFailed(reason))

    def _fault_buffered(self, refusal: Refusal, reason: str, outcome: Decision) -> None:
        faulted = self._window.fault_buffered(refusal)
        if faulted:
            numbers = Ranges.of_numbers(faulted)
            outcome.effects.append(ReportFault(list(numbers.pairs()), refusal))
            fresh = Ranges.of_numbers(self._drop(faulted, refusal, outcome))
            self._note_end(numbers - fresh, NumberEnd.FAILED, reason, outcome, told=True)
            self._note_end(fresh, NumberEnd.REFUSED, reason, outcome, told=True)

    def _drop(self, numbers: list[int], reason: Refusal | None, outcome: Decision) -> list[int]:
        """Drop buffered messages. Those kept by earlier decisions go to `dropped`. Those that
        arrived with this decision are refused or, without a reason, count as duplicates; returns
        the numbers of these.
        """
        gone = set(numbers)
        fresh = [message for message in outcome.accepted if message.number in gone]
        if fresh:
            outcome.accepted = [m for m in outcome.accepted if m.number not in gone]
            if reason is None:
                outcome.duplicates += fresh
            else:
                outcome.refused += [(message, reason) for message in fresh]
            fresh_numbers = {message.number for message in fresh}
            gone -= fresh_numbers
            # What took the place of an earlier content has not come to stay: that one's end stands.
            self._window.superseded = [
                number for number in self._window.superseded if number not in fresh_numbers
            ]
        outcome.dropped += sorted(gone)
        sizes, self._window.dropped_bytes = self._window.dropped_bytes, {}
        outcome.dropped_bytes |= {number: sizes[number] for number in gone}
        return [message.number for message in fresh]

    def _check_gap_limit(self, more_ranges: int) -> None:
        """Raise `SequenceRefusedError` for a request that would add too many ranges."""
        limit = self.settings.limit_gaps
        if more_ranges > 0 and self._window.lasting_ranges() + more_ranges > limit:
            raise SequenceRefusedError(
                Refusal.TOO_MANY_GAPS, f"the sequence would have more than {limit:,} gaps"
            )

    def _enforce_gap_limit(self, outcome: Decision) -> None:
        """Fail a sequence whose state would grow without a bound (S8)."""
        limit = self.settings.limit_gaps
        if self.phase not in REFUSALS and self._window.lasting_ranges() > limit:
            self._fail(f"the sequence has more than {limit:,} gaps", outcome)

    # -- gaps ------------------------------------------------------------------------------------

    def _highest(self) -> int:
        """The highest number known to be used; a cancelled number may never have been used."""
        last = self._window.received.last
        return max(-1 if last is None else last, -1 if self._announced is None else self._announced)

    def _missing_to(self, highest: int) -> Ranges:
        """The numbers from the next one to `highest` that never came, and need to."""
        window = self._window
        there = window.received | window.cancelled | window.faulted.ranges()
        return Ranges.of(*there.gaps(self.next_number, highest))

    def _note_announced(self, highest: int, now_us: int) -> None:
        if self._announced is None or self._announced < self.next_number:
            # Only a gap that is new starts its time: repeated announcements would put it off.
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
        self._check_used(number)
        self.last_number = number
        self._note_announced(number, now_us)

    def _forget_announced(self) -> None:
        """Forget an announced number that was received and is accounted for, so that the fast
        paths apply again.
        """
        announced, last = self._announced, self._window.received.last
        if announced is None or last is None or self.phase is not SequencePhase.OPEN:
            return
        if announced < self.next_number and announced <= last:
            self._announced, self._announced_at_us = None, 0

    def gap_since_us(self) -> int | None:
        """Since when the next number is known to be missing; None when it is not."""
        if self.phase in REFUSALS:
            return None
        since_us = self._window.buffered_since_us()
        if self._announced is not None and self._announced >= self.next_number:
            at_us = self._announced_at_us
            since_us = at_us if since_us is None else min(since_us, at_us)
        if since_us is None:
            return None
        return max(since_us, self._running_since_us, self.resumed_at_us)

    def _gap_due_us(self, since_us: int) -> int:
        """When the policy acts on the first gap."""
        return self._gap_timer.due_us(self.next_number, since_us, waits=self._request_queued)

    def _act_on_gap(self, now_us: int, outcome: Decision) -> bool:
        """Let the policy act on the first gap (S4). Returns whether delivery advanced, perhaps to
        another gap.
        """
        since_us = self.gap_since_us()
        if since_us is None:
            return False
        window, highest = self._window, self._highest()
        if self._request_queued:
            if now_us >= self._gap_due_us(since_us):
                # Else `due_us` stays in the past, and the driver would tick without end.
                self._gap_timer.acted_at_us = now_us
            return False
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
            self._note_lost(Ranges.of(*lost), reason, outcome)
        self._enforce_gap_limit(outcome)


def _earlier(left_us: int | None, right_us: int | None) -> int | None:
    if left_us is None or right_us is None:
        return right_us if left_us is None else left_us
    return min(left_us, right_us)


def _unexpired(messages: Sequence[MessageHeader], now_us: int) -> list[int]:
    """The numbers of the messages whose deadline has not passed."""
    return [m.number for m in messages if not 0 < m.expires_at_us <= now_us]


_NUMBER = attrgetter("number")
