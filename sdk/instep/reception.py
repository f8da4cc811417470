"""Receives numbered messages durably, many senders in one commit: the driver of the sequencers.

One task commits. While a commit runs, what comes gathers; the next commit takes all of it, so a
hundred senders do not cost a hundred fsyncs. `instep.reception_group` decides what a group does,
the store does it in one transaction, and only then the senders are answered (S3).

The store is the only truth: after a commit that failed, and that may be durable all the same, the
sequences it touched are read again and the group is done anew; what was durable turns out to be
duplicates. The store is the timer too: it tells which sequences have a gap or a deadline that is
due, so memory holds a bounded number of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

from instep.errors import InstepError, SinkError
from instep.message_store import MessageStore, StoredSequence
from instep.messages import UNSEQUENCED, Listener, Message, OutboxStore, Receipt
from instep.ranges import Ranges
from instep.received_orders import GapDetector
from instep.reception_effects import Effects
from instep.reception_group import REFUSED, Entry, Group, Scope
from instep.reception_queue import Act, Call, CallQueue, Submitted, apply, fail
from instep.retry import Environment, retrying
from instep.sequence_state import SequencerState
from instep.sequence_transitions import Refusal, SequenceRefusedError
from instep.sequencer import Sequencer
from instep.settings import ConsumerSettings, ReceptionSettings

__all__ = ["DurableReception"]

Tell = Callable[[str, str, str], None]
"""Called with scope, kind and text of what happened."""


class DurableReception:
    """Implements `instep.messages.Reception` over a `MessageStore`.

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
        tell: Tell,
    ) -> None:
        """`handled`: released messages wait for a handler (`instep.delivery`)."""
        self._listener = listener
        self._store = store
        self._settings = settings
        self._limits: ReceptionSettings = settings.reception
        self._environment = environment
        self._handled = handled
        self._tell = tell
        self._effects = Effects(listener, self._limits, tell)
        self._scopes: OrderedDict[str, Scope] = OrderedDict()
        self._recounts = False
        self._queue = CallQueue(self._limits)
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
        return (
            f"<DurableReception {len(self._scopes)} scopes, {self.queued_messages} messages wait>"
        )

    @property
    def outbox(self) -> OutboxStore:
        return self._store

    @property
    def refused(self) -> int:
        """Messages refused since the start: by their sequence, for want of room, or as too late."""
        return self.counts["refused"] + self._queue.refused

    @property
    def queued_messages(self) -> int:
        """Messages that wait for their commit."""
        return self._queue.messages

    # -- what a listener calls -------------------------------------------------------------------

    async def receive(self, message: Message) -> Receipt:
        return (await self.receive_many((message,)))[0]

    async def receive_many(self, messages: Sequence[Message]) -> list[Receipt]:
        call = Call([Entry.of(message) for message in messages])
        durable = not messages or await self._queue.put(call)
        full = REFUSED[Refusal.FULL]
        return [(durable and entry.receipt) or full for entry in call.entries]

    def submit(self, message: Message, answer: Callable[[Receipt | InstepError], None]) -> None:
        if not self._queue.offer(Submitted(Entry.of(message), answer)):
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
        await self._request(scope, lambda s, _now_us: s.reset())

    async def state(self, scope: str) -> SequencerState:
        return (await self._sequencer(scope)).durable

    async def acknowledged(self, scope: str) -> Ranges:
        return (await self._sequencer(scope)).acknowledged()

    async def cancelled(self, scope: str) -> Ranges:
        return (await self._sequencer(scope)).cancelled()

    async def faulted(self, scope: str) -> Ranges:
        return (await self._sequencer(scope)).faulted()

    async def received_orders(self, scope: str, party: str) -> GapDetector:
        return (await self._sequencer(scope)).gap_detector(party)

    def deviated(self, kind: str) -> None:
        self._deviations[kind] += 1
        self._queue.came.set()

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
        self._recounts = True

    # -- the committing task ---------------------------------------------------------------------

    async def run(self) -> None:
        """Commit until cancelled. Raises the error that is fatal; those who wait get it as well."""
        self._started_us = self._now_us()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._effects.run())
                while True:
                    await self._gathered()
                    calls = self._queue.take()
                    try:
                        await self._done(calls)
                    except BaseException as error:
                        fail(calls, error)
                        raise
        finally:
            self._queue.fail(SinkError("the reception has ended", where=self._listener.kind))

    async def _gathered(self) -> None:
        """Wait until there is something to commit, or a sequence is due."""
        if self._queue.came.is_set():
            return
        wait_s = None if self._due_us is None else (self._due_us - self._now_us()) / 1e6
        if wait_s is not None and wait_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._queue.came.wait()

    async def _done(self, calls: list[Call]) -> None:
        """Commit the calls as one group, and again as a whole while the store is away."""
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    group = await self._committed(calls)
                except SinkError as error:
                    # It may be durable all the same: only the store knows where we stand.
                    self._scopes.clear()
                    self._due_us = 0
                    if not self.last_error:
                        self._tell("", "disconnected", str(error))
                    self.last_error = str(error)
                    raise
                self.last_error = ""
                if group is not None:
                    self._follow(group)
        # Later, so that what gathered is on its way to the store while the senders are told.
        asyncio.get_running_loop().call_soon(self._answer, calls)

    def _answer(self, calls: list[Call]) -> None:
        """Tell the senders of a group that is durable."""
        waiting = [call for call in calls if not call.over]
        receipts = [entry.receipt for call in waiting for entry in call.entries]
        self.counts.update([receipt.outcome for receipt in receipts if receipt is not None])
        for call in waiting:
            call.answer(durable=True)

    async def _committed(self, calls: list[Call]) -> Group | None:
        calls = [call for call in calls if not call.over]
        if self._recounts:
            self._recounts = False
            self._scopes.clear()
        now_us = self._now_us()
        due: list[str] = []
        if self._due_us is not None and self._due_us <= now_us:
            found = await self._store.due(now_us, self._limits.ticks_at_once)
            due, self._due_us = found.scopes, found.next_us
        names = {call.scope for call in calls if call.act} | set(due)
        unsequenced: list[Message] = []
        for call in calls:
            for entry in call.entries:
                entry.receipt = None
                message = entry.message
                assert message is not None
                names.add(message.scope)
                if entry.number == UNSEQUENCED:
                    unsequenced.append(message)
        await self._load(names)
        seen = await self._store.seen(unsequenced) if unsequenced else ()
        group = Group(self._now_us(), seen, handled=self._handled)
        apply(calls, group, self._scopes)
        for name in due:
            group.request(self._scopes[name], lambda sequencer, now_us: sequencer.tick(now_us))
        deviations, self._deviations = self._deviations, Counter()
        said = group.finish(deviations)
        if not said.changes and not said.deviations:
            return None
        try:
            await self._store.commit(said)
        except BaseException:
            self._deviations.update(deviations)
            raise
        group.committed()
        self.deviations.update(said.deviations)
        self.counts["commits"] += 1
        times_us = [self._due_us, *(change.due_us for change in said.changes)]
        self._due_us = min((at_us for at_us in times_us if at_us is not None), default=None)
        return group

    def _follow(self, group: Group) -> None:
        """What is due once a group is durable."""
        self._effects.put(group.effects)
        for entry in group.changed:
            assert entry.message is not None
            text = f"message {entry.number} ({entry.message.id}) came again with other content"
            self._tell(entry.message.scope, "deviation", text)
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
            sequencer = self._made(name, found)
            if sequencer.durable.acted_at_us < self._started_us:
                # No gap is held against its sender for the time that we were away.
                sequencer.resumed(self._started_us)
            self._scopes[name] = Scope(name, sequencer, found.waiting if found else 0)

    async def _sequencer(self, name: str) -> Sequencer:
        """The sequencer of a scope for reading what is committed."""
        scope = self._scopes.get(name)
        if scope is not None:
            return scope.sequencer
        found = (await self._store.load((name,))).get(name)
        return self._made(name, found)

    def _made(self, name: str, found: StoredSequence | None) -> Sequencer:
        return Sequencer(self._listener.settings_of(name), found.state if found else None)

    async def _request(self, scope: str, act: Act) -> None:
        call = Call([], scope, act)
        if not await self._queue.put(call):
            raise SequenceRefusedError(Refusal.FULL, "the store is not keeping up")
        if call.error is not None:
            raise call.error

    def _now_us(self) -> int:
        """Our clock; a sequencer's time never goes back."""
        self._clock_us = max(self._clock_us, int(self._environment.now() * 1_000_000))
        return self._clock_us
