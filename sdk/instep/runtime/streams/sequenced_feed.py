"""A feed over numbered messages that carry entities (SDPi's reports, say): numbers tell whether
something is missing, a baseline gives what was.

Numbers and entities meet here, and only here: `instep.sequencing.sequencer` decides about the
numbers of one session, `instep.alignment.machine` about the baseline, marks and sweeps. The
sequencer lives in memory. A session ends with its connection, and the next one begins with a
baseline of its own (`StreamInfo.resumable` is False), so nothing of its numbers need be durable.

Theory of operation. An adapter opens a session (a subscription), gives each message that arrives to
`SequencedFeed.accept`, and answers its peer with the receipt. In order, messages wait until the
baseline of the session is durable; then they go to the runtime, but for those that the baseline
contains already. `committed` tells what is durable, and only then a message gets its receipt (S3).

Four things break a session: a number that is still missing after the reorder window (the first
number of a session is fixed, so a late join is one of these), numbers that go back, other content
under the last number, and a connection that is lost. None of them is reported as a loss, because
none is: the state that the missing messages stood for is in the baseline of the next session. The
first three are told by `RecordChunk.realign`. What was in order before is committed first.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
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
from instep.sequencing.effects import RealignSequence, SequenceFailed
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, SequencerSettings
from instep.sequencing.transitions import Refusal

__all__ = ["NumberedRecords", "SequencedFeed", "SequencedFeedSettings"]

_US: Final = 1_000_000
_MOST_CONTENTS: Final = 8
"""Contents under one number that are told apart; one more, and the stream is realigned."""
_CLOSED: Final = Receipt(ReceiptOutcome.REFUSED, refusal=Refusal.CLOSED)
_FULL: Final = Receipt(ReceiptOutcome.REFUSED, refusal=Refusal.FULL)


class SequencedFeedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the messages of a session are taken. Adapters set what their protocol fixes."""

    first_number: int = 1
    """The number of a session's first message (SDPi R0800)."""
    reorder_window_s: Annotated[float, msgspec.Meta(ge=0.0)] = 2.0
    """Longest wait for a missing number before the stream is realigned; 0: none, as where one
    message is under way at a time. It is monotonic time.
    """
    limit_messages: Count = 10_000
    """Most messages that are received and not durable; further ones are refused. At most half of
    them wait behind a gap, so that what closes it finds room.
    """
    limit_bytes: Count = 64 * 1024 * 1024
    """The same for their bytes."""
    answer_within_s: Seconds = 10.0
    """A message that is not durable after this time is refused as full; a copy may come again, and
    gets its receipt. A peer whose patience is shorter needs less.
    """
    chunk_records: Count = 5_000
    """Records after which no further message joins a chunk."""


class NumberedRecords(MessageHeader, kw_only=True):
    """One message of a session, with what it states. Build the records with the session as
    `partition`, the number as `offset`, a token that is not empty, `SequencedFeed.stamp_us` as
    `appended_at_us` and the key as `uuid`.
    """

    records: Sequence[Record] = ()
    unreadable: Sequence[Unreadable] = ()
    """Parts that could not be read: they go to quarantine, the rest is applied (A11)."""
    version: int | None = None
    """The state of the provider after this message, comparable with that of a baseline (BICEPS
    MdibVersion); None where the protocol has none. Within a session it never goes down.
    """


class _Pending:
    """A message that is received and not yet durable, and who waits for its receipt."""

    __slots__ = ("given", "message", "records", "waiting")

    def __init__(self, message: NumberedRecords) -> None:
        self.message = message
        self.records = message.records
        """Emptied where the baseline contains them."""
        self.given = False
        """Whether the runtime has it."""
        self.waiting: list[tuple[asyncio.Future[Receipt], ReceiptOutcome]] = []

    def receipt(self, outcome: ReceiptOutcome) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        # A peer that gave up waiting and sent a copy leaves a cancelled one behind.
        self.waiting = [one for one in self.waiting if not one[0].done()]
        self.waiting.append((future, outcome))
        return future

    def answer(self, receipt: Receipt | None = None) -> None:
        """Give this receipt, or that the message is durable, to all that wait."""
        for future, outcome in self.waiting:
            if not future.done():
                future.set_result(Receipt(outcome) if receipt is None else receipt)
        self.waiting.clear()


class SequencedFeed(Feed):
    """One session of numbered messages. The module says what it promises.

    The adapter's part: make one before it subscribes, because the first message may arrive before
    the subscription is answered; `accept` each message; call `baseline_version` when its
    `Source.baseline` knows the version of what it read, with rows appended at `opened_at_us`;
    `fail` when the connection is lost or the peer ends the session; `close` in the end. The
    stream's `StreamInfo` has `Mode.BASELINE` and `resumable=False`.

    All methods belong to one event loop. Memory is bounded by `SequencedFeedSettings`.
    """

    clock_offset_us = 0
    """Always 0: records carry our own time, see `stamp_us`."""

    def __init__(
        self,
        session: str,
        settings: SequencedFeedSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`session` is unique among those of the stream; `clock` gives seconds since 1970."""
        self.session = session
        self.settings = settings or SequencedFeedSettings()
        self._clock = clock
        self._stamped_us = 0
        self.opened_at_us = self.stamp_us()
        """When the session began; the append time for the rows of its baseline, so that whatever
        the session states is newer (A14).
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
        """What is received and not durable, by number."""
        self._pending_bytes = 0
        self._ready: deque[_Pending] = deque()
        """In order, and not given to the runtime yet."""
        self._uncommitted: deque[_Pending] = deque()
        """Given to the runtime, and not known to be durable."""
        self._given_us = 0
        """The append time of the last record given to the runtime."""
        self._committed_number = self.settings.first_number - 1
        self._baseline_durable = False
        self._baseline_version: int | None = None
        self._realign_reason = ""
        self._realign_reported = False
        self._deviations: dict[str, int] = {}
        self._late: dict[int, list[bytes]] = {}
        """Numbers from the last one on that were refused because they were not durable in time, and
        the digests of what came under them; the last one's content counts.
        """
        self._error: SourceError | None = None
        self._closed = False
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        state = self._realign_reason or ("closed" if self._closed else "open")
        return (
            f"<SequencedFeed {self.session}: {state}, next {self._sequencer.next_number}, "
            f"{len(self._pending)} not durable>"
        )

    # -- the adapter's side ----------------------------------------------------------------------

    def stamp_us(self) -> int:
        """The append time for what arrives now: our clock in microseconds, never going back within
        the session. The provider's clock decides nothing; keep its time in the envelope.
        """
        self._stamped_us = max(self._stamped_us, int(self._clock() * _US))
        return self._stamped_us

    async def accept(self, message: NumberedRecords) -> Receipt:
        """Take a message; returns when the answer is known.

        ACCEPTED: it is durable, by itself or in the baseline. DUPLICATE: so is the message that it
        repeats (S1). Both are a confirmation (HTTP 2xx). REFUSED is a fault: with `Refusal.FULL`
        the message may come again, and other content may come under its number (S7); so it may
        with `OUT_OF_RANGE`; with `CLOSED` the session is over, its state comes with the next.

        Cancelling loses nothing: the message stays taken, a copy gets the receipt. Raises
        `ValueError` where the records do not carry the session and the number.
        """
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
        if number not in self._pending and (
            len(self._pending) >= self.settings.limit_messages
            or self._pending_bytes + message.size_bytes > self.settings.limit_bytes
        ):
            return _FULL
        decision = self._sequencer.receive([message], self._now_us())
        waiting: asyncio.Future[Receipt] | None = None
        receipt = _CLOSED
        if decision.accepted:
            pending = self._pending[number] = _Pending(message)
            self._pending_bytes += message.size_bytes
            waiting = pending.receipt(ReceiptOutcome.ACCEPTED)
        elif decision.refused:
            receipt = Receipt(ReceiptOutcome.REFUSED, refusal=decision.refused[0][1])
        elif self._is_repeat(message, changed=bool(decision.deviations)):
            if number in self._pending:
                waiting = self._pending[number].receipt(ReceiptOutcome.DUPLICATE)
            receipt = Receipt(ReceiptOutcome.DUPLICATE)
        self._ready.extend([self._pending[released] for released in decision.deliver])
        self._act_on(decision.effects)
        self._wake.set()
        return receipt if waiting is None else await self._in_time(number, waiting)

    def baseline_version(self, version: int) -> None:
        """The baseline of this session contains all messages up to this version: they are confirmed
        and not applied again. Call it before `Source.baseline` ends.

        Where several baselines are read over one session (consumers that share it), or it is not
        known which session a baseline belongs to, tell all of them: the lowest version counts.
        Nothing happens once the baseline is durable.
        """
        if not self._baseline_durable:
            known = self._baseline_version
            self._baseline_version = version if known is None else min(known, version)

    def fail(self, error: SourceError) -> None:
        """The connection is lost, or the peer has ended the session: `receive` raises this after
        what was in order before.
        """
        self._error = self._error or error
        self._wake.set()

    def close(self) -> None:
        """End the session: whoever still waits for a receipt gets `Refusal.CLOSED`."""
        self._closed = True
        for pending in self._pending.values():
            pending.answer(_CLOSED)
        self._pending.clear()
        self._ready.clear()
        self._uncommitted.clear()
        self._pending_bytes = 0
        self._wake.set()

    # -- the runtime's side ----------------------------------------------------------------------

    async def receive(self) -> RecordChunk:
        """See `Feed`: what is in order, once the baseline is durable. Raises what `fail` was given.

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
            left_s = None if due_us is None else max(0.0, (due_us - self._now_us()) / _US)
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def committed(self, position: Position) -> None:
        """See `Feed.committed`: give the receipts that are true from now on."""
        if not self._baseline_durable and position.phase is not Phase.BASELINING:
            self._baseline_durable = True
            self._wake.set()
        number = position.offsets.get(self.session)
        if number is not None and number > self._committed_number:
            self._committed_number = number
            self._confirm()

    # -- within ----------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None or bool(self._realign_reason)

    async def _in_time(self, number: int, waiting: asyncio.Future[Receipt]) -> Receipt:
        try:
            async with asyncio.timeout(self.settings.answer_within_s):
                return await waiting
        except TimeoutError:
            if number in self._pending:
                last = self._sequencer.next_number - 1
                self._late = {late: of for late, of in self._late.items() if late >= last}
                self._late.setdefault(number, [self._pending[number].message.digest])
            return _FULL

    def _now_us(self) -> int:
        return int(asyncio.get_running_loop().time() * _US)

    def _is_repeat(self, message: NumberedRecords, *, changed: bool) -> bool:
        """Whether a copy is one of the last message, or of one that waits behind a gap, with the
        content it had (SDPi R0801, R0802). Any other shows that the provider counts anew.
        """
        last = self._sequencer.next_number - 1
        if message.number < last:
            self._deviates("number-backwards", f"the numbers went back, {last} to {message.number}")
        elif message.number in self._late:
            return self._is_late_repeat(message)
        elif changed:
            self._deviates("content-changed", f"message {message.number} has other content now")
        else:
            return True
        return False

    def _is_late_repeat(self, message: NumberedRecords) -> bool:
        """The same after our fault, where other content is allowed and is what counts (S7)."""
        number, known = message.number, self._late[message.number]
        if message.digest in (b"", *known):
            return True
        pending = self._pending.get(number)
        if pending is None or pending.given or len(known) == _MOST_CONTENTS:
            # Each content was true, and one is applied: the next baseline has the last.
            self._realign(f"message {number} has other content after our fault")
            return False
        self._pending_bytes += message.size_bytes - pending.message.size_bytes
        pending.message, pending.records = message, message.records
        known.append(message.digest)
        return True

    def _deviates(self, kind: str, reason: str) -> None:
        self._deviations[kind] = self._deviations.get(kind, 0) + 1
        self._realign(reason)

    def _act_on(self, effects: Sequence[object]) -> None:
        for effect in effects:
            if isinstance(effect, RealignSequence):
                first = Ranges.of(*effect.missing[:1])
                self._realign(f"messages {first} of the session did not come")
            elif isinstance(effect, SequenceFailed):
                self._realign(effect.reason)

    def _realign(self, reason: str) -> None:
        self._realign_reason = self._realign_reason or reason
        self._wake.set()

    def _chunk(self) -> RecordChunk | None:
        """What is in order, with the request for a realignment behind the last of it."""
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        size_bytes = 0
        covered = self._baseline_version
        while self._ready and len(records) < self.settings.chunk_records:
            pending = self._ready.popleft()
            pending.given = True
            message = pending.message
            if covered is not None and message.version is not None and message.version <= covered:
                pending.records = ()
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

    def _in_order_of_time(self, records: Sequence[Record]) -> Sequence[Record]:
        """A message that was overtaken has the later time; those behind it are raised to it."""
        if not records:
            return records
        if records[0].appended_at_us < self._given_us:
            at_us = self._given_us
            return [msgspec.structs.replace(record, appended_at_us=at_us) for record in records]
        self._given_us = records[-1].appended_at_us
        return records

    def _confirm(self) -> None:
        """Answer what is durable. A message without records of its own states nothing, or what the
        baseline has: it is as durable as what came before it.
        """
        uncommitted = self._uncommitted
        while uncommitted:
            message = uncommitted[0].message
            if uncommitted[0].records and message.number > self._committed_number:
                return
            pending = uncommitted.popleft()
            del self._pending[message.number]
            self._pending_bytes -= message.size_bytes
            pending.answer()
