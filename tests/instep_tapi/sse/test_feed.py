"""Streams over server-sent events, against the real provider and servers that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from instep.errors import (
    AuthenticationError,
    FrameTooBigError,
    SourceError,
    StreamGoneError,
    TokenRefusedError,
    UnreachableError,
)
from instep.model.streams import Start, StreamInfo
from instep.testing import SOURCE_PROMISES, check_source
from instep_tapi import TapiSource, read_options
from instep_tapi_provider import DiscoveryStyle, Faults, ProviderSettings, StreamSettings
from tests.instep_tapi.log_record_kit import log_record
from tests.instep_tapi.source_kit import DEADLINE_S, ending, only, receive, same, serving

pytestmark = pytest.mark.asyncio

_RECORD = json.dumps(log_record()).encode()
SSE = DiscoveryStyle(protocol="sse")
Serve = Callable[[web.Request, web.StreamResponse], Awaitable[None]]
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


def settings(**changes: Any) -> ProviderSettings:
    return ProviderSettings(streams=(StreamSettings("network"),), discovery=SSE, **changes)


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
async def test_a_source_of_events_keeps(promise: str) -> None:
    async with serving(settings(comment_every_s=0.05)) as (provider, _):
        count = len(provider.entities("network")) + 2 * len(provider.delete("n3"))
        options = read_options({"endpoints": [provider.url]}, "source")
        await check_source(lambda: TapiSource(options), least_records=count, only=promise)


async def test_closing_leaves_no_task_and_no_connection() -> None:
    async with serving(settings()) as (provider, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            await receive(feed, 3)
        await source.close()
        await source.close()
        tasks = {str(task.get_coro()) for task in asyncio.all_tasks()}
        assert not any("EventFeed" in task for task in tasks)
        async with asyncio.timeout(DEADLINE_S):
            while provider.stream("network").listeners:
                await asyncio.sleep(0.01)


async def test_st_0_3_reads_a_stream_from_the_oldest_record_and_goes_on_by_token() -> None:
    async with serving(settings()) as (provider, source):
        info = await only(source)
        assert info.details["address"].startswith("http://")
        truth = provider.entities("network")
        async with source.feed(info, Start.OLDEST) as feed:
            records = await receive(feed, len(truth))
            assert same(records, truth)
            assert "open" in repr(feed)
        provider.update("n1", {"operational-state": "DISABLED"})
        async with source.feed(info, records[-1].token) as feed:
            [again] = await receive(feed, 1)
            assert again.key == "n1"
        assert provider.counters("network").resumes_by_token == 1
        async with source.feed(info, Start.LATEST) as feed:
            provider.update("n2", {"operational-state": "DISABLED"})
            assert [one.key for one in await receive(feed, 1)] == ["n2"]


async def test_a_full_buffer_stops_the_provider_and_loses_nothing() -> None:
    async with serving(settings(), hold_records=4, batch_records=2) as (provider, source):
        info = await only(source)
        truth = provider.entities("network")
        async with source.feed(info, Start.OLDEST) as feed:
            await asyncio.sleep(0.2)
            assert same(await receive(feed, len(truth)), truth)


async def test_a5_a_comment_is_a_sign_of_life_and_within_an_event_none() -> None:
    async with serving(settings(comment_every_s=0.02)) as (provider, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            await receive(feed, len(provider.entities("network")))
            async with asyncio.timeout(DEADLINE_S):
                unheard_s = 0.0
                while feed.unheard_s >= unheard_s:
                    unheard_s = feed.unheard_s
                    await asyncio.sleep(0.01)
            provider.set_faults(fragment_every=1, fragment_pause_s=30.0)
            provider.update("n1", {"operational-state": "DISABLED"})
            await asyncio.sleep(0.3)
            assert feed.unheard_s > 0.2


async def test_a_peer_without_even_a_comment_is_dead() -> None:
    async with serving(settings(), Faults(silent=True), dead_peer_s=0.1) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            error = await ending(feed)
    assert isinstance(error, UnreachableError)
    assert "the peer is dead: 0.2 s without even a comment" in str(error)


async def test_what_arrived_before_the_end_is_delivered_first() -> None:
    faults = Faults(drop_after_records=5, fragment_every=2)
    async with serving(settings(), faults) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            assert len(await receive(feed, 5)) == 5
            with pytest.raises(UnreachableError):
                await asyncio.wait_for(feed.receive(), DEADLINE_S)


async def test_the_provider_chooses_how_long_we_wait_before_the_next_connection() -> None:
    opened: list[float] = []
    async with serving(settings(retry_s=0.3)) as (provider, source):
        info = await only(source)
        for _ in range(2):
            async with source.feed(info, Start.OLDEST) as feed:
                opened.append(asyncio.get_running_loop().time())
                await receive(feed, len(provider.entities("network")))
    assert opened[1] - opened[0] >= 0.3


@asynccontextmanager
async def events_of(
    serve: Serve | int = 200, handler: Handle | None = None, **options: object
) -> AsyncIterator[tuple[TapiSource, StreamInfo]]:
    """A source and a stream that `serve` writes; a number is a status, a `handler` does all."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if isinstance(serve, int):
            return web.Response(status=serve)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream;charset=utf-8"})
        await response.prepare(request)
        await serve(request, response)
        return response

    async def moved(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/stream"})

    app = web.Application()
    app.router.add_get("/stream", handler or handle)
    app.router.add_get("/moved", moved)
    async with TestServer(app) as server:
        endpoint = str(server.make_url("/"))
        table = {"endpoints": [endpoint], "auth": {"kind": "bearer", "token": "t"}, **options}
        source = TapiSource(read_options(table, "source"))
        details = {
            "uuid": "u",
            "address": f"{endpoint}moved" if options.get("roots") else f"{endpoint}stream?a=%2F",
            "protocol": "SSE",
            "endpoint": endpoint,
            "context": endpoint,
            "streams": endpoint,
        }
        try:
            yield source, StreamInfo(id="s", origin="o", kind="tapi", details=details)
        finally:
            await source.close()


async def failing(source: TapiSource, info: StreamInfo, start: str | Start) -> SourceError:
    try:
        async with source.feed(info, start) as feed:
            return await ending(feed)
    except SourceError as error:
        return error


async def test_what_a_request_carries() -> None:
    seen: list[tuple[str | None, ...]] = []

    async def serve(request: web.Request, _: web.StreamResponse) -> None:
        names = ("Accept", "Authorization", "Last-Event-ID", "Origin", "Accept-Encoding")
        seen.append((request.raw_path, *(request.headers.get(name) for name in names)))

    async with events_of(serve, headers={"Origin": "https://c"}) as (source, info):
        for start in ("a:b=", Start.OLDEST, Start.LATEST):
            assert isinstance(await failing(source, info, start), UnreachableError)
    common = ("https://c", "identity")
    login = ("text/event-stream", "Bearer t")
    assert seen == [
        ("/stream?a=%2F&start_from=a%3Ab%3D", *login, "a:b=", *common),
        ("/stream?a=%2F", *login, None, *common),
        ("/stream?a=%2F&start_from=latest", *login, None, *common),
    ]


async def test_a_redirect_within_the_origin_is_followed() -> None:
    async def serve(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"data: %b\n\n" % _RECORD)

    async with (
        events_of(serve, roots=["/moved"]) as (source, info),
        source.feed(info, Start.OLDEST) as feed,
    ):
        assert len(await receive(feed, 1)) == 1


@pytest.mark.parametrize(
    ("status", "start", "expected"),
    [
        (410, "t", TokenRefusedError),
        (400, Start.LATEST, TokenRefusedError),
        (404, Start.LATEST, TokenRefusedError),
        (501, Start.LATEST, TokenRefusedError),
        (404, Start.OLDEST, StreamGoneError),
        (403, Start.OLDEST, AuthenticationError),
        (401, Start.OLDEST, AuthenticationError),
        (503, "t", UnreachableError),
        (200, Start.OLDEST, UnreachableError),
    ],
)
async def test_refusals(status: int, start: str | Start, expected: type[SourceError]) -> None:
    async with events_of(status) as (source, info):
        error = await failing(source, info, start)
    assert type(error) is expected
    assert error.retriable is (status not in {401, 403})
    assert error.stream_only is (status != 401)


async def test_a_compressed_stream_was_not_asked_for() -> None:
    """Its limit would be that of what is received, not of what it becomes."""

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_compression(web.ContentCoding.gzip)
        await response.prepare(request)
        return response

    async with events_of(handler=serve) as (source, info):
        error = await failing(source, info, Start.OLDEST)
    assert "'gzip', not text/event-stream" in str(error)
    assert error.retriable
    assert error.hint


async def test_a_page_of_a_gateway_is_a_fault_of_this_connection() -> None:
    """The first one, too: the provider behind it may only be away."""

    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    async with events_of(handler=serve) as (source, info):
        error = await failing(source, info, Start.OLDEST)
    assert "'text/html', not text/event-stream" in str(error)
    assert error.retriable
    assert error.hint


async def test_an_event_over_the_limit_is_an_error() -> None:
    async def serve(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"data: " + b"x" * 2_000)
        await asyncio.sleep(DEADLINE_S)

    async with events_of(serve, max_frame_bytes=1_000) as (source, info):
        assert isinstance(await failing(source, info, Start.OLDEST), FrameTooBigError)


async def test_a_text_that_is_no_record_is_counted() -> None:
    async def serve(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"event: hello\ndata: welcome\n\ndata: %b\n\n" % _RECORD)
        await asyncio.sleep(DEADLINE_S)

    async with events_of(serve) as (source, info), source.feed(info, Start.OLDEST) as feed:
        chunk = await feed.receive()
    assert chunk.unreadable == []
    assert chunk.samples == {"no-record": b"welcome"}
    assert len(chunk.records) == 1
