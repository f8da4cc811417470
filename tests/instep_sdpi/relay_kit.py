"""A relay between provider and consumer that loses, repeats, delays, cuts and answers itself."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

__all__ = ["Relay", "relaying"]

FAULTS = ("503 before", "503 after", "twice", "cut", "delay", "confirmed and lost")


class Relay:
    """Forwards each request to the same path at the target, unless chance wants otherwise."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng = rng
        self.share = share
        self.url = ""
        self.target = ""
        self.client: aiohttp.ClientSession | None = None
        self.made: Counter[str] = Counter()
        self.confirmed: Callable[[bytes], None] = lambda _: None
        """Called with each body that the target has confirmed."""

    async def forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        url = self.target + request.path
        fault = self.rng.choice(FAULTS) if self.rng.random() < self.share else ""
        self.made[fault] += 1
        match fault:
            case "503 before":
                return web.Response(status=503)
            case "503 after":
                await self._post(url, body)
                return web.Response(status=503)
            case "twice":
                both = await asyncio.gather(self._post(url, body), self._post(url, body))
                return web.Response(status=max(both))
            case "cut":
                await self._cut(url, body)
                return web.Response(status=504)
            case "delay":
                await asyncio.sleep(self.rng.uniform(0, 0.1))
            case "confirmed and lost":
                return web.Response(status=202)
        return web.Response(status=await self._post(url, body))

    async def _post(self, url: str, body: bytes) -> int:
        assert self.client is not None
        headers = {"Content-Type": "application/soap+xml; charset=utf-8"}
        try:
            async with self.client.post(url, data=body, headers=headers) as answer:
                await answer.read()
        except (aiohttp.ClientError, OSError):
            return 502
        if 200 <= answer.status < 300:
            self.confirmed(body)
        return answer.status

    async def _cut(self, url: str, body: bytes) -> None:
        to = urlsplit(url)
        assert to.hostname is not None
        with suppress(OSError):
            _, writer = await asyncio.open_connection(to.hostname, to.port)
            head = f"POST {to.path} HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Length: {len(body)}"
            writer.write(f"{head}\r\n\r\n".encode() + body[: self.rng.randrange(len(body))])
            await writer.drain()
            writer.close()


@asynccontextmanager
async def relaying(seed: int, share: float) -> AsyncIterator[Relay]:
    """A relay on a free port. Its `target` is set by who uses it."""
    relay = Relay(random.Random(seed), share)
    runner = web.AppRunner(web.Application())
    runner.app.router.add_post("/{path:.*}", relay.forward)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        relay.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as relay.client:
            yield relay
    finally:
        await runner.cleanup()
