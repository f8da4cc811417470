"""The duties of whoever sends numbered messages, judged by what came from it and what it was told.

A protocol reads each event as steps (`SenderObserver.steps`); the judges here see what the steps
mean within their sequence, and are the same for all protocols. A message that was lost on its way,
came late or came twice is no fault of its sender: judged is only what no way can do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from instep.conformance.events import Event
from instep.conformance.rules import (
    HELD,
    NOTHING,
    Clause,
    Evidence,
    Judge,
    Observer,
    Rule,
    RuleBook,
    RuleBroken,
    RuleLevel,
    UnjudgedClause,
    Verdict,
)
from instep.model.ranges import Ranges

__all__ = [
    "MessageRefused",
    "MessageSent",
    "NumbersAcknowledged",
    "NumbersCancelled",
    "NumbersRequested",
    "RequestChecked",
    "SenderObserver",
    "SenderRule",
    "SequenceClosed",
    "Step",
    "sender_rules",
]

_MAX_SEQUENCES: Final = 1_000
_MAX_MESSAGES: Final = 5_000
"""Messages of all sequences whose content is remembered."""
_KEPT_BYTES: Final = 4_096
"""Of the content of each."""
_WAY_US: Final = 200_000
"""What comes within this time of something else may have been sent before it, or be one sending
that its way has doubled.
"""
_PATIENCE_US: Final = 30_000_000
"""How long a sender may take to send again what it was asked for."""

_MOST_FINALS: Final = 3
"""Answers get lost: a sender that has not heard so many is not there."""


class MessageSent(msgspec.Struct, frozen=True, kw_only=True):
    """A message with a number came, for the first time or again."""

    sequence: str
    number: int
    id: str = ""
    """Its identifier; empty where its protocol has none."""
    content: str = ""
    """The same for messages that say the same …"""
    headers: str = ""
    """… and for those that say it with the same headers."""
    copies: int = 0
    """Which sending of this message it states to be; 0: its protocol does not count them."""
    last: bool = False
    """Whether it states to be the last of its sequence."""


class SequenceClosed(msgspec.Struct, frozen=True, kw_only=True):
    """The sender closes or ends a sequence."""

    sequence: str
    last_number: int | None = None
    """The last number, as it states it."""
    ends: bool = False
    """Whether nothing at all comes behind it."""


class NumbersCancelled(msgspec.Struct, frozen=True):
    """The sender will not send these numbers."""

    sequence: str
    ranges: Sequence[tuple[int, int]]
    fills: bool = False
    """Whether they are to count as received."""


class NumbersAcknowledged(msgspec.Struct, frozen=True):
    """The sender was told which numbers are received, all of them."""

    sequence: str
    ranges: Sequence[tuple[int, int]]


class NumbersRequested(msgspec.Struct, frozen=True):
    """The sender was asked for numbers that are missing."""

    sequence: str
    ranges: Sequence[tuple[int, int]]


class MessageRefused(msgspec.Struct, frozen=True):
    """The last message with this number got a fault."""

    sequence: str
    number: int
    final: bool = False
    """Whether it says that no copy will be accepted."""


class RequestChecked(msgspec.Struct, frozen=True):
    """Something of one request alone that a rule of the protocol is about."""

    aspect: str
    reason: str = ""
    """What is wrong with it; empty: nothing."""


Step = (
    MessageSent
    | SequenceClosed
    | NumbersCancelled
    | NumbersAcknowledged
    | NumbersRequested
    | MessageRefused
    | RequestChecked
)


@dataclass(slots=True, eq=False)
class _Known:
    """A message that came, and what became of it."""

    message: MessageSent
    evidence: Evidence
    refused: bool = False
    finals: int = 0
    """How many times it was refused for good."""


@dataclass(slots=True, eq=False)
class _Sequence:
    """What was seen in one sequence."""

    name: str
    came: Ranges = field(default_factory=Ranges)
    acknowledged: Ranges = field(default_factory=Ranges)
    """What its sender was told to be received."""
    missed: Ranges = field(default_factory=Ranges)
    """What its sender was told to be missing …"""
    told: Evidence | None = None
    """… and what told it."""
    cancelled: Ranges = field(default_factory=Ranges)
    cancel: Evidence | None = None
    filled: Ranges = field(default_factory=Ranges)
    """Numbers that were filled before any message came under them …"""
    fill: Evidence | None = None
    """… and what filled the last of them."""
    ids: dict[str, int] = field(default_factory=dict)
    last_number: int | None = None
    last: Evidence | None = None
    stated_last: SequenceClosed | None = None
    """What has stated the last number …"""
    stated: Evidence | None = None
    """… and its bytes."""
    closed: Evidence | None = None
    ended: Evidence | None = None
    first_number: int = 1

    @property
    def unsent(self) -> Ranges:
        """What its sender knows to be missing, and what never came."""
        return self.missed - self.came - self.cancelled - self.filled - self.acknowledged


@dataclass(slots=True, eq=False)
class _New:
    """A message came under a number for the first time."""

    message: MessageSent
    evidence: Evidence
    sequence: _Sequence
    other: _Known | None
    """The message with its identifier and another number."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A message came under a number again."""

    message: MessageSent
    evidence: Evidence
    sequence: _Sequence
    before: _Known


@dataclass(slots=True, eq=False)
class _Cancel:
    """Numbers were cancelled."""

    numbers: Ranges
    evidence: Evidence
    sequence: _Sequence


@dataclass(slots=True, eq=False)
class _Closed:
    """The sender has closed a sequence, or ended it."""

    step: SequenceClosed
    evidence: Evidence
    sequence: _Sequence
    again: bool
    """Whether it had closed it before."""


@dataclass(slots=True, eq=False)
class _Aspect:
    step: RequestChecked
    evidence: Evidence


class SenderObserver(Observer):
    """Reads events as what they mean within their sequences. A protocol has the `steps`."""

    first_number = 1
    """The first number of a sequence."""
    closes = True
    """Whether a sequence is closed by its sender; else what was asked for is due at the end."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[str, _Sequence] = OrderedDict()
        self._messages: OrderedDict[tuple[str, int], _Known] = OrderedDict()

    def steps(self, event: Event) -> Iterator[tuple[Step, bytes]]:
        """What an event says, each with the bytes that show it."""
        raise NotImplementedError

    def edition_of(self, observation: Any) -> str:  # noqa: ARG002 - most have one
        """See `Observer`."""
        return ""

    def end(self, at_us: int) -> Iterator[Any]:
        """See `Observer`: what was asked for a while ago, in sequences that nobody closes."""
        for sequence in () if self.closes else self._sequences.values():
            told = sequence.told
            if told is not None and at_us - told.at_us >= _PATIENCE_US:
                step = SequenceClosed(sequence=sequence.name)
                yield _Closed(step, told, sequence, again=False)

    def read(self, event: Event) -> Iterator[Any]:
        """See `Observer`."""
        for step, content in self.steps(event):
            evidence = Evidence.of(event.at_us, _shown(step), content)
            if isinstance(step, RequestChecked):
                yield _Aspect(step, evidence)
                continue
            sequence = self._sequence(step.sequence)
            match step:
                case MessageSent():
                    yield from self._message(step, evidence, sequence)
                case SequenceClosed():
                    again = sequence.closed is not None
                    sequence.closed = sequence.closed or evidence
                    if step.ends:
                        sequence.ended = sequence.ended or evidence
                    yield _Closed(step, evidence, sequence, again)
                    if step.last_number is not None:
                        sequence.stated_last, sequence.stated = step, evidence
                case NumbersCancelled():
                    yield from _cancelled(step, evidence, sequence)
                case NumbersAcknowledged():
                    self._acknowledged(step, evidence, sequence)
                case NumbersRequested():
                    sequence.missed |= Ranges.of(*step.ranges) - sequence.came
                    sequence.told = evidence
                case MessageRefused():
                    known = self._messages.get((step.sequence, step.number))
                    if known is not None:
                        known.refused, known.finals = True, known.finals + step.final

    def _sequence(self, name: str) -> _Sequence:
        found = self._sequences.get(name)
        if found is None:
            while len(self._sequences) >= _MAX_SEQUENCES:
                self._sequences.popitem(last=False)
            found = self._sequences[name] = _Sequence(name, first_number=self.first_number)
        return found

    def _message(
        self, message: MessageSent, evidence: Evidence, sequence: _Sequence
    ) -> Iterator[_New | _Copy]:
        key = message.sequence, message.number
        before = self._messages.get(key)
        kept = Evidence(evidence.at_us, evidence.what, evidence.content[:_KEPT_BYTES])
        if before is not None:
            yield _Copy(message, evidence, sequence, before)
            # It is compared with what came last under its number.
            self._messages[key] = _Known(message, kept, before.refused, before.finals)
            return
        if message.number in sequence.came:
            return  # its first sending is not remembered any more
        other = sequence.ids.get(message.id) if message.id else None
        twin = self._messages.get((message.sequence, other)) if other is not None else None
        yield _New(message, evidence, sequence, twin)
        sequence.came.add_range(message.number, message.number)
        if message.id and len(sequence.ids) < _MAX_MESSAGES:
            sequence.ids.setdefault(message.id, message.number)
        if message.last and sequence.last_number is None:
            sequence.last_number, sequence.last = message.number, evidence
        self._messages[key] = _Known(message, kept)
        while len(self._messages) > _MAX_MESSAGES:
            self._messages.popitem(last=False)

    def _acknowledged(
        self, step: NumbersAcknowledged, evidence: Evidence, sequence: _Sequence
    ) -> None:
        sequence.acknowledged = Ranges.of(*step.ranges)
        highest = sequence.acknowledged.last
        if highest is None:
            return
        missing = Ranges.of(*sequence.acknowledged.gaps(sequence.first_number, highest))
        if missing - sequence.missed:
            sequence.told = evidence
        sequence.missed |= missing


def _cancelled(
    step: NumbersCancelled, evidence: Evidence, sequence: _Sequence
) -> Iterator[_Cancel]:
    numbers = Ranges.of(*step.ranges)
    if step.fills:
        sequence.cancelled.subtract(numbers)
        sequence.filled |= numbers - sequence.came
        sequence.fill = evidence
    else:
        yield _Cancel(numbers, evidence, sequence)
        sequence.cancelled |= numbers
        sequence.cancel = evidence


def _shown(step: Step) -> str:
    match step:
        case MessageSent():
            return f"message {step.number} of {step.sequence}"
        case SequenceClosed():
            return f"the end of {step.sequence}"
        case NumbersCancelled():
            return f"cancelled numbers of {step.sequence}"
        case NumbersAcknowledged() | NumbersRequested():
            return f"what was said of {step.sequence}"
        case MessageRefused():
            return f"the fault for message {step.number} of {step.sequence}"
        case RequestChecked():
            return step.aspect


def _broken(reason: str, *evidence: Evidence | None) -> Sequence[Verdict]:
    return (RuleBroken(reason, tuple(one for one in evidence if one is not None)),)


# -- judges ----------------------------------------------------------------------------------------


def _content_repeated(seen: _Copy) -> Sequence[Verdict]:
    if seen.message.content == seen.before.message.content:
        return HELD
    if seen.before.refused:
        return NOTHING
    reason = f"message {seen.message.number} came again with other content"
    return _broken(reason, seen.before.evidence, seen.evidence)


def _headers_repeated(seen: _Copy) -> Sequence[Verdict]:
    message, before = seen.message, seen.before
    if message.content != before.message.content:
        return NOTHING
    if message.headers == before.message.headers:
        return HELD
    reason = f"message {message.number} came again with other headers"
    return _broken(reason, before.evidence, seen.evidence)


def _copies_counted(seen: _Copy) -> Sequence[Verdict]:
    count, before = seen.message.copies, seen.before.message.copies
    if not count or not before:
        return NOTHING
    if seen.message == seen.before.message:
        # The same bytes may have come twice by the way alone: not a sending of their own.
        return NOTHING if count > 1 else _same_count(seen)
    if count != before:
        return HELD
    return _same_count(seen)


def _same_count(seen: _Copy) -> Sequence[Verdict]:
    if seen.evidence.at_us - seen.before.evidence.at_us < _WAY_US:
        return NOTHING
    reason = f"message {seen.message.number} came again as sending {seen.message.copies}"
    return _broken(reason, seen.before.evidence, seen.evidence)


def _ids_unique(seen: _New) -> Sequence[Verdict]:
    if not seen.message.id:
        return NOTHING
    if seen.other is None:
        return HELD
    reason = f"messages {seen.other.message.number} and {seen.message.number} have one identifier"
    return _broken(reason, seen.other.evidence, seen.evidence)


def _none_beyond_last(seen: _New) -> Sequence[Verdict]:
    last = seen.sequence.last_number
    if last is None:
        return NOTHING
    if seen.message.number <= last:
        return HELD
    reason = f"message {seen.message.number} came, and {last} was the last"
    return _broken(reason, seen.sequence.last, seen.evidence)


def _last_stated(seen: _Closed) -> Sequence[Verdict]:
    stated, highest = seen.step.last_number, seen.sequence.came.last
    if stated is None or highest is None:
        return NOTHING
    before = seen.sequence.stated_last
    if before is not None and before.last_number != stated:
        reason = f"{before.last_number} was stated as the last number, and then {stated}"
        return _broken(reason, seen.sequence.stated, seen.evidence)
    if stated >= highest:
        return HELD
    return _broken(f"{stated} is stated as the last number, and {highest} came", seen.evidence)


def _none_after_close(seen: _New | _Closed) -> Sequence[Verdict]:
    if isinstance(seen, _Closed):
        return NOTHING if seen.again else HELD
    closed = seen.sequence.closed
    if closed is None or seen.evidence.at_us - closed.at_us < _WAY_US:
        return NOTHING
    reason = f"message {seen.message.number} is new, and its sequence was closed"
    return _broken(reason, seen.sequence.closed, seen.evidence)


def _none_after_end(seen: _New | _Copy | _Closed) -> Sequence[Verdict]:
    if isinstance(seen, _Closed):
        return HELD if seen.step.ends and seen.sequence.ended is seen.evidence else NOTHING
    ended = seen.sequence.ended
    if ended is None or seen.evidence.at_us - ended.at_us < _WAY_US:
        return NOTHING
    reason = f"message {seen.message.number} came after the end of its sequence"
    return _broken(reason, ended, seen.evidence)


def _sent_again(seen: _Closed) -> Sequence[Verdict]:
    sequence = seen.sequence
    if not sequence.missed or seen.again:
        return NOTHING
    if not sequence.unsent:
        return HELD
    reason = f"{sequence.unsent} never came, and their sender was told that they are missing"
    return _broken(reason, sequence.told, seen.evidence)


def _cancelled_kept(seen: _New | _Cancel) -> Sequence[Verdict]:
    if isinstance(seen, _Cancel):
        return HELD
    sequence, number = seen.sequence, seen.message.number
    cancel = sequence.cancel
    if number not in sequence.cancelled or cancel is None:
        return NOTHING
    if seen.evidence.at_us - cancel.at_us < _WAY_US:
        return NOTHING
    reason = f"message {number} came, and its number was cancelled"
    return _broken(reason, cancel, seen.evidence)


def _filled_kept(seen: _New) -> Sequence[Verdict]:
    fill = seen.sequence.fill
    if fill is None:
        return NOTHING
    if seen.message.number not in seen.sequence.filled:
        return HELD
    if seen.evidence.at_us - fill.at_us < _WAY_US:
        return NOTHING
    reason = f"message {seen.message.number} came, and its number was filled"
    return _broken(reason, fill, seen.evidence)


def _cancels_unacknowledged(seen: _Cancel) -> Sequence[Verdict]:
    both = seen.numbers - (seen.numbers - seen.sequence.acknowledged)
    if not both:
        return HELD
    return _broken(f"{both} were acknowledged, and are cancelled", seen.evidence)


def _gives_up(seen: _Copy) -> Sequence[Verdict]:
    if not seen.before.refused:
        return NOTHING
    if seen.before.finals < _MOST_FINALS:
        return HELD
    reason = f"message {seen.message.number} came again though it was refused for good"
    return _broken(reason, seen.before.evidence, seen.evidence)


def _aspect_of(name: str) -> Judge:
    def judge(seen: _Aspect) -> Sequence[Verdict]:
        if seen.step.aspect != name:
            return NOTHING
        return _broken(seen.step.reason, seen.evidence) if seen.step.reason else HELD

    return judge


_JUDGES: Final[dict[str, tuple[tuple[type, ...], Judge]]] = {
    "content-repeated": ((_Copy,), _content_repeated),
    "headers-repeated": ((_Copy,), _headers_repeated),
    "copies-counted": ((_Copy,), _copies_counted),
    "ids-unique": ((_New,), _ids_unique),
    "none-beyond-last": ((_New,), _none_beyond_last),
    "last-stated": ((_Closed,), _last_stated),
    "none-after-close": ((_New, _Closed), _none_after_close),
    "none-after-end": ((_New, _Copy, _Closed), _none_after_end),
    "sent-again": ((_Closed,), _sent_again),
    "cancelled-kept": ((_New, _Cancel), _cancelled_kept),
    "filled-kept": ((_New,), _filled_kept),
    "cancels-unacknowledged": ((_Cancel,), _cancels_unacknowledged),
    "gives-up": ((_Copy,), _gives_up),
}


class SenderRule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a protocol's rules. Its id is the protocol's name and the duty."""

    duty: str
    """What is judged, of a closed vocabulary; any other is an aspect that the protocol states."""
    text: str
    clause: str
    should: bool = False
    provoke: str
    why: str
    right: str
    wrong: str


def sender_rules(
    protocol: str,
    title: str,
    rows: Sequence[SenderRule],
    observer: Callable[[], Observer],
    unjudged: tuple[UnjudgedClause, ...],
) -> RuleBook:
    """The rules of a protocol from their rows."""
    rules = tuple(_rule(protocol, title, row) for row in rows)
    return RuleBook(protocol, title, rules, observer, unjudged)


def _rule(protocol: str, chapter: str, row: SenderRule) -> Rule:
    sees, judge = _JUDGES.get(row.duty) or ((_Aspect,), _aspect_of(row.duty))
    level = RuleLevel.SHOULD if row.should else RuleLevel.MUST
    make: Callable[[], Judge] = lambda: judge  # noqa: E731
    return Rule(
        id=f"{protocol}-{row.duty}",
        chapter=chapter,
        text=row.text,
        clauses={"": Clause(row.clause, level)},
        provoke=row.provoke,
        why=row.why,
        right=row.right,
        wrong=row.wrong,
        sees=sees,
        make_judge=make,
    )
