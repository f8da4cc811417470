"""The fast path is no parser of its own: the same bytes get the same answers, with it and without.

What is compared: each response's status, headers and body, and what was handed over as a message.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep_didcomm.http.server import MessageServer
from instep_didcomm.options import read_options
from instep_http import Response, problem
from instep_http.acceptor import Slot
from instep_http.connection_limits import ConnectionLimits
from tests.properties_kit import few

LAST = b"POST /in HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlast"
BAD_REQUEST = problem(400, "bad-request", "no HTTP request").body
LINES = [
    "Content-Length: {n}",
    "Content-Length: {n}",
    "Content-Length: {n}",
    "content-length:{n}",
    "Content-Length: +{n}",
    "Content-Length: -1",
    "Content-Length: 0{n}",
    "Content-Length: {n}, {n}",
    "Content-Length: {n} ",
    "Content-Length: 1_0",
    "Content-Length: 999",
    "Content-Length: 99999999999999999999",
    "Content-Length: {n}\r\nContent-Length: {n}",
    "Content-Length: {n}\r\nContent-Length: 1",
    "Content-Length : {n}",
    "Content-Length:\r\n {n}",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked\r\nContent-Length: {n}",
    "Transfer-Encoding:\tchunked",
    "Host: localhost",
    "Host: localhost\r\nHost: evil.example",
    "Host: evil.example",
    "Origin: https://evil.example",
    "Content-Type: text/plain",
    "Content-Type: a\r\nContent-Type: b",
    "X: a\r\n b",
    "X: a\nY: b",
    "X: \0",
    "X: ü",
    ": x",
    "no colon",
    "Expect: 100-continue",
    "Expect: 100-Continue",
    "Expect: 200-ok",
    "Expect: 100-continue, 200-ok",
    "Expect:",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Content-Encoding: gzip",
    "Content-Encoding: identity",
    "Content-Encoding: x-gzip",
    "Content-Encoding: br",
    "Content-Encoding: gzip, gzip",
    "Content-Encoding:",
]
FIRST = [
    "POST /in HTTP/1.1",
    "POST /in HTTP/1.1",
    "POST /in HTTP/1.1",
    "POST /in HTTP/1.0",
    "POST /in HTTP/2.0",
    "POST /in  HTTP/1.1",
    "POST /in?a HTTP/1.1",
    "POST /i%6e HTTP/1.1",
    "POST /i%6E HTTP/1.1",
    "POST /in%2F HTTP/1.1",
    "POST //in HTTP/1.1",
    "POST /./in HTTP/1.1",
    "POST /in#a HTTP/1.1",
    "POST http://localhost/in HTTP/1.1",
    "POST http://localhost:1/in?a HTTP/1.1",
    "POST http://evil.example/in HTTP/1.1",
    "POST http://localhost@evil.example/in HTTP/1.1",
    "POST http://evil.example@localhost/in HTTP/1.1",
    "POST ftp://localhost/in HTTP/1.1",
    "POST * HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "CONNECT localhost:80 HTTP/1.1",
    "POST /other HTTP/1.1",
    "PUT /in HTTP/1.1",
    "post /in HTTP/1.1",
    "POST /in",
    "\r\nPOST /in HTTP/1.1",
]

Answer = tuple[int, frozenset[bytes], bytes]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(st.sampled_from(["", "x", "body", "3\r\nabc\r\n0\r\n\r\n", "y" * 60]))
    lines = draw(st.lists(st.sampled_from(LINES), max_size=3))
    end = draw(st.sampled_from(["\r\n", "\r\n", "\r\n", "\n"]))
    usual = draw(st.sampled_from([["Host: localhost", "Content-Length: {n}"], []]))
    head = [draw(st.sampled_from(FIRST)), *usual, *lines, "", ""]
    return (end.join(head).replace("{n}", str(len(body))) + body).encode()


async def answers(
    pieces: Sequence[bytes], *, fast_path: bool
) -> tuple[list[Answer], list[tuple[bytes, str]]]:
    """Responses, and messages that were handed over, to bytes that come in pieces."""
    taken: list[tuple[bytes, str]] = []

    def post(raw: bytes, content_type: str, _: str, respond: Callable[[Response], None]) -> None:
        taken.append((raw, content_type))
        respond(problem(400, "unreadable", "x") if raw.startswith(b"x") else Response(202))

    table = {"listen": "http://127.0.0.1:0/in", "max_body_bytes": 50}
    server = MessageServer(read_options(table, "x"), post, None, fast_path=fast_path)
    await server.start()
    # Not TCP: a peer that closes early would reset the connection, and take its answers with it.
    theirs, ours = socket.socketpair()
    limits = ConnectionLimits(1)
    limits.admit("127.0.0.1")
    bounded = server._server
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(
        lambda: bounded._new_protocol(Slot(limits, "127.0.0.1")), theirs
    )
    ours.setblocking(False)
    raw = b""
    try:
        with suppress(ConnectionError):  # the server has closed it
            for piece in pieces:
                ours.sendall(piece)
                for _ in range(3):  # the server reads one piece at a time
                    await asyncio.sleep(0)
        for _ in range(50):  # all that is to be done is done; nothing here waits for a clock
            await asyncio.sleep(0)
        with suppress(BlockingIOError, ConnectionError):
            while chunk := ours.recv(65536):
                raw += chunk
    finally:
        ours.close()
        await server.stop()
    async with asyncio.timeout(10):
        while limits.open:
            await asyncio.sleep(0)
    return parsed(raw), taken


def parsed(raw: bytes) -> list[Answer]:
    found = []
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = int(first.split()[1])
        if status == 100:
            continue
        (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
        headers = frozenset(line for line in lines if not line.startswith(b"Date: "))
        found.append((status, headers, raw[: int(length)]))
        raw = raw[int(length) :]
    return found


def cut(raw: bytes, places: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted({place % len(raw) for place in places}), len(raw)]
    return [raw[a:b] for a, b in pairwise(bounds) if a < b]


@few(20, many=1_000)
@given(st.lists(requests(), min_size=1, max_size=3), st.lists(st.integers(0, 1_000), max_size=3))
@example([b"POST /in HTTP/1.1\r\nContent-Length: +4\r\n\r\nbody"], [])
@example([b"POST /in HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 1\r\n\r\nbody"], [])
@example([b"POST /in HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nbody"], [])
@example([b"POST /in HTTP/1.1\nContent-Length: 4\n\nbody"], [])
@example([b"POST /in HTTP/1.1\r\nContent-Length:\r\n 4\r\n\r\nbody"], [])
def test_the_same_bytes_get_the_same_answers(parts: list[bytes], places: list[int]) -> None:
    raw = b"".join(parts) + LAST

    async def both() -> None:
        fast, taken = await answers(cut(raw, places), fast_path=True)
        general = await answers(cut(raw, places), fast_path=False)
        if (fast, taken) == general:
            return
        # aiohttp forgets the requests that came in one read with what is none, and the fast path
        # answers those before. Byte by byte aiohttp forgets none: what is answered is the same.
        whole, whole_taken = await answers(cut(raw, range(len(raw))), fast_path=False)
        if fast and fast[-1][-1] == BAD_REQUEST:
            fast = fast[:-1]
            whole, whole_taken = whole[: len(fast)], whole_taken[: len(taken)]
        assert (fast, taken) == (whole, whole_taken)

    asyncio.run(both())


@pytest.mark.parametrize(
    "head", [*({"line": line} for line in LINES), *({"first": f} for f in FIRST)]
)
@pytest.mark.parametrize("usual", ["Host: localhost\r\nContent-Length: 4\r\n", ""])
def test_one_unusual_line_gets_the_same_answer(head: dict[str, str], usual: str) -> None:
    line = head.get("line", "Content-Length: {n}" if not usual else "X: y").replace("{n}", "4")
    raw = f"{head.get('first', FIRST[0])}\r\n{usual}{line}\r\n\r\nbody".encode()

    async def both() -> None:
        # Nothing comes in the same read, which aiohttp may forget this for.
        fast = await answers([raw, LAST], fast_path=True)
        assert fast == await answers([raw, LAST], fast_path=False)

    asyncio.run(both())


@pytest.mark.asyncio
@pytest.mark.parametrize("fast_path", [True, False])
async def test_the_comparison_sees_answers_and_messages(fast_path: bool) -> None:
    one = LAST.replace(b"Connection: close\r\n", b"Content-Type: a\r\n")
    found, taken = await answers([one[:20], one[20:] + LAST], fast_path=fast_path)
    assert [status for status, _, _ in found] == [202, 202]
    assert taken == [(b"last", "a"), (b"last", "")]
