"""Expect: a client that waits before it sends its body (RFC 9110 10.1.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.instep_http.server_kit import answer, closed, connected, request, serving

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def head(length: int, *lines: str, version: str = "HTTP/1.1", path: str = "/in") -> bytes:
    fixed = [f"POST {path} {version}", "Host: localhost", f"Content-Length: {length}"]
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


async def told_to_continue(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        return await reader.readexactly(len(CONTINUE)) == CONTINUE


@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["100-continue", "100-Continue", "100-continue, 100-continue"])
async def test_a_client_that_waits_is_told_to_continue(field: str) -> None:
    async with serving() as server, connected(server) as (reader, writer):
        for body in (b"one", b"two" * 50_000):
            writer.write(head(len(body), f"Expect: {field}"))
            assert await told_to_continue(reader)
            writer.write(body)
            assert (await answer(reader))[::2] == (200, body)
        writer.write(request(b"without"))
        assert (await answer(reader))[::2] == (200, b"without")


@pytest.mark.asyncio
async def test_what_is_pipelined_behind_it_is_answered() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(request(b"first") + head(6, "Expect: 100-continue"))
        assert (await answer(reader))[2] == b"first"
        assert await told_to_continue(reader)
        writer.write(b"second" + request(b"third", "Expect: 100-continue") + request(b"last"))
        for body in (b"second", b"third", b"last"):
            assert (await answer(reader))[2] == body


@pytest.mark.asyncio
async def test_chunks_may_wait_too() -> None:
    chunked = b"POST /in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(chunked + b"Expect: 100-continue\r\n\r\n")
        assert await told_to_continue(reader)
        writer.write(b"3\r\nabc\r\n0\r\n\r\n")
        assert (await answer(reader))[::2] == (200, b"abc")
        # Without Expect, a head that comes alone is not the end of the body either.
        writer.write(chunked + b"\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"1\r\nx\r\n0\r\n\r\n")
        assert (await answer(reader))[::2] == (200, b"x")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head(101, "Expect: 100-continue"), 413),
        (head(1, "Expect: 100-continue", path="/other"), 404),
        (head(1, "Expect: 100-continue", "Origin: https://evil.example"), 403),
        (head(1, "Expect: 100-continue", path="http://evil.example/in"), 403),
        (head(1, "Expect: 100-continue", "Content-Encoding: br"), 415),
        (head(1, "Expect: 100-continue").replace(b"POST", b"PUT"), 405),
        (head(1, "Expect: 200-ok"), 417),
        (head(1, "Expect: 100-continue, 200-ok"), 417),
        (head(1, "Expect: 100-continue", "Expect: other=1"), 417),
        (head(0, "Expect: other"), 417),
    ],
)
async def test_a_refusal_by_the_head_is_final(raw: bytes, status: int) -> None:
    async with serving(max_body_bytes=100) as server, connected(server) as (reader, writer):
        writer.write(raw)
        assert (await answer(reader))[0] == status
        if b"Length: 0" not in raw:
            assert await closed(reader) == b""


@pytest.mark.asyncio
async def test_nothing_is_told_to_who_sends_no_body_or_speaks_http_1_0() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(head(0, "Expect: 100-continue"))
        assert (await answer(reader))[0] == 200
        for field in ("100-continue", "other"):
            keep = (f"Expect: {field}", "Connection: keep-alive")
            writer.write(head(4, *keep, version="HTTP/1.0"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(1), 0.05)
            writer.write(b"body")
            assert (await answer(reader))[::2] == (200, b"body")


@pytest.mark.asyncio
async def test_a_client_that_waits_strictly_sends() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async with serving() as server, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(server.address, data=body(), expect100=True) as response:
                assert (response.status, await response.read()) == (200, b"ab")
