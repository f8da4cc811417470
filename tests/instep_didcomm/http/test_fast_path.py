"""Connections that POST message after message: what is read in which pieces, what is answered in
which order, and what goes to the general handler.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from instep.model.messages import Message
from instep.ports.listener import Receipt
from instep_didcomm import DidcommListener
from tests.instep_didcomm.listener_kit import UPGRADE, MemoryIntake, closed, plain, serving, until

SCOPE = "lot-7 did:ex:alice"
JSON = {"Content-Type": "application/didcomm-plain+json"}


def request(order: int, head: str = "", body: bytes | None = None) -> bytes:
    body = json.dumps(plain(order)).encode() if body is None else body
    lines = ["POST /didcomm HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", head]
    return "\r\n".join(line for line in lines if line).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def connected(
    listener: DidcommListener,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(listener.address.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """Status and problem of the next response."""
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = re.findall(r"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length))
    assert "\r\nDate: " in head
    return int(head.split()[1]), json.loads(body) if b"{" in body else {}


@pytest.mark.asyncio
async def test_requests_in_a_row_are_answered_in_their_order() -> None:
    async with serving() as (listener, intake), connected(listener) as (reader, writer):
        bad = [request(0, body=b"{") for _ in range(500)]
        writer.write(b"".join([request(1), *bad, request(2), UPGRADE.replace(b"GET", b"PUT")]))
        assert await answered(reader) == (202, {})
        for _ in bad:
            assert (await answered(reader))[0] == 400
        assert await answered(reader) == (202, {})
        assert (await answered(reader))[0] == 405
        # What is unusual is somebody else's from then on, and so is what follows it.
        writer.write(request(3))
        assert await answered(reader) == (202, {})
        assert intake.numbers(SCOPE) == [1, 2, 3]


@pytest.mark.asyncio
@pytest.mark.parametrize("cut", [1, 20, 90, -40, -1])
@pytest.mark.parametrize("size", [100, 50_000, 200_000])
async def test_a_message_may_come_in_pieces(cut: int, size: int) -> None:
    body = json.dumps(plain(1, body={"text": "x" * size})).encode()
    said = request(1, body=body)
    async with serving() as (listener, intake), connected(listener) as (reader, writer):
        writer.write(said[:cut])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(said[cut:] + request(2))
        assert await answered(reader) == (202, {})
        assert await answered(reader) == (202, {})
        assert [one.body for one in intake.delivered] == [body, json.dumps(plain(2)).encode()]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Connection: close", 202),
        ("Content-Encoding: identity", 202),
        ("Transfer-Encoding: chunked", 400),
        ("Content-Length: 7", 400),
        ("X: " + "y" * 9_000, 400),
        ("Content-Type: didcomm-plain+json; charset=utf-8", 202),
        ("Content-Type: text/plain", 415),
    ],
)
async def test_heads_that_are_not_quite_simple(head: str, status: int) -> None:
    async with serving() as (listener, _), connected(listener) as (reader, writer):
        writer.write(request(1, head))
        assert (await answered(reader))[0] == status
        if head == "Connection: close":
            assert await closed(reader) == b""


@pytest.mark.asyncio
async def test_what_comes_while_a_message_is_taken_waits_for_its_turn() -> None:
    durable = asyncio.Semaphore(0)

    class Slow(MemoryIntake):
        async def receive(self, message: Message, settings: Any = None) -> Receipt:
            await durable.acquire()
            return await super().receive(message, settings)

    async with serving(Slow()) as (listener, intake), connected(listener) as (reader, writer):
        for order in (1, 2, 3):
            writer.write(request(order))
            await asyncio.sleep(0.02)
        assert len(intake.tasks) == 1
        for _ in (1, 2, 3):
            durable.release()
            assert await answered(reader) == (202, {})
        assert intake.numbers(SCOPE) == [1, 2, 3]
        writer.write(request(4))
        durable.release()
        assert await answered(reader) == (202, {})


@pytest.mark.asyncio
async def test_what_was_taken_is_answered_before_the_end() -> None:
    durable = asyncio.Event()

    class Slow(MemoryIntake):
        async def receive(self, message: Message, settings: Any = None) -> Receipt:
            await durable.wait()
            return await super().receive(message, settings)

    intake = Slow()
    async with AsyncExitStack() as connections:
        async with serving(intake) as (listener, _):
            reader, writer = await connections.enter_async_context(connected(listener))
            idle, _ = await connections.enter_async_context(connected(listener))
            writer.write(request(1))
            await until(lambda: bool(intake.tasks))
            asyncio.get_running_loop().call_later(0.1, durable.set)
        assert await closed(idle) == b""
        assert await answered(reader) == (202, {})
        assert await closed(reader) == b""
    assert intake.numbers(SCOPE) == [1]


@pytest.mark.asyncio
async def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    async with (
        serving(idle_timeout_s=0.5) as (listener, _),
        connected(listener) as (reader, writer),
    ):
        for order in range(1, 7):
            writer.write(request(order))
            assert await answered(reader) == (202, {})
            await asyncio.sleep(0.15)
        assert await closed(reader) == b""


@pytest.mark.asyncio
async def test_https_with_plain_messages_and_a_websocket(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "tls.pem"))
    pem = str(tmp_path / "tls.pem")
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    url = "https://localhost:0/didcomm"
    async with (
        serving(listen=url, tls={"cert": pem, "key": pem}) as (listener, intake),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=ours)) as session,
    ):
        for order in (1, 2):
            large = plain(order, body={"text": "x" * 100_000 * order})
            async with session.post(listener.address, json=large, headers=JSON) as response:
                assert response.status == 202
        async with session.ws_connect(listener.address) as socket:
            await socket.send_str(json.dumps(plain(3)))
            await until(lambda: intake.numbers(SCOPE) == [1, 2, 3])
