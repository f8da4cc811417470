"""Receives numbered messages durably, many senders in one commit: the driver of the sequencers.

One task commits. Calls that arrive during a commit gather; the next commit takes all of them, so a
hundred senders do not cost a hundred fsyncs. `instep.runtime.messages.commit_group` decides what a
group does, the store does it in one transaction, and only then the senders are answered (S3).

The store is the only truth. A commit that failed may be durable all the same, so its sequences are
read again and the group is repeated; messages that were durable are found to be duplicates. The
store is the timer too: it returns the sequences with a gap or a deadline that is due, so memory
holds a bounded number of them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from instep.errors import InstepError, SinkError
from instep.model.messages import CONTENT_BYTES, UNSEQUENCED, Message
from instep.ports.listener import EnvelopeReceipt, IntakeEvent, Listener, Receipt
from instep.ports.message_store import (
    MessageStore,
    Obligation,
    OutboxStore,
    SenderUsage,
    StoredSequence,
)
from instep.runtime.group_commit import GatheringQueue, GroupCommitter
from instep.runtime.messages.commit_group import (
    ACCEPTED,
    REFUSED,
    CommitGroup,
    Entry,
    Opening,
    Scope,
)
from instep.runtime.messages.operator_requests import OperatorRequests
from instep.runtime.messages.outbound import EffectDispatcher
from instep.runtime.messages.replies import PendingReplies
from instep.runtime.messages.requests import (
    Envelope,
    PendingEnvelope,
    PendingMessage,
    PendingRequest,
    apply,
    intake_ended,
    not_keeping_up,
)
from instep.runtime.messages.usage import InboxUsage
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings, IntakeSettings
from instep.runtime.tracing import Tracing
from instep.sequencing.claims import Claims
from instep.sequencing.effects import AskResend, OwedEffect
from instep.sequencing.events import Fill
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal

__all__ = ["Emit", "MessageIntake"]


class Emit(Protocol):
    """How an intake tells what happens to its sequences."""

    def __call__(
        self, stream: str, kind: str, text: str, ids: Mapping[str, int] | None = None, /
    ) -> None:
        """Called with scope, kind, text and ids of an event."""


class MessageIntake:
    """Implements `instep.ports.listener.Intake` over a `MessageStore`.

    Promised: a call is answered only after its commit is durable (S3). `run` does the work; calls
    made before it wait for it. Cancelling `run` at any await leaves the store as the last commit
    left it.
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
        self._effects = EffectDispatcher(
            listener,
            self._limits,
            environment,
            emit=emit,
            settled=self._settle,
            asked=self._note_asked,
        )
        self.replies = PendingReplies()
        """Requests whose senders wait for the handler."""
        self._settled: dict[int, bool] = {}
        """Obligations that the store may forget with the next commit: number → whether sent."""
        self._obligations = 0
        """The highest number of an obligation."""
        self._usage = InboxUsage(self._limits, {})
        self._recovered = False
        """Whether usage and obligations were read from the store."""
        self._scopes: OrderedDict[str, Scope] = OrderedDict()
        self._recount_wanted = False
        self._old_told_us = 0
        """Since when a message is in the dead letter of which it was told that it is old."""
        self._queue = GatheringQueue[PendingRequest](
            self._limits.queue_messages, self._limits.queue_bytes
        )
        self._committer = GroupCommitter(
            self._queue,
            intake_ended,
            answer_within_s=self._limits.answer_within_s,
            expire=self._refuse_late,
        )
        self._refused: Counter[str] = Counter()
        self._listener_refused: list[Mapping[str, int]] = []
        self.released = asyncio.Event()
        """Set when messages begin to wait for the handler."""
        self._started_us = self._clock_us = 0
        self._due_us: int | None = 0
        """When to ask the store for due sequences, in microseconds since 1970; None: not before a
        commit sets a time.
        """
        self._look_us = 0
        """When to ask the store for requests of operators."""
        self._deviations: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Messages by their outcome in a commit, and commits, since the start."""
        self.deviations: Counter[str] = Counter()
        """Departures of the peers since the start: kind → count."""
        self.received_bytes = 0
        """Bytes of all messages since the start, also of those that are refused."""
        self.last_error = ""
        """Why the store does not commit; empty while it does."""
        self._tracing = Tracing(listener=listener.kind)

    def __repr__(self) -> str:
        return f"<MessageIntake {len(self._scopes)} scopes, {self.queued_messages} messages wait>"

    @property
    def outbox(self) -> OutboxStore:
        return self._store

    @property
    def refusals(self) -> Counter[str]:
        """What was refused since the start: reason → count. By sequences, for want of room, as too
        late, and by the listener.
        """
        total = self._refused.copy()
        for counts in self._listener_refused:
            total.update(counts)
        return total

    @property
    def failed_sequences(self) -> int:
        """Sequences that have failed since the start."""
        return self._effects.failed_sequences

    @property
    def queued_messages(self) -> int:
        """Messages that wait for their commit."""
        return self._queue.records

    @property
    def kept(self) -> SenderUsage:
        """What all sequences keep, and what is in the dead letter."""
        return self._usage.total

    @property
    def dead_since_us(self) -> int:
        """Since when the oldest message is in the dead letter; 0: there is none."""
        return self._usage.dead_since_us if self.kept.dead_messages else 0

    @property
    def gap_since_us(self) -> int | None:
        """Since when the oldest gap of the sequences in memory is known; None: there is none."""
        found = (scope.sequencer.gap_since_us() for scope in self._scopes.values())
        return min((since_us for since_us in found if since_us is not None), default=None)

    # -- what a listener calls -------------------------------------------------------------------

    def reconfigure(self, settings: ConsumerSettings) -> None:
        """Take over changed settings, but those that its queue was made with."""
        self._settings, self._limits = settings, settings.intake
        self._usage.limits = self._effects.limits = settings.intake

    async def receive(self, message: Message, settings: SequencerSettings | None = None) -> Receipt:
        entry = Entry.of(message, settings)
        refusal = await self._durable(PendingRequest(entries=[entry]))
        receipt = entry.receipt if refusal is None else REFUSED[refusal]
        return receipt or REFUSED[Refusal.FULL]

    def submit(
        self,
        message: Message,
        answer: Callable[[Receipt | InstepError], None],
        settings: SequencerSettings | None = None,
    ) -> None:
        entry = Entry.of(message, settings)
        if not self._submit(PendingMessage(entries=(entry,), answer_sender=answer)):
            answer(REFUSED[self._no_room])

    async def open(
        self,
        scope: str,
        settings: SequencerSettings,
        attributes: bytes = b"",
        expires_at_us: int = 0,
        peer: str = "",
    ) -> None:
        await self._request(Envelope(scope, Opening(settings, attributes, expires_at_us, peer)))

    async def apply(self, scope: str, events: Sequence[IntakeEvent]) -> EnvelopeReceipt:
        envelope = Envelope.of(scope, events)
        await self._request(envelope)
        return envelope.receipt()

    def submit_envelope(
        self,
        scope: str,
        events: Sequence[IntakeEvent],
        answer: Callable[[EnvelopeReceipt | InstepError], None],
    ) -> None:
        envelope = Envelope.of(scope, events)
        request = PendingEnvelope(entries=envelope.entries, envelope=envelope, answer_sender=answer)
        if not self._submit(request):
            answer(not_keeping_up(self._no_room))

    async def count(self, scope: str, number: int) -> None:
        await self._request(Envelope(scope, events=[Fill([(number, number)])], opens=True))

    async def scopes(self, prefix: str, limit: int) -> list[str]:
        return await self._store.scopes(prefix, limit)

    async def state(self, scope: str) -> SequencerState | None:
        sequencer = await self._committed_sequencer(scope)
        return sequencer.durable if sequencer else None

    async def claims(self, scope: str) -> Claims | None:
        sequencer = await self._committed_sequencer(scope)
        return sequencer.claims() if sequencer else None

    async def missing(self, scope: str) -> list[tuple[int, int]]:
        claims = await self.claims(scope)
        return claims.missing() if claims else []

    async def attributes(self, scope: str) -> bytes | None:
        state = await self.state(scope)
        return state.attributes if state else None

    async def reply(self, scope: str, number: int, timeout_s: float) -> bytes | None:
        if not self._handled:
            return None
        with self.replies.wait(scope, number) as replied:
            async with asyncio.timeout(timeout_s):
                stored = await self._store.reply(scope, number)
                return await replied if stored.pending else stored.body

    def report_deviation(self, kind: str) -> None:
        self._deviations[kind] += 1
        self._queue.wake()

    def show_refusals(self, counts: Mapping[str, int]) -> None:
        self._listener_refused.append(counts)

    def delivered(self, counts: dict[str, int]) -> None:
        """Subtract delivered messages from those that wait for the handler, by scope."""
        for name, delivered in counts.items():
            scope = self._scopes.get(name)
            if scope is not None:
                # A message that returns from quarantine was subtracted before.
                scope.waiting = max(0, scope.waiting - delivered)

    def recount(self) -> None:
        """Reload the sequences, and with them the counts of waiting messages, before the next
        group: a delivery failed without an answer, so it may be durable.
        """
        self._recount_wanted = True

    # -- the committing task ---------------------------------------------------------------------

    async def run(self) -> None:
        """Commit until cancelled. Raises the first fatal error; waiting callers get it too."""
        self._started_us = self._now_us()
        self._tracing.look()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._effects.run())
                while True:
                    await self._wait_for_work()
                    taken = self._queue.count_within(self._limits.group_messages)
                    await self._committer.commit_next(self._commit_until_durable, taken)
        finally:
            self._committer.close(SinkError("the intake has ended", where=self._listener.kind))

    async def _wait_for_work(self) -> None:
        """Wait until there is something to commit, or a sequence is due."""
        if self._queue:
            await self._gather()
        if self._queue or self._deviations or self._settled:
            return
        due_us = min(self._look_us, self._look_us if self._due_us is None else self._due_us)
        wait_s = (due_us - self._now_us()) / 1e6
        if wait_s > 0:
            await self._queue.arrival(wait_s)
            await self._gather()

    async def _gather(self) -> None:
        """Let the messages that have come already, and are only not read yet, into the group: a
        commit beside which many are read takes long, because the two share the interpreter.
        """
        before = 0
        while before < self._queue.records < self._limits.group_messages:
            before = self._queue.records
            await asyncio.sleep(0)

    async def _commit_until_durable(self, requests: list[PendingRequest]) -> list[None]:
        """Commit the calls as one group; repeat the whole group while the store is unavailable."""
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    with self._tracing.messages(self._traced(requests)):
                        group = await self._commit(requests)
                except SinkError as error:
                    # The group may be durable all the same: read the state from the store.
                    self._scopes.clear()
                    self._recovered = False
                    self._due_us = 0
                    if not self.last_error:
                        self._emit("", "disconnected", str(error))
                    self.last_error = str(error)
                    raise
                self.last_error = ""
                if group is not None:
                    self._after_commit(group)
        # The count runs while the store commits the next group, before the senders are answered.
        asyncio.get_running_loop().call_soon(self._count_receipts, requests)
        return [None] * len(requests)

    def _traced(self, requests: list[PendingRequest]) -> list[Message]:
        """The messages for a trace; none where there is no trace."""
        if not self._tracing.makes_spans:
            return []
        entries = (entry for request in requests for entry in request.entries)
        return [entry.message for entry in entries if entry.message is not None]

    def _count_receipts(self, requests: list[PendingRequest]) -> None:
        """Count the outcomes of a durable group's messages whose senders still wait."""
        waiting = [request for request in requests if not request.done]
        receipts = [entry.receipt for request in waiting for entry in request.entries]
        # Nearly all are this one, and to count an enum by its hash takes a call each.
        accepted = receipts.count(ACCEPTED)
        if accepted:
            self.counts[ACCEPTED.outcome] += accepted
        if accepted == len(receipts):
            return
        others = [receipt for receipt in receipts if receipt and receipt != ACCEPTED]
        self.counts.update([receipt.outcome for receipt in others])
        self._refused.update([one.refusal.value for one in others if one.refusal])

    async def _commit(self, requests: list[PendingRequest]) -> CommitGroup | None:
        requests = [request for request in requests if not request.done]
        if self._recount_wanted:
            self._recount_wanted = False
            self._scopes.clear()
        wanted = await self._wanted_actions()
        if not self._recovered:
            await self._recover()
        due = await self._due()
        names, unsequenced = _begin(requests)
        await self._load(names.union(due, wanted.scopes))
        seen = await self._store.find_seen(unsequenced) if unsequenced else ()
        group = CommitGroup(
            self._now_us(),
            seen,
            self._usage,
            handled=self._handled,
            opens_implicitly=self._listener.opens_implicitly,
        )
        wanted.deliver_dead(group, self._scopes)
        apply(requests, group, self._scopes)
        wanted.act(group, self._scopes)
        for name in due:
            group.tick(self._scopes[name])
        if group.uncompared:
            await self._compare(group)
        for name in group.unknown:
            del self._scopes[name]
        deviations, self._deviations = self._deviations, Counter()
        message_group = group.finish(deviations, itertools.count(self._obligations + 1))
        settled = message_group.settled = self._settled.copy()
        message_group.done, message_group.replay = wanted.done, wanted.dead
        if not (message_group.changes or message_group.deviations or settled or message_group.done):
            self._give_claims(requests, group)
            return None
        try:
            # Nothing is answered before this returns (S3).
            await self._store.commit(message_group)
        except BaseException:
            self._deviations.update(deviations)
            raise
        group.committed()
        if wanted.replay:
            # What left the dead letter makes room, and may wait for the handler: count anew.
            self._recount_wanted, self._recovered = True, False
        for one in wanted.of_sequences:
            self._emit(one.scope, "operator", wanted.done[one.id])
        self._obligations += len(message_group.owed)
        self._effects.forget(settled)
        for number in settled:
            del self._settled[number]
        self._give_claims(requests, group)
        self._put_effects(group, message_group.owed)
        self.deviations.update(message_group.deviations)
        self.counts["commits"] += 1
        if not self._handled:
            self.counts["delivered"] += group.released
        times_us = [self._due_us, *[change.due_us for change in message_group.changes]]
        self._due_us = min([at_us for at_us in times_us if at_us is not None], default=None)
        return group

    async def _recover(self) -> None:
        """Read usage and obligations from the store: at the start, and after an error."""
        self._usage = InboxUsage(self._limits, await self._store.usage())
        owed = await self._store.obligations()
        # Numbers only rise, so forgetting an old obligation never removes a new one.
        self._obligations = max([self._obligations, *(one.number for one in owed)])
        self._effects.restore(owed)
        self._recovered = True

    async def _wanted_actions(self) -> OperatorRequests:
        """What operators want done; asked for every `poll_s`."""
        now_us = self._now_us()
        if now_us < self._look_us:
            return OperatorRequests(())
        wanted = OperatorRequests(await self._store.operator_requests())
        self._look_us = now_us + int(self._limits.poll_s * 1_000_000)
        old_us = self._usage.old_since_us(now_us)
        if old_us not in (0, self._old_told_us):
            self._old_told_us = old_us
            days = (now_us - old_us) / 86_400_000_000
            text = f"a message is in the dead letter for {days:,.1f} days: `instep messages dead`"
            self._emit("", "dead-letter", text)
        if wanted.recount:
            # Its sequences count their own, too.
            self._scopes.clear()
            self._recovered = False
        return wanted

    async def _due(self) -> list[str]:
        """The sequences that are due for a tick; reclaims those that may be forgotten (S10)."""
        now_us = self._now_us()
        if self._due_us is None or self._due_us > now_us:
            return []
        found = await self._store.find_due(now_us, self._limits.ticks_at_once)
        self._due_us = found.next_us
        await self._load(found.scopes)
        ended: list[str] = []
        due: list[str] = []
        for name in found.scopes:
            scope = self._scopes[name]
            at_us = scope.sequencer.reclaimable_at_us
            over = not scope.stored or (at_us is not None and at_us <= now_us)
            (ended if over else due).append(name)
        if ended:
            for name in await self._store.reclaim(ended, now_us):
                scope = self._scopes.pop(name)
                if scope.stored:
                    self._usage.add_dead(scope.peer, scope.held_messages, scope.held_bytes, now_us)
                    self._usage.add(scope.peer, -1, -scope.held_messages, -scope.held_bytes)
            for name in ended:
                # A sequence that stays is loaded again with its next message.
                self._scopes.pop(name, None)
        return due

    async def _compare(self, group: CommitGroup) -> None:
        """Compare copies with the digests that the store kept of the first content (S7)."""
        asked: dict[str, list[Entry]] = {}
        for entry in group.uncompared:
            assert entry.message is not None
            asked.setdefault(entry.message.scope, []).append(entry)
        kept = await self._store.digests(
            {name: {entry.number for entry in entries} for name, entries in asked.items()}
        )
        for name, entries in asked.items():
            changed = []
            for entry in entries:
                first = kept.get((name, entry.number), b"")
                if not entry.digest.startswith(first[:CONTENT_BYTES]):
                    changed.append(entry)
                elif len(first) > CONTENT_BYTES and first != entry.digest:
                    group.other_headers += 1
            if changed:
                group.content_changed(self._scopes[name], changed)

    def _give_claims(self, requests: list[PendingRequest], group: CommitGroup) -> None:
        for request in requests:
            envelope = request.envelope
            if envelope is not None and envelope.error is None:
                envelope.claims = group.claims(envelope.scope)

    def _put_effects(self, group: CommitGroup, owed: list[Obligation]) -> None:
        numbers = iter(owed)
        for scope, effect in group.effects:
            number = next(numbers).number if isinstance(effect, OwedEffect) else None
            self._effects.put(scope.name, scope.peer, effect, number)
            if isinstance(effect, AskResend) and self._effects.is_asking(scope.name):
                scope.sequencer.note_request_queued()

    def _settle(self, number: int, sent: bool) -> None:  # noqa: FBT001 - a callback
        self._settled[number] = sent
        self._queue.wake()

    def _note_asked(self, name: str) -> None:
        scope = self._scopes.get(name)
        if scope is not None:
            scope.sequencer.note_request_sent(self._now_us())

    def _after_commit(self, group: CommitGroup) -> None:
        """Emit deviations, wake the handler and bound the memory, after a group is durable."""
        for entry in group.changed:
            assert entry.message is not None
            text = f"message {entry.number} ({entry.message.id}) came again with other content"
            self._emit(entry.message.scope, "deviation", text, {"number": entry.number})
        for text in self._usage.warnings():
            self._emit("", "dead-letter", text)
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
            # The sender is not charged for our downtime.
            sequencer.resume(self._started_us)
            if self._effects.is_asking(name):
                sequencer.note_request_queued()
            self._scopes[name] = Scope(
                name,
                (found.peer if found else "") or self._listener.peer_of(name),
                sequencer,
                found.waiting if found else 0,
                stored=found is not None,
                dead=(found.dead_messages, found.dead_bytes) if found else (0, 0),
            )

    async def _committed_sequencer(self, name: str) -> Sequencer | None:
        """The sequencer of a scope, to read its committed state; None: the scope is unknown."""
        scope = self._scopes.get(name)
        if scope is not None:
            return scope.sequencer if scope.stored else None
        found = (await self._store.load((name,))).get(name)
        return self._sequencer_from(name, found) if found else None

    def _sequencer_from(self, name: str, found: StoredSequence | None) -> Sequencer:
        return Sequencer(self._listener.settings_of(name), found.state if found else None)

    async def _request(self, envelope: Envelope) -> None:
        request = PendingRequest(entries=envelope.entries, envelope=envelope)
        refusal = await self._durable(request)
        if refusal is not None:
            raise not_keeping_up(refusal)
        if envelope.error is not None:
            raise envelope.error

    async def _durable(self, request: PendingRequest) -> Refusal | None:
        """Queue a call and wait for its commit. Why there is no room, or why it took too long; None
        once it is durable.
        """
        # As of now: what is known when the caller has its turn again may be of another time.
        return await request.wait() if self._submit(request) else self._no_room

    def _submit(self, request: PendingRequest) -> bool:
        """Queue a call, which will be answered; False: there is no room."""
        messages, size_bytes = len(request.entries), 0
        for entry in request.entries:
            size_bytes += entry.size_bytes
        self.received_bytes += size_bytes
        if self._committer.submit(request, messages or 1, size_bytes):
            return True
        self._refused[self._no_room.value] += messages
        return False

    def _refuse_late(self, request: PendingRequest) -> None:
        self._refused[self._no_room.value] += len(request.entries)
        request.answer(self._no_room)

    @property
    def _no_room(self) -> Refusal:
        """Why what waits is not taken now (S8)."""
        return Refusal.UNAVAILABLE if self.last_error else Refusal.FULL

    def _now_us(self) -> int:
        """The time in microseconds since 1970; it never goes back."""
        self._clock_us = max(self._clock_us, int(self._environment.now() * 1_000_000))
        return self._clock_us


def _begin(requests: Iterable[PendingRequest]) -> tuple[set[str], list[Message]]:
    """Begin requests, perhaps again. Returns their scopes, and their messages without a number."""
    names, unsequenced = set[str](), list[Message]()
    for request in requests:
        if request.envelope is not None:
            names.add(request.envelope.scope)
        for entry in request.entries:
            entry.receipt = None
            message = entry.message
            assert message is not None
            names.add(message.scope)
            if entry.number == UNSEQUENCED:
                unsequenced.append(message)
    return names, unsequenced
