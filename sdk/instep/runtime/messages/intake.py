"""Receives numbered messages durably, many senders in one commit: the driver of the sequencers.

One task commits. While a commit runs, what comes gathers; the next commit takes all of it, so a
hundred senders do not cost a hundred fsyncs. `instep.runtime.messages.commit_group` decides what a
group does, the store does it in one transaction, and only then the senders are answered (S3).

The store is the only truth: after a commit that failed, and that may be durable all the same, the
sequences it touched are read again and the group is done anew; what was durable turns out to be
duplicates. The store is the timer too: it tells which sequences have a gap or a deadline that is
due, so memory holds a bounded number of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

from instep.errors import InstepError, SinkError
from instep.model.messages import UNSEQUENCED, Message
from instep.model.ranges import Ranges
from instep.ports.listener import Listener, Receipt
from instep.ports.message_store import MessageStore, OutboxStore, StoredSequence
from instep.runtime.group_commit import GatheringQueue, GroupCommitter
from instep.runtime.messages.commit_group import REFUSED, CommitGroup, Entry, Scope
from instep.runtime.messages.outbound import EffectDispatcher
from instep.runtime.messages.requests import (
    Act,
    PendingMessage,
    PendingRequest,
    apply,
    intake_ended,
)
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings, IntakeSettings
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal, SequenceRefusedError

__all__ = ["MessageIntake"]

Emit = Callable[[str, str, str], None]
"""Called with scope, kind and text of what happened."""


class MessageIntake:
    """Implements `instep.ports.listener.Intake` over a `MessageStore`.

    `run` does the work; calls made before it wait for it. Cancelling `run` at any await leaves the
    store as the last commit left it.
    """

    def __init__(
        self,
        listener: Listener,
        store: MessageStore,
        settings: ConsumerSettings,
        environment: Environment,
        *,
        handled: bool,
        emit: Emit,
    ) -> None:
        """`handled`: released messages wait for a handler (`instep.runtime.messages.handler`)."""
        self._listener = listener
        self._store = store
        self._settings = settings
        self._limits: IntakeSettings = settings.intake
        self._environment = environment
        self._handled = handled
        self._emit = emit
        self._effects = EffectDispatcher(listener, self._limits, emit)
        self._scopes: OrderedDict[str, Scope] = OrderedDict()
        self._recount_wanted = False
        self._queue = GatheringQueue[PendingRequest](
            self._limits.queue_messages, self._limits.queue_bytes
        )
        self._committer = GroupCommitter(
            self._queue,
            intake_ended,
            answer_within_s=self._limits.answer_within_s,
            expire=self._refuse_late,
        )
        self._refused = 0
        """Messages that found no room, or waited too long."""
        self.released = asyncio.Event()
        """Set when messages begin to wait for the handler."""
        self._started_us = self._clock_us = 0
        self._due_us: int | None = 0
        """When the store has to be asked which sequences are due; None: when told."""
        self._deviations: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Messages by what became of them in a commit, and commits, since the start."""
        self.deviations: Counter[str] = Counter()
        """Departures of the peers since the start: kind → count."""
        self.last_error = ""
        """Why the store does not commit; empty while it does."""

    def __repr__(self) -> str:
        return f"<MessageIntake {len(self._scopes)} scopes, {self.queued_messages} messages wait>"

    @property
    def outbox(self) -> OutboxStore:
        return self._store

    @property
    def refused(self) -> int:
        """Messages refused since the start: by their sequence, for want of room, or as too late."""
        return self.counts["refused"] + self._refused

    @property
    def queued_messages(self) -> int:
        """Messages that wait for their commit."""
        return self._queue.records

    # -- what a listener calls -------------------------------------------------------------------

    async def receive(self, message: Message) -> Receipt:
        return (await self.receive_many((message,)))[0]

    async def receive_many(self, messages: Sequence[Message]) -> list[Receipt]:
        request = PendingRequest([Entry.of(message) for message in messages])
        durable = not messages or await self._durable(request)
        full = REFUSED[Refusal.FULL]
        return [(durable and entry.receipt) or full for entry in request.entries]

    def submit(self, message: Message, answer: Callable[[Receipt | InstepError], None]) -> None:
        if not self._submit(PendingMessage(Entry.of(message), answer)):
            answer(REFUSED[Refusal.FULL])

    async def cancel(self, scope: str, low: int, high: int) -> None:
        await self._request(scope, lambda s, now_us: s.cancel(low, high, now_us))

    async def fill(self, scope: str, low: int, high: int) -> None:
        await self._request(scope, lambda s, now_us: s.fill(low, high, now_us))

    async def fault(self, scope: str, number: int, reason: Refusal) -> None:
        await self._request(scope, lambda s, now_us: s.fault(number, reason, now_us))

    async def announce(self, scope: str, highest: int) -> None:
        await self._request(scope, lambda s, now_us: s.announce(highest, now_us))

    async def give_up(self, scope: str, through: int, reason: str = "given up") -> None:
        await self._request(scope, lambda s, now_us: s.give_up(through, now_us, reason))

    async def last(self, scope: str, number: int) -> None:
        await self._request(scope, lambda s, now_us: s.last(number, now_us))

    async def close(self, scope: str, last_number: int | None = None) -> None:
        await self._request(scope, lambda s, now_us: s.close(now_us, last_number))

    async def terminate(self, scope: str) -> None:
        await self._request(scope, lambda s, now_us: s.terminate(now_us))

    async def reset(self, scope: str) -> None:
        await self._request(scope, lambda s, now_us: s.reset(now_us))

    async def state(self, scope: str) -> SequencerState:
        return (await self._committed_sequencer(scope)).durable

    async def acknowledged(self, scope: str) -> Ranges:
        return (await self._committed_sequencer(scope)).acknowledged()

    async def cancelled(self, scope: str) -> Ranges:
        return (await self._committed_sequencer(scope)).cancelled()

    async def faulted(self, scope: str) -> Ranges:
        return (await self._committed_sequencer(scope)).faulted().ranges()

    def report_deviation(self, kind: str) -> None:
        self._deviations[kind] += 1
        self._queue.wake()

    def delivered(self, counts: dict[str, int]) -> None:
        """Messages of these scopes no longer wait for the handler."""
        for name, count in counts.items():
            scope = self._scopes.get(name)
            if scope is not None:
                # One that comes back from quarantine has left before.
                scope.waiting = max(0, scope.waiting - count)

    def recount(self) -> None:
        """Nobody knows how many messages wait for the handler: whether some were delivered was lost
        with the store's answer.
        """
        self._recount_wanted = True

    # -- the committing task ---------------------------------------------------------------------

    async def run(self) -> None:
        """Commit until cancelled. Raises the error that is fatal; those who wait get it as well."""
        self._started_us = self._now_us()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._effects.run())
                while True:
                    await self._wait_for_work()
                    count = self._queue.count_within(self._limits.group_messages)
                    await self._committer.commit_next(self._commit_until_durable, count)
        finally:
            self._committer.close(SinkError("the intake has ended", where=self._listener.kind))

    async def _wait_for_work(self) -> None:
        """Wait until there is something to commit, or a sequence is due."""
        if self._queue or self._deviations:
            return
        wait_s = None if self._due_us is None else (self._due_us - self._now_us()) / 1e6
        if wait_s is None or wait_s > 0:
            await self._queue.arrival(wait_s)

    async def _commit_until_durable(self, requests: list[PendingRequest]) -> list[None]:
        """Commit the calls as one group, and again as a whole while the store is away."""
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    group = await self._commit(requests)
                except SinkError as error:
                    # It may be durable all the same: only the store knows where we stand.
                    self._scopes.clear()
                    self._due_us = 0
                    if not self.last_error:
                        self._emit("", "disconnected", str(error))
                    self.last_error = str(error)
                    raise
                self.last_error = ""
                if group is not None:
                    self._after_commit(group)
        # Counted while the store works on the next group, just before the senders are answered.
        asyncio.get_running_loop().call_soon(self._count_receipts, requests)
        return [None] * len(requests)

    def _count_receipts(self, requests: list[PendingRequest]) -> None:
        """What became of the messages of a durable group whose senders still wait."""
        waiting = [request for request in requests if not request.done]
        receipts = [entry.receipt for request in waiting for entry in request.entries]
        self.counts.update([receipt.outcome for receipt in receipts if receipt is not None])

    async def _commit(self, requests: list[PendingRequest]) -> CommitGroup | None:
        requests = [request for request in requests if not request.done]
        if self._recount_wanted:
            self._recount_wanted = False
            self._scopes.clear()
        now_us = self._now_us()
        due: list[str] = []
        if self._due_us is not None and self._due_us <= now_us:
            found = await self._store.due(now_us, self._limits.ticks_at_once)
            due, self._due_us = found.scopes, found.next_us
        names = {request.scope for request in requests if request.act} | set(due)
        unsequenced: list[Message] = []
        for request in requests:
            for entry in request.entries:
                entry.receipt = None
                message = entry.message
                assert message is not None
                names.add(message.scope)
                if entry.number == UNSEQUENCED:
                    unsequenced.append(message)
        await self._load(names)
        seen = await self._store.seen(unsequenced) if unsequenced else ()
        group = CommitGroup(self._now_us(), seen, handled=self._handled)
        apply(requests, group, self._scopes)
        for name in due:
            group.request(self._scopes[name], lambda sequencer, now_us: sequencer.tick(now_us))
        deviations, self._deviations = self._deviations, Counter()
        message_group = group.finish(deviations)
        if not message_group.changes and not message_group.deviations:
            return None
        try:
            await self._store.commit(message_group)
        except BaseException:
            self._deviations.update(deviations)
            raise
        group.committed()
        self.deviations.update(message_group.deviations)
        self.counts["commits"] += 1
        times_us = [self._due_us, *(change.due_us for change in message_group.changes)]
        self._due_us = min((at_us for at_us in times_us if at_us is not None), default=None)
        return group

    def _after_commit(self, group: CommitGroup) -> None:
        """What is due once a group is durable."""
        self._effects.put(group.effects)
        for entry in group.changed:
            assert entry.message is not None
            text = f"message {entry.number} ({entry.message.id}) came again with other content"
            self._emit(entry.message.scope, "deviation", text)
        if self._handled:
            self.released.set()
        for name in group.scopes:
            self._scopes.move_to_end(name)
        while len(self._scopes) > self._limits.scopes_in_memory:
            self._scopes.popitem(last=False)

    # -- inner parts -----------------------------------------------------------------------------

    async def _load(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._scopes]
        if not missing:
            return
        stored = await self._store.load(missing)
        for name in missing:
            found = stored.get(name)
            sequencer = self._sequencer_from(name, found)
            if sequencer.durable.acted_at_us < self._started_us:
                # No gap is held against its sender for the time that we were away.
                sequencer.resumed(self._started_us)
            self._scopes[name] = Scope(name, sequencer, found.waiting if found else 0)

    async def _committed_sequencer(self, name: str) -> Sequencer:
        """The sequencer of a scope for reading what is committed."""
        scope = self._scopes.get(name)
        if scope is not None:
            return scope.sequencer
        found = (await self._store.load((name,))).get(name)
        return self._sequencer_from(name, found)

    def _sequencer_from(self, name: str, found: StoredSequence | None) -> Sequencer:
        return Sequencer(self._listener.settings_of(name), found.state if found else None)

    async def _request(self, scope: str, act: Act) -> None:
        request = PendingRequest([], scope, act)
        if not await self._durable(request):
            raise SequenceRefusedError(Refusal.FULL, "the store is not keeping up")
        if request.error is not None:
            raise request.error

    async def _durable(self, request: PendingRequest) -> bool:
        """Queue a call and wait for its commit; False: there is no room, or it took too long."""
        return self._submit(request) and await request.wait() is None

    def _submit(self, request: PendingRequest) -> bool:
        """Queue a call, which will be answered; False: there is no room."""
        messages = len(request.entries)
        if self._committer.submit(request, messages or 1, request.size_bytes):
            return True
        self._refused += messages
        return False

    def _refuse_late(self, request: PendingRequest) -> None:
        self._refused += len(request.entries)
        request.answer(Refusal.FULL)

    def _now_us(self) -> int:
        """Our clock; a sequencer's time never goes back."""
        self._clock_us = max(self._clock_us, int(self._environment.now() * 1_000_000))
        return self._clock_us
