"""Delivery by POST: what counts as taken, what is tried again, and which redirects are followed."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
from aiohttp import web
from yarl import URL

from instep.errors import SourceError, TlsError, UnreachableError
from instep_didcomm.http.client import EnvelopeClient, RefusedByPeerError
from instep_didcomm.wire.envelope import Form

Answers = Callable[[web.BaseRequest, int], web.Response]


class Peer:
    def __init__(self) -> None:
        self.came: list[tuple[str, str, bytes]] = []
        self.url = ""


@asynccontextmanager
async def peer(answers: Answers, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """A server that answers its n-th request as told."""
    known = Peer()

    async def handle(request: web.BaseRequest) -> web.Response:
        known.came.append((request.path, request.headers["Content-Type"], await request.read()))
        return answers(request, len(known.came))

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    scheme = "https" if tls else "http"
    known.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/in"
    try:
        yield known
    finally:
        await runner.cleanup()


def new_client(tls: ssl.SSLContext | None = None, attempts: int = 3) -> EnvelopeClient:
    return EnvelopeClient(tls or ssl.create_default_context(), 5, attempts, random.Random(1))


def answer(*statuses: int, **headers: str) -> Answers:
    return lambda _, count: web.Response(
        status=statuses[min(count, len(statuses)) - 1], headers=headers
    )


@pytest.mark.asyncio
async def test_any_2xx_is_taken_and_the_media_type_says_the_form() -> None:
    for status in (200, 202, 204):
        async with peer(answer(status)) as there, new_client() as client:
            await client.deliver(there.url, b"sealed", Form.ENCRYPTED)
        assert there.came == [("/in", "application/didcomm-encrypted+json", b"sealed")]


@pytest.mark.asyncio
async def test_later_is_tried_again_a_few_times() -> None:
    async with peer(answer(503, 429, 202)) as there, new_client() as client:
        await client.deliver(there.url, b"x", Form.PLAIN)
    assert len(there.came) == 3
    async with peer(answer(503)) as there, new_client(attempts=2) as client:
        with pytest.raises(RefusedByPeerError, match="503") as caught:
            await client.deliver(there.url, b"x", Form.PLAIN)
    assert len(there.came) == 2
    assert caught.value.retriable


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [400, 403, 410, 413, 301, 302, 303, 308])
async def test_a_refusal_is_final_and_no_other_redirect_is_followed(status: int) -> None:
    async with peer(answer(status, Location="/other")) as there, new_client() as client:
        with pytest.raises(RefusedByPeerError, match=str(status)) as caught:
            await client.deliver(there.url, b"x", Form.PLAIN)
    assert [path for path, _, _ in there.came] == ["/in"]
    assert not caught.value.retriable


@pytest.mark.asyncio
async def test_307_is_followed_with_the_body() -> None:
    def answers(request: web.BaseRequest, _: int) -> web.Response:
        if request.path == "/in":
            return web.Response(status=307, headers={"Location": "/there"})
        return web.Response(status=202)

    async with peer(answers) as there, new_client() as client:
        await client.deliver(there.url, b"x", Form.PLAIN)
    assert [(path, body) for path, _, body in there.came] == [("/in", b"x"), ("/there", b"x")]


@pytest.mark.asyncio
async def test_redirects_in_a_circle_end() -> None:
    async with peer(answer(307, Location="/in")) as there, new_client() as client:
        with pytest.raises(RefusedByPeerError, match="too many"):
            await client.deliver(there.url, b"x", Form.PLAIN)
    assert len(there.came) == 4


@pytest.mark.asyncio
async def test_another_host_gets_only_what_is_encrypted() -> None:
    async with (
        new_client() as client,
        peer(answer(202)) as other,
        peer(answer(307, Location=other.url)) as there,
    ):
        for form in (Form.PLAIN, Form.SIGNED):
            with pytest.raises(RefusedByPeerError, match="not encrypted"):
                await client.deliver(there.url, b"x", form)
        assert other.came == []
        await client.deliver(there.url, b"x", Form.ENCRYPTED)
        assert len(other.came) == 1


@pytest.mark.asyncio
async def test_https_is_verified_and_never_left() -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with peer(answer(202)) as weak:
        async with peer(answer(307, Location=weak.url), tls) as there:
            async with new_client() as client:
                with pytest.raises(TlsError):
                    await client.deliver(there.url, b"x", Form.ENCRYPTED)
            async with new_client(trusting) as client:
                with pytest.raises(RefusedByPeerError, match="from https"):
                    await client.deliver(there.url, b"x", Form.ENCRYPTED)
        assert weak.came == []


@pytest.mark.asyncio
async def test_nobody_there_is_an_error_that_may_pass() -> None:
    async with peer(answer(202)) as there:
        url = there.url
    async with new_client(attempts=2) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.deliver(url, b"x", Form.PLAIN)
    assert caught.value.retriable


@pytest.mark.asyncio
async def test_a_query_is_not_told_in_errors() -> None:
    async with peer(answer(400)) as there, new_client() as client:
        with pytest.raises(SourceError) as caught:
            await client.deliver(str(URL(there.url).with_query(token="x1y2")), b"x", Form.PLAIN)
    assert "x1y2" not in str(caught.value)
