"""Rules for HTTP, each on plain sockets."""

from __future__ import annotations

import asyncio
import email
import gzip
import json
import re

import pytest

from instep.testing.relay import (
    AbsoluteTarget,
    AnswerLost,
    Buffered,
    Chunked,
    DuplicateRequest,
    ErrorMidStream,
    ExpectContinue,
    Forwarded,
    GatewayPage,
    HeaderCase,
    HostRewritten,
    HtmlPage,
    Http10,
    HttpRule,
    KeepAliveRace,
    LoginRedirect,
    Multipart,
    Recompressed,
    RefreshedResend,
    Relay,
    Reordered,
    RetryHeaders,
    ServiceUnavailable,
    TooManyRequests,
    Transcoded,
    TruncatedBody,
)
from tests.instep.testing.relay.sockets_kit import (
    Peer,
    Pipe,
    Serve,
    dial,
    http_client,
    http_server,
    relaying,
    serving,
)

pytestmark = pytest.mark.asyncio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Own: 1\r\n\r\n0123456789"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SOAP = '<?xml version="1.0"?><E><a:MessageID xmlns:a="u">1</a:MessageID>Größe €</E>'


def post(body: bytes | str = b"abc", kind: str = "text/xml; charset=utf-8") -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    head = f"POST /rm HTTP/1.1\r\nHost: a:1\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}"
    return f"{head}\r\n\r\n".encode() + raw


GET = b"GET / HTTP/1.1\r\nHost: a:1\r\nAccept-Encoding: gzip\r\n\r\n"


async def seen(rule: HttpRule, request: bytes) -> tuple[list[str], bytes]:
    """What the server sees of a request, whose answer arrives whole."""
    async with http_client(OK, rule) as (client, peer, _):
        await client.send(request)
        assert (await client.message())[1] == b"0123456789"
        assert rule.played
        [found] = peer.requests
        return found


def value(head: list[str], name: str) -> str:
    return next(line.partition(":")[2].strip() for line in head if line.startswith(f"{name}:"))


@pytest.mark.parametrize(
    ("rule", "status", "header"),
    [
        (HtmlPage(), "HTTP/1.1 200 ", "Content-Type: text/html; charset=utf-8"),
        (GatewayPage(), "HTTP/1.1 502 ", "Content-Type: text/html; charset=utf-8"),
        (LoginRedirect("http://x/y"), "HTTP/1.1 302 ", "Location: http://x/y"),
        (ServiceUnavailable(7), "HTTP/1.1 503 ", "Retry-After: 7"),
        (TooManyRequests(7), "HTTP/1.1 429 ", "Retry-After: 7"),
    ],
)
async def test_a_proxy_answers_itself(rule: HttpRule, status: str, header: str) -> None:
    async with http_client(OK, rule) as (client, peer, relay):
        await client.send(post())
        head, _ = await client.message()
        assert head[0].startswith(status)
        assert header in head
        assert (peer.connections, rule.played) == (0, 1)
        relay.heal()
        await client.send(post())
        assert (await client.message())[1] == b"0123456789"


async def test_a_kept_connection_is_closed_when_its_next_request_comes() -> None:
    rule = KeepAliveRace()
    async with http_client(OK, rule) as (client, peer, _):
        await client.send(post())
        await client.message()
        await client.send(post())
        assert await client.rest() == b""
        assert (len(peer.requests), rule.played) == (1, 1)


async def test_the_answer_is_lost_and_the_request_carried_out() -> None:
    rule = AnswerLost()
    async with http_client(OK, rule) as (client, peer, _):
        await client.send(post())
        assert await client.rest() == b""
        assert (len(peer.requests), rule.played) == (1, 1)


async def test_a_request_is_delivered_twice() -> None:
    async with http_client(OK, DuplicateRequest()) as (client, peer, _):
        await client.send(post())
        assert (await client.message())[1] == b"0123456789"
        assert len(peer.requests) == 2
        assert peer.requests[0] == peer.requests[1]


async def test_the_second_delivery_has_other_headers_of_http() -> None:
    async with http_client(OK, RetryHeaders()) as (client, peer, _):
        await client.send(post())
        await client.message()
        (first, body), (second, again) = peer.requests
        assert body == again
        assert set(first) < set(second)
        assert value(second, "X-Envoy-Attempt-Count") == "2"


async def test_the_second_delivery_has_other_headers_within_the_message() -> None:
    message = {"id": "1", "created_time": 5, "body": {"a": 1}}
    async with http_client(OK, RefreshedResend()) as (client, peer, _):
        await client.send(post(json.dumps(message), "application/didcomm-plain+json"))
        await client.message()
        [first, second] = [json.loads(body) for _, body in peer.requests]
        assert first == message
        assert second == message | {"created_time": 6, "sent_count": 2}
    async with http_client(OK, RefreshedResend()) as (client, peer, _):
        await client.send(post(SOAP))
        await client.message()
        [first, second] = [body.decode() for _, body in peer.requests]
        assert first == SOAP
        assert re.sub("urn:uuid:[^<]*", "1", second) == SOAP != second


async def test_a_request_is_overtaken() -> None:
    rule = Reordered(5.0, most=1)
    peer = Peer()
    async with (
        serving(http_server(lambda _h, _b: OK, peer), peer),
        Relay(peer.address, [rule]) as relay,
        dial(relay.address) as one,
        dial(relay.address) as two,
    ):
        await one.send(post(b"first"))
        assert await one.silent()
        await two.send(post(b"second"))
        await two.message()
        await one.message()
        assert [body for _, body in peer.requests] == [b"second", b"first"]
    assert rule.played == 1


async def test_a_request_that_nothing_overtakes_goes_on_and_is_not_counted() -> None:
    rule = Reordered(0.01)
    async with http_client(OK, rule) as (client, _, _):
        await client.send(post())
        await client.message()
    assert rule.played == 0


@pytest.mark.parametrize("answer", [b"HTTP/1.1 100 Continue\r\n\r\n", b""])
async def test_the_body_waits_for_100(answer: bytes) -> None:
    waited = asyncio.Event()

    async def serve(pipe: Pipe) -> None:
        head = await pipe.until(b"\r\n\r\n")
        assert b"Expect: 100-continue\r\n" in head
        assert await pipe.silent()
        waited.set()
        if answer:
            await pipe.send(answer)
            assert await pipe.read(3) == b"abc"
        await pipe.send(OK)

    rule = ExpectContinue()
    async with relaying(serve, rule) as (_, relay), dial(relay.address) as client:
        await client.send(post())
        assert (await client.message())[1] == b"0123456789"
        assert waited.is_set()
    assert rule.played == 1


async def test_a_body_in_another_charset_says_so() -> None:
    head, body = await seen(Transcoded(), post(SOAP))
    assert body.decode("latin-1") == SOAP.replace("€", "&#8364;")
    assert value(head, "Content-Type") == "text/xml; charset=ISO-8859-1"
    assert value(head, "Content-Length") == str(len(body))


@pytest.mark.parametrize("attachment", [False, True])
async def test_an_envelope_is_the_root_of_a_multipart(attachment: bool) -> None:
    head, body = await seen(Multipart(attachment=attachment), post(SOAP))
    kind = value(head, "Content-Type")
    read = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    parts = read.get_payload()
    assert isinstance(parts, list)
    assert len(parts) == 1 + attachment
    root = parts[0]
    assert isinstance(root, email.message.Message)
    assert root.get_payload(decode=True) == SOAP.encode()
    assert root["Content-ID"] == read.get_param("start")
    assert read.get_param("start-info") == "text/xml"


async def test_bodies_come_in_small_chunks() -> None:
    raw: list[bytes] = []

    async def serve(pipe: Pipe) -> None:
        await pipe.until(b"Transfer-Encoding: chunked\r\n\r\n")
        raw.append(await pipe.until(b"\r\n0\r\n\r\n"))
        await pipe.send(OK)

    async with relaying(serve, Chunked(2)) as (_, relay), dial(relay.address) as client:
        await client.send(post())
        head = await client.until(b"\r\n\r\n")
        assert b"Content-Length" not in head
        assert await client.until(b"\r\n0\r\n\r\n") == (
            b"2\r\n01\r\n2\r\n23\r\n2\r\n45\r\n2\r\n67\r\n2\r\n89\r\n0\r\n\r\n"
        )
    assert raw == [b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"]


async def test_bodies_are_compressed() -> None:
    async with http_client(OK, Recompressed()) as (client, peer, _):
        await client.send(post().replace(b"Host", b"Accept-Encoding: gzip\r\nHost"))
        head, body = await client.message()
        assert value(head, "Content-Encoding") == "gzip"
        assert gzip.decompress(body) == b"0123456789"
        head, body = peer.requests[0]
        assert value(head, "Content-Encoding") == "gzip"
        assert gzip.decompress(body) == b"abc"


async def test_the_case_of_headers_changes() -> None:
    async with http_client(OK, HeaderCase()) as (client, peer, _):
        await client.send(post())
        assert "X-OWN: 1" in (await client.message())[0]
        assert "host: a:1" in peer.requests[0][0]


async def test_everything_becomes_http_1_0() -> None:
    chunked = OK.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked")
    chunked = chunked.replace(b"0123456789", b"a\r\n0123456789\r\n0\r\n\r\n")
    async with http_client(chunked, Http10()) as (client, peer, _):
        await client.send(post())
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 ")
        assert b"chunked" not in head
        assert body == b"0123456789"
        assert peer.requests[0][0][0] == "POST /rm HTTP/1.0"
        assert "Connection: close" in peer.requests[0][0]


async def test_the_target_is_absolute() -> None:
    head, _ = await seen(AbsoluteTarget(), post())
    assert head[0] == "POST http://a:1/rm HTTP/1.1"


async def test_host_is_the_servers_name() -> None:
    head, _ = await seen(HostRewritten("backend:8080"), post())
    assert value(head, "Host") == "backend:8080"
    assert value(head, "X-Forwarded-Host") == "a:1"


async def test_headers_of_proxies_are_added() -> None:
    head, _ = await seen(Forwarded(), post())
    assert value(head, "Host") == "a:1"
    assert {"X-Forwarded-For", "Forwarded", "Via"} <= {line.partition(":")[0] for line in head}


def events(*pieces: bytes, go_on: asyncio.Event | None = None) -> Serve:
    async def serve(pipe: Pipe) -> None:
        await pipe.message()
        await pipe.send(EVENTS)
        for piece in pieces:
            await pipe.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0.01)
        if go_on is not None:
            await go_on.wait()
        await pipe.send(b"0\r\n\r\n")

    return serve


async def test_a_stream_passes_piece_by_piece_and_ends_with_its_client() -> None:
    served = events(b"ab", b"cd", go_on=asyncio.Event())
    async with relaying(served, HttpRule()) as (_, relay), dial(relay.address) as client:
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        assert await client.until(b"cd\r\n") == b"2\r\nab\r\n2\r\ncd\r\n"
        client.writer.write_eof()
        assert await client.rest() == b""


async def test_a_stream_is_held_back_until_it_is_large() -> None:
    go_on = asyncio.Event()
    served, rule = events(b"ab", b"cd", b"ef", go_on=go_on), Buffered(4)
    async with relaying(served, rule) as (_, relay), dial(relay.address) as client:
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        assert await client.until(b"cd\r\n") == b"4\r\nabcd\r\n"
        assert await client.silent()
        go_on.set()
        assert await client.until(b"ef\r\n") == b"2\r\nef\r\n"
    assert rule.played == 1


async def test_a_body_is_shorter_than_it_says() -> None:
    rule = TruncatedBody()
    async with http_client(OK, rule) as (client, _, _):
        await client.send(GET)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert b"Content-Length: 10" in head
        assert body == b"01234"
    assert rule.played == 1


async def test_the_page_of_an_error_stands_within_a_body() -> None:
    async with http_client(OK, ErrorMidStream()) as (client, _, _):
        await client.send(GET)
        head, body = await client.message()
        assert head[0] == "HTTP/1.1 200 OK"
        assert re.match(rb"01234<!DOCTYPE html>", body)
    served = events(b"ab", b"cd", b"ef")
    async with relaying(served, ErrorMidStream(1)) as (_, relay), dial(relay.address) as client:
        await client.send(GET)
        assert b"ab" in (came := await client.rest())
        assert b"c<!DOCTYPE" in came
        assert came.endswith(b"\r\n0\r\n\r\n")
