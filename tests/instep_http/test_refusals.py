"""Refused means done: nothing of a refused request is inflated or parsed, its answer arrives, and
the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import zlib
from io import BytesIO
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from yarl import URL

from instep_http import server as server_module
from instep_http.lingering import linger
from instep_http.offload import Busy
from instep_http.server import MessageSocket, Request, Response
from tests.instep_http.server_kit import UPGRADE, answer, closed, connected, post, request, serving

MIB = 1024 * 1024
LIMIT_BYTES = 4 * MIB
STEP_BYTES = 64 * 1024
GZIP = "Content-Encoding: gzip"


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """64 MiB of blanks in 65 KB."""
    return gzip.compress(b" " * (64 * MIB), 9)


class Inflated:
    """Counts what zlib inflates, whoever calls it."""

    def __init__(self) -> None:
        self.bytes = 0
        self.in_loop_bytes = 0
        """Of them, in the thread of the loop."""


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> Inflated:
    count, real, loop_thread = Inflated(), zlib.decompressobj, threading.get_ident()

    class Counting:
        def __init__(self, *args: Any, **options: Any) -> None:
            self._real = real(*args, **options)

        def decompress(self, *args: Any) -> bytes:
            produced = self._real.decompress(*args)
            count.bytes += len(produced)
            count.in_loop_bytes += len(produced) * (threading.get_ident() == loop_thread)
            return produced

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    return count


def without(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != name}


async def echo_size(given: Request) -> Response:
    return Response(200, str(len(given.body)).encode())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"path": "/nope"}, 404),
        ({"path": "//in"}, 404),
        ({"path": "http://evil.example/in"}, 403),
        ({"host": "evil.example"}, 403),
        ({"lines": ("Origin: https://evil.example",)}, 403),
        ({"path": "/nope", "lines": ("Origin: https://evil.example",)}, 403),
        ({"method": "PUT"}, 405),
        ({"method": "OPTIONS", "path": "*"}, 405),
        ({"lines": ("Expect: 200-ok",)}, 417),
        ({"lines": ("Content-Encoding: br",)}, 415),
    ],
)
async def test_what_is_refused_by_its_head_is_never_inflated(
    changed: dict[str, Any], status: int, bomb: bytes, inflated: Inflated
) -> None:
    raw = request(bomb, *(GZIP, *changed.get("lines", ())), **without(changed, "lines"))
    async with serving(echo_size) as server, connected(server) as (reader, writer):
        writer.write(raw[:-1])
        found, headers, _ = await answer(reader)
        assert (found, headers["connection"]) == (status, "close")
        writer.write(raw[-1:] + request(b"next") + raw)
        assert await closed(reader) == b""  # nothing behind it is answered
        assert (await post(server.address))[0] == 200
        assert inflated.bytes == 0


@pytest.mark.asyncio
async def test_a_length_that_is_stated_is_refused_before_the_body(inflated: Inflated) -> None:
    async with serving(echo_size) as server, connected(server) as (reader, writer):
        head = request(b"", GZIP).replace(b"Length: 0", f"Length: {LIMIT_BYTES + 1}".encode())
        writer.write(head)
        assert (await answer(reader))[0] == 413
        writer.write(gzip.compress(b" " * MIB))
        assert await closed(reader) == b""
        assert inflated.bytes == 0
        assert server.refused == {"too-big": 1}


@pytest.mark.asyncio
async def test_a_bomb_is_inflated_up_to_its_limit_and_one_step(
    bomb: bytes, inflated: Inflated
) -> None:
    async with serving(echo_size) as server:
        for body in (bomb, zlib.compress(b" " * (64 * MIB), 9)):
            inflated.bytes = 0
            coding = "gzip" if body is bomb else "deflate"
            found = await post(server.address, body, **{"Content-Encoding": coding})
            assert found[0] == 413
            assert LIMIT_BYTES < inflated.bytes <= LIMIT_BYTES + STEP_BYTES


@pytest.mark.asyncio
async def test_all_but_the_first_step_of_a_body_is_inflated_off_the_loop(
    inflated: Inflated,
) -> None:
    body = bytes(range(256)) * (MIB // 64)
    async with serving(echo_size) as server:
        found = await post(server.address, zlib.compress(body), **{"Content-Encoding": "deflate"})
        assert found == (200, str(len(body)).encode())
        assert inflated.bytes == len(body)
        assert inflated.in_loop_bytes <= STEP_BYTES
        inflated.bytes = inflated.in_loop_bytes = 0
        await post(server.address, gzip.compress(b"small"), **{"Content-Encoding": "gzip"})
        assert inflated.in_loop_bytes == inflated.bytes == 5


@pytest.mark.asyncio
async def test_eight_bombs_at_once_hold_the_loop_for_eight_steps(
    bomb: bytes, inflated: Inflated
) -> None:
    headers = {"Content-Encoding": "gzip"}
    async with serving(echo_size) as server:
        found = await asyncio.gather(
            *(post(server.address, bomb, **headers) for _ in range(8)),
            *(post(f"{server.address}x", bomb, **headers) for _ in range(8)),
        )
    assert [status for status, _ in found] == [413] * 8 + [404] * 8
    assert inflated.bytes <= 8 * (LIMIT_BYTES + STEP_BYTES)
    assert inflated.in_loop_bytes <= 8 * STEP_BYTES


@pytest.mark.asyncio
async def test_a_refusal_arrives_though_the_body_is_still_being_sent() -> None:
    async with serving(echo_size) as server:
        for url, status in ((f"{server.address}x", 404), (server.address, 413)):
            for _ in range(5):
                assert (await post(url, BytesIO(bytes(LIMIT_BYTES + MIB))))[0] == status
        async with asyncio.timeout(10):
            while server.connections:
                await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_of_a_refused_body_a_bounded_number_of_bytes_is_read() -> None:
    theirs, ours = socket.socketpair()
    ours.setblocking(False)
    lost = asyncio.Event()
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
        asyncio.Protocol, theirs
    )
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"refused")
    linger(transport, lambda _: lost.set())
    sent = 0
    while not lost.is_set():
        try:
            sent += ours.send(b"x" * STEP_BYTES)
        except BlockingIOError:
            await asyncio.sleep(0.01)
        except ConnectionError:
            break
    assert ours.recv(100) == b"refused"
    # What is drained, what one read takes more, and what the system holds.
    assert sent < 2 * MIB
    ours.close()
    await lost.wait()


@pytest.mark.asyncio
async def test_a_peer_that_ends_ends_the_connection_at_once() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert (await answer(reader))[0] == 404
        assert await closed(reader) == b""
        assert server.connections == 1
        writer.close()
        async with asyncio.timeout(0.9):  # sooner than by itself
            while server.connections:
                await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_refusal_whose_body_has_come_keeps_the_connection() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        for changed, status in (({"path": "/x"}, 404), ({"method": "PUT"}, 405), ({}, 200)):
            writer.write(request(b"x", **changed))
            assert (await answer(reader))[0] == status


@pytest.mark.asyncio
async def test_the_server_stops_at_once_beside_peers_that_are_refused() -> None:
    async with serving(stop_timeout_s=60.0) as server, connected(server) as (reader, writer):
        writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert (await answer(reader))[0] == 404
        async with asyncio.timeout(30):
            await server.stop()


@pytest.mark.asyncio
async def test_bodies_that_come_at_once_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_HELD_BYTES", 4_000)
    half = b"POST /in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900
    async with serving(echo_size, max_body_bytes=1_000) as server:
        url = URL(server.address)
        held = [await asyncio.open_connection(url.host, url.port) for _ in range(4)]
        for _, writer in held:
            writer.write(half)
        async with asyncio.timeout(10):
            while server._held_bytes < 3_600:
                await asyncio.sleep(0.01)
        async with connected(server) as (reader, writer):
            writer.write(half)
            status, headers, body = await answer(reader)
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(body)["title"] == "busy"
            assert await closed(reader) == b""
        for reader, writer in held:
            writer.write(b"x" * 100)
            assert (await answer(reader))[0] == 200
            writer.close()
        assert server._held_bytes == 0


@pytest.mark.asyncio
async def test_where_too_much_is_under_way_a_sender_is_asked_to_come_again() -> None:
    async def busy(_: Request) -> Response:
        raise Busy

    go = threading.Event()
    async with serving(busy) as server, connected(server) as (reader, writer):
        writer.write(request())
        status, headers, _ = await answer(reader)
        assert (status, headers["retry-after"]) == (503, "1")
        full = [
            asyncio.ensure_future(server.offload.run(MIB, go.wait, 10))
            for _ in range(server.offload._most)
        ]
        await asyncio.sleep(0)
        try:
            body = gzip.compress(bytes(range(256)) * 1_000, 0)
            writer.write(request(body, GZIP))
            status, headers, _ = await answer(reader)
            assert (status, headers["retry-after"]) == (503, "1")
        finally:
            go.set()
            await asyncio.gather(*full)
        assert server.refused == {"busy": 2}


@pytest.mark.asyncio
async def test_a_websocket_is_never_compressed(inflated: Inflated) -> None:
    came: list[bytes] = []

    async def handler(_: Request, given: MessageSocket) -> None:
        came.extend([body async for body in given])

    async with serving(websocket=handler) as server:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(server.address, compress=15) as client,
        ):
            assert client._response.headers.get("Sec-WebSocket-Extensions") is None
            await client.send_str("text")
        assert came == [b"text"]
        async with connected(server) as (reader, writer):
            offer = b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
            writer.write(UPGRADE[:-2] + offer)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 101 " in head
            assert b"permessage-deflate" not in head
            writer.write(b"\xc1\x85\0\0\0\0\x4a\x04\x02\0\0")  # text, with RSV1
            # A close frame of code 1002.
            assert (await closed(reader)).endswith(b"\x03\xea", 2, 4)
    assert inflated.bytes == 0


def in_chunks(body: bytes, size: int) -> bytes:
    head = b"POST /in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = (body[at : at + size] for at in range(0, len(body), size))
    return head + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in chunks) + b"0\r\n\r\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body_bytes", "chunk_bytes", "status"),
    [
        (8_000, 1, 200),
        (500_000, 32, 200),
        (2_000_000, 1_000, 200),
        (2_000_000, 100_000, 200),
        (500_000, 1, 400),
        (4_000_000, 8, 400),
    ],
)
async def test_the_number_of_chunks_is_bounded(
    body_bytes: int, chunk_bytes: int, status: int
) -> None:
    """Each costs as much as a hundred bytes of another body."""
    async with serving(echo_size) as server, connected(server) as (reader, writer):
        writer.write(in_chunks(b"x" * body_bytes, chunk_bytes))
        found, _, body = await answer(reader)
        assert found == status
        assert status != 200 or int(body) == body_bytes


@pytest.mark.asyncio
async def test_while_a_body_comes_in_chunks_others_are_served() -> None:
    """Between two answers to others, at most one step of the body is read."""
    raw = in_chunks(b"x" * 200_000, 40)
    steps: list[int] = []
    async with serving(echo_size) as server, connected(server) as (reader, writer):
        writer.write(raw)
        while not steps or steps[-1] < 200_000:
            await asyncio.sleep(0)
            steps.append(max(server._held_bytes, steps[-1] if steps else 0))
            if server._held_bytes == 0 and steps[-1]:
                break
        assert (await answer(reader))[0] == 200
    assert max(after - before for before, after in pairwise(steps)) <= 32 * 1024
