"""When our messages are sent again: at what the outbox decides, and not to a peer that is away.

A sending that found nobody is none: as long as a peer cannot be reached, its messages are kept for
it and not counted on, and one of them is tried now and then, ever more rarely. The other recipients
of a message do not wait for it.
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
"""Messages, and threads, that are dealt with at once."""
_LONGEST_AWAY_S: Final = 60.0
_US: Final = 1_000_000

_log = logging.getLogger("instep.didcomm")


class _Away(msgspec.Struct, frozen=True):
    """A peer that could not be reached."""

    until_us: int
    """Before this nothing is tried."""
    wait_s: float


class Resender:
    """Sends again what is due, thread by thread.

    Args:
        thread_of: The thread of an outbox's scope.
        transmit: Sends one message to those who wait for it; who of them could not be reached.
    """

    def __init__(
        self,
        store: OutboxStore,
        thread_of: Callable[[str], ThreadOutbox],
        transmit: Callable[[str, OutboxMessage, bytes], Awaitable[set[str]]],
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
        """Until cancelled. A store that is away is tried again later. Raises what is fatal."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._resend_due))
            group.create_task(self._repeat(self._apply_outcomes))

    def enqueue(self, thread: ThreadOutbox, outcome: OutboxDecision) -> None:
        """Do soon what the outbox decided: who reported it is not kept waiting.

        An outbox lists a message once in `resend_after_s`, so this does not pile up.
        """
        if outcome.resend or outcome.given_up:
            self._outcomes.append((thread, outcome))
            self._outcome_added.set()

    def mark_reached(self, peer: str) -> None:
        """It answered, or we heard from it."""
        self._away.pop(peer, None)

    async def transmit(self, thid: str, sent: OutboxMessage, raw: bytes) -> None:
        """Send a message to those who wait for it and are not away."""
        to = [peer for peer in sent.waiting_for if peer not in self._away]
        if to:
            await self._attempt(thid, msgspec.structs.replace(sent, waiting_for=to), raw)

    async def _attempt(self, thid: str, sent: OutboxMessage, raw: bytes) -> None:
        missed = await self._transmit(thid, sent, raw)
        for peer in sent.waiting_for:
            if peer not in missed:
                self.mark_reached(peer)
            elif peer not in self._away:
                self._mark_away(peer)

    def _mark_away(self, peer: str) -> None:
        """It could not be reached: when it is tried next."""
        before = self._away.get(peer)
        wait_s = before.wait_s * 2 if before else self._settings.resend_after_s
        wait_s = min(_LONGEST_AWAY_S, wait_s)
        jitter = self._environment.rng.uniform(0.5, 1.0)
        self._away[peer] = _Away(self._now_us() + int(wait_s * jitter * _US), wait_s)

    async def _apply(self, thread: ThreadOutbox, outcome: OutboxDecision) -> None:
        """Do what the outbox decided. Raises `SinkError`."""
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
        """Let time tell each thread with messages that are not acknowledged; then wait."""
        scopes = await self._store.outboxes()
        waited_for: set[str] = set()
        for start in range(0, len(scopes), MAX_CONCURRENT):
            part = scopes[start : start + MAX_CONCURRENT]
            done = await asyncio.gather(*map(self._resend_thread, part), return_exceptions=True)
            for peers in done:
                if isinstance(peers, BaseException):
                    raise peers
                waited_for |= peers
        self._away = {peer: away for peer, away in self._away.items() if peer in waited_for}
        jitter = self._environment.rng.uniform(0.5, 1.0)
        await asyncio.sleep(self._settings.resend_after_s * jitter)

    async def _apply_outcomes(self) -> None:
        """Follow what is wanted."""
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
        """Send again what is due in a thread; who has not acknowledged everything there."""
        thread, now_us = self._thread_of(scope), self._now_us()
        waiting = await thread.waiting()
        for peer, sent in waiting.items():
            away = self._away.get(peer)
            if away is not None and away.until_us <= now_us:
                # Before it is tried, so that no other thread does so meanwhile.
                self._mark_away(peer)
                await self._probe_peer(peer, thread, sent)
        absent = self._away.keys() & waiting.keys()
        await self._apply(thread, await thread.tick(now_us, absent))
        return set(waiting)

    async def _probe_peer(self, peer: str, thread: ThreadOutbox, oldest: OutboxMessage) -> None:
        """Try the oldest message, as it was last sent, for it did not arrive."""
        body = (await thread.bodies([oldest])).get(oldest.number)
        if body is not None:
            one = msgspec.structs.replace(oldest, waiting_for=[peer])
            await self._attempt(thread.scope.partition(" ")[0], one, body)

    def _now_us(self) -> int:
        return int(self._environment.now() * _US)
