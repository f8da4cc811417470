"""The outbox of one thread: each decision is durable before it is returned.

Advanced Sequencing: `sender_order` counts the messages that we sent in the thread, `sent_count` how
often one was sent. `instep.sequencing.outbox` decides, this module stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from instep.ports.message_store import OutboxStore
from instep.sequencing.outbox import Outbox, OutboxDecision, OutboxMessage, OutboxSettings
from instep_didcomm.wire.received_orders import GapDetector, reported

__all__ = ["ThreadOutbox"]

T = TypeVar("T")
_NUMBER_BYTES = 32
"""The most bytes that `sender_order` adds to a message."""


class ThreadOutbox:
    """One outbox with its store.

    A step that has begun is completed even if its caller is cancelled: otherwise a number could be
    stored for one message and used again for another.
    """

    def __init__(self, scope: str, store: OutboxStore, settings: OutboxSettings) -> None:
        self.scope = scope
        self._store = store
        self._settings = settings
        self._outbox: Outbox | None = None
        self._lock = asyncio.Lock()
        self._steps: set[asyncio.Task[Any]] = set()

    @property
    def busy(self) -> bool:
        """Whether a step is under way."""
        return bool(self._steps)

    async def append(
        self, message: dict[str, Any], to: Sequence[str], now_us: int
    ) -> tuple[OutboxMessage, bytes]:
        """Number a new message and store it. Returns its entry in the outbox and the bytes to send.

        Raises `OutboxFullError` and `SinkError`, and no number is used.
        """
        size_bytes = len(msgspec.json.encode(message)) + _NUMBER_BYTES

        def decide(outbox: Outbox) -> tuple[tuple[OutboxMessage, bytes], dict[int, bytes]]:
            sent = outbox.append(message["id"], size_bytes, to, now_us)
            raw = msgspec.json.encode({**message, "sender_order": sent.number})
            return (sent, raw), {sent.number: raw}

        return await self._shielded(self._step(decide))

    async def acknowledge(self, peer: str, detector: GapDetector, now_us: int) -> OutboxDecision:
        """Apply a peer's gap detector. Raises `ReceivedOrdersError` and `SinkError`."""

        def decide(outbox: Outbox) -> tuple[OutboxDecision, dict[int, bytes]]:
            first_number = outbox.settings.first_number
            seen, missing = reported(detector, outbox.last_number, first_number)
            outcome = outbox.acknowledge(peer, seen, missing, now_us)
            # What explains a hole has no body: it is the same for all.
            return outcome, {sent.number: b"" for sent in outcome.resend if not sent.id}

        return await self._shielded(self._step(decide))

    async def resend(self, peer: str, number: int, now_us: int) -> OutboxDecision:
        """Count another sending of a message to one peer. Raises `SinkError`."""
        return await self._shielded(
            self._step(lambda outbox: (outbox.resend(peer, number, now_us), None))
        )

    async def tick(self, now_us: int, away: Collection[str] = ()) -> OutboxDecision:
        """Decide what is due at `now_us`, for peers that are not in `away`. Raises `SinkError`."""
        return await self._shielded(self._step(lambda outbox: (outbox.tick(now_us, away), None)))

    async def waiting(self) -> Mapping[str, OutboxMessage]:
        """Map each peer to the oldest message that it has not acknowledged. Raises `SinkError`."""
        return await self._shielded(self._step(lambda outbox: (outbox.waiting(), None)))

    async def bodies(self, sent: Sequence[OutboxMessage]) -> Mapping[int, bytes]:
        """The stored bytes of these messages, by number."""
        return await self._store.outbox_bodies(self.scope, [one.number for one in sent])

    async def _shielded(self, step: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(step)
        self._steps.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._steps.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has it, or was cancelled

    async def _step(self, decide: Callable[[Outbox], tuple[T, Mapping[int, bytes] | None]]) -> T:
        async with self._lock:
            outbox = self._outbox
            if outbox is None:
                state = await self._store.load_outbox(self.scope)
                outbox = self._outbox = Outbox(self._settings, state)
            result, bodies = decide(outbox)
            state = outbox.checkpoint()
            if state != outbox.durable:
                self._outbox = None  # until it is known that this is stored: else read it again
                await self._store.save_outbox(self.scope, state, outbox.durable, bodies)
                outbox.committed(state)
                self._outbox = outbox
            return result
