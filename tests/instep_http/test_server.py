"""The server: what it answers itself, and that nobody can hold it up."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType
from yarl import URL

from instep.errors import SourceError
from instep_http.server import BoundedServer, MessageSocket, Request, Response, problem
from tests.instep_http.server_kit import (
    UPGRADE,
    answer,
    closed,
    connected,
    echo,
    post,
    request,
    serving,
)


async def read_all(_: Request, socket: MessageSocket) -> None:
    async for _body in socket:
        pass


@pytest.mark.asyncio
async def test_a_request_is_handed_over_as_a_whole() -> None:
    seen: list[Request] = []

    async def handler(given: Request) -> Response:
        seen.append(given)
        return Response(202, b"", {"X-Own": "1"})

    async with serving(handler) as server, connected(server) as (reader, writer):
        writer.write(request(b"body", "X-Theirs: 2", path="/in?q=1"))
        status, headers, _ = await answer(reader)
    assert (status, headers["x-own"]) == (202, "1")
    [one] = seen
    assert (one.method, one.path, one.body, one.peer) == ("POST", "/in", b"body", "127.0.0.1")
    assert one.headers["x-theirs"] == "2"
    assert not one.secure


@pytest.mark.asyncio
async def test_other_paths_and_methods_are_refused_with_the_reason() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(request(path="/other"))
        status, headers, body = await answer(reader)
        assert (status, headers["content-type"]) == (404, "application/problem+json")
        assert json.loads(body)["title"] == "not-found"
        writer.write(request(method="PUT"))
        status, headers, _ = await answer(reader)
        assert (status, headers["allow"]) == (405, "POST")
        assert server.refused == {"not-found": 1, "method": 1}


@pytest.mark.asyncio
async def test_paths_below_are_served_where_that_is_wanted() -> None:
    async def tell(asked: Request) -> Response:
        return Response(200, asked.path.encode())

    async with serving(tell, below=True) as server, connected(server) as (reader, writer):
        for path in ("/in", "/in/a", "/in/a/b"):
            writer.write(request(path=path))
            status, _, body = await answer(reader)
            assert (status, body) == (200, path.encode())
        for path in ("/", "/inside", "/other/in/a"):
            writer.write(request(path=path))
            assert (await answer(reader))[0] == 404


@pytest.mark.asyncio
async def test_refusals_are_made_as_the_adapter_wants() -> None:
    def fault(status: int, code: str, detail: str) -> Response:
        return Response(status, f"<{code}>{detail}".encode(), {"Content-Type": "text/xml"})

    async with serving(refuse=fault, methods=frozenset({"PUT"})) as server:
        status, body = await post(server.address)
        assert (status, body[:8]) == (405, b"<method>")


@pytest.mark.asyncio
async def test_a_handler_that_raises_is_answered_with_500_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(_: Request) -> Response:
        raise LookupError("hidden")

    async with serving(handler) as server, connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(request())
            status, _, body = await answer(reader)
            assert status == 500
            assert b"hidden" not in body
    # Not `caplog.text`: a logger of PySpark, once made, turns the lines of pytest into JSON.
    assert [repr(one.exc_info[1]) for one in caplog.records if one.exc_info] == [
        "LookupError('hidden')"
    ] * 2


@pytest.mark.asyncio
async def test_what_is_no_request_is_answered_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        for raw in (b"\x16\x03\x01 nonsense\r\n\r\n", b"POST /in HTTP/1.1\r\nA b\r\n\r\n"):
            async with connected(server) as (reader, writer):
                writer.write(raw)
                status, _, body = await answer(reader)
                assert (status, json.loads(body)["title"]) == (400, "bad-request")
                assert await closed(reader) == b""
        assert server.refused == {"bad-request": 2}
    assert not [one for one in caplog.records if one.exc_info]
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.asyncio
async def test_a_body_that_hides_its_length_is_bounded() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 1_000

    async with serving(max_body_bytes=2_000) as server:
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.address, data=chunks()) as response,
        ):
            assert response.status == 413
        assert (await post(server.address, b"x" * 2_001))[0] == 413
        bomb = gzip.compress(b" " * 10_000_000)
        assert (await post(server.address, bomb, **{"Content-Encoding": "gzip"}))[0] == 413
        small = gzip.compress(b"small")
        found = await post(server.address, small, **{"Content-Encoding": "gzip"})
        assert found == (200, b"small")


@pytest.mark.asyncio
async def test_a_body_that_is_cut_off_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        for _ in range(3):
            async with connected(server) as (_, writer):
                writer.write(request(b"x" * 100)[:-50])
                await writer.drain()
                while not server.connections:
                    await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while server.connections:
                await asyncio.sleep(0.01)
        assert server.refused == {"unreadable": 3}
    assert [one.name for one in caplog.records if one.levelno >= logging.ERROR] == []


@pytest.mark.asyncio
async def test_a_body_that_cannot_be_decoded_ends_the_connection() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(request(b"no gzip at all", "Content-Encoding: gzip"))
        status, _, body = await answer(reader)
        assert (status, json.loads(body)["title"]) == (400, "unreadable")
        assert await closed(reader) == b""


@pytest.mark.asyncio
@pytest.mark.parametrize("start", [b"", b"POST /in HT", b"POST /in HTTP/1.1\r\nHost: x\r\nA: "])
async def test_a_slow_head_ends_the_connection(start: bytes) -> None:
    async with serving(head_timeout_s=0.1) as server, connected(server) as (reader, writer):
        writer.write(start)
        assert await closed(reader) == b""
        assert server.refused == {"slow-head": 1}


@pytest.mark.asyncio
async def test_a_second_head_on_a_connection_has_to_be_quick_too() -> None:
    async with serving(head_timeout_s=0.2) as server, connected(server) as (reader, writer):
        writer.write(request())
        assert (await answer(reader))[0] == 200
        writer.write(b"POST /i")
        assert await closed(reader) == b""


@pytest.mark.asyncio
async def test_a_slow_body_is_answered_with_408() -> None:
    async with serving(body_timeout_s=0.1) as server, connected(server) as (reader, writer):
        writer.write(b"POST /in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert (await closed(reader)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.asyncio
@pytest.mark.parametrize("line", ["X: " + "y" * 2_000, "\r\n".join(f"X{n}: y" for n in range(200))])
async def test_a_head_is_bounded(line: str) -> None:
    async with serving(max_head_bytes=1_000) as server, connected(server) as (reader, writer):
        writer.write(request(b"x", line))
        assert (await answer(reader))[0] == 400


@pytest.mark.asyncio
async def test_an_idle_connection_ends_and_one_in_use_does_not() -> None:
    async with serving(idle_timeout_s=0.5) as server, connected(server) as (reader, writer):
        for _ in range(6):
            writer.write(request())
            assert (await answer(reader))[0] == 200
            await asyncio.sleep(0.15)
        assert await closed(reader) == b""


@pytest.mark.asyncio
async def test_connections_are_bounded_and_free_again() -> None:
    async with serving(max_connections=2) as server:
        url = URL(server.address)
        held = [await asyncio.open_connection(url.host, url.port) for _ in range(2)]
        for reader, writer in held:
            writer.write(request())
            assert (await answer(reader))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await post(server.address)
        assert server.refused["too-many"]
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(10):
            while server.connections:
                await asyncio.sleep(0.01)
        assert (await post(server.address))[0] == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "sent", [b"", b"POST /in HTTP/1.1\r\nHo", request(path="/other"), UPGRADE, request()[:-1]]
)
async def test_who_only_holds_a_place_leaves_it_to_who_sends(sent: bytes) -> None:
    """Silent, half-sent, refused and WebSocket connections; not one that was of use."""
    async with serving(max_connections=2, websocket=count_messages) as server:
        async with connected(server) as (proven, to_proven), connected(server) as (held, to_held):
            to_proven.write(request())
            assert (await answer(proven))[0] == 200
            to_held.write(sent)
            async with asyncio.timeout(10):
                while server.connections < 2:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            for _ in range(3):
                assert (await post(server.address))[0] == 200
            await closed(held)
            to_proven.write(request())
            assert (await answer(proven))[0] == 200
        assert server.refused["displaced"] == 1


async def count_messages(_: Request, socket: MessageSocket) -> None:
    async for _message in socket:
        socket.accepted()


@pytest.mark.asyncio
async def test_a_thousand_silent_connections_keep_no_sender_out() -> None:
    async with serving(max_connections=50) as server:
        url = URL(server.address)
        silent = [await asyncio.open_connection(url.host, url.port) for _ in range(200)]
        for _ in range(20):
            assert (await post(server.address))[0] == 200
            silent.append(await asyncio.open_connection(url.host, url.port))
        assert server.refused["too-many"] == 0
        assert server.connections <= 50
        for _, writer in silent:
            writer.close()


@pytest.mark.asyncio
async def test_an_address_in_use_is_an_error() -> None:
    async with serving() as server:
        other = BoundedServer(URL(server.address), echo)
        with pytest.raises(SourceError, match="cannot listen"):
            await other.start()
        await other.stop()
        assert other.address == ""


@pytest.mark.asyncio
async def test_it_listens_at_all_addresses_of_a_name() -> None:
    async with serving(listen="http://localhost:0/in") as server:
        assert (await post(server.address))[0] == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("lines", "host", "status"),
    [
        ((), "127.0.0.1:9555", 200),
        ((), "[::1]:9555", 200),
        ((), "LocalHost", 200),
        ((), "evil.example", 403),
        ((), "evil.example:9555", 403),
        ((), "localhost.evil.example", 403),
        ((), "10.0.0.1", 403),
        ((), "ours.example:1", 200),
        (("Host: evil.example",), "localhost", (400, 403)),
        (("Origin: https://evil.example",), "localhost", 403),
        (("Origin: null",), "localhost", 403),
        (("Origin: https://app.example",), "localhost", 200),
        (("Origin: https://app.example", "Origin: https://evil.example"), "localhost", (400, 403)),
    ],
)
async def test_web_pages_and_rebound_names_are_refused(
    lines: tuple[str, ...], host: str, status: int | tuple[int, int]
) -> None:
    origins, hosts = frozenset({"https://app.example"}), frozenset({"ours.example"})
    async with (
        serving(allow_origins=origins, allow_hosts=hosts) as server,
        connected(server) as (reader, writer),
    ):
        writer.write(request(b"x", *lines, host=host))
        found, _, _ = await answer(reader)
        assert found in (status if isinstance(status, tuple) else (status,))


@pytest.mark.asyncio
async def test_a_websocket_of_a_web_page_is_refused() -> None:
    async with serving(websocket=read_all) as server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await session.ws_connect(server.address, origin="https://evil.example")
        assert raised.value.status == 403
        async with session.ws_connect(server.address) as socket:
            assert not socket.closed


@pytest.mark.asyncio
async def test_a_server_that_is_not_on_loopback_knows_its_names_only_where_they_are_given() -> None:
    async with serving(listen="http://0.0.0.0:0/in") as server:
        url = str(URL(server.address).with_host("127.0.0.1"))
        assert (await post(url, Host="any.example"))[0] == 200
    named = frozenset({"ours.example"})
    async with serving(listen="http://0.0.0.0:0/in", allow_hosts=named) as server:
        url = str(URL(server.address).with_host("127.0.0.1"))
        assert (await post(url, Host="any.example"))[0] == 403
        assert (await post(url, Host="ours.example"))[0] == 200


@pytest.mark.asyncio
async def test_messages_of_a_websocket_are_bytes_and_bounded() -> None:
    came: list[bytes] = []

    async def handler(_: Request, socket: MessageSocket) -> None:
        async for body in socket:
            came.append(body)
            if body == b"enough":
                await socket.close(WSCloseCode.TRY_AGAIN_LATER)

    async with (
        serving(websocket=handler, max_body_bytes=100) as server,
        aiohttp.ClientSession() as session,
    ):
        async with session.ws_connect(server.address) as socket:
            await socket.send_str("text")
            await socket.send_bytes(b"enough")
            ended = await socket.receive(timeout=5)
            assert (ended.type, ended.data) == (WSMsgType.CLOSE, WSCloseCode.TRY_AGAIN_LATER)
        async with session.ws_connect(server.address) as socket:
            await socket.send_str("x" * 101)
            ended = await socket.receive(timeout=5)
            assert (ended.type, ended.data) == (WSMsgType.CLOSE, WSCloseCode.MESSAGE_TOO_BIG)
    assert came == [b"text", b"enough"]


@pytest.mark.asyncio
async def test_a_handshake_that_is_none_is_refused() -> None:
    async with serving(websocket=read_all) as server, connected(server) as (reader, writer):
        writer.write(UPGRADE.replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 1"))
        assert (await closed(reader)).startswith(b"HTTP/1.1 400 ")


def test_a_problem_says_what_when_and_why() -> None:
    found = problem(503, "full", "later", 7)
    assert json.loads(found.body) == {"title": "full", "status": 503, "detail": "later"}
    assert found.headers["Retry-After"] == "7"
