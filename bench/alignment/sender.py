"""A provider of one COMPACTED stream that sends frames as fast as they are read. They are built
beforehand; of a long part they are built while they are sent, anew for each client.

A process of its own, so that it costs the measured one nothing: discovery (TR-548 3.7), the
WebSocket handshake by hand, then large writes. A stream opened without token gives the log from
its start; opened after the token of the last record of the first part, it gives the second part.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import gc
import hashlib
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

from bench.alignment.alarm import SHAPES, chunks, offset_of

__all__ = ["BUILT_MAX_RECORDS", "Sender", "main", "sender_part"]

_WS_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BUILT_MAX_RECORDS: Final = 400_000
"""More records take more memory than a small machine has."""
_UUID: Final = "0f1c3d5e-7a9b-4c2d-8e4f-60718293a4b5"
_TYPE_UUID: Final = "1a2b3c4d-5e6f-4071-8293-a4b5c6d7e8f9"
_WRITE_AHEAD_BYTES: Final = 1 << 20
_PING, _PONG = 0x9, 0x8A


class Sender:
    """Serves parts of a log: a client that asks for the first offset of a part gets the whole
    part.
    """

    def __init__(self, parts: dict[int, Callable[[], Iterable[bytes]]]) -> None:
        self._parts = parts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        target = urlsplit(request.split()[1])
        if "sec-websocket-key" in headers:
            writer.write(_handshake(headers["sec-websocket-key"]))
            token = parse_qs(target.query).get("start_from", [""])[0]
            await self._send(reader, writer, offset_of(token) + 1 if token else 0)
            return
        status, kind, content = _page(target.path, headers["host"])
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
            f"Connection: close\r\n\r\n{content}".encode()
        )
        await writer.drain()

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, offset: int
    ) -> None:
        writer.transport.set_write_buffer_limits(high=_WRITE_AHEAD_BYTES)
        answering = asyncio.create_task(_answer_pings(reader, writer))
        try:
            for chunk in self._parts.get(offset, tuple)():
                writer.write(chunk)
                await writer.drain()
            await answering
        finally:
            answering.cancel()


async def _answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer pings until the client leaves. A client sends nothing but short control frames (RFC
    6455 5.5).
    """
    while head := await reader.read(2):
        head += await reader.readexactly(2 - len(head))
        mask = await reader.readexactly(4)
        payload = await reader.readexactly(head[1] & 0x7F)
        if head[0] & 0x0F == _PING:
            answer = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
            writer.write(bytes([_PONG, len(answer)]) + answer)


def _handshake(key: str) -> bytes:
    accepted = base64.b64encode(hashlib.sha1(key.encode() + _WS_MAGIC).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % accepted
    )


def _page(path: str, host: str) -> tuple[str, str, str]:
    """Return status, media type and content of a page that is not the stream."""
    stream = {
        "uuid": _UUID,
        "name": [{"value-name": "stream-name", "value": "alarms"}],
        "stream-id": "alarms",
        "connection-address": f"ws://{host}/stream",
        "connection-protocol": "WEBSOCKETS",
        "stream-state": "STREAM_STATE_ACTIVE",
        "supported-stream-type": {"supported-stream-type-uuid": _TYPE_UUID},
    }
    supported = {
        "uuid": _TYPE_UUID,
        "name": [{"value-name": "stream-type-name", "value": "alarms"}],
        "stream-type-name": "alarms",
        "record-retention": "FOREVER",
        "stream-type-content": ["CONDITION_DETECTOR"],
        "log-storage-strategy": "LOG_STORAGE_STRATEGY_COMPACTED",
        "log-record-strategy": "LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE",
        "tapi-streaming:compacted-log-details": {
            "tombstone-retention": "100000",
            "compaction-delay": "10000",
        },
        "tapi-streaming:connection-protocol-details": {
            "allowed-connection-protocols": ["WEBSOCKETS"]
        },
    }
    context = {"available-stream": [stream], "supported-stream-type": [supported]}
    if path == "/.well-known/host-meta":
        link = '<Link rel="restconf" href="/restconf"/>'
        xml = f'<XRD xmlns="http://docs.oasis-open.org/ns/xri/xrd-1.0">{link}</XRD>'
        return "200 OK", "application/xrd+xml", xml
    page: dict[str, object]
    if path.rstrip("/").endswith("stream-context"):
        page = {"tapi-streaming:stream-context": context}
    elif path.endswith(f"available-stream={_UUID}"):
        page = {"tapi-streaming:available-stream": [stream]}
    else:
        return "404 Not Found", "application/yang-data+json", "{}"
    return "200 OK", "application/yang-data+json", json.dumps(page)


def sender_part(
    build: Callable[[], Iterable[bytes]], records: int
) -> Callable[[], Iterable[bytes]]:
    """How the chunks of a part are had: once for all clients, but anew for each where they are too
    many to be kept.
    """
    if records > BUILT_MAX_RECORDS:
        return build
    built = list(build())
    return lambda: built


async def _run(sender: Sender) -> None:
    server = await asyncio.start_server(sender.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Build the frames, listen on a free port, print it, and serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--per-frame", type=int, default=1)
    parser.add_argument("--shape", default="", choices=SHAPES)
    parser.add_argument("--prefill", action="store_true", help="a first part states each key once")
    given = parser.parse_args()

    first = given.keys if given.prefill else 0
    build = partial(chunks, keys=given.keys, per_frame=given.per_frame, shape=given.shape)
    parts = {first: sender_part(partial(build, first, given.records), given.records)}
    if given.prefill:
        parts[0] = sender_part(partial(build, 0, given.keys), given.keys)
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(Sender(parts)))


if __name__ == "__main__":
    main()
