"""Rules for bytes: what networks and middleboxes do to any connection."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from instep.testing.relay.rule import Pass, Rule
from instep.testing.relay.streams import Cut, Dial, Stream

__all__ = [
    "ConnectionLimit",
    "CutEvery",
    "HalfOpen",
    "IdleTimeout",
    "Jitter",
    "OneByte",
    "Reset",
    "SlowAccept",
    "SwallowedBytes",
]


class CutEvery(Rule):
    """Each connection is closed after so many seconds, whatever it is doing.

    Args:
        every_s: The life of a connection, in seconds.
    """

    name = "cut-every"
    reports: ClassVar[tuple[str, ...]] = ("GeniusesOfSymfony/WebSocketBundle #245",)
    resets = False

    def __init__(
        self, every_s: float = 30.0, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.every_s = every_s

    async def serve(self, client: Stream, dial: Dial) -> None:
        server = await dial()
        try:
            while not await self.within(self.every_s, self.pass_on(client, server)):
                if self.strikes():
                    await self.end(client, server)
        finally:
            await server.close()

    async def end(self, client: Stream, server: Stream) -> None:
        """End a connection whose time has come."""
        del client
        if self.resets:
            server.reset()
        raise Cut(reset=self.resets)


class Reset(CutEvery):
    """Each connection is ended by an RST after so many seconds.

    Args:
        every_s: The life of a connection, in seconds.
    """

    name = "reset"
    reports = ("hyperium/hyper #3553", "nodejs/node #47130")
    resets = True


class HalfOpen(CutEvery):
    """After so many seconds nothing passes any more, and neither side is told: no FIN, no RST.

    The system of this machine goes on acknowledging what is sent until its buffers are full, as a
    proxy does whose other side is dead. So it is found by a lack of answers, not by TCP.

    Args:
        every_s: The life of a connection, in seconds.
    """

    name = "half-open"
    reports = ("snapview/tokio-tungstenite #234", "npgsql/npgsql #3037")

    async def end(self, client: Stream, server: Stream) -> None:
        """Keep both sides open, and read from neither, until the relay ends."""
        del client, server
        await asyncio.Event().wait()


class IdleTimeout(Rule):
    """A connection on which nothing has passed for so long is forgotten, as by NAT or a load
    balancer: nothing passes any more, and neither side is told.

    Args:
        idle_s: The longest silence, in seconds.
    """

    name = "idle-timeout"
    reports = ("ApicurioArchive/apicurio-studio #221", "mattermost/docs #8930")

    def __init__(
        self, idle_s: float = 60.0, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.idle_s = idle_s

    async def serve(self, client: Stream, dial: Dial) -> None:
        last_s = self.clock.now()

        async def seen(data: bytes) -> bytes:
            nonlocal last_s
            last_s = self.clock.now()
            return data

        server = await dial()
        try:
            left_s = self.idle_s
            while not await self.within(left_s, self.pass_on(client, server, seen, seen)):
                left_s = last_s + self.idle_s - self.clock.now()
                if left_s > 0:
                    continue
                if self.strikes():
                    await asyncio.Event().wait()
                left_s = self.idle_s
        finally:
            await server.close()


class OneByte(Rule):
    """Every byte comes alone, in both directions.

    Args:
        pause_s: The time between two pieces, in seconds.
        size: The size of a piece, in bytes.
    """

    name = "one-byte"
    reports = ("spiceai/spiceai #12588", "encode/httpx #1450")

    def __init__(
        self,
        pause_s: float = 1.0,
        size: int = 1,
        *,
        share: float = 1.0,
        most: int | None = None,
    ) -> None:
        super().__init__(share=share, most=most)
        self.pause_s = pause_s
        self.size = size

    async def serve(self, client: Stream, dial: Dial) -> None:
        def slowly(target: Stream) -> Pass:
            async def write(data: bytes) -> bytes:
                for at in range(0, len(data), self.size):
                    if not self.strikes():
                        return data[at:]
                    await target.write(data[at : at + self.size])
                    await self.clock.sleep(self.pause_s)
                return b""

            return write

        server = await dial()
        try:
            await self.pass_on(client, server, slowly(server), slowly(client))
        finally:
            await server.close()


class Jitter(Rule):
    """Whatever passes is late by a time that changes.

    Args:
        most_s: The longest delay, in seconds.
    """

    name = "jitter"
    reports = ("theturtle32/WebSocket-Node #229",)

    def __init__(self, most_s: float = 0.5, *, share: float = 1.0, most: int | None = None) -> None:
        super().__init__(share=share, most=most)
        self.most_s = most_s

    async def from_client(self, data: bytes) -> bytes:
        return await self._late(data)

    async def from_server(self, data: bytes) -> bytes:
        return await self._late(data)

    async def _late(self, data: bytes) -> bytes:
        if self.strikes():
            await self.clock.sleep(self.rng.uniform(0.0, self.most_s))
        return data


class SlowAccept(Rule):
    """A connection is accepted, and for so long nothing happens on it.

    Args:
        delay_s: The time until the server is dialled, in seconds.
    """

    name = "slow-accept"
    reports = ("pgbouncer/pgbouncer #1355",)

    def __init__(
        self, delay_s: float = 5.0, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.delay_s = delay_s

    async def serve(self, client: Stream, dial: Dial) -> None:
        if self.strikes():
            await self.clock.sleep(self.delay_s)
        await super().serve(client, dial)


class ConnectionLimit(Rule):
    """There may be so many connections at once; a further one is closed without an answer.

    Args:
        connections: How many there may be.
    """

    name = "connection-limit"
    reports = ("stmcginnis/gofish #75", "heypinchy/pinchy #957")

    def __init__(
        self, connections: int = 1, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.connections = connections
        self._open = 0

    async def serve(self, client: Stream, dial: Dial) -> None:
        if self._open >= self.connections and self.strikes():
            raise Cut
        self._open += 1
        try:
            await super().serve(client, dial)
        finally:
            self._open -= 1


class SwallowedBytes(Rule):
    """Some bytes of the server are lost within the connection, which goes on.

    Args:
        after_bytes: How many bytes of a connection pass before.
        count: How many are lost, once in a connection.
    """

    name = "swallowed-bytes"
    reports = ("python-websockets/websockets #665", "python/cpython #129264")

    def __init__(
        self,
        after_bytes: int = 4096,
        count: int = 1024,
        *,
        share: float = 1.0,
        most: int | None = None,
    ) -> None:
        super().__init__(share=share, most=most)
        self.after_bytes = after_bytes
        self.count = count

    async def serve(self, client: Stream, dial: Dial) -> None:
        passed, left = 0, self.count

        async def down(data: bytes) -> bytes:
            nonlocal passed, left
            at = self.after_bytes - passed
            passed += len(data)
            if at >= len(data) or not left or not self.active:
                return data
            if left == self.count and not self.strikes():
                left = 0
                return data
            at = max(at, 0)
            lost = min(left, len(data) - at)
            left -= lost
            return data[:at] + data[at + lost :]

        server = await dial()
        try:
            await self.pass_on(client, server, down=down)
        finally:
            await server.close()
