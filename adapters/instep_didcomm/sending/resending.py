"""Sends our messages again when the outbox decides so, except to unreachable peers.

A delivery that does not reach the peer does not count as one; one that may have reached it does,
and the next has a higher `sent_count`. While a peer cannot be reached, its messages are kept, and
the oldest is tried now and then, with growing waits. The other recipients of a message do not wait
for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from instep.ports.message_store import OutboxStore
from instep.runtime.retry import Environment
from instep.sequencing.outbox import OutboxDecision, OutboxMessage, OutboxSettings
from instep_didcomm.sending.thread_outbox import ThreadOutbox

__all__ = ["MAX_CONCURRENT", "Resender"]

MAX_CONCURRENT: Final = 32
"""Most messages, and most threads, that are handled concurrently."""
_LONGEST_AWAY_S: Final = 60.0
_US: Final = 1_000_000

_log = logging.getLogger("instep.didcomm")


class _Away(msgspec.Struct, frozen=True):
    """When an unreachable peer is tried next."""

    until_us: int
    """No attempt is made before this time."""
    wait_s: float
    maybe_received: bool
    """Whether the last delivery may have reached it."""


class Resender:
    """Resends the messages that are due, thread by thread.

    Args:
        thread_of: Returns the thread of an outbox's scope.
        transmit: Sends one message to the peers that have not acknowledged it; returns the peers
            that did not accept it, and whether they may have received it.
    """

    def __init__(
        self,
        store: OutboxStore,
        thread_of: Callable[[str], ThreadOutbox],
        transmit: Callable[[str, OutboxMessage, bytes], Awaitable[dict[str, bool]]],
        settings: OutboxSettings,
        environment: Environment,
    ) -> None:
        self._store = store
        self._thread_of = thread_of
        self._transmit = transmit
        self._settings = settings
        self._environment = environment
        self._away: dict[str, _Away] = {}
        self._outcomes: list[tuple[ThreadOutbox, OutboxDecision]] = []
        self._outcome_added = asyncio.Event()
        self.given_up = 0
        """Messages that were sent as often as allowed and never acknowledged."""

    async def run(self) -> None:
        """Resend until cancelled. An unavailable store is tried again later. Raises
        fatal errors.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._resend_due))
            group.create_task(self._repeat(self._apply_outcomes))

    def enqueue(self, thread: ThreadOutbox, outcome: OutboxDecision) -> None:
        """Schedule what the outbox decided; returns at once.

        An outbox lists a message at most once in `resend_after_s`, so the queue stays bounded.
        """
        if outcome.resend or outcome.given_up:
            self._outcomes.append((thread, outcome))
            self._outcome_added.set()

    def mark_reached(self, peer: str) -> None:
        """Note that the peer can be reached: it has responded, or has sent a message."""
        self._away.pop(peer, None)

    async def transmit(self, thid: str, sent: OutboxMessage, raw: bytes) -> None:
        """Send a message to the reachable peers that have not acknowledged it."""
        to = [peer for peer in sent.waiting_for if peer not in self._away]
        if to:
            await self._attempt(thid, msgspec.structs.replace(sent, waiting_for=to), raw)

    async def _attempt(self, thid: str, sent: OutboxMessage, raw: bytes) -> None:
        missed = await self._transmit(thid, sent, raw)
        for peer in sent.waiting_for:
            if peer not in missed:
                self.mark_reached(peer)
            elif peer not in self._away or missed[peer]:
                self._mark_away(peer, maybe_received=missed[peer])

    def _mark_away(self, peer: str, *, maybe_received: bool) -> None:
        """Note that the peer could not be reached, and set when it is tried next."""
        before = self._away.get(peer)
        wait_s = before.wait_s * 2 if before else self._settings.resend_after_s
        wait_s = min(_LONGEST_AWAY_S, wait_s)
        jitter = self._environment.rng.uniform(0.5, 1.0)
        until_us = self._now_us() + int(wait_s * jitter * _US)
        self._away[peer] = _Away(until_us, wait_s, maybe_received)

    async def _apply(self, thread: ThreadOutbox, outcome: OutboxDecision) -> None:
        """Report messages that are given up, and send those that are to be resent. Raises
        `SinkError`.
        """
        thid = thread.scope.partition(" ")[0]
        for lost in outcome.given_up:
            self.given_up += 1
            _log.error(
                "message %d of thread %s was sent %d times and %s did not acknowledge it: given up",
                lost.number,
                thid,
                lost.sent_count,
                ", ".join(lost.waiting_for)[:200],
            )
        for start in range(0, len(outcome.resend), MAX_CONCURRENT):
            part = outcome.resend[start : start + MAX_CONCURRENT]
            bodies = await thread.bodies(part)
            await asyncio.gather(
                *(
                    self.transmit(thid, sent, bodies[sent.number])
                    for sent in part
                    if sent.number in bodies
                )
            )

    async def _resend_due(self) -> None:
        """Resend what is due in each thread with unacknowledged messages; then wait
        `resend_after_s`.
        """
        scopes = await self._store.outboxes()
        pending_peers: set[str] = set()
        for start in range(0, len(scopes), MAX_CONCURRENT):
            part = scopes[start : start + MAX_CONCURRENT]
            done = await asyncio.gather(*map(self._resend_thread, part), return_exceptions=True)
            for peers in done:
                if isinstance(peers, BaseException):
                    raise peers
                pending_peers |= peers
        self._away = {peer: away for peer, away in self._away.items() if peer in pending_peers}
        jitter = self._environment.rng.uniform(0.5, 1.0)
        await asyncio.sleep(self._settings.resend_after_s * jitter)

    async def _apply_outcomes(self) -> None:
        """Wait for scheduled decisions of outboxes, and apply them."""
        await self._outcome_added.wait()
        self._outcome_added.clear()
        while self._outcomes:
            thread, outcome = self._outcomes.pop(0)
            await self._apply(thread, outcome)

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:
                if self._environment.process_error(error) is not None:
                    raise
                _log.warning("resending waits: %s", error)
                await asyncio.sleep(self._settings.resend_after_s)

    async def _resend_thread(self, scope: str) -> set[str]:
        """Resend what is due in a thread. Returns the peers with unacknowledged messages there."""
        thread, now_us = self._thread_of(scope), self._now_us()
        waiting = await thread.waiting()
        for peer, sent in waiting.items():
            away = self._away.get(peer)
            if away is not None and away.until_us <= now_us:
                # Set before the attempt, so that no other thread tries the peer meanwhile.
                self._mark_away(peer, maybe_received=False)
                await self._probe_peer(peer, thread, sent, again=away.maybe_received)
        absent = self._away.keys() & waiting.keys()
        await self._apply(thread, await thread.tick(now_us, absent))
        return set(waiting)

    async def _probe_peer(
        self, peer: str, thread: ThreadOutbox, oldest: OutboxMessage, *, again: bool
    ) -> None:
        """Send the oldest message: as it was last sent if that delivery did not arrive, else
        `again`, as another sending.
        """
        if again:
            outcome = await thread.resend(peer, oldest.number, self._now_us())
            await self._apply(thread, OutboxDecision(given_up=outcome.given_up))
            if not outcome.resend:
                return
            (oldest,) = outcome.resend
        body = (await thread.bodies([oldest])).get(oldest.number)
        if body is not None:
            one = msgspec.structs.replace(oldest, waiting_for=[peer])
            await self._attempt(thread.scope.partition(" ")[0], one, body)

    def _now_us(self) -> int:
        return int(self._environment.now() * _US)
