"""A broker's end of a consumer: takes deliveries, passes the messages to the core, and answers the
broker when they are durable.

Exactly once follows from three promises. The broker keeps a message until it is acknowledged. It is
acknowledged only after the commit (S3). What is delivered again although it is durable is known by
its number (S1).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from typing import Final

from instep.errors import InstepError, SourceError
from instep.model.messages import Message
from instep.ports.listener import Intake, Receipt, ReceiptOutcome
from instep.runtime.retry import Environment, ReconnectPacing, is_retried_late
from instep.runtime.settings import ConsumerSettings
from instep.sequencing.effects import SequenceEffect
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal
from instep_broker.broker import Broker, Delivery
from instep_broker.decoder import DeliveryDecoder, UnreadableDeliveryError
from instep_broker.options import BrokerOptions

__all__ = ["BrokerListener"]

_FINISH_S: Final = 1.0
_LATER: Final = frozenset({Refusal.FULL, Refusal.UNAVAILABLE, Refusal.TOO_FAR_AHEAD})

_log = logging.getLogger("instep.broker")


class BrokerListener:
    """Follows one subscription; `instep.ports.listener.Listener`. Raises `ConfigurationError`.

    It is made by the plug-in of an adapter, which gives the broker. A broker that is away is waited
    for: it is connected to again, with a back-off.
    """

    opens_implicitly = True
    """A sequence begins with its first message (S9)."""

    def __init__(
        self,
        kind: str,
        broker: Broker,
        options: BrokerOptions,
        where: str,
        environment: Environment | None = None,
    ) -> None:
        self.kind = kind
        self._broker = broker
        self._options = options
        self._environment = environment or Environment()
        self._decoder = DeliveryDecoder(options, where, self._environment.now)
        self._reconnect = ConsumerSettings(
            reconnect_initial_s=options.reconnect_initial_s, reconnect_max_s=options.reconnect_max_s
        )
        self._address = ""
        self.refused: Counter[str] = Counter()
        """Deliveries that are no numbered message, by reason; those that their sequence refused
        are counted by the intake.
        """
        self.last_error = "the broker is not connected yet"
        """Why it is not connected; empty while it is."""
        self._logged: set[str] = set()

    def __repr__(self) -> str:
        return f"<BrokerListener {self._broker.name}: {self.last_error or 'connected'}>"

    @property
    def address(self) -> str:
        """The broker that it is connected to; empty while it is not."""
        return self._address

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - one for all
        return self._options.sequence

    def peer_of(self, scope: str) -> str:
        """Each sequence for itself: a broker does not tell who publishes."""
        return scope

    async def serve(self, intake: Intake) -> None:
        intake.show_refusals(self.refused)
        pacing, succeeded = ReconnectPacing(self._reconnect, self._environment), False
        while True:
            wait_s = self._reconnect.reconnect_initial_s
            try:
                async with self._broker.connected():
                    self._address, self.last_error = self._broker.name, ""
                    pacing.failures, succeeded = 0, True
                    try:
                        await _Connection(self._broker, self._options, intake, self).follow()
                    finally:
                        self._address = ""
            except SourceError as error:
                if succeeded:
                    error.retry_late()
                if self._environment.process_error(error) is not None:
                    raise
                error.where = error.where or self._broker.name
                if str(error) != self.last_error:
                    _log.warning("%s", error)
                self.last_error = str(error)
                late = is_retried_late(error)
                wait_s = pacing.wait_s(fruitful=False, reopens=False, stalled=False, late=late)
            await asyncio.sleep(wait_s)

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        """Nobody can be told: a broker has no way back to the publisher."""

    async def close(self) -> None:
        """There is nothing left when `serve` has ended."""

    # -- within ----------------------------------------------------------------------------------

    def read(self, delivery: Delivery) -> Message | str:
        """The message, or why it is none."""
        try:
            return self._decoder.decode(delivery)
        except UnreadableDeliveryError as error:
            self.refused["unreadable"] += 1
            return error.message

    def note_refused(self, delivery: Delivery, reason: str) -> None:
        """Log the first of each kind: a publisher must not fill the log."""
        level = logging.DEBUG if reason in self._logged else logging.WARNING
        self._logged.add(reason)
        _log.log(level, "%s on %.80s is refused: %s", delivery.position, delivery.subject, reason)


class _Connection:
    """One connection to the broker: what was taken on it is answered on it."""

    def __init__(
        self,
        broker: Broker,
        options: BrokerOptions,
        intake: Intake,
        listener: BrokerListener,
    ) -> None:
        self._broker = broker
        self._options = options
        self._intake = intake
        self._listener = listener
        self._messages = 0
        """Taken and not answered …"""
        self._bytes = 0
        """… and their bytes."""
        self._answers: deque[tuple[Delivery, Receipt | InstepError | str]] = deque()
        """What is to be answered: with the receipt, or with why it is no message."""
        self._to_answer = asyncio.Event()
        self._answered = asyncio.Event()

    async def follow(self) -> None:
        """Take and answer until cancelled: then what was taken is answered, within a bound. Raises
        `SourceError` when the connection is lost.
        """
        answering = asyncio.create_task(self._answer())
        taking = asyncio.create_task(self._take())
        try:
            await asyncio.wait({answering, taking}, return_when=asyncio.FIRST_COMPLETED)
            for task in (taking, answering):
                if task.done():
                    task.result()
        finally:
            taking.cancel()
            await asyncio.wait({taking})
            with suppress(TimeoutError):
                async with asyncio.timeout(_FINISH_S):
                    while self._messages and not answering.done():
                        self._answered.clear()
                        await self._answered.wait()
            answering.cancel()
            await asyncio.wait({answering})

    async def _take(self) -> None:
        while True:
            self._answered.clear()
            room = self._options.limit_messages - self._messages
            room_bytes = self._options.limit_bytes - self._bytes
            if room <= 0 or room_bytes <= 0:
                await self._answered.wait()
                continue
            for delivery in await self._broker.take(room, room_bytes):
                self._receive(delivery)

    def _receive(self, delivery: Delivery) -> None:
        self._messages += 1
        self._bytes += len(delivery.body)
        message = self._listener.read(delivery)
        if isinstance(message, str):
            self._note(delivery, message)
        else:
            self._intake.submit(message, partial(self._note, delivery))

    def _note(self, delivery: Delivery, answer: Receipt | InstepError | str) -> None:
        self._answers.append((delivery, answer))
        self._to_answer.set()

    async def _answer(self) -> None:
        while True:
            self._to_answer.clear()
            while self._answers:
                delivery, answer = self._answers.popleft()
                await self._answer_one(delivery, answer)
                self._messages -= 1
                self._bytes -= len(delivery.body)
                self._answered.set()
            await self._to_answer.wait()

    async def _answer_one(self, delivery: Delivery, answer: Receipt | InstepError | str) -> None:
        broker, options = self._broker, self._options
        if isinstance(answer, str):
            await self._refuse(delivery, answer)
        elif isinstance(answer, InstepError):
            await broker.ask_again(delivery, options.retry_s)
        elif answer.deviation:
            # Acknowledged it would count as durable, and it is not kept.
            await self._refuse(delivery, "another message came under its number")
        elif answer.outcome is not ReceiptOutcome.REFUSED:
            await broker.acknowledge(delivery)
        elif answer.refusal in _LATER:
            await broker.ask_again(delivery, options.retry_s)
        elif answer.refusal is Refusal.FAILED:
            await broker.ask_again(delivery, options.retry_failed_s)
        else:
            await self._refuse(delivery, f"the sequence: {answer.refusal!s}")

    async def _refuse(self, delivery: Delivery, reason: str) -> None:
        self._listener.note_refused(delivery, reason)
        await self._broker.refuse(delivery, reason)
