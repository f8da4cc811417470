"""What a rule is: a fault of the field, where it is known from, and when it is played."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from typing import Any, ClassVar

from instep.testing.relay.streams import Clock, Dial, Stream

__all__ = ["Rule", "Side"]


Pass = Callable[[bytes], Awaitable[bytes]]
"""What goes on of some bytes that have come."""


class Side(StrEnum):
    """Between whom a relay stands; the first of the two connects."""

    LISTENER = "sender to listener"
    PROVIDER = "source to provider"
    DATABASE = "sink to database"


class Rule:
    """A fault of the field, played to the connections of a relay.

    The first line of its docstring says what it plays. A rule for bytes overrides `from_client` or
    `from_server`, or `serve` where it needs more; rules for HTTP, WebSocket and PostgreSQL have
    base classes of their own. It asks `strikes()` before it does something.

    Args:
        share: The share of the occasions on which it plays.
        most: How often it plays at most; None: as long as it is `active`.
    """

    name: ClassVar[str] = ""
    """How it is chosen and listed: words with hyphens."""
    reports: ClassVar[tuple[str, ...]] = ()
    """The public reports it comes from: ``owner/repository #number``."""
    sides: ClassVar[frozenset[Side]] = frozenset(Side)
    """Where it makes sense."""
    protocol: ClassVar[str] = "TCP"
    """What it must understand."""

    def __init__(self, *, share: float = 1.0, most: int | None = None) -> None:
        self.share = share
        self.most = most
        self.active = True
        """False: everything passes as it came."""
        self.played = 0
        """How often it has played: a test that claims to have seen the fault asks for it."""
        self.rng = random.Random(0)
        """Set by the relay from its seed …"""
        self.clock = Clock()
        """… as this is."""

    @classmethod
    def plays(cls) -> str:
        """What it plays, in a sentence."""
        return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())

    def may_strike(self) -> bool:
        """Whether it may play now, by chance; not counted."""
        if not self.active or (self.most is not None and self.played >= self.most):
            return False
        return self.share >= 1.0 or self.rng.random() < self.share

    def strikes(self) -> bool:
        """Whether it plays now, by chance; counted if so."""
        strikes = self.may_strike()
        self.played += strikes
        return strikes

    async def serve(self, client: Stream, dial: Dial) -> None:
        """Serve one connection until it ends. Raises `Cut` to end both of its sides."""
        server = await dial()
        try:
            await self.pass_on(client, server)
        finally:
            await server.close()

    async def pass_on(
        self, client: Stream, server: Stream, up: Pass | None = None, down: Pass | None = None
    ) -> None:
        """Pass bytes in both directions to the end, through `up` and `down`: `from_client` and
        `from_server` unless others are given. May be cancelled, and called again.
        """

        async def pump(source: Stream, target: Stream, through: Pass) -> None:
            while data := await source.read():
                if passed := await through(data):
                    await target.write(passed)
            target.end_writing()

        await together(
            pump(client, server, up or self.from_client),
            pump(server, client, down or self.from_server),
        )

    async def from_client(self, data: bytes) -> bytes:
        """What goes to the server of the bytes that have come from the client."""
        return data

    async def from_server(self, data: bytes) -> bytes:
        """What goes to the client of the bytes that have come from the server."""
        return data

    async def within(self, seconds: float, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work for so many seconds at most. Returns whether it has ended before."""
        working = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            return working.done()
        finally:
            for task in (working, waiting):
                task.cancel()
            await asyncio.gather(working, waiting, return_exceptions=True)


async def together(*work: Awaitable[None]) -> None:
    """Do all of it; where one raises, the others are cancelled and its error is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
