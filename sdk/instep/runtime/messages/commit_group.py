"""One group of the intake: what came together, decided together and committed together. No I/O.

The order of what one scope is given is kept: messages before a request are received before it. Then
all outcomes of a scope are folded into one `SequenceChange`, so that the store has a few statements
for the whole group and not some for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from instep.model.messages import UNSEQUENCED, Message, MessageHeader
from instep.model.ranges import Ranges
from instep.ports.listener import Receipt, ReceiptOutcome
from instep.ports.message_store import MessageGroup, SequenceChange
from instep.sequencing.effects import Decision, SequenceEffect
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.transitions import Refusal

__all__ = ["OTHER_CONTENT", "REFUSED", "CommitGroup", "Entry", "Scope"]

OTHER_CONTENT: Final = "content-changed"
"""The deviation of a repeated number with other content (S7)."""

_ACCEPTED: Final = Receipt(ReceiptOutcome.ACCEPTED)
_DUPLICATE: Final = Receipt(ReceiptOutcome.DUPLICATE)
_CHANGED: Final = Receipt(ReceiptOutcome.DUPLICATE, deviation=True)
REFUSED: Final = {why: Receipt(ReceiptOutcome.REFUSED, refusal=why) for why in Refusal}


class Entry(MessageHeader, gc=False):
    """A message on its way through the sequencer, with the answer to it."""

    # The fields of `MessageHeader` have defaults, so these must.
    message: Message | None = None
    receipt: Receipt | None = None

    @classmethod
    def of(cls, message: Message) -> Entry:
        return cls(
            message.number, message.digest, len(message.body), message.expires_at_us, message
        )


class Scope:
    """A sequence as the intake holds it in memory."""

    __slots__ = ("name", "sequencer", "waiting")

    def __init__(self, name: str, sequencer: Sequencer, waiting: int) -> None:
        self.name = name
        self.sequencer = sequencer
        self.waiting = waiting
        """Messages that were released and wait for the handler."""


class CommitGroup:
    """Collects what a group does; `finish` says it to the store, `committed` to the sequencers."""

    def __init__(self, now_us: int, seen: Collection[tuple[str, str]], *, handled: bool) -> None:
        self._now_us = now_us
        self._seen = set(seen)
        self._handled = handled
        self._scope_changes: dict[str, _ScopeChanges] = {}
        self.effects: list[tuple[str, SequenceEffect]] = []
        self.changed: list[Entry] = []
        """Duplicates with other content than before."""

    def receive(self, scope: Scope, entries: list[Entry]) -> None:
        """Messages of one scope that came without a request between them."""
        scope_changes, sequencer = self._changes_for(scope), scope.sequencer
        room = scope.waiting < sequencer.settings.limit_messages
        if room and sequencer.take_next(entries, self._now_us):
            scope_changes.release(entries)
            return
        sequenced = entries
        if any(entry.number == UNSEQUENCED for entry in entries):
            sequenced = [entry for entry in entries if entry.number != UNSEQUENCED]
            for entry in entries:
                if entry.number == UNSEQUENCED:
                    entry.receipt = self._receive_unsequenced(scope_changes, entry)
        if not room:
            sequenced = _only_known(scope, sequenced)
        if not sequenced:
            return
        outcome = sequencer.receive(sequenced, self._now_us)
        for accepted in outcome.accepted:
            _answer(accepted, _ACCEPTED)
        for duplicate in outcome.duplicates:
            _answer(duplicate, _DUPLICATE)
        for deviation in outcome.deviations:
            _answer(deviation, _CHANGED)
        for refused, refusal in outcome.refused:
            _answer(refused, REFUSED[refusal])
        self.changed += [entry for entry in outcome.deviations if isinstance(entry, Entry)]
        self._add(scope_changes, outcome, sequencer.epoch)

    def request(self, scope: Scope, act: Callable[[Sequencer, int], Decision]) -> None:
        """Anything else that moves a sequence. Raises `SequenceRefusedError`."""
        epoch = scope.sequencer.epoch
        outcome = act(scope.sequencer, self._now_us)
        self._add(self._changes_for(scope), outcome, epoch)

    def finish(self, deviations: dict[str, int]) -> MessageGroup:
        """The group as the store takes it; `deviations` besides those of the group itself."""
        if self.changed:
            count = deviations.get(OTHER_CONTENT, 0) + len(self.changed)
            deviations = {**deviations, OTHER_CONTENT: count}
        changes = [scope_changes.finish() for scope_changes in self._scope_changes.values()]
        return MessageGroup(self._now_us, changes, self._handled, deviations)

    def committed(self) -> None:
        """The group is durable: the sequences claim it."""
        for scope_changes in self._scope_changes.values():
            scope_changes.scope.sequencer.committed(scope_changes.change.state)
            if self._handled:
                scope_changes.scope.waiting += scope_changes.released

    @property
    def scopes(self) -> list[str]:
        """The scopes that the group has touched."""
        return list(self._scope_changes)

    def _changes_for(self, scope: Scope) -> _ScopeChanges:
        scope_changes = self._scope_changes.get(scope.name)
        if scope_changes is None:
            scope_changes = self._scope_changes[scope.name] = _ScopeChanges(scope)
        return scope_changes

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
        self._seen.add((scope.name, message.id))
        scope_changes.change.unsequenced.append(message)
        scope_changes.released += 1
        return _ACCEPTED

    def _add(self, scope_changes: _ScopeChanges, outcome: Decision, epoch: int) -> None:
        scope_changes.add(outcome, epoch)
        name = scope_changes.scope.name
        self.effects += [(name, effect) for effect in outcome.effects]


class _ScopeChanges:
    """What the group does to one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.change = SequenceChange(scope.name, scope.sequencer.durable, None)
        self.released = 0
        self._kept: dict[tuple[int, int], Message] = {}
        """Accepted by this group and not released: (epoch, number) → message."""

    def release(self, entries: list[Entry]) -> None:
        """Accepted, and their turn has come."""
        epoch, release = self.scope.sequencer.epoch, self.change.release
        for entry in entries:
            assert entry.message is not None
            entry.receipt = _ACCEPTED
            release.append((epoch, entry.message))
        self.released += len(entries)

    def add(self, outcome: Decision, epoch: int) -> None:
        """Follow an outcome: forget, keep, release."""
        change, kept = self.change, self._kept
        if outcome.dropped:
            stored = [n for n in outcome.dropped if kept.pop((epoch, n), None) is None]
            buffered = Ranges.of_numbers(stored)
            change.forget += [(epoch, low, high) for low, high in buffered.pairs()]
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
            change.release_buffered.append((epoch, buffered_number))
        self.released += len(outcome.deliver)

    def finish(self) -> SequenceChange:
        sequencer = self.scope.sequencer
        self.change.state = sequencer.checkpoint()
        self.change.due_us = sequencer.due_us()
        self.change.keep = [(epoch, message) for (epoch, _), message in self._kept.items()]
        return self.change


def _only_known(scope: Scope, entries: list[Entry]) -> list[Entry]:
    """Too many wait for the handler already: only what was received before is looked at."""
    received = scope.sequencer.durable.received
    for entry in entries:
        if entry.number not in received:
            entry.receipt = REFUSED[Refusal.FULL]
    return [entry for entry in entries if entry.receipt is None]


def _answer(entry: MessageHeader, receipt: Receipt) -> None:
    assert isinstance(entry, Entry)
    entry.receipt = receipt
