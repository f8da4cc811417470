"""The relay: a port on loopback in front of a server, with rules between."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from instep.testing.relay.rule import Rule
from instep.testing.relay.streams import Clock, Cut, Stream

__all__ = ["Relay"]


class Relay:
    """A TCP relay that plays what the field does.

    Give a client `address` instead of the server's. The first rule is the nearest to the client;
    each further one stands between it and the server. Without rules everything passes as it came.

    It is a tool of tests: no TLS, no login, loopback unless told otherwise. What a rule raises,
    other than `Cut` and `OSError`, is a mistake of the rule: it is raised when the relay ends.

    Args:
        upstream: The server, ``host:port``; may be set later, and changed.
        rules: What is played; a rule belongs to one relay.
        seed: Of all that is random.
        clock: The time; a test may pass one of its own.
        listen: Where it listens; port 0: a free one.
    """

    def __init__(
        self,
        upstream: str = "",
        rules: Sequence[Rule] = (),
        *,
        seed: int = 0,
        clock: Clock | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.upstream = upstream
        self.rules = tuple(rules)
        self.address = ""
        """``host:port`` for the client; set once it listens."""
        self.connections = 0
        """How many connections were accepted."""
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        for place, rule in enumerate(self.rules):
            rule.rng = random.Random(f"{seed}/{place}/{rule.name}")
            rule.clock = clock or rule.clock

    async def __aenter__(self) -> Self:
        host, _, port = self._listen.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host, int(port))
        name = self._server.sockets[0].getsockname()
        self.address = f"{name[0]}:{name[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        await self.cut()
        if error is None and self._failure is not None:
            raise self._failure

    def heal(self) -> None:
        """Play nothing any more. Connections that were hurt stay as they are."""
        for rule in self.rules:
            rule.active = False

    async def cut(self) -> None:
        """End all connections that there are."""
        serving = [task for task in self._serving if task is not asyncio.current_task()]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._start(0, Stream(reader, writer))

    def _start(self, place: int, client: Stream) -> None:
        task = asyncio.ensure_future(self._serve(place, client))
        self._serving.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()

    async def _serve(self, place: int, client: Stream) -> None:
        rule = self.rules[place] if place < len(self.rules) else Rule()
        try:
            await rule.serve(client, lambda: self._dial(place + 1))
        except Cut as cut:
            if cut.reset:
                client.reset()
        except OSError:
            pass  # a side is gone, within a message perhaps
        finally:
            await client.close()

    async def _dial(self, place: int) -> Stream:
        """The way on: to the next rule, or to the server."""
        if place >= len(self.rules):
            host, _, port = self.upstream.rpartition(":")
            return Stream(*await asyncio.open_connection(host, int(port)))
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        with contextlib.ExitStack() as unused:
            unused.callback(ours.close)
            unused.callback(theirs.close)
            near = await asyncio.open_connection(sock=ours)
            far = await asyncio.open_connection(sock=theirs)
            unused.pop_all()
        self._start(place, Stream(*far))
        return Stream(*near)
