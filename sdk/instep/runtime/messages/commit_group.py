"""One group of the intake: messages and requests decided and committed together. No I/O.

The order within a scope is kept: messages that arrived before a request are received before it.
All outcomes of a scope are merged into one `SequenceChange`, so that the store runs a few
statements for the whole group and not some for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from operator import attrgetter
from typing import Final

import msgspec

from instep.model.messages import UNSEQUENCED, Message, MessageHeader
from instep.model.ranges import Ranges
from instep.ports.listener import Receipt, ReceiptOutcome
from instep.ports.message_store import (
    MessageGroup,
    Obligation,
    OperatorAction,
    OperatorRequest,
    SequenceChange,
)
from instep.runtime.messages.usage import InboxUsage
from instep.sequencing.claims import Claims
from instep.sequencing.effects import Decision, OwedEffect, ReportFault, SequenceEffect
from instep.sequencing.ends import UNDELIVERED, DecidedBy, EndedNumbers, NumberEnd
from instep.sequencing.events import (
    Changed,
    Close,
    EndRequest,
    GiveUp,
    NumberRequest,
    Realigned,
    Receive,
    Replayed,
    Reset,
    Resume,
    SequencerInput,
)
from instep.sequencing.operator_actions import why_not
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal, SequencePhase, SequenceRefusedError

__all__ = [
    "ACCEPTED",
    "OTHER_CONTENT",
    "OTHER_HEADERS",
    "REFUSED",
    "CommitGroup",
    "Entry",
    "EntryEvent",
    "Opening",
    "Scope",
]

OTHER_CONTENT: Final = "content-changed"
"""The deviation of a repeated number with other content (S7)."""
OTHER_HEADERS: Final = "headers-changed"
"""The deviation of a repeated message whose headers are not repeated."""

ACCEPTED: Final = Receipt(ReceiptOutcome.ACCEPTED)
_DUPLICATE: Final = Receipt(ReceiptOutcome.DUPLICATE)
_CHANGED: Final = Receipt(ReceiptOutcome.DUPLICATE, deviation=True)
_NUMBER: Final = attrgetter("number")
_SHOWN: Final = 20
"""Most ranges in what an operator is told."""
REFUSED: Final = {why: Receipt(ReceiptOutcome.REFUSED, refusal=why) for why in Refusal}


class Entry(MessageHeader, gc=False):
    """A message on its way through the sequencer, with the answer to it."""

    # The fields of `MessageHeader` have defaults, so these must.
    message: Message | None = None
    receipt: Receipt | None = None
    settings: SequencerSettings | None = None
    """Those that the protocol of the message declares; see `Intake.receive`."""

    @classmethod
    def of(cls, message: Message, settings: SequencerSettings | None = None) -> Entry:
        return cls(
            message.number,
            message.digest,
            # Most have none, and a property is a call.
            message.size_bytes if message.attachments else len(message.body),
            message.expires_at_us,
            message,
            None,
            settings,
        )


EntryEvent = Entry | NumberRequest | EndRequest
"""A part of an envelope: a message, or a request to its sequence."""


class Opening(msgspec.Struct, frozen=True):
    """The settings, attributes and deadline of an explicitly opened sequence (S9)."""

    settings: SequencerSettings
    attributes: bytes
    expires_at_us: int
    peer: str = ""
    """Who opens it; empty: its name tells."""


class Scope:
    """A sequence in the intake's memory."""

    __slots__ = (
        "dead_bytes",
        "dead_messages",
        "held_bytes",
        "held_messages",
        "name",
        "peer",
        "sequencer",
        "stored",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        peer: str,
        sequencer: Sequencer,
        waiting: int = 0,
        *,
        stored: bool = True,
        dead: tuple[int, int] = (0, 0),
    ) -> None:
        self.name = name
        self.peer = peer
        self.sequencer = sequencer
        self.waiting = waiting
        """Messages that were released and wait for the handler."""
        self.stored = stored
        """Whether the store has the sequence; else its name is unknown (S9)."""
        self.held_messages = sequencer.buffered_messages
        """Buffered messages as counted in the usage …"""
        self.held_bytes = sequencer.buffered_bytes
        """… and their bytes."""
        self.dead_messages, self.dead_bytes = dead
        """Messages in the dead letter, and their bytes."""

    @property
    def places(self) -> tuple[int, int]:
        """How many messages have a place in the dead letter, and their bytes (S13)."""
        return self.held_messages + self.dead_messages, self.held_bytes + self.dead_bytes


class CommitGroup:
    """Collects the changes of a group. `finish` returns them for the store; `committed` marks them
    as durable in the sequencers (S3).
    """

    def __init__(
        self,
        now_us: int,
        seen: Collection[tuple[str, str]],
        usage: InboxUsage,
        *,
        handled: bool,
        opens_implicitly: bool,
    ) -> None:
        self._now_us = now_us
        self._seen = set(seen)
        self._usage = usage
        self._handled = handled
        self._opens_implicitly = opens_implicitly
        self._scope_changes: dict[str, _ScopeChanges] = {}
        self.effects: list[tuple[Scope, SequenceEffect]] = []
        self.changed: list[Entry] = []
        """Duplicates with other content than before."""
        self.other_headers = 0
        """Duplicates with the same content and other headers than before."""
        self._by: DecidedBy | None = None
        """Who decides, where it is not the sender or the policies."""
        self._buried = False
        """Whether numbers have ended otherwise than by delivery."""
        self.uncompared: list[Entry] = []
        """Duplicates whose first content only the store may still know (S7)."""

    def receive(self, scope: Scope, entries: list[Entry]) -> None:
        """Receive messages of one scope that arrived without a request between them."""
        scope_changes, sequencer = self._changes_for(scope), scope.sequencer
        settings = entries[0].settings
        if settings is not None and sequencer.durable.settings is None:
            sequencer.adopt(settings)
        if self._take_next(scope_changes, entries):
            return
        if not scope_changes.known:
            entries = self._refuse_unknown(scope, entries)
        entries = self._sequenced(scope_changes, entries)
        if not _has_room(scope):
            entries = _only_known(scope, entries)
        if not entries:
            return
        if self._fits(scope, entries):
            self._decide(scope_changes, partial(sequencer.receive, entries, self._now_us))
            return
        for entry in sorted(entries, key=_NUMBER):
            if self._may_hold(scope, entry):
                self._decide(scope_changes, partial(sequencer.receive, [entry], self._now_us))

    def apply(self, scope: Scope, events: list[EntryEvent], *, opens: bool = False) -> None:
        """Apply the events of one envelope as a whole (S11). With `opens` they open the sequence
        as a message does. Raises `SequenceRefusedError`.
        """
        scope_changes, sequencer = self._changes_for(scope), scope.sequencer
        entries = [event for event in events if isinstance(event, Entry)]
        if len(entries) == len(events) and self._take_next(scope_changes, entries):
            return
        if not scope_changes.known:
            sequenced = [entry for entry in entries if entry.number != UNSEQUENCED]
            refused = self._why_unknown(scope, opens=opens or bool(sequenced))
            if refused is not None:
                raise SequenceRefusedError(refused, f"there is no sequence {scope.name!r}")
        if not _has_room(scope):
            _only_known(scope, entries)
        if not self._fits(scope, entries):
            messages = size_bytes = 0
            for entry in sorted(entries, key=_NUMBER):
                if self._may_hold(scope, entry, messages, size_bytes):
                    messages, size_bytes = messages + 1, size_bytes + entry.size_bytes
        inputs: list[SequencerInput] = []
        for event in events:
            if not isinstance(event, Entry):
                inputs.append(event)
            elif event.receipt is None and event.number != UNSEQUENCED:
                inputs.append(Receive([event]))
        self._decide(scope_changes, partial(sequencer.apply, inputs, self._now_us))
        if len(entries) < len(events):
            self._note_known(scope_changes)
        # Only now: an envelope that is refused changes nothing.
        self._sequenced(scope_changes, entries)

    def open(self, scope: Scope, opening: Opening) -> None:
        """Open a sequence explicitly. Raises `SequenceRefusedError`."""
        scope_changes = self._changes_for(scope)
        if scope_changes.known:
            raise SequenceRefusedError(Refusal.EXISTS, f"there is a sequence {scope.name!r}")
        scope.peer = opening.peer or scope.peer
        if not self._usage.has_room_for_sequence(scope.peer):
            raise SequenceRefusedError(Refusal.FULL, "there are too many sequences")
        scope.sequencer = Sequencer.open(
            opening.settings,
            self._now_us,
            attributes=opening.attributes,
            expires_at_us=opening.expires_at_us,
        )
        self._note_known(scope_changes)

    def tick(self, scope: Scope) -> None:
        """Act on the time in one scope: see `Sequencer.tick`."""
        self._decide(self._changes_for(scope), partial(scope.sequencer.tick, self._now_us))

    def act(self, scope: Scope, request: OperatorRequest) -> str:
        """Carry out what an operator wants done; returns what it changed, or why it is refused."""
        sequencer, action, number = scope.sequencer, request.action, request.number
        if not self._changes_for(scope).known:
            return f"{action!s}: refused: there is no such sequence any more"
        refused = why_not(sequencer.checkpoint(), sequencer.settings, action, number)
        if refused:
            return f"{action!s}: refused: {refused}"
        before = len(self._changes_for(scope).change.ended)
        try:
            self._act(scope, action, number)
        except SequenceRefusedError as error:
            return f"{action!s}: refused: {error.message}"
        change = self._changes_for(scope).change
        parts = [f"the next number is {sequencer.next_number}, {sequencer.phase!s}"]
        parts += [f"{_shown(one)} {one.end!s}" for one, _ in change.ended[before:]][:_SHOWN]
        if sequencer.buffered_messages:
            parts.append(f"{sequencer.buffered_messages:,} held")
        return f"{action!s}: {'; '.join(parts)}"

    def _act(self, scope: Scope, action: OperatorAction, number: int | None) -> None:
        sequencer = scope.sequencer
        events: list[EntryEvent] = []
        match action:
            case OperatorAction.GIVE_UP:
                state = sequencer.checkpoint()
                known = (sequencer.claims(state).highest, state.announced, number)
                through = max(one for one in known if one is not None) if number is None else number
                events = [GiveUp(through, "given up by the operator")]
            case OperatorAction.RESET:
                first = sequencer.settings.first_number
                events = [Reset()]
                if number is not None and number > first:
                    events.append(Realigned(number - 1))
            case OperatorAction.CLOSE:
                events = [Close()]
            case OperatorAction.RESUME:
                events = [Resume()]
            case _:
                raise AssertionError(f"{action!s} is no request to a sequence")
        self._by = DecidedBy.OPERATOR
        try:
            self.apply(scope, events)
        finally:
            self._by = None

    def replay(self, scope: Scope, request: OperatorRequest) -> None:
        """Note in its sequence that a message of the dead letter is delivered."""
        if request.counted and request.replayed is not None and self._changes_for(scope).known:
            events = [Replayed(request.replayed)]
            self._decide(
                self._changes_for(scope), partial(scope.sequencer.apply, events, self._now_us)
            )

    def content_changed(self, scope: Scope, entries: list[Entry]) -> None:
        """Apply `Changed` to messages of `uncompared` whose content differs (S7)."""
        changed = [Changed(entry.number) for entry in entries]
        self._decide(
            self._changes_for(scope), partial(scope.sequencer.apply, changed, self._now_us)
        )
        for entry in entries:
            entry.receipt = _CHANGED
        self.changed += entries

    def finish(self, deviations: dict[str, int], numbers: Iterator[int]) -> MessageGroup:
        """The group to commit. `deviations` are added to those of the group itself; `numbers` are
        given to new obligations.
        """
        if self.changed:
            count = deviations.get(OTHER_CONTENT, 0) + len(self.changed)
            deviations = {**deviations, OTHER_CONTENT: count}
        if self.other_headers:
            count = deviations.get(OTHER_HEADERS, 0) + self.other_headers
            deviations = {**deviations, OTHER_HEADERS: count}
        changes = [one.finish() for one in self._scope_changes.values() if one.known]
        owed = [
            Obligation(next(numbers), scope.name, scope.peer, effect)
            for scope, effect in self.effects
            if isinstance(effect, OwedEffect)
        ]
        group = MessageGroup(self._now_us, changes, self._handled, deviations, owed=owed)
        if self._buried:
            group.discards_kept = self._usage.discards_kept()
            for one in owed:
                if isinstance(one.effect, ReportFault):
                    self._scope_changes[one.scope].note_obligation(one.effect, one.number)
        return group

    def committed(self) -> None:
        """Record that the group is durable: the sequences claim it from now on (S3)."""
        for scope_changes in self._scope_changes.values():
            scope = scope_changes.scope
            if scope_changes.known:
                scope.stored = True
                scope.sequencer.committed(scope_changes.change.state)
                if self._handled:
                    scope.waiting += scope_changes.released

    def claims(self, name: str) -> Claims:
        """The claims of a scope, true once the group is durable (S3)."""
        scope_changes = self._scope_changes[name]
        return scope_changes.scope.sequencer.claims(scope_changes.change.state)

    @property
    def released(self) -> int:
        """How many messages the group has released for delivery."""
        return sum([changes.released for changes in self._scope_changes.values()])

    @property
    def scopes(self) -> list[str]:
        """The scopes that the group has touched and that are known."""
        return [name for name, changes in self._scope_changes.items() if changes.known]

    @property
    def unknown(self) -> list[str]:
        """Scopes of the group's requests that were never opened."""
        return [name for name, changes in self._scope_changes.items() if not changes.known]

    def _changes_for(self, scope: Scope) -> _ScopeChanges:
        scope_changes = self._scope_changes.get(scope.name)
        if scope_changes is None:
            scope_changes = self._scope_changes[scope.name] = _ScopeChanges(scope)
        return scope_changes

    def _take_next(self, scope_changes: _ScopeChanges, entries: list[Entry]) -> bool:
        """Receive messages that are exactly the next ones: the fast path of `receive`, and of the
        envelopes of a source that sends in order. Returns whether it applies.
        """
        scope = scope_changes.scope
        if not (scope_changes.known and _has_room(scope)):
            return False
        if not scope.sequencer.take_next(entries, self._now_us):
            return False
        scope_changes.release(entries)
        return True

    def _decide(self, scope_changes: _ScopeChanges, decide: Callable[[], Decision]) -> None:
        """Let the sequencer decide, and record the outcome. Raises `SequenceRefusedError`."""
        scope = scope_changes.scope
        epoch = scope.sequencer.epoch
        outcome = decide()
        for accepted in outcome.accepted:
            _answer(accepted, ACCEPTED)
        for duplicate in outcome.duplicates:
            _answer(duplicate, _DUPLICATE)
        for deviation in outcome.deviations:
            _answer(deviation, _CHANGED)
        for refused, refusal in outcome.refused:
            _answer(refused, REFUSED[refusal])
        self.changed += [entry for entry in outcome.deviations if isinstance(entry, Entry)]
        self.other_headers += len(outcome.other_headers)
        self.uncompared += [entry for entry in outcome.uncompared if isinstance(entry, Entry)]
        if outcome.accepted or outcome.effects:
            self._note_known(scope_changes)
        if outcome.ended:
            self._buried = True
            if self._by is not None:
                # A delivery is nobody's decision: a reset only moves it into the record.
                outcome.ended = [
                    one
                    if one.end is NumberEnd.DELIVERED
                    else msgspec.structs.replace(one, by=self._by)
                    for one in outcome.ended
                ]
            messages, size_bytes = _dead(outcome)
            self._usage.add_dead(scope.peer, messages, size_bytes, self._now_us)
            scope.dead_messages += messages
            scope.dead_bytes += size_bytes
        scope_changes.add(outcome, epoch, scope.sequencer.epoch)
        self.effects += [(scope, effect) for effect in outcome.effects]
        messages, size_bytes = scope.sequencer.buffered_messages, scope.sequencer.buffered_bytes
        if messages != scope.held_messages or size_bytes != scope.held_bytes:
            more = messages - scope.held_messages, size_bytes - scope.held_bytes
            self._usage.add(scope.peer, 0, *more)
            scope.held_messages, scope.held_bytes = messages, size_bytes

    # -- unknown scopes, and room -----------------------------------------------------------------

    def _why_unknown(self, scope: Scope, *, opens: bool) -> Refusal | None:
        """Why a request to an unknown scope is refused; None: it opens the scope."""
        if not opens or not self._opens_implicitly:
            return Refusal.UNKNOWN
        return None if self._usage.has_room_for_sequence(scope.peer) else Refusal.FULL

    def _refuse_unknown(self, scope: Scope, entries: list[Entry]) -> list[Entry]:
        """Refuse messages that may not open their scope; returns the others. A message without a
        number needs no sequence, only room for the scope.
        """
        sequenced = self._why_unknown(scope, opens=True)
        unsequenced = None if self._usage.has_room_for_sequence(scope.peer) else Refusal.FULL
        for entry in entries:
            why = unsequenced if entry.number == UNSEQUENCED else sequenced
            if why is not None:
                entry.receipt = REFUSED[why]
        return [entry for entry in entries if entry.receipt is None]

    def _note_known(self, scope_changes: _ScopeChanges) -> None:
        if not scope_changes.known:
            scope_changes.known = True
            self._usage.add(scope_changes.scope.peer, 1, 0, 0)

    def _fits(self, scope: Scope, entries: list[Entry]) -> bool:
        """Whether all of these could be buffered (S8); without order, nothing is buffered."""
        if not scope.sequencer.settings.ordered:
            return True
        size_bytes = sum([entry.size_bytes for entry in entries])
        return self._usage.has_room(scope.peer, len(entries), size_bytes, scope.places)

    def _may_hold(self, scope: Scope, entry: Entry, messages: int = 0, size_bytes: int = 0) -> bool:
        """Whether one message needs no room, or there is room for it beside `messages` others of
        its envelope, of `size_bytes` together; refuses it as FULL otherwise.
        """
        sequencer = scope.sequencer
        number, received = entry.number, sequencer.durable.received
        if not (
            number <= sequencer.next_number
            or number in received
            or self._usage.has_room(
                scope.peer, messages + 1, size_bytes + entry.size_bytes, scope.places
            )
        ):
            entry.receipt = REFUSED[Refusal.FULL]
        return entry.receipt is None

    def _sequenced(self, scope_changes: _ScopeChanges, entries: list[Entry]) -> list[Entry]:
        """Receive the messages without a number; returns the others."""
        if not any(entry.number == UNSEQUENCED for entry in entries):
            return entries
        for entry in entries:
            if entry.number == UNSEQUENCED and entry.receipt is None:
                entry.receipt = self._receive_unsequenced(scope_changes, entry)
        return [entry for entry in entries if entry.number != UNSEQUENCED]

    def _receive_unsequenced(self, scope_changes: _ScopeChanges, entry: Entry) -> Receipt:
        message, scope = entry.message, scope_changes.scope
        assert message is not None
        if (scope.name, message.id) in self._seen:
            return _DUPLICATE
        if 0 < entry.expires_at_us <= self._now_us:
            return REFUSED[Refusal.EXPIRED]
        limit = scope.sequencer.settings.limit_messages
        if self._handled and scope.waiting + scope_changes.released >= limit:
            return REFUSED[Refusal.FULL]
        self._note_known(scope_changes)
        self._seen.add((scope.name, message.id))
        scope_changes.change.unsequenced.append(message)
        scope_changes.released += 1
        return ACCEPTED


class _ScopeChanges:
    """The changes of the group to one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.known = scope.stored
        """Whether the sequence exists, with the requests of this group applied."""
        self.change = SequenceChange(scope.name, scope.sequencer.durable, None, scope.peer)
        self.released = 0
        self._kept: dict[tuple[int, int], Message] = {}
        """Accepted by this group and not released: (epoch, number) → message."""

    def release(self, entries: list[Entry]) -> None:
        """Record messages that are accepted and released for delivery."""
        epoch, release = self.scope.sequencer.epoch, self.change.release
        for entry in entries:
            assert entry.message is not None
            entry.receipt = ACCEPTED
            release.append((epoch, entry.message))
        self.released += len(entries)

    def add(self, outcome: Decision, epoch_before: int, epoch: int) -> None:
        """Record an outcome: bury, keep, release. A reset has changed the epoch."""
        change, kept = self.change, self._kept
        if outcome.ended:
            change.ended = [*change.ended, *((one, 0) for one in outcome.ended)]
        # Those that this very group accepted have no row yet.
        dead = [
            (message, _end_of(number, outcome))
            for number in outcome.dropped
            if (message := kept.pop((epoch_before, number), None)) is not None
        ]
        if dead:
            change.dead = [*change.dead, *dead]
        for accepted in outcome.accepted:
            assert isinstance(accepted, Entry)
            assert accepted.message is not None
            kept[epoch, accepted.number] = accepted.message
        buffered_number = None
        for number in outcome.deliver:
            message = kept.pop((epoch, number), None)
            if message is None:
                buffered_number = number
            else:
                change.release.append((epoch, message))
        if buffered_number is not None:
            change.release_buffered = [*change.release_buffered, (epoch, buffered_number)]
        self.released += len(outcome.deliver)

    def note_obligation(self, effect: ReportFault, number: int) -> None:
        """Record which obligation tells the sender of these numbers."""
        faulted = Ranges.of(*effect.faulted)
        self.change.ended = [
            (one, number if not owed and one.told and one.low in faulted else owed)
            for one, owed in self.change.ended
        ]

    def finish(self) -> SequenceChange:
        scope, change = self.scope, self.change
        sequencer = scope.sequencer
        change.state = sequencer.checkpoint()
        due_us = sequencer.due_us()
        if sequencer.phase is not SequencePhase.OPEN:
            reclaimable_us = sequencer.reclaimable_at_us
            if reclaimable_us is not None:
                due_us = reclaimable_us if due_us is None else min(due_us, reclaimable_us)
        change.due_us = due_us
        # As of the last decision: nothing else buffers.
        change.held_messages, change.held_bytes = scope.held_messages, scope.held_bytes
        if self._kept:
            change.keep = [(epoch, message) for (epoch, _), message in self._kept.items()]
        return change


def _has_room(scope: Scope) -> bool:
    """Whether few enough messages wait for the handler."""
    return scope.waiting < scope.sequencer.settings.limit_messages


def _only_known(scope: Scope, entries: list[Entry]) -> list[Entry]:
    """Refuse new messages, because too many wait for the handler; duplicates are still decided."""
    received = scope.sequencer.durable.received
    for entry in entries:
        if entry.number not in received:
            entry.receipt = REFUSED[Refusal.FULL]
    return [entry for entry in entries if entry.receipt is None]


def _end_of(number: int, outcome: Decision) -> EndedNumbers:
    """The end of a number that was dropped."""
    return next(
        one for one in outcome.ended if one.low <= number <= one.high and one.end in UNDELIVERED
    )


def _dead(outcome: Decision) -> tuple[int, int]:
    """How many messages go to the dead letter for good, and their bytes."""
    discarded = Ranges.of(*[(one.low, one.high) for one in outcome.ended if one.discarded])
    sizes = [size for number, size in outcome.dropped_bytes.items() if number not in discarded]
    return len(sizes), sum(sizes)


def _shown(one: EndedNumbers) -> str:
    return str(one.low) if one.low == one.high else f"{one.low}-{one.high}"


def _answer(entry: MessageHeader, receipt: Receipt) -> None:
    assert isinstance(entry, Entry)
    entry.receipt = receipt
