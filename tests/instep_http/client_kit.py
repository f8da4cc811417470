"""What the tests of the client share: servers with scripted answers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from instep_http.client import ClientSettings, GuardedClient

Answers = Callable[[web.BaseRequest, int], web.Response]


class Peer:
    def __init__(self) -> None:
        self.url = ""
        self.came: list[tuple[str, str, bytes]] = []
        """Method, path and body of each request."""
        self.headers: list[dict[str, str]] = []


@asynccontextmanager
async def answering(answers: Answers, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """A server that answers its n-th request with `answers(request, n)`."""
    peer = Peer()

    async def handle(request: web.BaseRequest) -> web.Response:
        peer.came.append((request.method, request.path, await request.read()))
        peer.headers.append(dict(request.headers))
        return answers(request, len(peer.came))

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    scheme = "https" if tls else "http"
    peer.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/in"
    try:
        yield peer
    finally:
        await runner.cleanup()


def new_client(tls: ssl.SSLContext | None = None, **settings: Any) -> GuardedClient:
    return GuardedClient(ClientSettings(**settings), tls or ssl.create_default_context())


def status(*statuses: int, **headers: str) -> Answers:
    return lambda _, count: web.Response(
        status=statuses[min(count, len(statuses)) - 1], headers=headers
    )
