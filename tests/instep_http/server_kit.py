"""What the tests of the server share: a server that echoes, and clients of bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
from yarl import URL

from instep_http.server import BoundedServer, Handler, Request, Response, ServerLimits

UPGRADE = (
    b"GET /in HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def echo(request: Request) -> Response:
    return Response(200, request.body, {"X-Peer": request.peer})


@asynccontextmanager
async def serving(
    handler: Handler = echo, listen: str = "http://127.0.0.1:0/in", **options: Any
) -> AsyncIterator[BoundedServer]:
    """A server on a free port; options are those of `ServerLimits` and of `BoundedServer`."""
    names = ServerLimits.__struct_fields__
    limits = ServerLimits(**{name: options.pop(name) for name in names if name in options})
    server = BoundedServer(URL(listen), handler, limits, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(
    server: BoundedServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    url = URL(server.address)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def request(
    body: bytes = b"x",
    *lines: str,
    path: str = "/in",
    host: str = "localhost",
    method: str = "POST",
) -> bytes:
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower case) and body of the next response."""
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(re.findall(r"(?m)^(\S+): (.*)\r$", head))
        headers = {name.lower(): value for name, value in headers.items()}
        body = await reader.readexactly(int(headers["content-length"]))
    return int(head.split()[1]), headers, body


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""


async def post(url: str, body: bytes | BytesIO = b"x", **headers: str) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=headers) as response,
    ):
        return response.status, await response.read()
