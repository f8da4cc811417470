"""The feed against servers that misbehave in ways the simulated provider does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from instep.errors import AuthenticationError, SourceError, TokenRefusedError, UnreachableError
from instep.model.streams import Mode, Start, StreamInfo
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource

DEADLINE_S = 10.0
Serve = Callable[[web.Request, web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def stream_of(
    serve: Serve | int | str, *, autoping: bool = True, **options: object
) -> AsyncIterator[tuple[TapiSource, StreamInfo]]:
    """A source and a stream that `serve` serves; a number refuses, a text redirects."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if isinstance(serve, int):
            return web.Response(status=serve)
        if isinstance(serve, str):
            return web.Response(status=302, headers={"Location": serve})
        socket = web.WebSocketResponse(autoping=autoping)
        await socket.prepare(request)
        await serve(request, socket)
        return socket

    app = web.Application()
    app.router.add_get("/stream", handle)
    async with TestServer(app) as server:
        endpoint = str(server.make_url("/"))
        table = {"endpoints": [endpoint], "auth": {"kind": "bearer", "token": "t"}, **options}
        source = TapiSource(read_options(table, "source"))
        details = {
            "uuid": "u",
            "address": f"ws://{server.host}:{server.port}/stream?view=a%2Fb",
            "endpoint": endpoint,
            "context": endpoint,
            "streams": endpoint,
        }
        try:
            yield (
                source,
                StreamInfo(id="s", origin="o", kind="tapi", mode=Mode.LOG, details=details),
            )
        finally:
            await source.close()


async def ending(source: TapiSource, info: StreamInfo, start: str | Start) -> SourceError:
    try:
        async with source.feed(info, start) as feed, asyncio.timeout(DEADLINE_S):
            while True:
                await feed.receive()
    except SourceError as error:
        return error


@pytest.mark.asyncio
async def test_the_address_is_used_as_given_with_login_and_token() -> None:
    seen: list[tuple[str, str | None]] = []

    async def serve(request: web.Request, socket: web.WebSocketResponse) -> None:
        seen.append((request.raw_path, request.headers.get("Authorization")))
        await socket.close()

    async with stream_of(serve) as (source, info):
        await ending(source, info, "a:b=")
    assert seen == [("/stream?view=a%2Fb&start_from=a%3Ab%3D", "Bearer t")]


@pytest.mark.asyncio
async def test_5_10_3_headers_of_our_own_are_in_the_handshake() -> None:
    seen: list[tuple[str | None, ...]] = []

    async def serve(request: web.Request, socket: web.WebSocketResponse) -> None:
        names = ("Origin", "X-Tenant", "Authorization")
        seen.append(tuple(request.headers.get(name) for name in names))
        await socket.close()

    headers = {"Origin": "https://client.example", "x-tenant": "east"}
    async with stream_of(serve, headers=headers) as (source, info):
        await ending(source, info, Start.OLDEST)
    assert seen == [("https://client.example", "east", "Bearer t")]


@pytest.mark.asyncio
async def test_a_peer_that_answers_no_ping_is_dead() -> None:
    async def serve(_: web.Request, socket: web.WebSocketResponse) -> None:
        while (await socket.receive()).type in {WSMsgType.PING, WSMsgType.PONG}:
            pass

    async with stream_of(serve, autoping=False, dead_peer_s=0.1) as (source, info):
        error = await ending(source, info, Start.OLDEST)
    assert isinstance(error, UnreachableError)
    assert "the peer is dead: 0.1 s of silence, then no answer to a Ping" in str(error)


@pytest.mark.asyncio
@pytest.mark.parametrize("answers", [True, False])
async def test_a_peer_that_answers_a_ping_is_there(answers: bool) -> None:
    """What it has not answered proves nothing: its silence may be that of a dead connection."""

    async def serve(_: web.Request, socket: web.WebSocketResponse) -> None:
        while (await socket.receive()).type in {WSMsgType.PING, WSMsgType.PONG}:
            pass

    async with (
        stream_of(serve, autoping=answers) as (source, info),
        source.feed(info, Start.OLDEST) as feed,
    ):
        await asyncio.sleep(0.05)
        unheard_s = feed.unheard_s
        assert unheard_s >= 0.05
        await feed.ping()
        if answers:
            async with asyncio.timeout(DEADLINE_S):
                while feed.unheard_s >= unheard_s:
                    await asyncio.sleep(0.001)
        else:
            await asyncio.sleep(0.05)
            assert feed.unheard_s >= unheard_s


@pytest.mark.asyncio
async def test_pings_of_the_provider_are_answered() -> None:
    answers: list[bytes] = []

    async def serve(_: web.Request, socket: web.WebSocketResponse) -> None:
        await socket.ping(b"there?")
        answers.append((await socket.receive()).data)
        await socket.close()

    async with stream_of(serve, autoping=False) as (source, info):
        await ending(source, info, Start.OLDEST)
    assert answers == [b"there?"]


@pytest.mark.asyncio
async def test_a_close_that_refuses_the_token() -> None:
    async def serve(_: web.Request, socket: web.WebSocketResponse) -> None:
        await socket.close(code=1008, message=b"token expired")

    async with stream_of(serve) as (source, info):
        assert isinstance(await ending(source, info, "old"), TokenRefusedError)
        assert isinstance(await ending(source, info, Start.OLDEST), UnreachableError)


@pytest.mark.asyncio
async def test_a_connection_that_breaks_without_a_close() -> None:
    async def serve(request: web.Request, socket: web.WebSocketResponse) -> None:
        await socket.send_str('{"token"')
        assert request.transport is not None
        request.transport.abort()

    async with (
        stream_of(serve) as (source, info),
        source.feed(info, Start.OLDEST) as feed,
        asyncio.timeout(DEADLINE_S),
    ):
        assert len((await feed.receive()).unreadable) == 1
        for _ in range(2):
            with pytest.raises(UnreachableError, match="connection is lost"):
                await feed.receive()


@pytest.mark.asyncio
async def test_a_handshake_that_is_refused_for_the_login() -> None:
    async with stream_of(401) as (source, info):
        error = await ending(source, info, Start.OLDEST)
    assert isinstance(error, AuthenticationError)
    assert "give a new one" in str(error)


@pytest.mark.asyncio
async def test_a_handshake_is_not_led_to_another_host() -> None:
    async with stream_of("ws://127.0.0.2:9/stream") as (source, info):
        error = await ending(source, info, Start.OLDEST)
    assert "our login is not taken there" in str(error)


@pytest.mark.asyncio
async def test_a_bomb_in_permessage_deflate_is_a_frame_too_big() -> None:
    async def serve(_: web.Request, socket: web.WebSocketResponse) -> None:
        await socket.send_str("0" * 50_000_000)

    async with stream_of(serve) as (source, info):
        error = await ending(source, info, Start.OLDEST)
    assert error.code == "frame-too-big"
