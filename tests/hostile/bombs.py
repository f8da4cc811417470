"""What costs its sender little and its receiver much: bodies that inflate, XML and JSON that grow
when they are read, heads and chunks without end, and events without a line end. Written from the
protocols, with nothing of what they attack. Eight of each come at once.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from typing import Final

from yarl import URL

from tests.hostile.attacks import Attack, Stranger

__all__ = ["BOMBS", "endless_provider"]

AT_ONCE: Final = 8
_MIB: Final = 1024 * 1024
_INFLATED_MIB: Final = 256
_PAUSE_S: Final = 1.0
_ENVELOPE: Final = (
    b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Header/><s:Body>%s'
    b"</s:Body></s:Envelope>"
)
_GZIP: Final = "Content-Encoding: gzip"
_DEFLATE: Final = "Content-Encoding: deflate"
_CONTAINER: Final = "/restconf/data/tapi-common:context/tapi-streaming:stream-context"


Bomb = tuple[URL, bytes]
"""Where it is sent, and its bytes."""


def request(url: URL, body: bytes, *lines: str) -> Bomb:
    head = [
        f"POST {url.raw_path} HTTP/1.1",
        f"Host: {url.authority}",
        "Connection: close",
        *lines,
    ]
    if not any(line.startswith("Transfer-Encoding") for line in lines):
        head.append(f"Content-Length: {len(body)}")
    return url, "\r\n".join([*head, "", ""]).encode() + body


async def send(at: Stranger, name: str, bomb: Bomb) -> None:
    """Send bytes over a connection of their own, and count how they are answered."""
    answer, (url, raw) = "lost", bomb
    try:
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writing = asyncio.ensure_future(_write(at, writer, raw))
            try:
                answer = (await reader.readline())[9:12].decode("latin-1") or "lost"
            finally:
                writing.cancel()
                writer.transport.abort()
    except (OSError, TimeoutError):
        pass
    at.answers[f"{name} {answer}"] += 1


async def _write(at: Stranger, writer: asyncio.StreamWriter, raw: bytes) -> None:
    with suppress(OSError):
        for start in range(0, len(raw), 64 * 1024):
            part = raw[start : start + 64 * 1024]
            writer.write(part)
            at.sent_bytes += len(part)
            await writer.drain()


async def volleys(at: Stranger, name: str, kinds: Sequence[Callable[[], Bomb]]) -> None:
    """Send eight of one kind at once, then eight of the next, and so on."""
    for kind in itertools.cycle(kinds):
        bomb = await asyncio.to_thread(kind)
        await asyncio.gather(*(send(at, name, bomb) for _ in range(AT_ONCE)))
        await asyncio.sleep(_PAUSE_S)


@cache
def inflating(wbits: int) -> bytes:
    """256 MiB of blanks."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, wbits)
    blanks = b" " * _MIB
    return b"".join(compressor.compress(blanks) for _ in range(_INFLATED_MIB)) + compressor.flush()


def inflating_request(url: URL, wbits: int, line: str) -> Bomb:
    return request(url, inflating(wbits), line)


@cache
def attributes(count: int) -> bytes:
    many = b" ".join(b'a%d="%d"' % (number, number) for number in range(count))
    return _ENVELOPE % (b"<c %s/>" % many)


@cache
def namespaces(count: int) -> bytes:
    many = b" ".join(b'xmlns:n%d="u%d"' % (number, number) for number in range(count))
    return _ENVELOPE % (b"<c %s></c>" % many)


@cache
def depth(levels: int) -> bytes:
    return _ENVELOPE % (b"<c>" * levels + b"</c>" * levels)


@cache
def compressed(make: Callable[[int], bytes], count: int) -> bytes:
    return gzip.compress(make(count), 9)


async def gzip_bombs(at: Stranger) -> None:
    """To each listener, and to a path that is not served."""
    urls = (at.rm, at.url, at.url / "nope")
    await volleys(at, "gzip", [partial(inflating_request, url, 31, _GZIP) for url in urls])


async def deflate_bombs(at: Stranger) -> None:
    """With the wrapping of RFC 1950, and without."""
    ways = itertools.product((at.rm, at.url), (15, -15))
    kinds = [partial(inflating_request, url, wbits, _DEFLATE) for url, wbits in ways]
    await volleys(at, "deflate", kinds)


async def attribute_bombs(at: Stranger) -> None:
    kinds = [
        lambda: request(at.rm, compressed(attributes, 200_000), _GZIP),
        lambda: request(at.rm, attributes(200_000)),
    ]
    await volleys(at, "attributes", kinds)


async def namespace_bombs(at: Stranger) -> None:
    kinds = [
        lambda: request(at.rm, compressed(namespaces, 120_000), _GZIP),
        lambda: request(at.rm, namespaces(180_000)),
        lambda: request(at.rm, namespaces(2_000)),
    ]
    await volleys(at, "namespaces", kinds)


async def depth_bombs(at: Stranger) -> None:
    kinds = [
        lambda: request(at.rm, compressed(depth, 500_000), _GZIP),
        lambda: request(at.rm, depth(500_000)),
        lambda: request(at.url, b"[" * 4_000_000),
        lambda: request(at.url, gzip.compress(b'{"a":' * 800_000, 9), _GZIP),
    ]
    await volleys(at, "depth", kinds)


async def dense_bombs(at: Stranger) -> None:
    """Two million values in 4 MB of JSON, and 300,000 elements of XML."""
    kinds = [
        lambda: request(at.url, b'{"a":[' + b"0," * 2_000_000 + b"0]}"),
        lambda: request(at.url, gzip.compress(b'{"a":[' + b"{}," * 1_300_000 + b"0]}"), _GZIP),
        lambda: request(at.rm, _ENVELOPE % (b"<c/>" * 900_000)),
    ]
    await volleys(at, "dense", kinds)


async def head_bombs(at: Stranger) -> None:
    """A hundred thousand headers, one of a megabyte, and a target of a megabyte."""
    first = f"POST {at.url.raw_path} HTTP/1.1\r\nHost: {at.url.authority}\r\n".encode()
    heads = [
        first + b"a: b\r\n" * 100_000 + b"\r\n",
        first + b"a: " + b"b" * _MIB + b"\r\n\r\n",
        b"POST /" + b"b" * _MIB + b" HTTP/1.1\r\n\r\n",
        first + b"\r\n".join(b"a%d: %s" % (n, b"b" * 8_000) for n in range(127)) + b"\r\n\r\n",
    ]
    await volleys(at, "heads", [partial(lambda raw: (at.url, raw), raw) for raw in heads])


async def chunk_bombs(at: Stranger) -> None:
    """A body in chunks of one byte, and ten thousand requests at once."""
    get = f"GET /nope HTTP/1.1\r\nHost: {at.url.authority}\r\n\r\n".encode()
    kinds = [
        lambda: request(at.rm, b"1\r\nx\r\n" * 700_000, "Transfer-Encoding: chunked"),
        lambda: (at.url, get * 10_000),
    ]
    await volleys(at, "chunks", kinds)


BOMBS: Final[tuple[Attack, ...]] = (
    gzip_bombs,
    deflate_bombs,
    attribute_bombs,
    namespace_bombs,
    depth_bombs,
    dense_bombs,
    head_bombs,
    chunk_bombs,
)
"""All of them, at the same time; `endless_provider` is one more."""


@asynccontextmanager
async def endless_provider(at: Stranger, port: int) -> AsyncIterator[None]:
    """A provider of eight streams of server-sent events that send no line end: up to the limit of
    an event in pieces of a kilobyte, or a part of it in pieces of a few bytes; then anew.
    """
    context = json.dumps(_streams(f"http://127.0.0.1:{port}/events")).encode()

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        # Cancelled at the end: `asyncio.streams` would log each.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ")[1].partition(b"?")[0].decode("latin-1")
            if target == _CONTAINER:
                writer.write(_answer("application/yang-data+json", context))
            elif target.startswith("/events"):
                writer.write(_answer("text/event-stream", None))
                piece, count = at.rng.choice(((1_000, 4_100), (1_000, 4_300), (16, 16_000)))
                writer.write(b"data: ")
                for _ in range(count):
                    writer.write(b"x" * piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                at.answers["events sent"] += 1
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        if not writer.transport.is_closing():  # a second abort of what is closed raises
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def _answer(media_type: str, body: bytes | None) -> bytes:
    length = "" if body is None else f"Content-Length: {len(body)}\r\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n{length}Connection: close\r\n\r\n"
    return head.encode() + (body or b"")


def _streams(address: str) -> dict[str, object]:
    compacted = {"tombstone-retention": "240", "compaction-delay": "10"}
    kind = {
        "uuid": "type",
        "log-storage-strategy": "COMPACTED",
        "log-record-strategy": "WHOLE_ENTITY_ON_CHANGE",
        "compacted-log-details": compacted,
    }
    streams = [
        {
            "uuid": f"u{number}",
            "stream-id": f"s{number}",
            "stream-state": "ACTIVE",
            "connection-address": f"{address}/{number}",
            "connection-protocol": "SSE",
            "supported-stream-type": {"supported-stream-type-uuid": "type"},
        }
        for number in range(AT_ONCE)
    ]
    return {"supported-stream-type": [kind], "available-stream": streams}
