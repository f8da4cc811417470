"""The examples for browsers give each change once, also after a connection broke."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from aiohttp import web

from instep_sql import SqlReader
from tests.examples.test_examples import example
from tests.instep_sql.store_kit import Stage, create_update, end_record, stage

pytestmark = pytest.mark.asyncio

ALARM: dict[str, Any] = {"entity_class": "CONDITION_DETECTOR"}


@asynccontextmanager
async def by_aiohttp(reader: SqlReader) -> AsyncIterator[str]:
    runner = web.AppRunner(example("live_aiohttp").application(reader), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def by_fastapi(reader: SqlReader) -> AsyncIterator[str]:
    config = uvicorn.Config(
        example("live_fastapi").application(reader),
        port=0,
        log_level="error",
        timeout_graceful_shutdown=1,
        ws="websockets-sansio",
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


SERVERS = {"aiohttp": by_aiohttp, "fastapi": by_fastapi}


@pytest.fixture(params=SERVERS)
def serving(request: pytest.FixtureRequest) -> Any:
    return SERVERS[request.param]


async def next_event(response: aiohttp.ClientResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    async with asyncio.timeout(20):
        while line := (await response.content.readline()).decode().rstrip("\n"):
            name, _, value = line.partition(":")
            found[name] = value.strip()
    return found


async def change(at: Stage, key: str, moment: int) -> None:
    await at.commit(create_update(key, moment, **ALARM), create_update(f"node-{key}", moment))


async def test_server_sent_events_are_resumed(serving: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with (
        stage(url, journal="bodies") as at,
        serving(at.store.reader) as address,
        aiohttp.ClientSession() as session,
    ):
        await change(at, "before", 1)
        async with session.get(f"{address}/events") as response:
            assert response.content_type == "text/event-stream"
            await asyncio.sleep(0.3)
            await change(at, "a", 2)
            event = await next_event(response)
            assert json.loads(event["data"]) == {
                "what": "created",
                "key": "a",
                "entity": {"at": 2},
            }
        await change(at, "b", 3)
        await at.commit(end_record("a", 4))
        resumed = {"Last-Event-ID": event["id"]}
        async with session.get(f"{address}/events", headers=resumed) as response:
            told = [json.loads((await next_event(response))["data"]) for _ in range(2)]
            assert [(one["what"], one["key"]) for one in told] == [
                ("created", "b"),
                ("deleted", "a"),
            ]
        restored = {"after": "2-of-another-journal"}
        async with session.get(f"{address}/events", params=restored) as response:
            assert (await next_event(response))["event"] == "reload"


async def test_a_websocket_is_resumed(serving: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with (
        stage(url, journal="bodies") as at,
        serving(at.store.reader) as address,
        aiohttp.ClientSession() as session,
    ):
        await change(at, "a", 1)
        end = await at.store.reader.journal_end()
        where = f"{address}/socket?after={end.cursor}-{end.epoch}"
        async with session.ws_connect(where) as socket:
            await change(at, "b", 2)
            message = await socket.receive_json(timeout=20)
            assert (message["what"], message["key"]) == ("created", "b")
        await change(at, "c", 3)
        async with session.ws_connect(f"{address}/socket?after={message['place']}") as socket:
            assert (await socket.receive_json(timeout=20))["key"] == "c"


async def test_a_browser_that_leaves_leaves_nothing_behind(serving: Any, tmp_path: Path) -> None:
    async with (
        stage(f"sqlite:///{tmp_path}/s.db", journal="bodies") as at,
        serving(at.store.reader) as address,
    ):
        await change(at, "a", 1)
        before = len(asyncio.all_tasks())
        async with aiohttp.ClientSession() as session:
            for _ in range(5):
                async with session.ws_connect(f"{address}/socket") as socket:
                    await socket.ping()
        async with asyncio.timeout(20):
            # The look at the journal stays, for the next one.
            while len(asyncio.all_tasks()) > before + 3:
                await asyncio.sleep(0.05)
