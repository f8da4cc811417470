"""An HTTP server for one path with bounded time, size and connections, on aiohttp."""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

import msgspec
from aiohttp import HttpVersion10, StreamReader, WSCloseCode, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDictProxy
from yarl import URL

from instep.errors import SourceError
from instep_http.acceptor import Acceptor, Slot
from instep_http.connection_limits import ConnectionLimits
from instep_http.content_coding import (
    ACCEPTED,
    BodyTooBigError,
    CorruptBodyError,
    coding_of,
    inflate,
)
from instep_http.lingering import linger
from instep_http.offload import Busy, Offload
from instep_http.origins import OriginRules
from instep_http.request_target import RequestTarget, ServedPaths, read_target

__all__ = [
    "BoundedServer",
    "Connection",
    "FirstProtocol",
    "Handler",
    "MessageSocket",
    "Request",
    "Response",
    "ServerLimits",
    "WebSocketHandler",
    "problem",
]

MIB: Final = 1024 * 1024
_HEARTBEAT_S: Final = 30.0
_READ_BYTES: Final = 8 * 1024
"""What aiohttp reads ahead of a body in chunks. It parses a sixteenth as many chunks at most in one
go, which takes about a millisecond, and pauses; or pauses after so many bytes at least."""
_READ_PLAIN_BYTES: Final = 256 * 1024
"""What it reads ahead of a body of a stated length: to pause costs time."""
_PAUSES: Final = 64
"""So many pauses a body may have, and one more for each `_READ_BYTES`: with more, its chunks are
smaller than 32 bytes, and there are thousands."""
_HELD_BYTES: Final = 64 * MIB
"""Of bodies that are read or inflated at once, or four of the longest kind if that is more."""
_RETRY_AFTER_S: Final = 1
_SPARE_DESCRIPTORS: Final = 200
"""Open files that are kept for stores, other connections and other consumers."""
_MAX_HEADERS: Final = 128
_NO_URL: Final = URL("/")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_log = logging.getLogger("instep.http")


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a server."""

    max_head_bytes: int = 8_190
    """Longest request line and longest header line; there are 128 headers at most."""
    max_body_bytes: int = 4 * MIB
    """Longest body, after decompression."""
    head_timeout_s: float = 10.0
    """Longest TLS handshake, and longest wait for a head from its first byte …"""
    body_timeout_s: float = 30.0
    """… and for a body."""
    idle_timeout_s: float = 60.0
    """How long a connection is kept open without a request."""
    max_connections: int = 1_000
    """Most connections at once, and at most what the limit of open files leaves room for. A further
    one takes the place of the oldest one that has not sent a request that was accepted; where there
    is none, it is reset.
    """
    max_connections_per_address: int = 0
    """Most from one IPv4 address or IPv6 /64; 0: a tenth of all, at least 8. Loopback is exempt."""
    stop_timeout_s: float = 1.0
    """How long, in seconds, `stop` waits for the responses to accepted requests."""


class Request(msgspec.Struct, frozen=True):
    """A whole request."""

    method: str
    path: str
    """Normalized (RFC 3986 6.2.2), without the query."""
    headers: CIMultiDictProxy[str]
    body: bytes
    """Whole, and without its content coding."""
    peer: str
    """The IP address of the sender, which may be a proxy."""
    secure: bool
    """Whether it came by TLS."""
    identity: str = ""
    """The name in the certificate of the sender (`instep_http.client_certificates`); empty where
    none is asked for.
    """


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    close: bool = False
    """Whether the connection is closed after it."""


Handler = Callable[[Request], Awaitable[Response]]
"""Responds to a request. An exception is logged, and the response is 500. The handler is cancelled
only if `BoundedServer.stop` has waited for it in vain.
"""


class MessageSocket:
    """A WebSocket for receiving. Iterate over its messages; text and binary messages are both
    bytes.
    """

    def __init__(self, socket: web.WebSocketResponse, accepted: Callable[[], None]) -> None:
        self._socket = socket
        self.accepted = accepted
        """To be called when a message was accepted: from then on it keeps its place."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                yield message.data.encode()
            elif message.type is WSMsgType.BINARY:
                yield message.data
            else:
                return

    async def close(self, code: int) -> None:
        """Close it with a code (RFC 6455 7.4)."""
        await self._socket.close(code=code)


WebSocketHandler = Callable[[Request, MessageSocket], Awaitable[None]]
"""Reads a WebSocket until it ends; the WebSocket is closed when this returns."""


class Connection(Protocol):
    """A connection, as the server sees it."""

    @property
    def slot(self) -> Slot:
        """Its place within the limits."""

    @property
    def replaceable(self) -> bool:
        """Whether it only holds a place: no whole request is being handled."""

    def end(self) -> None:
        """Close the connection; an accepted request is answered first."""

    def abort(self) -> None:
        """Close the connection at once, also while a request is being handled."""


FirstProtocol = Callable[["BoundedServer", Slot], asyncio.Protocol]
"""Makes the protocol that handles a connection first. It hands requests that it does not answer
over to the server: see `BoundedServer.opened`, `closed` and `take_over`. It must enforce the limits
of time and size, and `OriginRules`, itself.
"""


def problem(status: int, code: str, detail: str, retry_after_s: int = 0) -> Response:
    """A refusal with its reason as problem details (RFC 9457); Retry-After in seconds, if not 0."""
    headers = {"Content-Type": "application/problem+json"}
    if retry_after_s:
        headers["Retry-After"] = str(retry_after_s)
    body = msgspec.json.encode({"title": code, "status": status, "detail": detail})
    return Response(status, body, headers)


class BoundedServer:
    """Serves one path, or all paths below it.

    The server itself refuses by the head alone, and reads no body, with 403 the request of a web
    page (see `OriginRules`), with 404 another path (see `ServedPaths`), with 405 another method,
    with 413 a body that is stated to be too long, with 415 another content coding than gzip and
    deflate, with 417 an expectation other than 100-continue, and with 503 while it stops. It
    answers 408 to a slow body, 400 to one that cannot be decoded, 413 to one that turns out to be
    too long, 503 where too much is read or inflated already, and 500 if the handler raises. A slow
    head and an idle connection are closed without a response.

    A refusal whose body has not come whole closes the connection: nothing more is parsed, and
    nothing was inflated.

    Args:
        listen: http or https, host, port (0: a free one) and path.
        handler: Responds to a request with its whole body.
        limits: The bounds of the server.
        tls: The server's certificate; None for http.
        below: Whether the paths below that of `listen` are served too; the handler sees which one
            in `Request.path`, and answers 404 itself.
        methods: The methods that are allowed.
        websocket: Reads WebSockets at the same path; None: WebSockets are refused.
        refuse: Makes the server's refusals from status, code and detail.
        allow_origins: See `OriginRules` …
        allow_hosts: … for both.
        first_protocol: Makes the protocol that handles each connection before the server.
    """

    def __init__(  # noqa: PLR0913 - one for each decision of an adapter
        self,
        listen: URL,
        handler: Handler,
        limits: ServerLimits | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        below: bool = False,
        methods: frozenset[str] = frozenset({"POST"}),
        websocket: WebSocketHandler | None = None,
        refuse: Callable[[int, str, str], Response] = problem,
        allow_origins: frozenset[str] = frozenset(),
        allow_hosts: frozenset[str] = frozenset(),
        first_protocol: FirstProtocol | None = None,
    ) -> None:
        self.limits = limits or ServerLimits()
        self.origins = OriginRules(listen.host or "", allow_origins, allow_hosts)
        self.address = ""
        """The URL with the actual port; empty while the server does not listen."""
        self.refused: Counter[str] = Counter()
        """What was refused, by reason: connections (too-many, too-many-of-address, displaced,
        tls-handshake, slow-head, no-descriptors) and requests (not-found, method, origin, too-slow,
        too-big, unreadable, bad-request, coding, expectation, busy, internal, stopping).
        """
        self.offload = Offload()
        """Where what its requests need runs off the loop. `Busy` of a handler is answered 503."""
        self._listen = listen
        self._handler = handler
        self._tls = tls
        self.serves = ServedPaths(listen, below=below).serves
        """Whether a path is served; see `ServedPaths`."""
        self._methods = methods
        self._websocket = websocket
        self._refuse = refuse
        self._first_protocol = first_protocol
        self._count = ConnectionLimits(
            self.limits.max_connections, self.limits.max_connections_per_address
        )
        self._acceptor: Acceptor | None = None
        self._manager: web.Server | None = None
        self._stopping = False
        self._held_bytes = 0
        """Of bodies that are being read or inflated."""
        self._connections: set[Connection] = set()
        self._unproven: dict[Connection, None] = {}
        """Connections on which no request was accepted yet, the oldest first."""
        self._none_left = asyncio.Event()
        self._none_left.set()
        self._handling: set[asyncio.Task[Any]] = set()
        self._sockets: set[web.WebSocketResponse] = set()

    def reconfigure(self, limits: ServerLimits) -> None:
        """Set other bounds: for requests and connections from now on; what is open stays open."""
        self.limits = limits
        self._count.limit(limits.max_connections, limits.max_connections_per_address)

    @property
    def connections(self) -> int:
        """The number of open connections, including those in their TLS handshake."""
        return self._count.open

    async def start(self) -> None:
        """Begin to listen. Raises `SourceError` if that is not possible."""
        limits = self.limits
        self._stopping = False
        self._manager = web.Server(self._handle, request_factory=_wire_request)
        acceptor = Acceptor(
            self._new_protocol,
            self._count,
            self.refused,
            self._tls,
            limits.head_timeout_s,
            limits.stop_timeout_s,
            self._displace,
        )
        try:
            port = await acceptor.listen(self._listen.host or "", self._listen.port or 0)
        except OSError as error:
            raise SourceError(
                f"cannot listen: {error.strerror or error}",
                where=str(self._listen),
                hint="another address or port",
            ) from error
        self._acceptor = acceptor
        self.address = str(self._listen.with_port(port))
        self._check_descriptors()

    async def stop(self) -> None:
        """Stop: stop listening, close idle connections, close WebSockets (1001), wait at most
        `stop_timeout_s` for the responses to accepted requests, then abort the other connections
        and cancel their handlers. Safe to call again, and after a failed start.
        """
        acceptor, self._acceptor = self._acceptor, None
        self.address = ""
        if acceptor is None:
            return
        self._stopping = True
        acceptor.close()
        for connection in list(self._connections):
            connection.end()
        going = [one.close(code=WSCloseCode.GOING_AWAY) for one in self._sockets]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.stop_timeout_s):
                    await asyncio.gather(*going, return_exceptions=True)
                    await self._none_left.wait()
        finally:
            for connection in list(self._connections):
                connection.abort()
            for task in self._handling:
                task.cancel()
        await acceptor.wait_closed()
        if self._handling:
            await asyncio.wait(self._handling, timeout=self.limits.stop_timeout_s)
        await self._none_left.wait()

    def opened(self, connection: Connection) -> None:
        """Register an open connection; while the server stops, it is closed at once."""
        self._connections.add(connection)
        self._unproven[connection] = None
        self._none_left.clear()
        if self._stopping:
            connection.end()

    def closed(self, connection: Connection) -> None:
        """Unregister a connection: it is lost, or was handed over."""
        self._connections.discard(connection)
        self._unproven.pop(connection, None)
        if not self._connections:
            self._none_left.set()

    def accepted(self, connection: Connection) -> None:
        """Note that a request of this connection was accepted (2xx): it is not displaced."""
        self._unproven.pop(connection, None)

    def _displace(self) -> bool:
        """Make room for a new connection: a sender that comes to send must not wait for one that
        only holds a place. Returns whether there is room.
        """
        for connection in self._unproven:
            if connection.replaceable:
                self.refused["displaced"] += 1
                connection.slot.release()
                del self._unproven[connection]
                connection.abort()
                return True
        return False

    def take_over(self, transport: asyncio.Transport, slot: Slot, data: bytes) -> None:
        """Take a connection over. `data` was read from it and not answered."""
        connection = self._new_connection(slot)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)

    def _new_protocol(self, slot: Slot) -> asyncio.Protocol:
        if self._first_protocol is not None:
            return self._first_protocol(self, slot)
        return self._new_connection(slot)

    def _new_connection(self, slot: Slot) -> _Connection:
        assert self._manager is not None
        return _Connection(self, self._manager, slot)

    def _check_descriptors(self) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.limits.max_connections + _SPARE_DESCRIPTORS
        if allowed != resource.RLIM_INFINITY and allowed < wanted:
            most = max(allowed // 2, allowed - _SPARE_DESCRIPTORS)
            self._count.most = min(self._count.most, most)
            _log.warning(
                "%s: %d open files are allowed, which is too few for max_connections = %d: "
                "%d are accepted",
                self.address,
                allowed,
                self.limits.max_connections,
                self._count.most,
            )

    # -- one request -----------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        with connection.handling():
            return await self._respond(request, connection)

    async def _respond(
        self, request: web.BaseRequest, connection: _Connection
    ) -> web.StreamResponse:
        target = read_target(request.raw_path)
        coding = coding_of(request.headers.getall("Content-Encoding", ()))
        refused = self._refused_by_head(request, target, coding)
        if refused is not None:
            return refused
        assert target is not None
        if self._is_handshake(request):
            return await self._serve_websocket(request, target.path, connection)
        assert coding is not None
        body = await self._body(request, coding)
        if isinstance(body, web.Response):
            return body
        if self._stopping:
            return self._refusal(request, 503, "stopping", "the server stops", close=True)
        connection.replaceable = False
        try:
            answer = await self._handler(_request(request, target.path, body, connection.slot))
        except Busy:
            return self._busy(request)
        except Exception:  # noqa: BLE001 - the peer gets a response
            _log.exception("the handler of a request failed")
            return self._refusal(request, 500, "internal", "it could not be handled")
        finally:
            connection.replaceable = True
        if 200 <= answer.status < 300:
            self.accepted(connection)
        return _Response(answer, close=answer.close or self._stopping)

    def _refused_by_head(
        self, request: web.BaseRequest, target: RequestTarget | None, coding: str | None
    ) -> web.Response | None:
        """The refusal of a request by its head alone; None: its body is wanted, or its WebSocket.

        What may not come from a web page, or goes to another path, learns no more than that.
        """
        refused = partial(self._refusal, request)
        detail = self.origins.refusal(request.headers, target.authority if target else None)
        if detail:
            return refused(403, "origin", detail, close=True)
        if target is not None and not self.serves(target.path):
            return refused(404, "not-found", "nothing is served at this path")
        if target is not None and self._is_handshake(request):
            return None
        if request.method not in self._methods:
            allowed = ", ".join(sorted(self._methods))
            ways = f"{allowed} or WebSocket" if self._websocket is not None else allowed
            return refused(405, "method", f"messages come by {ways}", headers={"Allow": allowed})
        if target is None:
            return self.bad_request(request)
        if not _expectations(request) <= {"100-continue"}:
            return refused(417, "expectation", "no expectation but 100-continue is met")
        if coding is None:
            detail = f"a body may have one of these codings: {ACCEPTED}"
            return refused(415, "coding", detail, headers={"Accept-Encoding": ACCEPTED})
        if (request.content_length or 0) > self.limits.max_body_bytes:
            return self._too_big(request)
        if self._stopping:
            return refused(503, "stopping", "the server stops", close=True)
        return None

    def _is_handshake(self, request: web.BaseRequest) -> bool:
        """Whether a WebSocket is asked for, and there is one."""
        return (
            self._websocket is not None
            and request.method == "GET"
            and request.headers.get("Upgrade", "").lower() == "websocket"
        )

    async def _body(self, request: web.BaseRequest, coding: str) -> bytes | web.Response:
        """The whole body without its coding, or its refusal."""
        limit_bytes = self.limits.max_body_bytes
        held = bytearray()
        try:
            if request.content.is_eof():
                # The body arrived with the head, as usual: there is nothing to wait for.
                raw = request.content.read_nowait()
            else:
                if "100-continue" in _expectations(request) and request.transport is not None:
                    request.transport.write(_CONTINUE)
                async with asyncio.timeout(self.limits.body_timeout_s):
                    await self._read_body(request, held)
                raw = bytes(held)
            if len(raw) > limit_bytes:
                return self._too_big(request)
            if not coding:
                return raw
            return await inflate(coding, raw, limit_bytes, self.offload)
        except TimeoutError:
            detail = "the body did not come in time"
            return self._refusal(request, 408, "too-slow", detail, close=True)
        except (CorruptBodyError, web.RequestPayloadError, ValueError, ConnectionError):
            detail = "the body cannot be decoded"
            return self._refusal(request, 400, "unreadable", detail, close=True)
        except BodyTooBigError:
            return self._too_big(request)
        except Busy:
            return self._busy(request)
        finally:
            self._held_bytes -= len(held)

    async def _read_body(self, request: web.BaseRequest, held: bytearray) -> None:
        """Read a body into `held`. Raises `BodyTooBigError`, `CorruptBodyError` where it comes in
        thousands of tiny chunks (RFC 9112 7.1), and `Busy` where all requests together hold too
        much.
        """
        limit_bytes = self.limits.max_body_bytes
        most_bytes = max(_HELD_BYTES, 4 * limit_bytes)
        connection = request.protocol
        assert isinstance(connection, _Connection)
        pauses = connection.pauses
        chunked = "Transfer-Encoding" in request.headers
        if not chunked:
            request.content.set_read_chunk_size(_READ_PLAIN_BYTES)
        async for chunk in request.content.iter_any():
            held += chunk
            self._held_bytes += len(chunk)
            if len(held) > limit_bytes:
                raise BodyTooBigError
            if self._held_bytes > most_bytes:
                raise Busy
            if chunked:
                if connection.pauses - pauses > _PAUSES + len(held) // _READ_BYTES:
                    raise CorruptBodyError
                await asyncio.sleep(0)  # chunks that have come already are read without a pause

    async def _serve_websocket(
        self, request: web.BaseRequest, path: str, connection: _Connection
    ) -> web.StreamResponse:
        assert self._websocket is not None
        if self._stopping:
            return self._refusal(request, 503, "stopping", "the server stops", close=True)
        # Without compression (RFC 7692): aiohttp inflates messages in the event loop.
        socket = web.WebSocketResponse(
            max_msg_size=self.limits.max_body_bytes,
            heartbeat=_HEARTBEAT_S,
            timeout=self.limits.stop_timeout_s,
            compress=False,
        )
        try:
            await socket.prepare(request)
        except (web.HTTPException, ValueError):
            detail = "no handshake of a WebSocket"
            return self._refusal(request, 400, "unreadable", detail, close=True)
        self._sockets.add(socket)
        messages = MessageSocket(socket, partial(self.accepted, connection))
        try:
            await self._websocket(_request(request, path, b"", connection.slot), messages)
        except Exception:  # noqa: BLE001 - the peer learns that it ended, and why
            _log.exception("the handler of a WebSocket failed")
            await socket.close(code=WSCloseCode.INTERNAL_ERROR)
        finally:
            self._sockets.discard(socket)
        return socket

    def _too_big(self, request: web.BaseRequest) -> web.Response:
        detail = f"more than {self.limits.max_body_bytes:,} bytes"
        return self._refusal(request, 413, "too-big", detail, close=True)

    def _busy(self, request: web.BaseRequest) -> web.Response:
        retry = {"Retry-After": str(_RETRY_AFTER_S)}
        return self._refusal(request, 503, "busy", "too much is under way", headers=retry)

    def bad_request(self, request: web.BaseRequest) -> web.Response:
        """The response to bytes that are not an HTTP request."""
        return self._refusal(request, 400, "bad-request", "no HTTP request", close=True)

    def internal_error(self, request: web.BaseRequest) -> web.Response:
        """The response where the server itself has failed."""
        return self._refusal(request, 500, "internal", "it could not be handled", close=True)

    def _refusal(
        self,
        request: web.BaseRequest,
        status: int,
        code: str,
        detail: str,
        *,
        close: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> web.Response:
        """Count a refusal and make its response. What of the body has not come is not read."""
        self.refused[code] += 1
        answer = self._refuse(status, code, detail)
        closes = close or answer.close or self._stopping or not request.content.is_eof()
        response = _Response(answer, close=closes, lingers=closes)
        response.headers.update(headers)
        return response


class _Connection(web.RequestHandler):
    """A connection with a deadline for the head of each request."""

    def __init__(self, server: BoundedServer, manager: web.Server, slot: Slot) -> None:
        limits = server.limits
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_timeout_s,
            lingering_time=0,  # see `finish_response`
            read_bufsize=_READ_BYTES,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]
            max_line_size=limits.max_head_bytes,
            max_field_size=limits.max_head_bytes,
            max_headers=_MAX_HEADERS,
        )
        self.slot = slot
        self._server = server
        self.busy = False
        """Whether a request is being handled."""
        self.replaceable = True
        self._head_deadline_s: float | None = None
        """The deadline of the head that is awaited, in the loop's time; None: no head
        is awaited.
        """
        self._timer: asyncio.TimerHandle | None = None
        self.pauses = 0
        """How often more of a body had come than is read ahead."""
        self._lingering = False
        self._open: asyncio.Transport | None = None
        """Set apart because `transport` is already None while a closed connection still writes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open = cast(asyncio.Transport, transport)
        self._await_head()
        self._server.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_deadline_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.slot.release()
        self._server.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Between two requests the idle timeout applies; from the first byte of a head, this
        # deadline.
        if self._head_deadline_s is None and not self.busy:
            self._await_head()
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - the words of aiohttp are not sent
    ) -> web.StreamResponse:
        """Respond to bytes that are not a request, without a traceback in the log for each."""
        if request.writer.output_size:
            raise ConnectionError("a response was begun already") from exc
        if exc is None or status >= 500:
            _log.error("a request could not be handled (%d)", status, exc_info=exc)
            return self._server.internal_error(request)
        _log.debug("no HTTP request from %s: %s", self.slot.address, exc)
        return self._server.bad_request(request)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response. After a refusal that closes the connection, this protocol, its parser
        with it, sees nothing more of it.
        """
        resp, lost = await super().finish_response(request, resp, start_time)
        transport = self.transport
        if not lost and transport is not None and isinstance(resp, _Response) and resp.lingers:
            self._lingering = True
            self.transport = None  # `force_close` would close it
            self.force_close()
            linger(transport, self.connection_lost)
        return resp, lost

    def pause_reading(self) -> None:
        self.pauses += 1
        super().pause_reading()

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Mark the request as being handled: its head was read."""
        self._head_deadline_s = None
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def end(self) -> None:
        # The response to an accepted request closes the connection, because the server stops.
        if self._lingering:
            self.abort()
        elif not self.busy:
            self.force_close()

    def abort(self) -> None:
        if self._open is not None:
            self._open.abort()

    def _await_head(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_deadline_s = loop.time() + self._server.limits.head_timeout_s
        # One timer serves many heads: most arrive at once, and a timer for each is expensive.
        if self._timer is None:
            self._timer = loop.call_at(self._head_deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._head_deadline_s is None:
            return
        loop = asyncio.get_running_loop()
        if self._head_deadline_s <= loop.time():
            self._server.refused["slow-head"] += 1
            self.abort()
        else:
            self._timer = loop.call_at(self._head_deadline_s, self._check_deadline)


class _WireRequest(web.BaseRequest):
    """A request whose response has the headers that it states, and no others than HTTP needs."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)
        if isinstance(response, _Response) and not response.has_type:
            response.headers.pop("Content-Type", None)


def _wire_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    if message.url.absolute:
        # aiohttp builds another URL of it, and an odd host makes that raise. `raw_path` is read.
        message = message._replace(url=_NO_URL)
    if "Sec-WebSocket-Protocol" in message.headers:
        # aiohttp would log a warning for each handshake whose subprotocols are not ours.
        headers = message.headers.copy()
        headers.popall("Sec-WebSocket-Protocol")
        message = message._replace(headers=CIMultiDictProxy(headers))
    loop = asyncio.get_running_loop()
    return _WireRequest(message, payload, protocol, writer, task, loop)


class _Response(web.Response):
    def __init__(self, answer: Response, *, close: bool, lingers: bool = False) -> None:
        super().__init__(status=answer.status, body=answer.body, headers=answer.headers)
        self.has_type = "Content-Type" in self.headers
        self.lingers = lingers
        """Whether the peer may still be sending when the connection is closed; see `linger`."""
        if close:
            self.force_close()


def _request(request: web.BaseRequest, path: str, body: bytes, slot: Slot) -> Request:
    secure = request.scheme == "https"
    return Request(request.method, path, request.headers, body, slot.address, secure, slot.identity)


def _expectations(request: web.BaseRequest) -> frozenset[str]:
    """What a client expects, in lower case. Of HTTP/1.0 it is ignored (RFC 9110 10.1.1)."""
    fields = request.headers.getall("Expect", ())
    if not fields or request.version <= HttpVersion10:
        return frozenset()
    names = (name.strip().lower() for field in fields for name in field.split(","))
    return frozenset(names) - {""}
