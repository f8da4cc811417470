"""Receives messages by HTTP POST and by WebSocket, and responds when they are durable.

DIDComm 2.1, "Transports": the response to an accepted POST is any 2xx, preferably 202, with an
empty body; a message that is too large gets 413. On a WebSocket each transmission is one message,
and nothing is sent back: `received_orders` report what was received and what is missing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping

from aiohttp import WSCloseCode
from yarl import URL

from instep_didcomm.options import Options
from instep_http.acceptor import Slot
from instep_http.fast_path import FastPostConnection, PostRequest, RequestHeadParser
from instep_http.server import (
    BoundedServer,
    MessageSocket,
    Request,
    Response,
    ServerLimits,
    problem,
)

__all__ = ["MessageHandler", "MessageServer"]

MessageHandler = Callable[[bytes, str, str, Callable[[Response], None]], None]
"""`post(body, content type, certificate, answer)`: it calls `answer` once, when the outcome is
durable. `certificate` is the name in the certificate of the client; empty where none is asked for.
"""


class MessageServer:
    """A server that receives messages at one address.

    Args:
        post: Called with each message.
        tls: The server's certificate; None for http.
        fast_path: Whether simple POSTs are read by `FastPostConnection`; the responses are the
            same.
    """

    def __init__(
        self,
        options: Options,
        post: MessageHandler,
        tls: ssl.SSLContext | None,
        *,
        fast_path: bool = True,
    ) -> None:
        self._post = post
        self._server = BoundedServer(
            URL(options.listen),
            self._answer,
            options.limits(),
            tls=tls,
            websocket=self._read_socket,
            refuse=_refusal,
            allow_origins=frozenset(options.allow_origins),
            allow_hosts=frozenset(options.allow_hosts),
            first_protocol=self._new_connection if fast_path else None,
        )
        self._head_parser = RequestHeadParser(
            self._server.serves, options.max_body_bytes, self._server.origins
        )

    @property
    def address(self) -> str:
        """The URL with the actual port; empty while the server does not listen."""
        return self._server.address

    def reconfigure(self, limits: ServerLimits) -> None:
        """See `BoundedServer.reconfigure`."""
        self._server.reconfigure(limits)
        self._head_parser.limit_body(limits.max_body_bytes)

    @property
    def refused(self) -> Mapping[str, int]:
        """Connections and requests that the server refused, by reason."""
        return self._server.refused

    async def start(self) -> None:
        """Begin to listen. Raises `SourceError` if that is not possible."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop accepting messages. Accepted messages are still answered, for a short while."""
        await self._server.stop()

    def _new_connection(self, server: BoundedServer, slot: Slot) -> FastPostConnection:
        return FastPostConnection(server, slot, self._head_parser, self._on_post)

    def _on_post(self, post: PostRequest, answer: Callable[[Response], None]) -> None:
        self._post(post.body, post.content_type, post.identity, answer)

    async def _answer(self, request: Request) -> Response:
        stated = request.headers.get("Content-Type", "")
        return await self._take(request.body, stated, request.identity)

    async def _read_socket(self, request: Request, socket: MessageSocket) -> None:
        async for body in socket:
            answer = await self._take(body, "", request.identity)
            if answer.status < 300:
                socket.accepted()
            elif answer.status == 503:
                # The message was not accepted. On a WebSocket only this close code can report that.
                await socket.close(WSCloseCode.TRY_AGAIN_LATER)

    async def _take(self, body: bytes, content_type: str, certificate: str) -> Response:
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def resolve(answer: Response) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._post(body, content_type, certificate, resolve)
        return await answered


def _refusal(status: int, code: str, detail: str) -> Response:
    if status == 413:
        detail = f"me.res.storage.message_too_big: {detail}"
    return problem(status, code, detail)
