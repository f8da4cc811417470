"""A provider that means harm, byte by byte: discovery as it should be, then raw bytes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from instep_tapi.options import read_options
from instep_tapi.source import TapiSource
from tests.instep_http.raw_kit import RawPeer, raw_server
from tests.instep_tapi.log_record_kit import log_record

DEADLINE_S = 30.0
CONTAINER = "/restconf/data/tapi-common:context/tapi-streaming:stream-context"
TEXT, CONTINUATION, PING, PONG = 1, 0, 9, 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Peer(RawPeer):
    """One connection of a client, as the server sees it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
    ) -> None:
        super().__init__(reader, writer, head)
        lines = head.decode("latin-1").split("\r\n")
        self.target = lines[0].split(" ")[1]
        self.headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)

    async def answer(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
        await self.send("\r\n".join([*head, "", ""]).encode() + body)

    async def upgrade(self, *headers: str) -> None:
        accept = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + _GUID).digest()
        head = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {base64.b64encode(accept).decode()}",
            *headers,
        ]
        await self.send("\r\n".join([*head, "", ""]).encode())

    async def frames_of_client(self) -> AsyncIterator[tuple[int, bytes]]:
        """Opcode and payload of the frames that the client sends: short ones, masked."""
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                first, second = await self.reader.readexactly(2)
                mask = await self.reader.readexactly(4)
                data = await self.reader.readexactly(second & 0x7F)
                yield first & 0xF, bytes(b ^ mask[n % 4] for n, b in enumerate(data))


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, rsv1: bool = False) -> bytes:
    """One unmasked WebSocket frame (RFC 6455 5.2)."""
    first = opcode | (0x80 if fin else 0) | (0x40 if rsv1 else 0)
    if len(payload) < 126:
        return bytes([first, len(payload)]) + payload
    if len(payload) < 65536:
        return struct.pack("!BBH", first, 126, len(payload)) + payload
    return struct.pack("!BBQ", first, 127, len(payload)) + payload


def record(number: int = 1, **changes: Any) -> bytes:
    return json.dumps(log_record(token=f"t{number}", **changes)).encode()


def streams(address: str | list[str], **stream: Any) -> dict[str, Any]:
    """A stream context of one stream, compacted."""
    types = [
        {
            "uuid": "type",
            "log-storage-strategy": "COMPACTED",
            "log-record-strategy": "WHOLE_ENTITY_ON_CHANGE",
            "compacted-log-details": {"tombstone-retention": "240", "compaction-delay": "10"},
        }
    ]
    available = {
        "uuid": "u",
        "stream-id": "s",
        "stream-state": "ACTIVE",
        "connection-address": address,
        "connection-protocol": "WEBSOCKETS",
        "supported-stream-type": {"supported-stream-type-uuid": "type"},
        **stream,
    }
    return {"supported-stream-type": types, "available-stream": [available]}


@asynccontextmanager
async def hostile(serve: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[str]:
    """The URL of a server that reads each request's head and leaves the rest to `serve`."""

    async def handle(peer: RawPeer) -> None:
        await serve(Peer(peer.reader, peer.writer, peer.head))

    async with raw_server(handle) as url:
        yield url.rstrip("/")


@asynccontextmanager
async def hostile_stream(
    serve: Callable[[Peer], Awaitable[None]], **options: Any
) -> AsyncIterator[TapiSource]:
    """A source whose discovery finds one stream, served by `serve` once it is upgraded."""

    async def site(peer: Peer) -> None:
        if "Upgrade" in peer.headers:
            await serve(peer)
        elif peer.target == CONTAINER:
            address = "ws://" + peer.headers["Host"] + "/stream"
            await peer.answer(json.dumps(streams(address)).encode())
        else:
            await peer.answer(b"", status="404 Not Found")

    async with hostile(site) as url, source_of(url, **options) as source:
        yield source


@asynccontextmanager
async def source_of(url: str, **options: Any) -> AsyncIterator[TapiSource]:
    source = TapiSource(read_options({"endpoints": [url], **options}, "source"))
    try:
        yield source
    finally:
        await source.close()
