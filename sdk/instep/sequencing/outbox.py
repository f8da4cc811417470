"""Our own messages of one thread: numbered, kept until every recipient has them, sent again when
one reports a gap (DIDComm sender_order, sent_count; S12). Decisions only, without I/O.

As with the sequencer, nothing is sent before it is durable (S3). Store the result of a call
together with `checkpoint()` in one transaction, call `committed`, then send. A crash at any point
then neither reuses a number for different content nor lowers a `sent_count`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from instep.errors import InstepError
from instep.model.limits import Seconds
from instep.model.ranges import Ranges

__all__ = [
    "Outbox",
    "OutboxDecision",
    "OutboxFullError",
    "OutboxMessage",
    "OutboxSettings",
    "OutboxState",
]

_US = 1_000_000


class OutboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long our messages are kept, and how often they are sent."""

    first_number: int = 1
    """The number of our first message to a peer."""
    resend_after_s: Seconds = 5.0
    """A message that was sent less than this ago may still be on its way: it is not sent again."""
    limit_sent_count: int = 10
    """After this many sendings to a recipient that can be reached, and another `resend_after_s`, a
    message is given up for it."""
    limit_messages: int = 10_000
    """Most messages that are kept; the next one is refused."""
    limit_bytes: int = 64 * 1024 * 1024
    """Most bytes of the messages that are kept; the next one is refused."""


class OutboxFullError(InstepError):
    """The recipients have not acknowledged what was sent, and no more can be kept for them."""

    code = "outbox-full"
    retriable = True


class OutboxMessage(msgspec.Struct, frozen=True):
    """A message that some recipient has not acknowledged; its body is in the store."""

    number: int
    """`sender_order`."""
    id: str
    size_bytes: int
    waiting_for: list[str]
    """Recipients that have not acknowledged it."""
    sent_count: int
    """1 after the first sending; counts all later ones, whomever they went to."""
    sent_at_us: int
    sendings: dict[str, int] = {}
    """Recipient → how often it was sent to it, where that is more than once."""
    not_addressed: list[str] = []
    """Those of `waiting_for` that are only told that this number has nothing for them: a hole in
    their numbers would look like a loss."""

    def sent_count_to(self, recipient: str) -> int:
        """The `sent_count` of the last sending to this recipient."""
        return self.sendings.get(recipient, 1)


class OutboxState(msgspec.Struct, frozen=True):
    """The durable state of an outbox."""

    next_number: int
    sent: list[OutboxMessage] = []
    """Unacknowledged."""
    parties: dict[str, int] = {}
    """Whoever was ever a recipient → the first number of which it was one."""


class OutboxDecision(msgspec.Struct):
    """What to forget, send again and report as lost after a call of an `Outbox`."""

    acknowledged: list[int] = []
    """Every recipient has them: their bodies may be forgotten."""
    resend: list[OutboxMessage] = []
    """To be sent to `waiting_for`, with each one's `sent_count_to`."""
    given_up: list[OutboxMessage] = []
    """Sent as often as allowed to `waiting_for`, and not acknowledged: a loss to report."""


class Outbox:
    """The messages we send in one thread: numbers them, keeps them until every recipient has
    acknowledged them, and decides what is sent again (S12).

    The numbers are the same for all parties of a thread. Whoever is not among the recipients of a
    message is told that its number has nothing for it; so is a party that joins later, when it
    misses what was sent before.

    The module's docstring describes the calls that a driver makes.
    """

    def __init__(
        self, settings: OutboxSettings | None = None, state: OutboxState | None = None
    ) -> None:
        self.settings = settings or OutboxSettings()
        self.durable = state or OutboxState(self.settings.first_number)
        """As committed."""
        self.roll_back()

    def __repr__(self) -> str:
        return f"<Outbox, next is {self._next_number}, {len(self._sent)} unacknowledged>"

    @property
    def last_number(self) -> int:
        """The highest number given to a message; below the first where none was."""
        return self._next_number - 1

    def checkpoint(self) -> OutboxState:
        """The state to store in the transaction of what was decided since the last one."""
        return OutboxState(self._next_number, list(self._sent.values()), self._parties.copy())

    def committed(self, state: OutboxState) -> None:
        """Record that this checkpoint is durable: its decisions may be carried out now (S3)."""
        self.durable = state

    def roll_back(self) -> None:
        """Undo all decisions since the last commit, because their transaction failed."""
        self._next_number = self.durable.next_number
        self._parties = self.durable.parties.copy()
        self._sent = {sent.number: sent for sent in self.durable.sent}
        self._bytes = sum(sent.size_bytes for sent in self.durable.sent)

    def append(
        self, id: str, size_bytes: int, recipients: Iterable[str], now_us: int
    ) -> OutboxMessage:
        """Give the next number to a new message.

        Raises `OutboxFullError`, and no number is used.
        """
        settings = self.settings
        waiting_for = list(dict.fromkeys(recipients))
        if (
            len(self._sent) >= settings.limit_messages
            or self._bytes + size_bytes > settings.limit_bytes
        ):
            raise OutboxFullError(
                f"{len(self._sent):,} messages of {self._bytes:,} bytes are not acknowledged",
                where="outbox",
                hint="wait until the recipients acknowledge them",
                messages=len(self._sent),
                size_bytes=self._bytes,
            )
        number = self._next_number
        others = [party for party in self._parties if party not in waiting_for]
        for recipient in waiting_for:
            self._parties.setdefault(recipient, number)
        waiting_for += others
        sent = OutboxMessage(number, id, size_bytes, waiting_for, 1, now_us, not_addressed=others)
        self._next_number += 1
        if waiting_for:
            self._sent[sent.number] = sent
            self._bytes += size_bytes
        return sent

    def acknowledge(self, peer: str, seen: Ranges, missing: Ranges, now_us: int) -> OutboxDecision:
        """Take a recipient's report of the numbers that it has and those that it misses. A number
        in neither range stays as it is.
        """
        outcome = OutboxDecision()
        for sent in list(self._sent.values()):
            if peer not in sent.waiting_for:
                continue
            if sent.number in seen:
                rest = [recipient for recipient in sent.waiting_for if recipient != peer]
                self._sent[sent.number] = msgspec.structs.replace(sent, waiting_for=rest)
                if not rest:
                    self._forget(sent)
                    outcome.acknowledged.append(sent.number)
            elif sent.number in missing:
                self._send_again(sent, [peer], now_us, outcome)
        self._explain(peer, missing, now_us, outcome)
        return outcome

    def resend(self, peer: str, number: int, now_us: int) -> OutboxDecision:
        """Send a message to one recipient again that may have received it without saying so."""
        outcome = OutboxDecision()
        sent = self._sent.get(number)
        if sent is not None and peer in sent.waiting_for:
            self._send_again(sent, [peer], now_us, outcome, at_once=True)
        return outcome

    def tick(self, now_us: int, away: Collection[str] = ()) -> OutboxDecision:
        """Act on the time: send again what was neither acknowledged nor reported (S12). For
        recipients that are `away` the messages are kept, and no sending is counted.
        """
        outcome = OutboxDecision()
        for sent in list(self._sent.values()):
            self._send_again(sent, [r for r in sent.waiting_for if r not in away], now_us, outcome)
        return outcome

    def waiting(self) -> dict[str, OutboxMessage]:
        """Recipient → the oldest message that it has not acknowledged."""
        oldest: dict[str, OutboxMessage] = {}
        for sent in self._sent.values():
            for recipient in sent.waiting_for:
                oldest.setdefault(recipient, sent)
        return oldest

    def due_us(self) -> int | None:
        """When `tick` is to be called next, in microseconds since 1970; None while all is
        acknowledged.
        """
        oldest_us = min((sent.sent_at_us for sent in self._sent.values()), default=None)
        return None if oldest_us is None else oldest_us + self._resend_after_us

    @property
    def _resend_after_us(self) -> int:
        return int(self.settings.resend_after_s * _US)

    def _explain(self, peer: str, missing: Ranges, now_us: int, outcome: OutboxDecision) -> None:
        """Tell a party that joined later that what it misses from before was not sent to it."""
        joined = self._parties.get(peer, self.settings.first_number)
        for low, high in missing.pairs():
            for number in range(low, min(high + 1, joined)):
                sent = self._sent.get(number)
                if sent is None and len(self._sent) >= self.settings.limit_messages:
                    return
                if sent is None:
                    sent = OutboxMessage(number, "", 0, [], 1, now_us)
                if peer not in sent.waiting_for:
                    told = self._sent[number] = msgspec.structs.replace(
                        sent,
                        waiting_for=[*sent.waiting_for, peer],
                        not_addressed=[*sent.not_addressed, peer],
                    )
                    outcome.resend.append(msgspec.structs.replace(told, waiting_for=[peer]))

    def _send_again(
        self,
        sent: OutboxMessage,
        to: list[str],
        now_us: int,
        outcome: OutboxDecision,
        *,
        at_once: bool = False,
    ) -> None:
        if not at_once and now_us < sent.sent_at_us + self._resend_after_us:
            return
        limit, sendings = self.settings.limit_sent_count, sent.sendings
        over = [recipient for recipient in to if sent.sent_count_to(recipient) >= limit]
        if over:
            outcome.given_up.append(msgspec.structs.replace(sent, waiting_for=over))
            rest = [recipient for recipient in sent.waiting_for if recipient not in over]
            if not rest:
                self._forget(sent)
                return
            sent = self._sent[sent.number] = msgspec.structs.replace(sent, waiting_for=rest)
            to = [recipient for recipient in to if recipient not in over]
        if not to:
            return
        again = msgspec.structs.replace(
            sent,
            sent_count=sent.sent_count + 1,
            sent_at_us=now_us,
            sendings={**sendings, **{one: sent.sent_count_to(one) + 1 for one in to}},
        )
        self._sent[sent.number] = again
        outcome.resend.append(msgspec.structs.replace(again, waiting_for=to))

    def _forget(self, sent: OutboxMessage) -> None:
        del self._sent[sent.number]
        self._bytes -= sent.size_bytes
