"""What a WebSocket's handshake carries, and the ways it may have to take."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from instep.errors import UnreachableError
from instep.model.streams import Mode, Start, StreamInfo
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from tests.instep_tapi.source_kit import certified, following, network, only, receive, serving


class Proxy:
    """A CONNECT proxy (RFC 9110 9.3.6); leads every connection to where it is asked to."""

    def __init__(self, answer: bytes = b"200 OK") -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.logins: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split(" ")[1]
        self.asked.append(target)
        for line in head.splitlines():
            if line.lower().startswith("proxy-authorization: basic "):
                self.logins.append(b64decode(line.split()[-1]).decode())
        writer.write(b"HTTP/1.1 %b\r\n\r\n" % self.answer)
        if not self.answer.startswith(b"200"):
            writer.close()
            return
        host, _, port = target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        for source, sink in ((reader, back), (there, writer)):
            self._tasks.add(asyncio.create_task(self._pump(source, sink)))

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        sink.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        try:
            yield f"http://user:s3cret@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            await asyncio.wait_for(asyncio.gather(*self._tasks, return_exceptions=True), 10)


@pytest.mark.asyncio
async def test_a_stream_is_read_through_a_proxy(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    settings = ProviderSettings(streams=(StreamSettings("network"),), tls=certified(ca))
    proxy = Proxy()
    async with (
        proxy.serving() as url,
        Provider(network(), settings) as provider,
        following(provider, tls={"ca": str(ca)}, proxy=url) as source,
    ):
        info = await only(source)
        proxy.asked.clear()
        async with source.feed(info, Start.OLDEST) as feed:
            assert await receive(feed, 1)
        assert proxy.asked == [provider.url.removeprefix("https://")]
        assert set(proxy.logins) == {"user:s3cret"}


@pytest.mark.asyncio
async def test_a_proxy_that_refuses_or_is_not_there_is_reported_without_its_password() -> None:
    async with serving() as (provider, direct):
        info = await only(direct)
        async with Proxy(b"407 Proxy Authentication Required").serving() as url:
            gone = url.rpartition(":")[0] + ":1"
            for proxy, reason in ((url, "the proxy refuses.*407"), (gone, "proxy cannot be reach")):
                async with following(provider, proxy=proxy) as source:
                    with pytest.raises(UnreachableError, match=reason) as raised:
                        async with source.feed(info, Start.OLDEST):
                            pass
                    assert "s3cret" not in f"{raised.value!r} {raised.value} {raised.value.data}"


@pytest.mark.asyncio
async def test_cookies_of_the_login_and_a_redirect_within_the_origin_are_followed() -> None:
    seen: list[tuple[str, str | None]] = []

    async def login(_: web.Request) -> web.Response:
        answer = web.json_response({"access_token": "t"})
        answer.set_cookie("JSESSIONID", "s 1")
        return answer

    async def moved(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/here?view=1"})

    async def here(request: web.Request) -> web.WebSocketResponse:
        seen.append((request.raw_path, request.cookies.get("JSESSIONID")))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_post("/login", login)
    app.router.add_get("/stream", moved)
    app.router.add_get("/here", here)
    async with TestServer(app) as server:
        endpoint = str(server.make_url("/"))
        auth = {"kind": "login", "path": "/login", "body": {"user": "u"}}
        source = TapiSource(read_options({"endpoints": [endpoint], "auth": auth}, "source"))
        details = {
            "uuid": "u",
            "address": f"ws://{server.host}:{server.port}/stream",
            "endpoint": endpoint,
            "context": endpoint,
            "streams": endpoint,
        }
        info = StreamInfo(id="s", origin="o", kind="tapi", mode=Mode.LOG, details=details)
        async with source.feed(info, Start.OLDEST):
            pass
        await source.close()
    assert seen == [("/here?view=1", "s 1")]


@pytest.mark.asyncio
async def test_a_host_that_does_not_answer_is_given_up_within_the_time_for_connections() -> None:
    async with serving(connect_timeout_s=0.3) as (_, source):
        info = await only(source)
        details = {**info.details, "address": "ws://192.0.2.1/"}
        other = StreamInfo(id="s", origin="o", kind="tapi", mode=Mode.LOG, details=details)
        with pytest.raises(UnreachableError, match=r"no answer in time|no connection|refused"):
            async with source.feed(other, Start.OLDEST):
                pass
