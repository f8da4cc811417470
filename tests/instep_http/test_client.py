"""The client: bounds of time and size, TLS, proxies, retries, and that every error is ours."""

from __future__ import annotations

import asyncio
import random
import ssl
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from instep.config.secret import Secret
from instep.errors import SourceError, TlsError, UnreachableError
from instep_http.client import Answer, post_with_retries
from instep_http.tls import TlsOptions, client_context
from tests.instep_http.client_kit import answering, new_client, status
from tests.instep_http.raw_kit import RawPeer, raw_server
from tests.instep_http.test_urls import BAD

MIB = 1024 * 1024


@pytest.mark.asyncio
@pytest.mark.parametrize("found", [200, 204, 302, 404, 500])
async def test_every_status_is_an_answer(found: int) -> None:
    async with answering(status(found)) as there, new_client() as client:
        answer = await client.send("PUT", there.url, data=b"body", headers={"X-Own": "1"})
    assert (answer.status, str(answer.url)) == (found, there.url)
    assert there.came == [("PUT", "/in", b"body")]
    assert there.headers[0]["X-Own"] == "1"


@pytest.mark.asyncio
async def test_bodies_are_forms_and_json_too() -> None:
    async with answering(status(200)) as there, new_client() as client:
        await client.send("POST", there.url, data={"a": "b c"})
        await client.send("POST", there.url, json={"a": 1})
    assert [body for _, _, body in there.came] == [b"a=b+c", b'{"a": 1}']


@pytest.mark.asyncio
@pytest.mark.parametrize("url", [*BAD, "http://h.invalid:0x1/", "mailto:a"])
async def test_no_error_of_a_library_leaves_for_a_url_that_is_none(url: str) -> None:
    async with new_client() as client:
        with pytest.raises(SourceError, match="not a URL") as raised:
            await client.send("POST", url, data=b"x")
    assert not raised.value.retriable


@pytest.mark.asyncio
async def test_a_header_that_cannot_be_sent_is_an_error_that_does_not_show_it() -> None:
    async with answering(status(200)) as there, new_client() as client:
        with pytest.raises(SourceError) as raised:
            await client.send("GET", there.url, headers={"Authorization": "hush\r\nX: y"})
    assert "hush" not in f"{raised.value} {raised.value!r}"
    assert there.came == []


@pytest.mark.asyncio
async def test_errors_name_the_place_without_its_secrets() -> None:
    async with answering(status(200)) as there:
        url = URL(there.url).with_query(token="hush")
    async with new_client() as client:
        with pytest.raises(UnreachableError) as raised:
            await client.send("GET", url.with_user("hush"))
        assert raised.value.retriable
        assert raised.value.where == there.url
        with pytest.raises(UnreachableError, match="unknown host"):
            await client.send("GET", "http://h.invalid/")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("opening", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
)
async def test_an_answer_that_drips_is_given_up(opening: bytes, drip: bytes) -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.send(opening)
        while True:
            await peer.send(drip)
            await asyncio.sleep(0.02)

    async with raw_server(serve) as url, new_client(total_timeout_s=0.3) as client:
        with pytest.raises(UnreachableError):
            await client.send("GET", url)


@pytest.mark.asyncio
async def test_silence_is_given_up() -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.reader.read()

    async with raw_server(serve) as url, new_client(read_timeout_s=0.05) as client:
        with pytest.raises(UnreachableError, match="no answer in time"):
            await client.send("GET", url)


@pytest.mark.asyncio
async def test_a_body_without_end_is_refused_at_its_limit_or_cut_there() -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(b"[" * 65536)

    async with (
        raw_server(serve) as url,
        new_client(max_body_bytes=MIB, body_hint="max_body_bytes") as client,
    ):
        with pytest.raises(SourceError, match=f"an answer of more than {MIB} bytes") as raised:
            await client.send("GET", url)
        assert raised.value.hint == "max_body_bytes"
        with pytest.raises(SourceError, match="more than 1000 bytes"):
            await client.send("GET", url, max_body_bytes=1_000)
        assert len((await client.send("GET", url, cut=True)).body) == MIB


@pytest.mark.asyncio
async def test_an_error_is_always_cut() -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.send(b"HTTP/1.1 500 No\r\n\r\n")
        while True:
            await peer.send(b"x" * 65536)

    async with raw_server(serve) as url, new_client() as client:
        assert len((await client.send("GET", url)).body) == 64 * 1024


@pytest.mark.asyncio
@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15)])
async def test_a_decompression_bomb_is_refused_at_the_limit(encoding: str, bits: int) -> None:
    pack = zlib.compressobj(9, zlib.DEFLATED, bits)
    bomb = b"".join([*(pack.compress(bytes(MIB)) for _ in range(512)), pack.flush()])

    async def serve(peer: RawPeer) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n"
        await peer.send(f"{head}Content-Length: {len(bomb)}\r\n\r\n".encode() + bomb)

    async with raw_server(serve) as url, new_client(max_body_bytes=4 * MIB) as client:
        tracemalloc.start()
        try:
            with pytest.raises(SourceError, match="an answer of more than 4194304 bytes"):
                await client.send("GET", url)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 64 * MIB


@pytest.mark.asyncio
async def test_cookies_are_kept_where_wanted_and_do_not_pile_up() -> None:
    def answers(_: web.BaseRequest, count: int) -> web.Response:
        response = web.Response()
        for n in range(30):
            response.set_cookie(f"c{count}-{n}", "x")
        return response

    async with answering(answers) as there:
        async with new_client(cookies=True) as client:
            for _ in range(10):
                await client.send("GET", there.url)
        sizes = [len(headers.get("Cookie", "")) for headers in there.headers]
        assert sizes[0] == 0 < sizes[1]
        assert max(sizes) < 2_000
        there.headers.clear()
        async with new_client() as client:
            for _ in range(2):
                await client.send("GET", there.url)
        assert not any("Cookie" in headers for headers in there.headers)


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
    async with answering(status(200), tls) as there:
        async with new_client(client_context(TlsOptions(ca=ca, cert=cert), "tls")) as client:
            assert (await client.send("GET", there.url)).status == 200
        async with new_client(client_context(TlsOptions(ca=ca), "tls")) as client:
            with pytest.raises((TlsError, UnreachableError)):
                await client.send("GET", there.url)
        async with new_client(tls_hint="give the issuer") as client:
            with pytest.raises(TlsError) as raised:
                await client.send("GET", there.url)
            assert raised.value.hint == "give the issuer"
        async with new_client(client_context(TlsOptions(verify="off", cert=cert), "t")) as client:
            assert (await client.send("GET", there.url)).status == 200


@pytest.mark.asyncio
async def test_requests_go_through_the_proxy() -> None:
    async with answering(status(200)) as proxy:
        secret = Secret(proxy.url.replace("http://", "http://u:s3cret@"))
        async with new_client(proxy=secret) as client:
            assert (await client.send("GET", "http://h.invalid/path")).status == 200
    assert proxy.headers[0]["Host"] == "h.invalid"
    assert "Proxy-Authorization" in proxy.headers[0]


@pytest.mark.asyncio
async def test_a_proxy_that_is_not_there_is_named_without_its_password() -> None:
    async with new_client(proxy=Secret("http://u:s3cret@127.0.0.1:1")) as client:
        with pytest.raises(UnreachableError, match="the proxy cannot be reached") as raised:
            await client.send("GET", "http://h.invalid/")
    assert "s3cret" not in f"{raised.value} {raised.value!r}"


@pytest.mark.asyncio
async def test_it_can_be_used_again_after_it_was_closed() -> None:
    async with answering(status(200)) as there:
        client = new_client()
        for _ in range(2):
            assert (await client.send("GET", there.url)).status == 200
            await client.close()
            await client.close()


async def posted(url: str, attempts: int) -> Answer:
    async with new_client() as client:
        return await post_with_retries(
            client, url, b"x", {}, attempts=attempts, rng=random.Random(1), now=lambda: 0.0
        )


@pytest.mark.asyncio
async def test_later_is_tried_again_a_few_times() -> None:
    async with answering(status(503, 429, 202)) as there:
        assert (await posted(there.url, 3)).status == 202
    assert [body for _, _, body in there.came] == [b"x"] * 3
    async with answering(status(503)) as there:
        assert (await posted(there.url, 2)).status == 503
    assert len(there.came) == 2
    async with answering(status(400)) as there:
        assert (await posted(there.url, 2)).status == 400
    assert len(there.came) == 1


@pytest.mark.asyncio
async def test_who_is_away_is_tried_again_and_what_cannot_be_sent_is_not() -> None:
    came = 0

    async def serve(peer: RawPeer) -> None:
        nonlocal came
        came += 1
        peer.writer.transport.abort()

    call: Callable[[str], Awaitable[Answer]] = lambda url: posted(url, 2)  # noqa: E731
    async with raw_server(serve) as url:
        with pytest.raises(UnreachableError):
            await call(url)
    assert came == 2
    with pytest.raises(SourceError, match="not a URL"):
        await call("http://[")


@pytest.mark.parametrize(
    ("stated", "wait_s"),
    [
        ("7", 7.0),
        ("", 0.0),
        ("-5", 0.0),
        ("soon", 0.0),
        ("9" * 400, 86_400.0),
        (formatdate(1_060, usegmt=True), 60.0),
        (formatdate(10, usegmt=True), 0.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0.0),
    ],
)
def test_when_to_come_again(stated: str, wait_s: float) -> None:
    assert answer_with(stated).retry_after_s(1_000.0) == wait_s


@given(st.text())
def test_any_text_is_a_time_or_none(stated: str) -> None:
    assert 0.0 <= answer_with(stated).retry_after_s(1_000.0) <= 86_400.0


def answer_with(retry_after: str) -> Answer:
    headers = CIMultiDictProxy(CIMultiDict({"Retry-After": retry_after}))
    return Answer(URL("http://h"), 503, headers, b"")
