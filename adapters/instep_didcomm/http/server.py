"""Takes messages by HTTP POST and by WebSocket, and answers once they are durable.

DIDComm 2.1, "Transports": any 2xx on receipt, 202 by preference, and nothing flows back in the
body; 413 for what is too big. On a WebSocket each transmission is one message and nothing flows
back: what came is told by `received_orders`, as is what is missing.

Bounds: size of a message, connections, and the time of a head, of a body, of an idle connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web
from yarl import URL

from instep.errors import SourceError
from instep_didcomm.http.fast_path import FastPostConnection, MessageHandler, RequestHeadParser
from instep_didcomm.http.response import Response
from instep_didcomm.options import Options

__all__ = ["MessageServer"]

_HEARTBEAT_S: Final = 30.0
_SHUTDOWN_S: Final = 1.0
_LINGER_S: Final = 1.0


class MessageServer:
    """One address that takes messages.

    Args:
        post: Is given each message.
        tls: The certificate to show; None for http.
    """

    def __init__(self, options: Options, post: MessageHandler, tls: ssl.SSLContext | None) -> None:
        self._options = options
        self._url = URL(options.listen)
        self._post = post
        self._tls = tls
        self._sockets: set[web.WebSocketResponse] = set()
        self._runner: web.ServerRunner | None = None
        self.address = ""
        """The URL with the real port; empty while it does not listen."""

    async def start(self) -> None:
        """Listen. Raises `SourceError` where that is not possible."""
        options = self._options
        factory = _ProtocolFactory(self._handle, options, self._url.path, self._post)
        self._runner = web.ServerRunner(factory, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._url.host,
            self._url.port,
            ssl_context=self._tls,
            backlog=min(options.max_connections, 1024),
        )
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise SourceError(
                f"cannot listen: {error.strerror or error}",
                where=options.listen,
                hint="another address or port",
            ) from error
        port = self._runner.addresses[0][1]
        self.address = str(self._url.with_port(port))

    async def stop(self) -> None:
        """Take nothing new; what was taken is answered, for a short while."""
        self.address = ""
        # At once: a peer that does not answer to the closing costs its time only once.
        await asyncio.gather(*(one.close(code=WSCloseCode.GOING_AWAY) for one in self._sockets))
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _GuardedConnection)
        with connection.handling():
            return await self._respond(request)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != self._url.path:
            return _response(Response(404, "not-found", "no messages are taken at this path"))
        if request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._handle_websocket(request)
        if request.method != "POST":
            answer = Response(405, "method", "messages come by POST or WebSocket")
            return _response(answer, Allow="POST")
        limit_bytes = self._options.max_body_bytes
        body: bytes | None
        try:
            stated_bytes = request.content_length or 0
            if request.content.total_bytes == stated_bytes <= limit_bytes:
                # It came with the head, as most do: there is nothing to wait for.
                body = request.content.read_nowait()
            else:
                async with asyncio.timeout(self._options.body_timeout_s):
                    body = await _read_body(request, limit_bytes)
        except TimeoutError:
            return _closing_response(Response(408, "too-slow", "the body did not come in time"))
        except (web.HTTPException, ValueError):
            return _closing_response(Response(400, "unreadable", "the body cannot be decoded"))
        if body is None:
            detail = f"me.res.storage.message_too_big: more than {limit_bytes:,} bytes"
            return _closing_response(Response(413, "too-big", detail))
        answer = await self._response_to(body, request.headers.get("Content-Type", ""))
        return _response(answer)

    async def _response_to(self, body: bytes, content_type: str) -> Response:
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def resolve(answer: Response) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._post(body, content_type, resolve)
        return await answered

    async def _handle_websocket(self, request: web.BaseRequest) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            max_msg_size=self._options.max_body_bytes, heartbeat=_HEARTBEAT_S, timeout=_SHUTDOWN_S
        )
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            async for message in socket:
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                body = message.data
                answer = await self._response_to(
                    body.encode() if isinstance(body, str) else body, ""
                )
                if answer.status == 503:
                    # It was not taken, and nothing can be said but this: come back and send again.
                    await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        finally:
            self._sockets.discard(socket)
        return socket


class _ProtocolFactory(web.Server):
    """Makes a protocol for each connection, and counts them: one for plain POSTs at first, and
    aiohttp's handler, guarded, for what that hands over.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        options: Options,
        path: str,
        post: MessageHandler,
    ) -> None:
        super().__init__(handler)
        self.options = options
        self.open = 0
        self._post = post
        self._head_parser = RequestHeadParser(path, options.max_body_bytes)
        self._fast: set[FastPostConnection] = set()
        self._ending = False
        self._none_left = asyncio.Event()
        self._none_left.set()

    def __call__(self) -> FastPostConnection:  # type: ignore[override]
        return FastPostConnection(
            self.options,
            self._head_parser,
            self._post,
            self._on_open,
            self._on_close,
            self._hand_over,
        )

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's
        """Take nothing new; what was taken is answered in this time."""
        self._ending = True
        for connection in list(self._fast):
            connection.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._none_left.wait()
        for connection in list(self._fast):
            connection.abort()
        await super().shutdown(timeout)

    def _on_open(self, connection: FastPostConnection) -> bool:
        self.open += 1
        self._fast.add(connection)
        self._none_left.clear()
        return not self._ending and self.open <= self.options.max_connections

    def _on_close(self, connection: FastPostConnection) -> None:
        self.open -= 1
        self._fast.discard(connection)
        if not self._fast:
            self._none_left.set()

    def _hand_over(self, transport: asyncio.Transport, data: bytes) -> None:
        handler = _GuardedConnection(self)
        transport.set_protocol(handler)
        handler.connection_made(transport)
        handler.data_received(data)


class _GuardedConnection(web.RequestHandler):
    """A connection that has to be quick with the head of each request."""

    def __init__(self, factory: _ProtocolFactory) -> None:
        super().__init__(
            factory,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=factory.options.idle_timeout_s,
            lingering_time=_LINGER_S,
            access_log=None,  # type: ignore[arg-type]
        )
        self._factory = factory
        self._busy = False
        self._head_deadline_s: float | None = None
        """When the head that is awaited has to be there; None: none is."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._factory.open += 1
        if self._factory.open > self._factory.options.max_connections:
            self._abort()
        else:
            self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._factory.open -= 1
        self._head_deadline_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Between two requests the idle time counts; with the first byte of a head this one does.
        if self._head_deadline_s is None and not self._busy:
            self._await_head()
        super().data_received(data)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """The head of a request was read; it is being answered."""
        self._head_deadline_s = None
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _await_head(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_deadline_s = loop.time() + self._factory.options.head_timeout_s
        # One timer looks after many heads: most are there at once, and a timer each is dear.
        if self._timer is None:
            self._timer = loop.call_at(self._head_deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._head_deadline_s is None:
            return
        loop = asyncio.get_running_loop()
        if self._head_deadline_s <= loop.time():
            self._abort()
        else:
            self._timer = loop.call_at(self._head_deadline_s, self._check_deadline)

    def _abort(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()


async def _read_body(request: web.BaseRequest, limit_bytes: int) -> bytes | None:
    """The whole body; None where it is longer than that."""
    if (request.content_length or 0) > limit_bytes:
        return None
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > limit_bytes:
            return None
    return bytes(body)


def _response(answer: Response, **headers: str) -> web.Response:
    return web.Response(
        status=answer.status, body=answer.body, headers={**answer.headers, **headers}
    )


def _closing_response(answer: Response) -> web.Response:
    """After this the connection ends: the rest of the body is not read."""
    response = _response(answer)
    response.force_close()
    return response
