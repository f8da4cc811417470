"""When our messages are sent again: at what the outbox decides, and not to a peer that is away.

A sending that found nobody is none: as long as a peer cannot be reached, its messages are kept and
not counted on, and one of them is tried now and then, ever more rarely.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from instep.messages import OutboxStore
from instep.outbox import OutboxOutcome, OutboxSettings, Sent
from instep.retry import Environment
from instep_didcomm.thread import Thread

__all__ = ["AT_ONCE", "Resender"]

AT_ONCE: Final = 32
"""Messages, and threads, that are dealt with at once."""
_LONGEST_AWAY_S: Final = 60.0
_US: Final = 1_000_000

_log = logging.getLogger("instep.didcomm")


class _Away(msgspec.Struct, frozen=True):
    """Nobody in a thread could be reached."""

    until_us: int
    """Before this nothing is tried."""
    wait_s: float


class Resender:
    """Sends again what is due, thread by thread.

    Args:
        thread_of: The thread of an outbox's scope.
        transmit: Sends one message to those who wait for it; whether any of them took it.
    """

    def __init__(
        self,
        store: OutboxStore,
        thread_of: Callable[[str], Thread],
        transmit: Callable[[str, Sent, bytes], Awaitable[bool]],
        settings: OutboxSettings,
        environment: Environment,
    ) -> None:
        self._store = store
        self._thread_of = thread_of
        self._transmit = transmit
        self._settings = settings
        self._environment = environment
        self._away: dict[str, _Away] = {}
        self._wanted: list[tuple[Thread, OutboxOutcome]] = []
        self._wakes = asyncio.Event()
        self.given_up = 0
        """Messages that were sent as often as allowed and never acknowledged."""

    async def run(self) -> None:
        """Until cancelled. A store that is away is tried again later. Raises what is fatal."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._patiently(self._round))
            group.create_task(self._patiently(self._answer))

    def want(self, thread: Thread, outcome: OutboxOutcome) -> None:
        """Do soon what the outbox decided: who reported it is not kept waiting.

        An outbox lists a message once in `resend_after_s`, so this does not pile up.
        """
        if outcome.resend or outcome.given_up:
            self._wanted.append((thread, outcome))
            self._wakes.set()

    def is_away(self, scope: str) -> bool:
        """Whether nobody in this thread could be reached when it was last tried."""
        return scope in self._away

    def reached(self, scope: str, *, anybody: bool) -> None:
        """What a sending, or a message of a peer, tells about a thread."""
        if anybody:
            self._away.pop(scope, None)
            return
        before = self._away.get(scope)
        wait_s = min(
            _LONGEST_AWAY_S, before.wait_s * 2 if before else self._settings.resend_after_s
        )
        jitter = self._environment.rng.uniform(0.5, 1.0)
        self._away[scope] = _Away(self._now_us() + int(wait_s * jitter * _US), wait_s)

    async def _follow(self, thread: Thread, outcome: OutboxOutcome) -> None:
        """Do what the outbox decided. Raises `SinkError`."""
        thid = thread.scope.partition(" ")[0]
        for lost in outcome.given_up:
            self.given_up += 1
            _log.error(
                "message %d of thread %s was sent %d times and not acknowledged: given up",
                lost.number,
                thid,
                lost.sent_count,
            )
        for start in range(0, len(outcome.resend), AT_ONCE):
            part = outcome.resend[start : start + AT_ONCE]
            bodies = await thread.bodies(part)
            sendings = [
                self._transmit(thid, sent, bodies[sent.number])
                for sent in part
                if sent.number in bodies
            ]
            taken = await asyncio.gather(*sendings)
            self.reached(thread.scope, anybody=any(taken) or not taken)
            if self.is_away(thread.scope):
                return

    async def _round(self) -> None:
        """Let time tell each thread with messages that are not acknowledged; then wait."""
        scopes = await self._store.outboxes()
        self._away = {scope: self._away[scope] for scope in scopes if scope in self._away}
        for start in range(0, len(scopes), AT_ONCE):
            part = scopes[start : start + AT_ONCE]
            done = await asyncio.gather(*map(self._again, part), return_exceptions=True)
            for error in done:
                if error is not None:
                    raise error
        jitter = self._environment.rng.uniform(0.5, 1.0)
        await asyncio.sleep(self._settings.resend_after_s * jitter)

    async def _answer(self) -> None:
        """Follow what is wanted."""
        await self._wakes.wait()
        self._wakes.clear()
        while self._wanted:
            thread, outcome = self._wanted.pop(0)
            await self._follow(thread, outcome)

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:
                if self._environment.process_error(error) is not None:
                    raise
                _log.warning("resending waits: %s", error)
                await asyncio.sleep(self._settings.resend_after_s)

    async def _again(self, scope: str) -> None:
        thread, away = self._thread_of(scope), self._away.get(scope)
        if away is not None and (self._now_us() < away.until_us or not await self._found(scope)):
            return
        await self._follow(thread, await thread.tick(self._now_us()))

    async def _found(self, scope: str) -> bool:
        """Try the oldest message, as it was last sent, for it did not arrive."""
        state, thread = await self._store.load_outbox(scope), self._thread_of(scope)
        oldest = state.sent[:1] if state is not None else []
        bodies = await thread.bodies(oldest)
        taken = [
            await self._transmit(scope.partition(" ")[0], sent, bodies[sent.number])
            for sent in oldest
            if sent.number in bodies
        ]
        self.reached(scope, anybody=all(taken))
        return all(taken)

    def _now_us(self) -> int:
        return int(self._environment.now() * _US)
