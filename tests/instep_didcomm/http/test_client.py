"""Delivery by POST: what counts as taken, what is tried again, and where an envelope may go."""

from __future__ import annotations

import random
import ssl

import pytest
from aiohttp import web
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.runtime.retry import Environment
from instep_didcomm.http.client import EnvelopeClient, PeerEndpoint, RefusedByPeerError
from instep_didcomm.wire.envelope import Form
from tests.instep_http.client_kit import answering, status


def new_client(attempts: int = 3, *, private_endpoints: bool = False) -> EnvelopeClient:
    environment = Environment(rng=random.Random(1))
    tls = ssl.create_default_context()
    return EnvelopeClient(tls, 5, attempts, environment, private_endpoints=private_endpoints)


def configured(url: URL | str) -> PeerEndpoint:
    return PeerEndpoint(str(url), configured=True)


@pytest.mark.asyncio
async def test_any_2xx_is_taken_and_the_media_type_says_the_form() -> None:
    for code in (200, 202, 204):
        async with answering(status(code)) as there, new_client() as client:
            await client.deliver(configured(there.url), b"sealed", Form.ENCRYPTED)
        assert there.came == [("POST", "/in", b"sealed")]
        assert there.headers[0]["Content-Type"] == "application/didcomm-encrypted+json"


@pytest.mark.asyncio
async def test_later_is_tried_again_a_few_times() -> None:
    async with answering(status(503, 429, 202)) as there, new_client() as client:
        await client.deliver(configured(there.url), b"x", Form.PLAIN)
    assert len(there.came) == 3
    async with answering(status(503)) as there, new_client(attempts=2) as client:
        with pytest.raises(RefusedByPeerError, match="503") as caught:
            await client.deliver(configured(there.url), b"x", Form.PLAIN)
    assert len(there.came) == 2
    assert caught.value.retriable


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [400, 403, 410, 413, 301, 302, 303, 308])
async def test_a_refusal_is_final_and_no_other_redirect_is_followed(code: int) -> None:
    async with answering(status(code, Location="/other")) as there, new_client() as client:
        with pytest.raises(RefusedByPeerError, match=str(code)) as caught:
            await client.deliver(
                configured(URL(there.url).with_query(token="x1y2")), b"x", Form.PLAIN
            )
    assert [path for _, path, _ in there.came] == ["/in"]
    assert not caught.value.retriable
    assert "x1y2" not in str(caught.value)


@pytest.mark.asyncio
async def test_another_host_gets_only_what_is_encrypted() -> None:
    async with (
        new_client() as client,
        answering(status(202)) as other,
        answering(status(307, Location=other.url)) as there,
    ):
        for form in (Form.PLAIN, Form.SIGNED):
            with pytest.raises(UnreachableError, match="not encrypted"):
                await client.deliver(configured(there.url), b"x", form)
        assert other.came == []
        await client.deliver(configured(there.url), b"x", Form.ENCRYPTED)
        assert len(other.came) == 1


@pytest.mark.asyncio
async def test_what_a_document_states_is_posted_to_where_it_is_public() -> None:
    async with answering(status(202)) as there:
        stated = PeerEndpoint(there.url, configured=False)
        async with new_client() as client:
            with pytest.raises(SourceError, match="not a public one") as caught:
                await client.deliver(stated, b"x", Form.ENCRYPTED)
            assert not caught.value.retriable
        assert there.came == []
        async with new_client(private_endpoints=True) as client:
            await client.deliver(stated, b"x", Form.ENCRYPTED)
        assert len(there.came) == 1


@pytest.mark.asyncio
async def test_a_peer_cannot_choose_a_query_by_a_redirect() -> None:
    came: list[str] = []

    def take(request: web.BaseRequest, _: int) -> web.Response:
        came.append(request.path_qs)
        return web.Response(status=202)

    async with (
        answering(take) as there,
        answering(status(307, Location=f"{there.url}?delete=all")) as redirecting,
        new_client(private_endpoints=True) as client,
    ):
        stated = PeerEndpoint(redirecting.url, configured=False)
        await client.deliver(stated, b"x", Form.ENCRYPTED)
        await client.deliver(configured(redirecting.url), b"x", Form.ENCRYPTED)
    assert came == ["/in", "/in?delete=all"]


@pytest.mark.asyncio
async def test_a_reply_to_a_stated_endpoint_is_posted_once_and_not_often() -> None:
    async with answering(status(503)) as there, new_client(private_endpoints=True) as client:
        stated = PeerEndpoint(there.url, configured=False)
        for _ in range(8):
            with pytest.raises(SourceError):
                await client.deliver(stated, b"x", Form.PLAIN)
    assert len(there.came) == 5


@pytest.mark.asyncio
async def test_after_the_end_nothing_is_sent() -> None:
    async with answering(status(202)) as there:
        async with new_client() as client:
            pass
        with pytest.raises(UnreachableError, match="has ended"):
            await client.deliver(configured(there.url), b"x", Form.PLAIN)
        assert there.came == []
