"""What a head says: whose request it is, and that no library speaks in the answer."""

from __future__ import annotations

import logging

import pytest
from yarl import URL

from instep_http.server import Request, Response
from tests.instep_http.server_kit import UPGRADE, answer, connected, request, serving
from tests.instep_http.test_server import read_all

HOSTS = frozenset({"ours.example"})


async def tell_path(asked: Request) -> Response:
    return Response(200, asked.path.encode())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/in", "localhost", 200),
        ("http://LOCALHOST:1/in?a=1", "localhost", 200),
        ("http://ours.example/in", "localhost", 200),
        ("https://[::1]:8443/in", "localhost", 200),
        ("http://localhost/in", "evil.example", 200),  # the target counts, not Host
        ("http://evil.example/in", "localhost", 403),
        ("http://evil.example/in", "evil.example", 403),
        ("http://evil.example/other", "localhost", 403),
        ("http://localhost@evil.example/in", "localhost", 403),
        ("http://evil.example@localhost/in", "localhost", 403),
        ("http://localhost:80:80/in", "localhost", 400),
        ("http://localhost/other", "localhost", 404),
        ("http://localhost//in", "localhost", 404),
        ("http://localhost", "localhost", 404),
        ("ftp://localhost/in", "localhost", 400),
        ("http:/in", "localhost", 400),
        ("/in#x", "localhost", 400),
        ("*", "localhost", 400),
        ("//in", "localhost", 404),
        ("/in/", "localhost", 404),
        ("/%69%6E", "localhost", 200),
        ("/in%2F", "localhost", 404),
        ("/../in", "localhost", 404),
        ("/in?a=1", "localhost", 200),
        ("/in", "localhost:notaport", 403),
        ("/in", "evil.example@localhost", 403),
        ("/in", "localhost:1", 200),  # behind a forwarded port
    ],
)
async def test_the_target_decides(target: str, host: str, status: int) -> None:
    async with (
        serving(tell_path, allow_hosts=HOSTS) as server,
        connected(server) as (reader, writer),
    ):
        writer.write(request(path=target, host=host))
        found, _, body = await answer(reader)
        assert found == status
        assert (body == b"/in") == (status == 200)


@pytest.mark.asyncio
async def test_a_target_of_an_odd_host_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The library decodes the host of an absolute target, and some cannot be decoded."""
    async with serving(listen="http://0.0.0.0:0/in") as server:
        local = URL(server.address).with_host("127.0.0.1")
        server.address = str(local)
        for host in ("xn--a", "%41", "a" * 300, "..", "[::1", "a:99999999", "\xff"):
            async with connected(server) as (reader, writer):
                writer.write(request(path=f"http://{host}/in"))
                assert (await answer(reader))[0] in {200, 400}
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["OPTIONS", "CONNECT", "PRI"])
async def test_forms_that_mean_no_resource_are_refused(method: str) -> None:
    target = {"CONNECT": "localhost:80"}.get(method, "*")
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(request(path=target, method=method))
        assert (await answer(reader))[0] in {400, 405}


ODD = [
    b"\x16\x03\x01 nonsense\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"POST /in\r\n\r\n",
    b"POST /in HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"POST /in HTTP/1.1\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nA b\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: a\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 9_000 + b"\r\n\r\n",
    b"POST /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    b"POST /in HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Key1: x\r\n\r\n",
    request(b"x", "Content-Encoding: gzip"),
    request(b"x", "Content-Encoding: br"),
    request(path="/other"),
    request(method="PUT"),
    request(host="evil.example"),
    request(b"x", "Accept: text/html"),
    UPGRADE.replace(b"Key: ", b"Key: \xff"),
    UPGRADE.replace(b"Version: 13", b"Version: 1"),
    UPGRADE.replace(b"Connection: Upgrade", b"Connection: close"),
    UPGRADE.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: a, b\r\n\r\n"),
    UPGRADE,
]


@pytest.mark.asyncio
@pytest.mark.parametrize("raw", ODD)
async def test_no_answer_names_a_library_and_none_is_logged(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Request) -> Response:
        return Response(500)

    async with (
        serving(fail, websocket=read_all) as server,
        connected(server) as (reader, writer),
    ):
        writer.write(raw)
        head = await reader.readuntil(b"\r\n\r\n")
        body = b"" if b" 101 " in head else await reader.read(2_000) if b"lose" in head else b""
        answered = (head + body).lower()
        for word in (b"server:", b"aiohttp", b"python", b"html", b"text/plain", b"zlib", b"llhttp"):
            assert word not in answered
        assert b"expected" not in answered
        assert b"invalid" not in answered
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
