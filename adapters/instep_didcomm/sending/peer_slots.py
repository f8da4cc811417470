"""Slots for what is sent to peers that we did not choose: some for each, some for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["PeerSlots"]


class PeerSlots:
    """Bounds what is under way at the same time, so that a peer that never answers holds up no
    other (S12): who waits for a slot of its own peer takes none of the others'.
    """

    def __init__(self, limit: int, limit_per_peer: int) -> None:
        self._all = asyncio.Semaphore(limit)
        self._limit_per_peer = limit_per_peer
        self._peers: dict[str, tuple[asyncio.Semaphore, int]] = {}
        """Peer → its slots, and how many use them or wait."""

    def __repr__(self) -> str:
        return f"<PeerSlots {len(self._peers)} peers>"

    @asynccontextmanager
    async def slot(self, peer: str) -> AsyncIterator[None]:
        """Wait for a slot; it is free again afterwards."""
        slots, users = self._peers.get(peer) or (asyncio.Semaphore(self._limit_per_peer), 0)
        self._peers[peer] = slots, users + 1
        try:
            async with slots, self._all:
                yield
        finally:
            slots, users = self._peers.pop(peer)
            if users > 1:
                self._peers[peer] = slots, users - 1
