"""Servers and clients of plain sockets, which share nothing with the relay or the product."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from instep.testing.relay import Clock, Relay, Rule

__all__ = [
    "JumpingClock",
    "Peer",
    "Pipe",
    "Serve",
    "dial",
    "http_client",
    "http_server",
    "relaying",
    "serving",
]

DEADLINE_S = 10.0


class Pipe:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readexactly(count)

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readuntil(end)

    async def rest(self) -> bytes:
        """What comes to the end."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def silent(self, seconds: float = 0.1) -> bool:
        """Whether nothing comes, not even the end."""
        try:
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False

    async def message(self) -> tuple[list[str], bytes]:
        """An HTTP message: the lines of its head, and its body as it was framed."""
        head = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        fields = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = b""
        if fields.get("transfer-encoding") == "chunked":
            while size := int(await self.until(b"\r\n"), 16):
                body += await self.read(size)
                await self.read(2)
            await self.read(2)
        elif "content-length" in fields and not head[0].endswith(("HEAD", "304")):
            body = await self.read(int(fields["content-length"]))
        return head, body


Serve = Callable[[Pipe], Awaitable[None]]


@dataclass
class Peer:
    """A server, and what it has seen."""

    address: str = ""
    connections: int = 0
    requests: list[tuple[list[str], bytes]] = field(default_factory=list)


@asynccontextmanager
async def serving(serve: Serve, peer: Peer | None = None) -> AsyncIterator[Peer]:
    """A server on a free port that serves each connection so."""
    seen = peer or Peer()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(Pipe(reader, writer))
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    seen.address = f"{host}:{port}"
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def dial(address: str) -> AsyncIterator[Pipe]:
    """A connection to an address."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Pipe(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def relaying(
    serve: Serve, *rules: Rule, clock: Clock | None = None, seed: int = 0
) -> AsyncIterator[tuple[Peer, Relay]]:
    """A server behind a relay."""
    async with serving(serve) as peer, Relay(peer.address, rules, seed=seed, clock=clock) as relay:
        yield peer, relay


def http_server(
    answer: Callable[[list[str], bytes], bytes], peer: Peer
) -> Callable[[Pipe], Awaitable[None]]:
    """Answers each request with these bytes, on a kept connection."""

    async def serve(pipe: Pipe) -> None:
        while True:
            request = await pipe.message()
            peer.requests.append(request)
            await pipe.send(answer(*request))

    return serve


@asynccontextmanager
async def http_client(
    answer: bytes | Callable[[list[str], bytes], bytes], *rules: Rule
) -> AsyncIterator[tuple[Pipe, Peer, Relay]]:
    """A client of an HTTP server behind a relay."""
    peer = Peer()
    fixed = answer if callable(answer) else lambda _head, _body: answer
    async with (
        serving(http_server(fixed, peer), peer),
        Relay(peer.address, rules) as relay,
        dial(relay.address) as pipe,
    ):
        yield pipe, peer, relay


class JumpingClock(Clock):
    """A clock whose sleepers wait until the test lets time pass."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_s + seconds, waiting))
        await waiting

    async def sleepers(self, count: int = 1) -> None:
        """Wait until so many sleep."""
        async with asyncio.timeout(DEADLINE_S):
            while sum(not waiting.done() for _, waiting in self._sleepers) < count:
                await asyncio.sleep(0.001)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds
        for until_s, waiting in self._sleepers:
            if until_s <= self._now_s and not waiting.done():
                waiting.set_result(None)
