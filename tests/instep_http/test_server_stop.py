"""How the server stops: in order, what was taken is answered, and nothing holds it up for long."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType
from yarl import URL

from instep_http.server import MessageSocket, Request, Response
from tests.instep_http.server_kit import UPGRADE, answer, closed, connected, echo, request, serving


async def read_all(_: Request, socket: MessageSocket) -> None:
    async for _body in socket:
        pass


class Held:
    """A handler that waits until the test releases it."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False

    async def __call__(self, request: Request) -> Response:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return Response(200, request.body)


@pytest.mark.asyncio
async def test_what_was_taken_is_answered_and_what_is_idle_ends_at_once() -> None:
    held = Held()
    async with AsyncExitStack() as stack, serving(held, stop_timeout_s=30) as server:
        url = URL(server.address)
        busy, writer = await stack.enter_async_context(connected(server))
        idle, _ = await stack.enter_async_context(connected(server))
        writer.write(request(b"taken"))
        await held.started.wait()
        stopping = asyncio.create_task(server.stop())
        assert await closed(idle) == b""
        assert server.address == ""
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection(url.host, url.port)
        assert not stopping.done()
        held.release.set()
        status, headers, body = await answer(busy)
        assert (status, headers["connection"], body) == (200, "close", b"taken")
        assert await closed(busy) == b""
        await stopping
        assert server.connections == 0
    assert not held.cancelled


@pytest.mark.asyncio
async def test_a_handler_that_is_too_slow_is_cancelled_at_the_end_of_the_time() -> None:
    held = Held()
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(20), serving(held, stop_timeout_s=0.05) as server:
            reader, writer = await stack.enter_async_context(connected(server))
            writer.write(request())
            await held.started.wait()
        assert held.cancelled
        assert await closed(reader) == b""
        assert server.connections == 0


@pytest.mark.asyncio
async def test_a_body_that_ends_while_the_server_stops_is_refused() -> None:
    async with AsyncExitStack() as stack, serving(stop_timeout_s=30) as server:
        reader, writer = await stack.enter_async_context(connected(server))
        raw = request(b"x" * 100)
        writer.write(raw[:-1])
        async with asyncio.timeout(10):
            while not server._handling:
                await asyncio.sleep(0.01)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        writer.write(raw[-1:])
        found = await closed(reader)
        assert found == b"" or found.startswith(b"HTTP/1.1 503 ")
        await stopping


@pytest.mark.asyncio
async def test_a_peer_that_does_not_read_its_answer_does_not_hold_up_the_end() -> None:
    async def large(_: Request) -> Response:
        return Response(200, b"x" * 50_000_000)

    async with AsyncExitStack() as stack:
        async with asyncio.timeout(20), serving(large, stop_timeout_s=0.05) as server:
            _, writer = await stack.enter_async_context(connected(server))
            writer.write(request())
            await asyncio.sleep(0.1)
        assert server.connections == 0


@pytest.mark.asyncio
async def test_websockets_are_closed_with_1001() -> None:
    async with serving(websocket=read_all) as server, aiohttp.ClientSession() as session:
        async with session.ws_connect(server.address) as socket:
            stopping = asyncio.create_task(server.stop())
            ended = await socket.receive(timeout=10)
            assert (ended.type, ended.data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)
        await stopping


@pytest.mark.asyncio
async def test_sockets_that_do_not_answer_do_not_hold_up_the_end() -> None:
    async with AsyncExitStack() as stack:
        async with (
            asyncio.timeout(20),
            serving(websocket=read_all, stop_timeout_s=0.05) as server,
        ):
            for _ in range(20):
                reader, writer = await stack.enter_async_context(connected(server))
                writer.write(UPGRADE)
                assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        assert server.connections == 0


@pytest.mark.asyncio
async def test_it_may_stop_twice_and_start_again() -> None:
    async with serving(echo) as server:
        await server.stop()
        await server.stop()
        await server.start()
        async with connected(server) as (reader, writer):
            writer.write(request(b"again"))
            assert (await answer(reader))[2] == b"again"
