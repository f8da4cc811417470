"""A feed over numbered messages that carry entities (SDPi's reports, for example): the numbers show
whether a message is missing, and a baseline replaces missing messages.

This is the only module that joins numbers and entities: `instep.sequencing.sequencer` decides about
the numbers of one session, `instep.alignment.machine` about baseline, marks and sweeps. The
sequencer is kept in memory only. A session ends with its connection, and the next one begins with a
baseline of its own (`StreamInfo.resumable` is False), so the numbers need not be durable.

Theory of operation. An adapter opens a session (a subscription), passes each received message to
`SequencedFeed.accept`, and answers its peer with the receipt. Messages in order are buffered until
the baseline of the session is durable. Then `receive` returns them to the runtime, except those
that the baseline already contains. The runtime calls `committed` when they are durable, and only
then a message gets its receipt (S3).

A peer that waits for each receipt before it sends on could never close a gap if messages behind the
gap had to wait. With `SequencedFeedSettings.apply_ahead` they are applied at once, and a message
that closes the gap leaves out the entities that were stated ahead of it: of each entity the message
with the highest number counts, in whatever order they came.

Four events end a session: a number is still missing after the reorder window (the first number of a
session is fixed, so a late join is such a case), numbers go back, the last number comes again with
other content, or the connection is lost. None is reported as a loss, because the baseline of the
next session contains the state of the missing messages. The first three are reported by
`RecordChunk.realign`. Messages that were in order before are committed first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Final

import msgspec

from instep.errors import SourceError
from instep.model.limits import Count, Seconds
from instep.model.messages import MessageHeader
from instep.model.position import Phase, Position
from instep.model.ranges import Ranges
from instep.model.records import Record, RecordChunk, Unreadable
from instep.ports.listener import Receipt, ReceiptOutcome
from instep.ports.source import Feed
from instep.runtime.clock import steady_now
from instep.sequencing.effects import RealignSequence, SequenceFailed
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.transitions import Refusal

__all__ = ["NumberedRecords", "SequencedFeed", "SequencedFeedSettings"]

_US: Final = 1_000_000
_MOST_CONTENTS: Final = 64
"""Contents of one number that are remembered, to know one that was held up on its way."""
_MOST_FAULTED: Final = 1_000
"""Numbers answered with a fault that are remembered."""
_CLOSED: Final = Receipt(ReceiptOutcome.REFUSED, refusal=Refusal.CLOSED)
_FULL: Final = Receipt(ReceiptOutcome.REFUSED, refusal=Refusal.FULL)


class SequencedFeedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the messages of a session are received. Adapters set what their protocol fixes."""

    first_number: int = 1
    """The number of a session's first message (SDPi R0800); another one ends it (R1031)."""
    reorder_window_s: Annotated[float, msgspec.Meta(ge=0.0)] = 2.0
    """Longest wait for a missing number before the stream is realigned, in seconds of monotonic
    time; 0: no wait, for protocols with one message under way at a time.
    """
    apply_ahead: bool = False
    """Whether a message behind a gap is applied at once, for a peer that sends its next message
    only when this one is confirmed. A message must then state whole entities.
    """
    limit_messages: Count = 10_000
    """Most messages that are received and not durable; further ones are refused. At most half of
    them may be buffered behind a gap, so that there is room for the missing ones.
    """
    limit_bytes: Count = 64 * 1024 * 1024
    """The same for their bytes."""
    answer_within_s: Seconds = 10.0
    """A message that is not durable after this time is refused as full. The peer may send it again,
    and then gets its receipt. Set less for a peer with a shorter timeout.
    """
    confirm_while_baselining: bool = False
    """Whether messages are confirmed though they are only in memory, while the store itself says
    that a baseline is being read (`Phase.BASELINING` is committed): for a provider that answers no
    request while it waits for a confirmation. The baseline has what they state, or they are applied
    over it before the store says again that it is aligned; so does the baseline of the next session
    if the process is killed.
    """
    chunk_records: Count = 5_000
    """Records after which no further message joins a chunk."""


class NumberedRecords(MessageHeader, kw_only=True):
    """One message of a session, with its records. Build the records with the session as
    `partition`, the number as `offset`, a token that is not empty, `SequencedFeed.stamp_us` as
    `appended_at_us` and the key as `uuid`.
    """

    records: Sequence[Record] = ()
    unreadable: Sequence[Unreadable] = ()
    """Parts that could not be read: they go to quarantine, the others are applied (A11)."""
    version: int | None = None
    """The state of the provider after this message, comparable with that of a baseline (BICEPS
    MdibVersion); None where the protocol has none. Within a session it never goes down.
    """


class _Waiting:
    """A caller that waits for the receipt of a message."""

    __slots__ = ("callback", "deadline_s", "number", "outcome")

    def __init__(
        self, number: int, outcome: ReceiptOutcome, callback: Callable[[Receipt], None]
    ) -> None:
        self.number = number
        self.outcome = outcome
        """Of the receipt, when the message is durable."""
        self.callback: Callable[[Receipt], None] | None = callback
        """None when it was called."""
        self.deadline_s = 0.0

    def answer(self, receipt: Receipt) -> None:
        callback, self.callback = self.callback, None
        if callback is None:
            return
        try:
            callback(receipt)
        except Exception as error:  # noqa: BLE001 - the others must have their receipts
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a caller's answer callback raised", "exception": error}
            )


class _Pending:
    """A message that is received and not yet durable, with the callers that wait for
    its receipt.
    """

    __slots__ = ("again", "ahead", "early", "given", "message", "offset", "records", "waiting")

    def __init__(self, message: NumberedRecords) -> None:
        self.message = message
        self.records = message.records
        """Without those that the baseline contains, or a message that was applied ahead."""
        self.offset = message.number
        """Its place in the order in which messages are passed to the runtime."""
        self.ahead = False
        """Whether it is applied though a number before it is missing."""
        self.again = False
        """Whether other content was passed to the runtime before, under the same number."""
        self.early = False
        """Whether it was confirmed while the baseline was read."""
        self.given = False
        """Whether it was passed to the runtime."""
        self.waiting: list[_Waiting] = []

    def answer(self, receipt: Receipt | None = None) -> None:
        """Answer all callers that wait: with this receipt, or with None that the message is
        durable.
        """
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one.answer(Receipt(one.outcome) if receipt is None else receipt)


class _Faulted:
    """A number that was kept and yet answered with a fault: other content may come (S7)."""

    __slots__ = ("digests", "open")

    def __init__(self, digest: bytes) -> None:
        self.digests = [digest]
        """Of the contents that came under it; the last one counts."""
        self.open = True
        """Whether it was not confirmed since."""


class SequencedFeed(Feed):
    """One session of numbered messages.

    Promised: `receive` gives the messages in the order of their numbers, once the baseline of the
    session is durable, without those that the baseline contains. A message gets its receipt when it
    is durable (S3). Four events end the session: a number is missing after `reorder_window_s`, a
    number goes back, the last number comes again with other content, or the connection is lost. The
    next session begins with a baseline, which has the state of the messages that are missing.

    The adapter's part: create one before it subscribes, because the first message may arrive before
    the subscription is answered; pass it on then (`first_message`); `accept` each message; call
    `baseline_version` when its `Source.baseline` knows the version of what it read, with rows
    appended at `opened_at_us`; `fail` when the connection is lost or the peer ends the session;
    `close` in the end. The stream's `StreamInfo` has `Mode.BASELINE` and `resumable=False`.

    All methods belong to one event loop. Memory is bounded by `SequencedFeedSettings`.
    """

    clock_offset_us = 0
    """Always 0: records carry our own time, see `stamp_us`."""
    peer_waits = True

    def __init__(
        self,
        session: str,
        settings: SequencedFeedSettings | None = None,
        *,
        clock: Callable[[], float] = steady_now,
    ) -> None:
        """Create a session; `session` is unique in the stream, `clock` gives seconds since 1970."""
        self.session = session
        self.settings = settings or SequencedFeedSettings()
        self._clock = clock
        self._stamped_us = 0
        self.opened_at_us = self.stamp_us()
        """When the session began, and the append time of its baseline's rows, so that every record
        of the session is newer (A14).
        """
        self._sequencer = Sequencer(
            SequencerSettings(
                first_number=self.settings.first_number,
                gap_policy=GapPolicy.REALIGN,
                gap_deadline_s=self.settings.reorder_window_s,
                fault_policy=FaultPolicy.WAIT,
                limit_jump=0,
                limit_messages=max(1, self.settings.limit_messages // 2),
                limit_bytes=max(1, self.settings.limit_bytes // 2),
            )
        )
        self._pending: dict[int, _Pending] = {}
        """Messages that are received and not durable, by number."""
        self._pending_bytes = 0
        self._ready: deque[_Pending] = deque()
        """Messages that are in order and not yet passed to the runtime."""
        self._uncommitted: deque[_Pending] = deque()
        """Messages that were passed to the runtime and are not known to be durable."""
        self._given_messages = 0
        self._ahead: dict[str, int] = {}
        """The number of the message that has stated an entity ahead of a missing one, by key."""
        self._given_us = 0
        """The append time of the last record passed to the runtime."""
        self._committed_offset = self.settings.first_number - 1
        self._baselining = False
        """Whether messages are confirmed early: the store says that the baseline is being read."""
        self._baseline_durable = False
        self._baseline_version: int | None = None
        self._realign_reason = ""
        self._realign_reported = False
        self._deviations: dict[str, int] = {}
        self._faulted: dict[int, _Faulted] = {}
        """Numbers that were kept and answered with a fault, the first fault first."""
        self._error: SourceError | None = None
        self._closed = False
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self._unanswered: deque[_Waiting] = deque()
        """Callers that wait, the earliest deadline first."""
        self._deadline_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = self._realign_reason or ("closed" if self._closed else "open")
        return (
            f"<SequencedFeed {self.session}: {state}, next {self._sequencer.next_number}, "
            f"{len(self._pending)} not durable>"
        )

    # -- the adapter's side ----------------------------------------------------------------------

    def stamp_us(self) -> int:
        """The append time for a message that arrives now: our clock in microseconds, never going
        back within the session. The provider's clock decides nothing; keep its time in the
        envelope.
        """
        self._stamped_us = max(self._stamped_us, int(self._clock() * _US))
        return self._stamped_us

    async def first_message(self) -> None:
        """Wait for the first message. It shows that the peer follows the session, though it may
        answer the request for it only when this message is confirmed (SDPi R0800).
        """
        await self._first.wait()

    def refused_unread(self) -> None:
        """Tell that something that came for the session was answered with a fault before its
        number was read: it may have been a copy of the last message (S7).
        """
        self._note_fault(self._sequencer.next_number - 1, b"")

    async def accept(self, message: NumberedRecords) -> Receipt:
        """Receive a message; returns when its receipt is known.

        ACCEPTED: it is durable, by itself or in the baseline, or see `confirm_while_baselining`.
        DUPLICATE: so is the message that it repeats (S1). Both are a confirmation (HTTP 2xx).
        REFUSED is a fault: with `Refusal.FULL` the message may come again, and other content may
        come under its number, which is then applied over the first (S7); so it may with
        `OUT_OF_RANGE`; with `CLOSED` the session is over, its state comes with the next.

        Cancelling loses nothing: the message stays accepted, and a copy gets the receipt. Raises
        `ValueError` if the records do not carry the session and the number.
        """
        answered: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

        def answer(receipt: Receipt) -> None:
            if not answered.done():
                answered.set_result(receipt)

        self.submit(message, answer)
        return await answered

    def submit(self, message: NumberedRecords, answer: Callable[[Receipt], None]) -> None:
        """The same without a task: `answer` is called once with the receipt, at once or later. An
        error that it raises goes to the handler of the event loop.
        """
        receipt = self._receive(message, answer)
        if receipt is not None:
            answer(receipt)

    def _receive(
        self, message: NumberedRecords, answer: Callable[[Receipt], None]
    ) -> Receipt | None:
        """Receive a message. Returns its receipt; None: `answer` will be called."""
        number = message.number
        for record in message.records:
            if record.offset != number or record.partition != self.session or not record.token:
                raise ValueError(
                    f"a record of message {number} has partition {record.partition!r}, offset "
                    f"{record.offset} and token {record.token!r}: build it with partition "
                    f"{self.session!r}, offset {number} and a token"
                )
        if self._over:
            return _CLOSED
        if number not in self._pending and not self._has_room(message):
            return _FULL
        self._first.set()
        decision = self._sequencer.receive([message], self._now_us())
        waiting: _Waiting | None = None
        receipt = _CLOSED
        if decision.accepted:
            pending = self._pending[number] = _Pending(message)
            self._pending_bytes += message.size_bytes
            waiting = _Waiting(number, ReceiptOutcome.ACCEPTED, answer)
            pending.waiting.append(waiting)
        elif decision.refused:
            receipt = Receipt(ReceiptOutcome.REFUSED, refusal=decision.refused[0][1])
        elif self._is_repeat(message, changed=bool(decision.deviations)):
            receipt = Receipt(ReceiptOutcome.DUPLICATE)
            if number in self._pending and not self._pending[number].early:
                waiting = _Waiting(number, ReceiptOutcome.DUPLICATE, answer)
                self._pending[number].waiting.append(waiting)
        released = [self._pending.get(in_order) for in_order in decision.deliver]
        ready = [one for one in released if one is not None and not one.ahead]
        if self.settings.apply_ahead and decision.accepted and number not in decision.deliver:
            self._pending[number].ahead = True
            ready.append(self._pending[number])
        self._ready.extend(ready)
        self._act_on(decision.effects)
        if self._baselining:
            self._confirm_early(ready)
        self._wake.set()
        if waiting is None:
            return receipt
        self._watch(waiting)
        return None

    def baseline_version(self, version: int) -> None:
        """Set the version of the session's baseline: messages up to this version are confirmed and
        not applied. Call it before `Source.baseline` ends.

        If several baselines are read in one session (by consumers that share it), call it for each:
        the lowest version counts. If the session of a baseline is not known, call it on all
        sessions. It has no effect once the baseline is durable.
        """
        if not self._baseline_durable:
            known = self._baseline_version
            self._baseline_version = version if known is None else min(known, version)

    def realign(self, reason: str, *, deviation: str = "") -> None:
        """End the session because the adapter has detected that the stream must be realigned; see
        `RecordChunk.realign`. `deviation` is counted if it is not empty.
        """
        if deviation:
            self._deviations[deviation] = self._deviations.get(deviation, 0) + 1
        self._realign_reason = self._realign_reason or reason
        self._wake.set()

    def fail(self, error: SourceError) -> None:
        """End the session because the connection is lost or the peer has ended it: `receive` raises
        this error after the messages that were in order.
        """
        self._error = self._error or error
        self._wake.set()

    def close(self) -> None:
        """End the session: callers that still wait for a receipt get `Refusal.CLOSED`."""
        self._closed = True
        for pending in self._pending.values():
            pending.answer(_CLOSED)
        self._pending.clear()
        self._ready.clear()
        self._uncommitted.clear()
        self._pending_bytes = 0
        self._unanswered.clear()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._wake.set()

    # -- the runtime's side ----------------------------------------------------------------------

    async def receive(self) -> RecordChunk:
        """See `Feed`: returns the messages in order, once the baseline is durable. Raises the error
        of `fail`.

        Cancelling loses nothing.
        """
        while True:
            self._wake.clear()
            if not self._over:
                self._act_on(self._sequencer.tick(self._now_us()).effects)
            chunk = self._chunk() if self._baseline_durable else None
            if chunk is not None:
                return chunk
            if self._error is not None:
                raise self._error
            due_us = None if self._over else self._sequencer.due_us()
            if due_us is None:
                await self._wake.wait()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, (due_us - self._now_us()) / _US)):
                    await self._wake.wait()

    def committed(self, position: Position) -> None:
        """See `Feed.committed`: answers the messages that are durable now."""
        if not self._baseline_durable:
            self._baseline_committed(position.phase)
        offset = position.offsets.get(self.session)
        if offset is not None and offset > self._committed_offset:
            self._committed_offset = offset
            self._confirm()

    # -- within ----------------------------------------------------------------------------------

    def _has_room(self, message: NumberedRecords) -> bool:
        """Whether there is room for it. A copy of what is durable needs none, and a fault for it
        would let its sender change what is confirmed.
        """
        if (
            len(self._pending) < self.settings.limit_messages
            and self._pending_bytes + message.size_bytes <= self.settings.limit_bytes
        ):
            return True
        faulted = self._faulted.get(message.number)
        changed = faulted is not None and faulted.open and message.digest not in faulted.digests
        return message.number < self._sequencer.next_number and not changed

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None or bool(self._realign_reason)

    def _baseline_committed(self, phase: Phase) -> None:
        """A page of the baseline is durable, or with another phase the whole of it."""
        if phase is not Phase.BASELINING:
            self._baselining = False
            self._baseline_durable = True
            self._wake.set()
        elif self.settings.confirm_while_baselining:
            self._baselining = True
            self._confirm_early(self._ready)

    def _watch(self, waiting: _Waiting) -> None:
        # One timer for all: most messages are durable long before, and a timer for each is
        # expensive.
        loop, unanswered = asyncio.get_running_loop(), self._unanswered
        waiting.deadline_s = loop.time() + self.settings.answer_within_s
        while unanswered and unanswered[0].callback is None:
            unanswered.popleft()
        unanswered.append(waiting)
        if self._deadline_timer is None:
            self._deadline_timer = loop.call_at(waiting.deadline_s, self._refuse_late)

    def _refuse_late(self) -> None:
        """Answer those whose deadline has passed, and set the timer for the next deadline."""
        self._deadline_timer = None
        loop, unanswered = asyncio.get_running_loop(), self._unanswered
        while unanswered and (
            unanswered[0].callback is None or unanswered[0].deadline_s <= loop.time()
        ):
            waiting = unanswered.popleft()
            if waiting.callback is None:
                continue
            pending = self._pending.get(waiting.number)
            if pending is not None:
                pending.waiting.remove(waiting)
                self._note_fault(waiting.number, pending.message.digest)
            waiting.answer(_FULL)
        if unanswered:
            self._deadline_timer = loop.call_at(unanswered[0].deadline_s, self._refuse_late)

    def _confirm_early(self, ready: Iterable[_Pending]) -> None:
        """Confirm messages that the next chunk has, see `confirm_while_baselining`."""
        if not self._over:
            for pending in ready:
                pending.early = True
                self._confirm_pending(pending)

    def _now_us(self) -> int:
        return int(asyncio.get_running_loop().time() * _US)

    def _is_repeat(self, message: NumberedRecords, *, changed: bool) -> bool:
        """Whether a copy repeats the last message, or one behind a gap, with unchanged content
        (SDPi R0801, R0802): it is answered and not applied again (R1033). Other content, or a
        number that goes back, ends the session (R1032, R1031).
        """
        number, last = message.number, self._sequencer.next_number - 1
        faulted = self._faulted.get(number)
        if faulted is not None and (faulted.open or number >= last):
            if not changed or message.digest in faulted.digests:
                faulted.open = faulted.open and number in self._pending
                return True
            if faulted.open and number >= last:
                self._replace(message, faulted)
                return True
        if number < last:
            self.realign(f"the numbers went back, {last} to {number}", deviation="number-backwards")
        elif changed:
            self.realign(
                f"message {message.number} has other content now", deviation="content-changed"
            )
        else:
            return True
        return False

    def _note_fault(self, number: int, digest: bytes) -> None:
        """A number that was kept is answered with a fault."""
        known = self._faulted.setdefault(number, _Faulted(digest))
        known.open = True
        if len(self._faulted) > _MOST_FAULTED:
            del self._faulted[next(iter(self._faulted))]

    def _replace(self, message: NumberedRecords, faulted: _Faulted) -> None:
        """Let other content count that came after a fault of ours (S7)."""
        faulted.digests = [*faulted.digests[1 - _MOST_CONTENTS :], message.digest]
        self._pending_bytes += message.size_bytes
        pending = self._pending.get(message.number)
        if pending is not None and not pending.given:
            self._pending_bytes -= pending.message.size_bytes
            pending.message, pending.records = message, message.records
            return
        # What the first content stated was true when it was sent: the other one comes behind it.
        again = self._pending[message.number] = _Pending(message)
        again.again = True
        again.ahead = pending is not None and pending.ahead
        self._ready.append(again)

    def _confirm_pending(self, pending: _Pending) -> None:
        """Answer those who wait for it that it is confirmed."""
        if self._faulted and pending.waiting:
            faulted = self._faulted.get(pending.message.number)
            if faulted is not None:
                faulted.open = False
        pending.answer()

    def _act_on(self, effects: Sequence[object]) -> None:
        for effect in effects:
            if isinstance(effect, RealignSequence):
                first = Ranges.of(*effect.missing[:1])
                word = "message" if first.count() == 1 else "messages"
                self.realign(f"{word} {first} of the session did not come")
            elif isinstance(effect, SequenceFailed):
                self.realign(effect.reason)

    def _chunk(self) -> RecordChunk | None:
        """The messages in order as a chunk, with the request for a realignment after the last of
        them.
        """
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        size_bytes = 0
        covered = self._baseline_version
        # What was confirmed early is one chunk: no sweep ends before all of it is durable.
        while self._ready and (self._ready[0].early or len(records) < self.settings.chunk_records):
            pending = self._ready.popleft()
            pending.given = True
            message = pending.message
            if covered is not None and message.version is not None and message.version <= covered:
                pending.records = ()
            self._order(pending)
            records += self._in_order_of_time(pending.records)
            unreadable += message.unreadable
            size_bytes += message.size_bytes
            self._uncommitted.append(pending)
        self._confirm()
        realign = "" if self._ready or self._realign_reported else self._realign_reason
        if not (records or unreadable or realign):
            return None
        self._realign_reported = self._realign_reported or bool(realign)
        deviations = self._deviations if realign else {}
        return RecordChunk(records, unreadable, deviations, size_bytes, realign=realign)

    def _order(self, pending: _Pending) -> None:
        """Give a message its place, and leave out what was stated ahead of it. Without a gap the
        place is the number.
        """
        number, records = pending.message.number, pending.records
        pending.offset = self.settings.first_number + self._given_messages
        self._given_messages += 1
        if self._ahead:
            records = [record for record in records if self._ahead.get(record.key, 0) <= number]
            if not self._ready and max(self._ahead.values()) < self._sequencer.next_number:
                self._ahead.clear()
        if pending.ahead:
            self._ahead.update((record.key, number) for record in records)
        if pending.offset != number:
            at = pending.offset
            records = [msgspec.structs.replace(record, offset=at) for record in records]
        if pending.again:
            # With the token of the first it would be taken for a copy of it.
            at = pending.offset
            records = [
                msgspec.structs.replace(record, token=f"{record.token}/{at}") for record in records
            ]
        pending.records = records

    def _in_order_of_time(self, records: Sequence[Record]) -> Sequence[Record]:
        """A message that arrived late has a later time; the messages after it are raised to that
        time.
        """
        if not records:
            return records
        if records[0].appended_at_us < self._given_us:
            at_us = self._given_us
            return [msgspec.structs.replace(record, appended_at_us=at_us) for record in records]
        self._given_us = records[-1].appended_at_us
        return records

    def _confirm(self) -> None:
        """Answer the durable messages. A message without records of its own changes nothing beyond
        the baseline: it is as durable as the message before it.
        """
        uncommitted = self._uncommitted
        while uncommitted:
            pending = uncommitted[0]
            if pending.records and pending.offset > self._committed_offset:
                return
            uncommitted.popleft()
            number = pending.message.number
            if self._pending.get(number) is pending:
                del self._pending[number]
            self._pending_bytes -= pending.message.size_bytes
            self._confirm_pending(pending)
