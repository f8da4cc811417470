"""Sends our messages, and resends them until the recipients acknowledge them.

Advanced Sequencing, both sides of the gap detector: a message that a peer reports as missing is
resent with a higher `sent_count`, and every message that we send carries our `received_orders`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import msgspec

from instep.errors import InstepError, SourceError
from instep.ports.message_store import OutboxStore
from instep.runtime.retry import Environment
from instep.sequencing.outbox import OutboxMessage, OutboxSettings
from instep_didcomm.http.client import EnvelopeClient
from instep_didcomm.sending.endpoints import EndpointResolver
from instep_didcomm.sending.peer_slots import PeerSlots
from instep_didcomm.sending.resending import MAX_CONCURRENT, Resender
from instep_didcomm.sending.thread_outbox import ThreadOutbox
from instep_didcomm.wire.envelope import MEDIA_TYPES, Form
from instep_didcomm.wire.headers import EMPTY_MESSAGE_TYPE
from instep_didcomm.wire.pack import Packer
from instep_didcomm.wire.protocols import sequence_scope
from instep_didcomm.wire.received_orders import GapDetector

__all__ = ["PROBLEM_REPORT", "Conversation", "Sender"]

PROBLEM_REPORT: Final = "https://didcomm.org/report-problem/2.0/problem-report"
_US: Final = 1_000_000
_MAX_REPLIES: Final = 64
_MAX_REPLIES_PER_PEER: Final = 2
_MAX_OWN_PER_PEER: Final = 8
_MAX_THREADS: Final = 1_000
"""Threads kept in memory; others are read from the store when needed."""

_log = logging.getLogger("instep.didcomm")

Detectors = Callable[[str, Sequence[str]], Awaitable[list[GapDetector]]]
"""`detectors(thid, parties)`: the gap detectors of a thread, at least for these parties."""


class Sender:
    """Our side of all threads. Messages are resent only while `run` runs.

    Args:
        did: Our DID.
        store: Keeps messages that are not acknowledged.
        detectors: Returns what was received, for `received_orders`.
    """

    def __init__(
        self,
        did: str,
        store: OutboxStore,
        packer: Packer,
        resolver: EndpointResolver,
        client: EnvelopeClient,
        detectors: Detectors,
        settings: OutboxSettings,
        environment: Environment,
    ) -> None:
        self.did = did
        self._store = store
        self._packer = packer
        self._resolver = resolver
        self._client = client
        self._detectors = detectors
        self._settings = settings
        self._environment = environment
        self._threads: OrderedDict[str, ThreadOutbox] = OrderedDict()
        self._own = PeerSlots(MAX_CONCURRENT, _MAX_OWN_PER_PEER)
        """For messages of our own, whose recipients we chose."""
        self._replies = PeerSlots(_MAX_REPLIES, _MAX_REPLIES_PER_PEER)
        """For what anybody can cause who sends to us."""
        self._resender = Resender(store, self._thread, self._transmit, settings, environment)

    @property
    def given_up(self) -> int:
        """Messages that were sent as often as allowed and never acknowledged."""
        return self._resender.given_up

    def conversation(self, to: Iterable[str], thid: str = "", pthid: str = "") -> Conversation:
        """A thread with these recipients: one that exists, or a new one."""
        return Conversation(self, tuple(dict.fromkeys(to)), thid or self._new_id(), pthid)

    async def send(
        self,
        message_type: str,
        body: Mapping[str, Any],
        *,
        to: Sequence[str],
        thid: str,
        pthid: str = "",
        headers: Mapping[str, Any] | None = None,
    ) -> OutboxMessage:
        """Number a message, store it, and send it; it is resent until it is acknowledged.

        Returns when the message is durable and the first delivery attempt is over, successful or
        not. It does not wait for an unreachable peer. Raises `OutboxFullError` and `SinkError`:
        then the message was not sent, and no number was used.
        """
        message = {
            **(headers or {}),
            **self._message(message_type, to, thid, pthid),
            "created_time": int(self._environment.now()),
            "body": body,
        }
        scope = sequence_scope(thid, self.did)
        sent, raw = await self._thread(scope).append(message, to, self._now_us())
        await self._resender.transmit(thid, sent, raw)
        return sent

    async def acknowledge(self, thid: str, peer: str, detectors: Sequence[GapDetector]) -> None:
        """Apply a peer's `received_orders`: remove what it has received, resend what it has not.

        Raises `ReceivedOrdersError` if it contradicts what was sent, and `SinkError`.
        """
        scope = sequence_scope(thid, self.did)
        for detector in detectors:
            if detector.id.partition("#")[0] != self.did:
                continue
            if scope not in self._threads and await self._store.load_outbox(scope) is None:
                continue
            self._resender.mark_reached(peer)
            thread = self._thread(scope)
            outcome = await thread.acknowledge(peer, detector, self._now_us())
            self._resender.enqueue(thread, outcome)

    async def send_received_orders(self, thid: str, to: str) -> None:
        """Send an empty message with our `received_orders`. Raises `SourceError`."""
        message = {**self._message(EMPTY_MESSAGE_TYPE, [to], thid, ""), "body": {}}
        async with self._replies.slot(to):
            # Only now: what waited says what is true when it goes.
            await self._deliver(message, to, await self._detectors(thid, [to]))

    async def report_problem(self, thid: str, to: str, code: str, comment: str) -> None:
        """Send a problem report about a thread (DIDComm 2.1, "Problem Reports"). Raises
        `SourceError`.
        """
        message = self._message(PROBLEM_REPORT, [to], self._new_id(), thid)
        body = {"code": code, "comment": comment}
        async with self._replies.slot(to):
            await self._deliver({**message, "body": body}, to, [])

    async def run(self) -> None:
        """Resend what is due, until cancelled. Raises fatal errors."""
        await self._resender.run()

    async def _transmit(self, thid: str, sent: OutboxMessage, raw: bytes) -> dict[str, bool]:
        """Deliver a message once to each peer that has not acknowledged it; failures are left to
        the next attempt.

        Returns the peers that could not be reached, or that responded only that they will accept it
        later, and whether they may have received it.
        """
        detectors: Sequence[GapDetector] = ()
        with suppress(InstepError):  # The message itself is durable, and is sent without them.
            detectors = await self._detectors(thid, sent.waiting_for)
        results = await asyncio.gather(
            *(
                self._deliver_own(self._for_peer(thid, sent, raw, peer), peer, detectors)
                for peer in sent.waiting_for
            ),
            return_exceptions=True,
        )
        away = {}
        for peer, result in zip(sent.waiting_for, results, strict=True):
            if isinstance(result, SourceError):
                _log.info("message %d to %.80s is not sent yet: %s", sent.number, peer, result)
                if result.retriable:
                    away[peer] = bool(result.data.get("maybe_received"))
            elif isinstance(result, Exception):
                _log.error("message %d cannot be sent", sent.number, exc_info=result)
                away[peer] = False
            elif isinstance(result, BaseException):
                raise result
        return away

    def _for_peer(self, thid: str, sent: OutboxMessage, raw: bytes, peer: str) -> dict[str, Any]:
        """What one recipient gets under this number."""
        if peer in sent.not_addressed:
            empty = self._message(EMPTY_MESSAGE_TYPE, [peer], thid, "")
            # Each sending of it must be the same message.
            empty["id"] = sha256(f"{thid} {sent.number} {peer}".encode()).hexdigest()[:32]
            message = {**empty, "sender_order": sent.number, "body": {}}
        else:
            message = msgspec.json.decode(raw)
        message["please_ack"] = [""]
        if sent.sent_count_to(peer) > 1:
            message["sent_count"] = sent.sent_count_to(peer)
        return message

    async def _deliver_own(
        self, message: Mapping[str, Any], to: str, detectors: Sequence[GapDetector]
    ) -> None:
        async with self._own.slot(to):
            await self._deliver(message, to, detectors, numbered=True)

    async def _deliver(
        self,
        message: Mapping[str, Any],
        to: str,
        detectors: Sequence[GapDetector],
        *,
        numbered: bool = False,
    ) -> None:
        if detectors:
            message = {**message, "received_orders": detectors}
        endpoint = await self._resolver.endpoint(to)
        envelope, form = await self._packer.pack(msgspec.json.encode(message), self.did, to)
        await self._client.deliver(endpoint, envelope, form, once=numbered)

    def _message(
        self, message_type: str, to: Sequence[str], thid: str, pthid: str
    ) -> dict[str, Any]:
        message = {
            "id": self._new_id(),
            "typ": MEDIA_TYPES[Form.PLAIN],
            "type": message_type,
            "from": self.did,
            "to": list(to),
            "thid": thid,
        }
        return {**message, "pthid": pthid} if pthid else message

    def _thread(self, scope: str) -> ThreadOutbox:
        thread = self._threads.get(scope)
        if thread is None:
            thread = self._threads[scope] = ThreadOutbox(scope, self._store, self._settings)
            for idle in [s for s, t in self._threads.items() if not t.busy and t is not thread][
                : max(0, len(self._threads) - _MAX_THREADS)
            ]:
                del self._threads[idle]
        self._threads.move_to_end(scope)
        return thread

    def _now_us(self) -> int:
        return int(self._environment.now() * _US)

    def _new_id(self) -> str:
        return uuid.UUID(int=self._environment.rng.getrandbits(128), version=4).hex


class Conversation:
    """A thread of ours with its recipients; made by `Sender.conversation`."""

    def __init__(self, sender: Sender, to: tuple[str, ...], thid: str, pthid: str) -> None:
        self._sender = sender
        self.to = to
        self.thid = thid
        self.pthid = pthid

    async def send(
        self, message_type: str, body: Mapping[str, Any], headers: Mapping[str, Any] | None = None
    ) -> OutboxMessage:
        """Send the next message of this thread: see `Sender.send`."""
        return await self._sender.send(
            message_type, body, to=self.to, thid=self.thid, pthid=self.pthid, headers=headers
        )
