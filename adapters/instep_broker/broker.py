"""The border between a broker's protocol and what all brokers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

__all__ = ["Broker", "Delivery"]


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message as the broker delivers it."""

    subject: str
    """The subject, topic or key under which it was published."""
    headers: Mapping[str, str]
    body: bytes
    position: str
    """Its place in the broker (``ORDERS/17``): the id of a message that states none, and its name
    in logs.
    """
    handle: Any = None
    """The adapter's own: what it needs to answer the broker."""


class Broker(Protocol):
    """A subscription that survives its connections: the broker keeps what is not answered, and
    delivers it again, to whoever connects next.

    `connected` may be entered again after it was left. The other methods are called within it.
    """

    @property
    def name(self) -> str:
        """Where it is, without secrets: ``nats://10.0.0.7:4222/ORDERS``."""
        ...

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Connect; leaving it sends the answers that wait, gives back what was not taken, and
        closes the connection. Raises `SourceError`.
        """
        ...

    async def take(self, most: int, most_bytes: int) -> Sequence[Delivery]:
        """Wait for deliveries: at least one, and about so many at most. Cancelling loses nothing.

        Raises `SourceError`: the connection is lost.
        """
        ...

    async def acknowledge(self, delivery: Delivery) -> None:
        """It is durable: it need not be delivered again. Where the answer is lost, it is."""
        ...

    async def ask_again(self, delivery: Delivery, delay_s: float) -> None:
        """It cannot be taken now: it is to be delivered again after this time, in seconds."""
        ...

    async def refuse(self, delivery: Delivery, reason: str) -> None:
        """It will never be taken: delivering it again does not help."""
        ...
