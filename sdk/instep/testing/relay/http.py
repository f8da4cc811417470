"""HTTP/1.1 for rules: whole requests, responses whole or in pieces, and what is between."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from instep.testing.relay.rule import Rule, Side, together
from instep.testing.relay.streams import Cut, Dial, Stream

__all__ = ["Forward", "Headers", "HttpRule", "Request", "Response"]

_MOST_BODY_BYTES = 64 * 1024 * 1024


class Headers:
    """Header fields in their order, with their spelling; names compare without case."""

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self.fields = list(fields)

    def get(self, name: str, default: str = "") -> str:
        """The first value of a name."""
        lower = name.lower()
        return next((value for key, value in self.fields if key.lower() == lower), default)

    def set(self, name: str, value: str) -> None:
        """Replace all values of a name by this one."""
        self.remove(name)
        self.fields.append((name, value))

    def remove(self, name: str) -> None:
        """Remove all values of a name, if there are any."""
        lower = name.lower()
        self.fields = [pair for pair in self.fields if pair[0].lower() != lower]

    def copy(self) -> Headers:
        """The same fields, to be changed apart."""
        return Headers(self.fields)

    def lines(self) -> bytes:
        """As they are written, each with its line end."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.fields).encode("latin-1")


@dataclass
class Request:
    """A whole request. The length of `body` is stated when it is written, as chunks where it came
    in chunks.
    """

    method: str
    target: str
    headers: Headers
    body: bytes = b""
    version: str = "HTTP/1.1"
    expects_continue: bool = False
    """Whether the body is held back until the server has answered 100 (RFC 9110 10.1.1)."""
    chunk_bytes: int = 0
    """The size of the chunks; 0: Content-Length is stated."""
    number: int = 1
    """Its place among the requests of its connection, from 1."""

    def copy(self) -> Request:
        """The same request, to be changed apart."""
        copied = Request(**vars(self))
        copied.headers = self.headers.copy()
        return copied

    @property
    def upgrades(self) -> bool:
        """Whether it asks for another protocol: a WebSocket."""
        return bool(self.headers.get("Upgrade"))

    @property
    def media_type(self) -> str:
        """The media type of the body, lower case, without parameters."""
        return self.headers.get("Content-Type").partition(";")[0].strip().lower()


@dataclass
class Response:
    """A response; its body is whole, or comes in `pieces`."""

    status: int
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    reason: str = ""
    version: str = "HTTP/1.1"
    pieces: AsyncIterator[bytes] | None = None
    """The body of a response that has no end of its own: server-sent events."""
    chunk_bytes: int = 0
    """The size of the chunks; 0: Content-Length is stated."""
    stated_bytes: int | None = None
    """What Content-Length says, where it is to lie; the connection is closed after the body."""
    close: bool = False
    """Whether the connection is closed after it."""


Forward = Callable[[Request], Awaitable[Response]]
"""Carries a request out at the server. Raises `ConnectionError` where no answer comes."""


class HttpRule(Rule):
    """A rule for HTTP: it stands between each request and its response.

    Override `handle`; what it gives back goes to the client. A connection that becomes a WebSocket
    is passed on as bytes.
    """

    sides = frozenset({Side.LISTENER, Side.PROVIDER})
    protocol = "HTTP"

    async def handle(self, request: Request, forward: Forward) -> Response:
        """Answer a request. Raises `Cut` to end the connection instead."""
        return await forward(request)

    async def serve(self, client: Stream, dial: Dial) -> None:
        """Serve the requests of one connection, one after the other."""
        upstream = _Upstream(dial)
        number = 0
        try:
            while (request := await read_request(client)) is not None:
                request.number = number = number + 1
                closes = _closes(request.version, request.headers)
                method = request.method
                response = await self.handle(request, upstream.forward)
                if response.status == 101 and upstream.stream is not None:
                    await client.write(_head(response))
                    await self.upgraded(client, upstream.stream)
                    return
                await _write_response(client, method, response)
                if closes or response.close or response.stated_bytes is not None:
                    return
        finally:
            await upstream.close()

    async def upgraded(self, client: Stream, server: Stream) -> None:
        """Serve a connection that is a WebSocket now."""
        await self.pass_on(client, server)


class _Upstream:
    """The connection to the server, used for one request after the other."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self.stream: Stream | None = None

    async def forward(self, request: Request) -> Response:
        """Send a request, and read the head of its response, and the body where it has an end."""
        if self.stream is not None and self.stream.ended:
            await self.close()
        if self.stream is None:
            self.stream = await self._dial()
        server = self.stream
        early = await _write_request(server, request)
        response = await read_response(server, request.method, early)
        if response.status != 101 and _closes(response.version, response.headers):
            response.close = True
            if response.pieces is None:
                await self.close()
        return response

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self.stream is not None:
            await self.stream.close()
            self.stream = None


def _closes(version: str, headers: Headers) -> bool:
    connection = headers.get("Connection").lower()
    return connection != "keep-alive" if version == "HTTP/1.0" else "close" in connection


async def read_request(client: Stream) -> Request | None:
    """The next request, whole; None where none comes. A client that waits for 100 gets it."""
    raw = await client.read_until(b"\r\n\r\n")
    if not raw:
        return None
    first, headers = _parse(raw)
    method, target, version = _three(first)
    if headers.get("Expect").lower() == "100-continue":
        await client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        headers.remove("Expect")
    request = Request(method, target, headers, version=version)
    if "chunked" in headers.get("Transfer-Encoding").lower():
        request.body = await _whole(_chunks(client))
        request.chunk_bytes = _MOST_BODY_BYTES
    else:
        request.body = await client.read_exactly(_length(headers))
    return request


async def read_response(server: Stream, method: str, raw: bytes = b"") -> Response:
    """The next response but for 1xx, whose head may have been read; server-sent events come in
    pieces.
    """
    while True:
        raw = raw or await server.read_until(b"\r\n\r\n")
        if not raw:
            raise ConnectionResetError("the server closed without an answer")
        first, headers = _parse(raw)
        version, status, reason = _three(first + " ")
        response = Response(_number(status), headers, reason=reason.strip(), version=version)
        if response.status >= 200 or response.status == 101:
            break
        raw = b""
    if method == "HEAD" or response.status in (101, 204, 304):
        return response
    pieces: AsyncIterator[bytes]
    if "chunked" in headers.get("Transfer-Encoding").lower():
        pieces, response.chunk_bytes = _chunks(server), _MOST_BODY_BYTES
    elif headers.get("Content-Length"):
        response.body = await server.read_exactly(_length(headers))
        return response
    else:
        pieces, response.close = _to_the_end(server), True
    if headers.get("Content-Type").startswith("text/event-stream"):
        response.pieces = pieces
    else:
        response.body = await _whole(pieces)
    return response


def _parse(raw: bytes) -> tuple[str, Headers]:
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, Headers((name, value.strip()) for name, _, value in pairs)


def _three(line: str) -> tuple[str, str, str]:
    """The three words of a first line."""
    words = line.split(" ", 2)
    if len(words) < 3:
        raise ConnectionResetError(f"{line[:80]!r} is no HTTP")
    return words[0], words[1], words[2]


def _number(text: str, base: int = 10) -> int:
    try:
        return int(text, base)
    except ValueError as error:
        raise ConnectionResetError(f"{text[:80]!r} is no number of HTTP") from error


def _length(headers: Headers) -> int:
    length = _number(headers.get("Content-Length", "0"))
    if length > _MOST_BODY_BYTES:
        raise Cut
    return length


async def _chunks(stream: Stream) -> AsyncIterator[bytes]:
    while size := _number((await stream.read_until(b"\r\n")).decode().partition(";")[0], 16):
        yield await stream.read_exactly(size)
        await stream.read_exactly(2)
    while await stream.read_until(b"\r\n") not in (b"", b"\r\n"):
        pass  # trailers


async def _to_the_end(stream: Stream) -> AsyncIterator[bytes]:
    while data := await stream.read():
        yield data


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > _MOST_BODY_BYTES:
            raise Cut
    return bytes(body)


async def _write_request(server: Stream, request: Request) -> bytes:
    """Send a request. Returns the head of a final answer that came instead of 100."""
    headers = request.headers
    if request.body or request.chunk_bytes or headers.get("Content-Length"):
        _frame(headers, len(request.body), request.chunk_bytes)
    if request.expects_continue:
        headers.set("Expect", "100-continue")
    head = f"{request.method} {request.target} {request.version}\r\n".encode("latin-1")
    head += headers.lines() + b"\r\n"
    body = _framed(request.body, request.chunk_bytes)
    if not request.expects_continue:
        await server.write(head + body)
        return b""
    await server.write(head)
    answer = await server.read_until(b"\r\n\r\n")
    if answer.partition(b" ")[2][:3] != b"100":
        return answer
    await server.write(body)
    return b""


def _frame(headers: Headers, length: int, chunk_bytes: int) -> None:
    if chunk_bytes:
        headers.remove("Content-Length")
        headers.set("Transfer-Encoding", "chunked")
    else:
        headers.remove("Transfer-Encoding")
        headers.set("Content-Length", str(length))


def _framed(body: bytes, chunk_bytes: int) -> bytes:
    if not chunk_bytes:
        return body
    cut = (body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes))
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in cut) + b"0\r\n\r\n"


def _head(response: Response) -> bytes:
    first = f"{response.version} {response.status} {response.reason}\r\n"
    return first.encode("latin-1") + response.headers.lines() + b"\r\n"


async def _write_response(client: Stream, method: str, response: Response) -> None:
    headers = response.headers
    if response.close:
        headers.set("Connection", "close")
    if response.pieces is not None:
        await _write_pieces(client, response)
        return
    bodiless = method == "HEAD" or response.status in (204, 304)
    if response.version == "HTTP/1.0":
        # No chunks in HTTP/1.0, and the end of the body is the end of the connection.
        response.close = True
        headers.remove("Transfer-Encoding")
        await client.write(_head(response) + response.body)
        return
    if not bodiless:
        _frame(headers, len(response.body), response.chunk_bytes)
    if response.stated_bytes is not None:
        headers.set("Content-Length", str(response.stated_bytes))
    await client.write(_head(response) + _framed(response.body, response.chunk_bytes))


async def _write_pieces(client: Stream, response: Response) -> None:
    """Pass a body on as it comes, until it ends or the client leaves."""
    pieces, chunked = response.pieces, bool(response.chunk_bytes)
    assert pieces is not None
    await client.write(_head(response))

    async def write() -> None:
        async for piece in pieces:
            await client.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            await client.write(b"0\r\n\r\n")
        raise _Done

    async def watch() -> None:
        while await client.read():
            pass  # a client has nothing to say within a response
        raise _Done

    response.close = True  # what was read of the client meanwhile is lost
    with contextlib.suppress(_Done):
        await together(write(), watch())


class _Done(Exception):
    """One of two has ended: the other is no longer needed."""
