"""One numbered sequence with a sender, a store and an operator, as a world to explore.

Numbers are few; each may come with one content or another, late, twice, or never, and be cancelled,
filled, faulted or given up at any moment. Decisions wait for their commit, which may fail, and the
process may be killed. What must hold is what the rules promise of the store and of the answers:

- each number is delivered at most once and, where order is asked for, in rising order (S1, S2);
- what is acknowledged is durable, and no number is acknowledged and cancelled (S3, S5);
- a refused request changes nothing (S11), and a sequence that has ended accepts nothing (S10);
- what was accepted is delivered, waits, or lies in the dead letter with its end (S13);
- each number that delivery has passed was delivered or has an end (S2, S13);
- no gap waits for ever (S4);
- each decision is that of a receiver in its plainest form (`receiver`), and so is each claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from instep.model.messages import MessageHeader
from instep.sequencing import (
    Announce,
    AskResend,
    Cancel,
    Changed,
    Close,
    Decision,
    Fault,
    Fill,
    GiveUp,
    Last,
    NumberEnd,
    Realigned,
    RealignSequence,
    Receive,
    Refusal,
    Renew,
    Replayed,
    ReportFault,
    ReportLoss,
    Reset,
    Resume,
    SequenceEnded,
    SequenceFailed,
    SequencePhase,
    Sequencer,
    SequenceRefusedError,
    SequencerInput,
    SequencerSettings,
    SequencerState,
    Terminate,
)
from tests.explore.canonical import Canonical, Fields, skip
from tests.explore.search import Violation
from tests.explore.sequencing.receiver import Answer, Message, Receiver, Refused

__all__ = ["SequenceBounds", "SequenceWorld"]

_US: Final = 1_000_000
_START_S: Final = 100
_ELDEST_S: Final = 4
_UNCOMMITTED: Final = 2
"""Decisions that one transaction may hold."""
_ENDED: Final = (
    SequencePhase.COMPLETE,
    SequencePhase.CLOSED,
    SequencePhase.FAILED,
    SequencePhase.TERMINATED,
)
_OVER: Final = (SequencePhase.CLOSED, SequencePhase.FAILED, SequencePhase.TERMINATED)


class SequenceBounds(NamedTuple):
    """How far a sequence is explored."""

    numbers: int = 3
    arrivals: int = 4
    """Messages that arrive, copies among them."""
    requests: int = 1
    """What sender, receiver and operator ask for."""
    faults: int = 1
    """Commits that fail, and kills."""


class Changes(NamedTuple):
    """What one decision does to the store."""

    reset: bool
    accepted: tuple[tuple[int, bytes], ...]
    """Numbers with their contents."""
    deliver: tuple[int, ...]
    dropped: tuple[int, ...]
    ended: tuple[int, ...]
    revived: tuple[int, ...]
    """Numbers that had an end, and came with other content (S7)."""
    filled: tuple[int, ...]
    """Numbers that were asked to count as received."""
    realign: bool
    """Whether the state is to be obtained in another way."""


class Store(NamedTuple):
    """What is durable beside the state of the sequencer, of the present count."""

    inbox: tuple[tuple[int, bytes], ...] = ()
    """Accepted, and not released: number and content."""
    delivered: tuple[tuple[int, bytes], ...] = ()
    """In order."""
    ended: frozenset[int] = frozenset()
    filled: frozenset[int] = frozenset()
    accepted: frozenset[int] = frozenset()
    """Every number of which a message was accepted."""
    acknowledged: frozenset[int] = frozenset()
    """As the sender was told."""
    cancelled: frozenset[int] = frozenset()
    """As the sender was promised."""
    realign: bool = False

    def after(self, changes: Changes, *, ordered: bool) -> Store:
        """The store after a decision. Raises `Violation` where it cannot be carried out."""
        inbox = dict(self.inbox)
        for number in changes.dropped:
            if inbox.pop(number, None) is None:
                raise Violation(f"{number} goes to the dead letter without a body (S13)")
            if number not in changes.ended:
                raise Violation(f"{number} goes to the dead letter without an end (S13)")
        store = self
        if changes.reset:
            if inbox:
                raise Violation(f"bodies of {set(inbox)} are left behind by a reset (S13)")
            store = Store()
        for number, content in changes.accepted:
            if number in store.cancelled - set(changes.filled) - store.filled:
                raise Violation(f"{number} is accepted after it was cancelled (S5)")
            inbox[number] = content
        delivered = list(store.delivered)
        for number in changes.deliver:
            content_of = inbox.pop(number, None)
            if content_of is None:
                raise Violation(f"{number} is released without a body (S1)")
            if any(number == before for before, _ in delivered):
                raise Violation(f"{number} is delivered twice (S1)")
            if ordered and delivered and number < delivered[-1][0]:
                raise Violation(f"{number} is delivered after {delivered[-1][0]} (S2)")
            delivered.append((number, content_of))
        return store._replace(
            inbox=tuple(sorted(inbox.items())),
            delivered=tuple(delivered),
            ended=(store.ended | set(changes.ended)) - set(changes.revived),
            filled=store.filled | set(changes.filled),
            accepted=store.accepted | {number for number, _ in changes.accepted},
            realign=store.realign or changes.realign,
        )

    def check(self, state: SequencerState, first_number: int) -> None:
        """Whether every body is where the sequence has it, and every number has what it needs."""
        waiting = {number for number, _ in self.inbox}
        buffered = {one.number for one in state.buffered}
        if waiting != buffered:
            raise Violation(
                f"bodies of {waiting} wait, and the sequence waits for {buffered} (S13)"
            )
        if state.next_number in buffered and state.phase is not SequencePhase.FAILED:
            raise Violation(f"{state.next_number} is next, and waits (S2)")
        passed = set(range(first_number, state.next_number))
        without = passed - {number for number, _ in self.delivered} - self.ended
        if without:
            raise Violation(f"delivery has passed {without}, and they have no end (S2, S13)")


class SequenceWorld:
    """One state."""

    def __init__(self, settings: SequencerSettings, bounds: SequenceBounds) -> None:
        self.settings = settings
        first = settings.first_number
        self.numbers = range(first, first + bounds.numbers)
        self.arrivals, self.requests, self.faults = bounds.arrivals, bounds.requests, bounds.faults
        self.now_s = _START_S
        self.sequencer = Sequencer(settings)
        self.receiver = self.durable = Receiver(settings)
        """The plain receiver, and as it was at the last commit."""
        self.store = Store()
        self.decisions: tuple[Changes, ...] = ()
        """Those that no commit has carried yet."""

    # -- moves -----------------------------------------------------------------------------------

    def moves(self) -> Iterator[str]:  # noqa: C901, PLR0912 - one list, from top to bottom
        if self.decisions:
            yield "commit"
            if self.faults:
                yield "fail to commit"
        if self.faults:
            yield "kill"
        if len(self.decisions) >= _UNCOMMITTED:
            return
        yield "wait"
        if self.arrivals:
            for number in self.numbers:
                yield f"receive {number}"
                yield f"receive {number} changed"
                yield f"receive {number} briefly"
            if self.arrivals > 1:
                for number in self.numbers[1:]:
                    yield f"receive {number} {number - 1}"
        if self.requests:
            for number in self.numbers:
                for name in _OF_NUMBERS:
                    yield f"{name} {number}"
                yield f"realigned {number} delivering"
                if self.arrivals:
                    yield f"receive-and-cancel {number}"
                    yield f"receive-and-close {number}"
                    yield f"receive-and-fault {number}"
            yield from _OF_ALL
            if self.sequencer.phase is SequencePhase.FAILED:
                yield "resume"

    def after(self, move: str) -> SequenceWorld:
        world = object.__new__(SequenceWorld)
        world.__dict__.update(self.__dict__)
        world.sequencer = _copy(self.sequencer, self.settings)
        world.receiver = self.receiver.copy()
        world._move(*move.split())
        return world

    def _move(self, name: str, *args: str) -> None:
        match name:
            case "commit":
                self._commit()
            case "fail":
                self.faults -= 1
                self.sequencer.roll_back()
                self.receiver = self.durable.copy()
                self.receiver.running_us = self.sequencer._running_since_us
                self.decisions = ()
            case "kill":
                self.faults -= 1
                self.decisions = ()
                self.sequencer = Sequencer(self.settings, self.sequencer.durable)
                self.sequencer.resume(self.now_s * _US)
                self.receiver = self.durable.copy()
                self.receiver.resume(self.now_s * _US)
            case "wait":
                self.now_s += 1
                self._tick()
            case _:
                arrivals = _messages(name, args, self.now_s)
                self.arrivals -= len(arrivals)
                self.requests -= name != "receive"
                requests = _requests(name, args, self.numbers[-1], self.now_s)
                self._apply([*([Receive(arrivals)] if arrivals else []), *requests])

    def _apply(self, events: Sequence[SequencerInput]) -> None:
        sequencer, plain = self.sequencer, self.receiver.copy()
        before = sequencer.checkpoint()
        expected: Answer | str
        try:
            expected = plain.take([_plain(event) for event in events], self.now_s * _US)
        except Refused as refused:
            expected = str(refused)
        else:
            self.receiver = plain
        ended = before.phase in _ENDED and not isinstance(events[0], (Reset, Resume))
        try:
            # Messages alone go the shorter way, as a driver lets them.
            alone = events[0] if len(events) == 1 else None
            if isinstance(alone, Receive):
                decision = sequencer.receive(alone.messages, self.now_s * _US)
            else:
                decision = sequencer.apply(events, self.now_s * _US)
        except SequenceRefusedError as error:
            if sequencer.checkpoint() != before:
                raise Violation("a refused request has changed the sequence (S11)") from None
            if error.refusal != expected:
                raise Violation(
                    f"refused as {error.refusal!s}, expected: {_told(expected)}"
                ) from None
            return
        if isinstance(expected, str):
            raise Violation(f"a request is taken that is to be refused: {expected}")
        if ended and decision.accepted:
            raise Violation(f"a sequence that is {before.phase!s} accepts a message (S10)")
        contents = self._contents()
        self._compare(decision, expected)
        self._decide(decision, events)
        for message in decision.uncompared:
            # The store still knows what counts.
            if contents.get(message.number, message.digest) != message.digest:
                self._apply([Changed(message.number)])

    def _tick(self) -> None:
        now_us = self.now_s * _US
        due_us = self.sequencer.due_us()
        if due_us is None or due_us > now_us:
            return
        decision = self.sequencer.tick(now_us)
        self._compare(decision, self.receiver.tick(now_us))
        self._decide(decision, ())
        due_us = self.sequencer.due_us()
        if due_us is not None and due_us <= now_us:
            raise Violation("after a tick another one is due at once: the driver never rests (S14)")

    # -- decisions and commits -------------------------------------------------------------------

    def _compare(self, decision: Decision, expected: Answer) -> None:
        """A decision with that of the plain receiver."""
        _same(_found(decision), _expected(expected))
        sequencer, plain = self.sequencer, self.receiver
        state = sequencer.checkpoint()
        # Each state is explored from what a store would hold: so memory must hold no more.
        restarted = _copy(sequencer, self.settings)._window
        _same(
            {
                "passed over": sequencer._window.skippable,
                "bytes": sequencer._window.buffered_bytes,
            },
            {
                "passed over": restarted.skippable,
                "bytes": restarted.buffered_bytes,
            },
        )
        _same(
            {
                "phase": str(state.phase),
                "next number": state.next_number,
                "faulted": {n: str(state.faulted.get(n)) for n in state.faulted.ranges()},
                "waiting": {one.number: one.buffered_at_us for one in state.buffered},
                "bytes": sequencer.buffered_bytes,
                "due": sequencer.due_us(),
                "may be forgotten": sequencer.reclaimable_at_us,
            },
            {
                "phase": plain.phase,
                "next number": plain.next,
                "faulted": plain.faulted,
                "waiting": {n: one.since_us for n, one in plain.waiting.items()},
                "bytes": sum(one.size for one in plain.waiting.values()),
                "due": plain.due_us(),
                "may be forgotten": plain.forget_us(),
            },
        )

    def _contents(self) -> dict[int, bytes]:
        """The content that counts for each number, durable or decided: what was released, or waits
        for it.
        """
        contents = dict(self.store.delivered) | dict(self.store.inbox)
        for changes in self.decisions:
            if changes.reset:
                contents.clear()
            for number in changes.dropped:
                contents.pop(number, None)
            contents.update(changes.accepted)
        return contents

    def _decide(self, decision: Decision, events: Sequence[SequencerInput]) -> None:
        """Check a decision, and keep it for the commit."""
        reset = bool(events) and isinstance(events[0], Reset)
        contents = {} if reset else self._contents()
        for number in decision.dropped:
            contents.pop(number, None)
        for message in decision.accepted:
            if message.number in contents:
                raise Violation(f"{message.number} is accepted twice (S1)")
        for message in decision.duplicates:
            known = contents.get(message.number)
            told = message in decision.deviations or message in decision.uncompared
            if known is not None and known != message.digest and not told:
                raise Violation(f"other content of {message.number} is not told (S7)")
            if known == message.digest and message in decision.deviations:
                raise Violation(f"a copy of {message.number} is told as other content (S7)")
        refused = {message.number for message, _ in decision.refused}
        if refused & {message.number for message in decision.accepted}:
            raise Violation("one message is accepted and refused (S8)")
        ended: list[int] = []
        revived: list[int] = []
        for one in decision.ended:
            kept = revived if one.end is NumberEnd.SUPERSEDED else ended
            kept += range(one.low, one.high + 1)
        changes = Changes(
            reset,
            tuple((message.number, message.digest) for message in decision.accepted),
            tuple(decision.deliver),
            tuple(decision.dropped),
            tuple(ended),
            tuple(revived),
            tuple(_filled(events)),
            any(isinstance(effect, RealignSequence) for effect in decision.effects),
        )
        if any(map(bool, changes)):
            self.decisions = (*self.decisions, changes)

    def _commit(self) -> None:
        sequencer, store = self.sequencer, self.store
        for changes in self.decisions:
            store = store.after(changes, ordered=self.settings.ordered)
        self.decisions = ()
        state = sequencer.checkpoint()
        sequencer.committed(state)
        claims = sequencer.claims()
        plain = self.durable = self.receiver.copy()
        _same(
            {
                "acknowledged": set(claims.acknowledged()),
                "cancelled": set(claims.cancelled()),
                "missing": [n for low, high in claims.missing() for n in range(low, high + 1)],
                "final": claims.final,
            },
            {
                "acknowledged": set(plain.acknowledged()),
                "cancelled": set(plain.cancelled),
                "missing": plain.wanted(),
                "final": plain.phase in ("closed", "failed", "terminated"),
            },
        )
        acknowledged = frozenset(claims.acknowledged())
        cancelled = frozenset(claims.cancelled())
        if acknowledged & cancelled:
            raise Violation(f"acknowledged and cancelled: {set(acknowledged & cancelled)} (S5)")
        claimed = acknowledged - store.accepted - store.filled
        if claimed:
            raise Violation(f"acknowledged, and never durable: {set(claimed)} (S3)")
        taken_back = store.acknowledged - acknowledged - store.ended
        if taken_back:
            raise Violation(f"an acknowledgement was taken back: {set(taken_back)} (S3)")
        self.store = store._replace(acknowledged=acknowledged, cancelled=cancelled)
        self.store.check(state, self.settings.first_number)

    # -- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        """Everything is checked where it is decided and committed."""

    def settling(self) -> str:
        if self.decisions:
            return "commit"
        if self.sequencer.phase in _OVER or self.store.realign:
            # Over; or the driver is to obtain the state, and is asked again until it has.
            return ""
        return "" if self.sequencer.due_us() is None else "wait"

    # -- equal states ----------------------------------------------------------------------------

    def key(self) -> bytes:
        out = Canonical(_FIELDS, self.now_s * _US, eldest_us=_ELDEST_S * _US)
        out.literal((self.arrivals, self.requests, self.faults))
        out.literal(tuple(map(tuple, self.decisions)))
        sequencer, store = self.sequencer, self.store
        out.walk(sequencer.durable)
        out.walk(sequencer.checkpoint())
        out.time(sequencer._running_since_us)
        out.literal((store.inbox, store.delivered, store.realign))
        for numbers in (
            store.ended,
            store.filled,
            store.accepted,
            store.acknowledged,
            store.cancelled,
        ):
            out.literal(tuple(sorted(numbers)))
        return out.key()


_OF_NUMBERS: Final = (
    "cancel",
    "fill",
    "fault",
    "announce",
    "give-up",
    "realigned",
    "replayed",
    "last",
)
_OF_ALL: Final = ("close", "terminate", "reset", "renew")


def _messages(name: str, args: Sequence[str], now_s: int) -> list[MessageHeader]:
    if not name.startswith("receive"):
        return []
    changed, briefly = "changed" in args, "briefly" in args
    expires_at_us = (now_s + 1) * _US if briefly else 0
    content, size = (b"other", 2) if changed else (b"first", 1)
    return [
        MessageHeader(int(number), content, size, expires_at_us)
        for number in args
        if number.isdigit()
    ]


def _requests(  # noqa: C901, PLR0912 - one branch a request
    name: str, args: Sequence[str], highest: int, now_s: int
) -> list[SequencerInput]:
    number = int(args[0]) if args else 0
    match name:
        case "receive-and-cancel":
            return [Cancel([(1, highest)])]
        case "receive-and-close" | "close":
            return [Close()]
        case "cancel":
            return [Cancel([(number, number)])]
        case "fill":
            return [Fill([(number, number)])]
        case "fault" | "receive-and-fault":
            return [Fault(number, Refusal.UNPROCESSABLE)]
        case "announce":
            return [Announce(number)]
        case "give-up":
            return [GiveUp(number)]
        case "realigned":
            return [Realigned(number, deliver_buffered="delivering" in args)]
        case "replayed":
            return [Replayed(number)]
        case "last":
            return [Last(number)]
        case "terminate":
            return [Terminate()]
        case "resume":
            return [Resume()]
        case "reset":
            return [Reset()]
        case "renew":
            return [Renew((now_s + 1) * _US)]
    return []


def _plain(event: SequencerInput) -> tuple[str, object]:
    """An event in the words of the plain receiver."""
    value: object = None
    match event:
        case Receive(messages):
            value = [Message(m.number, m.digest, m.size_bytes, m.expires_at_us) for m in messages]
        case Fault(number, reason):
            value = number, str(reason)
        case Realigned(through, deliver_buffered):
            value = through, deliver_buffered
        case GiveUp(through):
            value = through
        case Close() | Terminate() | Resume() | Reset():
            pass
        case _:
            (value,) = (getattr(event, name) for name in event.__struct_fields__)
    return type(event).__name__, value


_EFFECTS: Final = {
    AskResend: "ask",
    RealignSequence: "realign",
    ReportLoss: "loss",
    ReportFault: "fault",
    SequenceFailed: "failed",
    SequenceEnded: "ended",
}


def _found(decision: Decision) -> dict[str, object]:
    """A decision, number by number."""
    effects = []
    for effect in decision.effects:
        pairs: list[tuple[int, int]] = next(
            (value for value in msgspec.structs.astuple(effect) if _is_pairs(value)), []
        )
        numbers = tuple(sorted(n for low, high in pairs for n in range(low, high + 1)))
        reason = str(effect.reason) if isinstance(effect, (ReportFault, SequenceEnded)) else ""
        effects.append((_EFFECTS[type(effect)], numbers, reason))
    return {
        "accepted": [(m.number, m.digest) for m in decision.accepted],
        "delivered": decision.deliver,
        "dropped": dict.fromkeys(sorted(decision.dropped)),
        "sizes of the dropped": decision.dropped_bytes,
        "copies": sorted((m.number, m.digest) for m in decision.duplicates),
        "told as changed": [(m.number, m.digest) for m in decision.deviations],
        "not compared": [(m.number, m.digest) for m in decision.uncompared],
        "refused": sorted((m.number, m.digest, str(why)) for m, why in decision.refused),
        "ended": sorted(
            (number, str(one.end), str(one.by), one.told, one.discarded)
            for one in decision.ended
            for number in range(one.low, one.high + 1)
        ),
        "effects": effects,
    }


def _is_pairs(value: object) -> bool:
    return isinstance(value, list)


def _expected(answer: Answer) -> dict[str, object]:
    return {
        "accepted": answer.accepted,
        "delivered": answer.deliver,
        "dropped": dict.fromkeys(sorted(answer.dropped)),
        "sizes of the dropped": answer.dropped,
        "copies": sorted(answer.duplicates),
        "told as changed": answer.changed,
        "not compared": answer.uncompared,
        "refused": sorted(answer.refused),
        "ended": sorted(answer.ended),
        "effects": answer.effects,
    }


def _same(found: dict[str, object], expected: dict[str, object]) -> None:
    """Raises `Violation` with what differs."""
    if found != expected:
        name = next(name for name in found if found[name] != expected[name])
        raise Violation(f"{name}: {found[name]}, expected: {expected[name]}")


def _told(expected: Answer | str) -> str:
    return expected if isinstance(expected, str) else "it is taken"


def _filled(events: Sequence[SequencerInput]) -> Iterator[int]:
    for event in events:
        match event:
            case Fill(ranges):
                for low, high in ranges:
                    yield from range(low, high + 1)
            case Realigned(through):
                yield from range(through + 1)
            case Replayed(number):
                yield number
            case _:
                pass


def _copy(sequencer: Sequencer, settings: SequencerSettings) -> Sequencer:
    copy = Sequencer(settings, sequencer.durable)
    copy._load(sequencer.checkpoint())
    copy._running_since_us = sequencer._running_since_us
    return copy


def _literal(out: Canonical, value: object) -> None:
    out.literal(tuple(value) if isinstance(value, list) else value)


def _time(out: Canonical, value: int) -> None:
    out.time(value)


_LITERALS: Final = (
    "next_number", "lows", "highs", "last_number", "announced", "asked_to", "recent",
    "highest_seen", "number", "digest", "size_bytes",
)  # fmt: skip
_TIMES: Final = (
    "announced_at_us", "acted_at_us", "expires_at_us", "active_at_us", "ended_at_us",
    "copies_until_us", "resumed_at_us", "buffered_at_us",
)  # fmt: skip
_FIELDS: Final = Fields(
    dict.fromkeys(_LITERALS, _literal)
    | dict.fromkeys(_TIMES, _time)
    | dict.fromkeys(("epoch", "content_changed", "attributes", "settings", "reason"), skip)
)
