"""TLS with client certificates, proxies, and what goes wrong on the way, against real servers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from instep.errors import (
    DiscoveryError,
    NoStreamError,
    SourceError,
    StreamGoneError,
    TlsError,
    UnreachableError,
)
from instep.model.streams import StreamInfo, StreamState
from instep_tapi import source as tapi_source
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource

CONTAINER = "/restconf/data/tapi-common:context/tapi-streaming:stream-context"
STREAMS = {"available-stream": [{"uuid": "u", "stream-state": "STREAM_STATE_PAUSED"}]}


@asynccontextmanager
async def server_of(
    answers: dict[str, Any], tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """A server's URL and the targets it was asked for; an answer that is a number is a status."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        answer = answers.get(request.path, 404)
        return web.Response(status=answer) if isinstance(answer, int) else web.json_response(answer)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(app)
    await server.start_server(ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.port}", asked
    finally:
        await server.close()


@asynccontextmanager
async def source_of(url: str, **options: Any) -> AsyncIterator[TapiSource]:
    source = TapiSource(read_options({"endpoints": [url], **options}, "source"))
    try:
        yield source
    finally:
        await source.close()


@pytest.mark.asyncio
async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours = authority.issue_cert("client@example.org")
    ours.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    ca, cert = str(tmp_path / "ca.pem"), str(tmp_path / "client.pem")
    async with server_of({CONTAINER: STREAMS}, tls) as (url, _):
        async with source_of(url, tls={"ca": ca, "cert": cert}) as source:
            assert (await source.survey()).choices[0].id == "u"
        async with source_of(url, tls={"ca": ca}) as source:
            with pytest.raises((TlsError, UnreachableError)):
                await source.survey()


@pytest.mark.asyncio
async def test_requests_go_through_the_proxy() -> None:
    async with server_of({CONTAINER: STREAMS}) as (proxy, asked):
        with_login = proxy.replace("http://", "http://u:s3cret@")
        async with source_of("http://controller.invalid", proxy=with_login) as source:
            assert (await source.survey()).choices[0].id == "u"
    assert asked[0] == "http://controller.invalid/.well-known/host-meta"


@pytest.mark.asyncio
async def test_a_proxy_that_is_not_there_is_reported_without_its_password() -> None:
    async with source_of("http://h.invalid", proxy="http://u:s3cret@127.0.0.1:1") as source:
        with pytest.raises(UnreachableError, match="the proxy cannot be reached") as raised:
            await source.survey()
    assert "s3cret" not in f"{raised.value} {source}"


def info_at(url: str) -> StreamInfo:
    streams = url.rstrip("/") + CONTAINER
    details = {"uuid": "u", "address": "ws://h", "endpoint": url, "context": url}
    return StreamInfo(id="s", origin="o", kind="tapi", details={**details, "streams": streams})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answers",
    [
        {CONTAINER + "/available-stream=u": STREAMS},
        {CONTAINER + "/available-stream=u": {f"tapi-streaming:{k}": v for k, v in STREAMS.items()}},
        {CONTAINER: {"tapi-streaming:stream-context": STREAMS}},
    ],
)
async def test_the_state_is_read_where_it_is(answers: dict[str, Any]) -> None:
    async with server_of(answers) as (url, _), source_of(url) as source:
        assert await source.state(info_at(url)) is StreamState.PAUSED


@pytest.mark.asyncio
async def test_a_state_that_is_not_declared() -> None:
    empty: dict[str, Any] = {CONTAINER: {"available-stream": []}}
    async with server_of(empty) as (url, _), source_of(url) as source:
        with pytest.raises(StreamGoneError, match="not offered any more"):
            await source.state(info_at(url))
        with pytest.raises(NoStreamError, match="the provider offers no stream"):
            await source.discover()
    async with server_of({CONTAINER: 503}) as (url, _), source_of(url) as source:
        with pytest.raises(DiscoveryError, match="answered with 503") as raised:
            await source.state(info_at(url))
        assert raised.value.retriable


@pytest.mark.asyncio
async def test_a_server_that_never_answers_is_given_up() -> None:
    served: list[asyncio.StreamWriter] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, source_of(f"http://127.0.0.1:{port}", request_timeout_s=0.05) as source:
        with pytest.raises(UnreachableError, match="no answer in time"):
            await source.survey()
        await source.close()
        for writer in served:
            await asyncio.wait_for(writer.wait_closed(), 10)


@pytest.mark.asyncio
async def test_the_state_of_a_stream_has_a_limit_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked for every few seconds: where only the whole context shows it, it is unknown."""
    monkeypatch.setattr(tapi_source, "MAX_STREAMS_BYTES", 10_000)
    context = "/restconf/data/tapi-common:context"
    whole = {"tapi-common:context": {"x": "x" * 20_000, "tapi-streaming:stream-context": STREAMS}}
    async with server_of({context: whole}) as (url, _), source_of(url) as source:
        survey = await source.survey()
        assert [choice.id for choice in survey.choices] == ["u"]
        details = {
            "uuid": "u",
            "address": "ws://h",
            "endpoint": url,
            "context": survey.address.context,
            "streams": survey.address.streams,
        }
        info = StreamInfo(id="u", origin="o", kind="tapi", details=details)
        with pytest.raises(SourceError, match="more than 10000 bytes"):
            await source.state(info)
