"""A stretch of the way: an address that takes envelopes, loses some, and may pass the others on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web


@dataclass
class FaultyLink:
    url: str = ""
    onward: str = ""
    """Where envelopes are passed on to; empty: they end here and are read as plaintext."""
    loses: set[int] = field(default_factory=set)
    """Transmissions, counted from 1, that are read and not taken: the connection breaks, so their
    sender cannot know."""
    away: bool = False
    """Whether it takes nothing, and says so."""
    raw: list[bytes] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0


@asynccontextmanager
async def faulty_link() -> AsyncIterator[FaultyLink]:
    link = FaultyLink()
    async with aiohttp.ClientSession() as session:

        async def handle(request: web.BaseRequest) -> web.Response:
            body = await request.read()
            link.count += 1
            if link.away:
                return web.Response(status=503)
            if link.count in link.loses:
                assert request.transport
                request.transport.abort()
                return web.Response(status=500)
            link.raw.append(body)
            if not link.onward:
                link.messages.append(json.loads(body))
                return web.Response(status=202)
            headers = {"Content-Type": request.headers["Content-Type"]}
            async with session.post(link.onward, data=body, headers=headers) as response:
                return web.Response(status=response.status)

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        link.url = f"http://127.0.0.1:{runner.addresses[0][1]}/didcomm"
        try:
            yield link
        finally:
            await runner.cleanup()
