"""A fast path for connections that POST one message after another, as most do.

aiohttp's parser parses each distinct head once: a sender repeats its head except for the length.
Any request that is not of the simplest form (another method or path, chunks, compression, an
upgrade, HTTP/1.0, an error) is handed over, with its connection, to aiohttp's own handler, which
serves the connection until it ends.

The fast path exists only for its speed. `bench`, inbox-100, on two cores shared with other
programs, alternating with it and without it: 3,482 and 1,524 messages/s (medians of four rounds,
with the general handler that `BoundedServer` replaced); 0.91 and 0.73 of the floor with
`BoundedServer` (medians of two rounds under heavy load). A test of each adapter that uses it
compares the responses of both paths to the same bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, cast

import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, HttpVersion11

from instep_http.acceptor import Slot
from instep_http.lingering import linger
from instep_http.origins import OriginRules
from instep_http.request_target import read_target
from instep_http.server import BoundedServer, Response, problem

__all__ = ["FastPostConnection", "PostHandler", "PostRequest", "RequestHeadParser"]

_END: Final = b"\r\n\r\n"
_HEADS_KEPT: Final = 1_024
_LONGEST_HEAD_BYTES: Final = 8_190
_NOT_SIMPLE: Final = ("Expect", "Transfer-Encoding", "Content-Encoding", "Upgrade")
_GATHERED_BYTES: Final = 64 * 1024
"""The largest message that is assembled here when it arrives in pieces."""


class PostRequest(msgspec.Struct, frozen=True):
    """A POST that came whole."""

    body: bytes
    path: str
    content_type: str
    """As the head states it; empty: it does not."""
    peer: str
    """The IP address of the sender, which may be a proxy."""
    identity: str = ""
    """See `Request.identity`."""


PostHandler = Callable[[PostRequest, Callable[[Response], None]], None]
"""Called with a POST and `answer`, which it calls once, at once or later."""


class RequestHead(msgspec.Struct, frozen=True):
    """The fields of a simple POST's head that are used."""

    length_bytes: int
    path: str
    content_type: str


class RequestHeadParser:
    """Reads heads of requests.

    Args:
        serves: Whether a path is served.
        limit_bytes: Longest body.
        origins: The origins and hosts that are allowed.
    """

    def __init__(
        self, serves: Callable[[str], bool], limit_bytes: int, origins: OriginRules
    ) -> None:
        self._serves = serves
        self._limit_bytes = limit_bytes
        self._origins = origins
        self.read = lru_cache(maxsize=_HEADS_KEPT)(self._read)
        """Parses a head: the result for a simple POST that is served, None for anything else."""

    def limit_body(self, limit_bytes: int) -> None:
        """Set another longest body."""
        self._limit_bytes = limit_bytes
        # What it remembers was judged by the old one.
        self.read.cache_clear()

    def _read(self, head: bytes) -> RequestHead | None:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
        try:
            messages, upgraded, rest = parser.feed_data(head)
        except HttpProcessingError:
            return None
        if len(messages) != 1 or upgraded or rest:
            return None
        ((message, body),) = messages
        headers, target = message.headers, read_target(message.path)
        simple = (
            message.method == "POST"
            and target is not None
            and self._serves(target.path)
            and message.version == HttpVersion11
            and not (message.should_close or message.chunked or message.compression)
            and not any(name in headers for name in _NOT_SIMPLE)
            and not body.total_bytes
            and not self._origins.refusal(headers, target.authority)
        )
        length = headers.get("Content-Length", "0")
        if target is None or not simple or not 0 < int(length) <= self._limit_bytes:
            return None
        content_type = headers.get("Content-Type", "")
        return RequestHead(int(length), target.path, content_type)


class FastPostConnection(asyncio.Protocol):
    """The protocol of one connection, until the server takes it over; an
    `instep_http.server.FirstProtocol`.

    Bounded are the time for a head, for a body and of an idle connection. One message is handled at
    a time.
    """

    def __init__(
        self,
        server: BoundedServer,
        slot: Slot,
        head_parser: RequestHeadParser,
        post: PostHandler,
    ) -> None:
        self._server = server
        self._limits = server.limits
        self.slot = slot
        """See `instep_http.server.Connection`."""
        self._proven = False
        self._head_parser = head_parser
        self._post = post
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._needed_bytes = 0
        """How many bytes a whole request needs."""
        self.busy = False
        """Whether a message is being handled."""
        self._ending = False
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._set_deadline(self._limits.head_timeout_s)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.slot.release()
        self._detach()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        if self.busy:
            # The next request must wait, and back-pressure makes its sender wait.
            buffer += data
            assert self._transport is not None
            self._transport.pause_reading()
            return
        if buffer:
            buffer += data
            if len(buffer) < self._needed_bytes:
                return
            data = bytes(buffer)
            buffer.clear()
        self._read_request(data)

    @property
    def replaceable(self) -> bool:
        """See `instep_http.server.Connection`."""
        return not self.busy

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def end(self) -> None:
        """Close the connection; a message that is being handled is answered first."""
        self._ending = True
        if not self.busy and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, also while a message is being handled."""
        if self._transport is not None:
            self._transport.abort()

    def _read_request(self, data: bytes) -> None:
        """Handle received bytes: a part of a request, a request, or more than one."""
        self._needed_bytes = 0
        end = data.find(_END, 0, _LONGEST_HEAD_BYTES) + len(_END)
        head = self._head_parser.read(data[:end]) if end >= len(_END) else None
        needed = end + head.length_bytes if head is not None else 0
        if head is None or (needed > len(data) and needed > _GATHERED_BYTES):
            transport = self._transport
            self._detach()
            if transport is not None:
                self._server.take_over(transport, self.slot, data)
            return
        if needed > len(data):
            self._buffer += data
            self._needed_bytes = needed
            self._set_deadline(self._limits.body_timeout_s)
            return
        if needed < len(data):
            self._buffer += data[needed:]
        self.busy = True
        slot = self.slot
        body = data[end:needed]
        post = PostRequest(body, head.path, head.content_type, slot.address, slot.identity)
        self._post(post, self._answer)

    def _answer(self, answer: Response) -> None:
        self.busy = False
        transport = self._transport
        if transport is None:
            return
        if not self._proven and 200 <= answer.status < 300:
            self._proven = True
            self._server.accepted(self)
        closes = self._ending or answer.close
        transport.write(_response(answer, close=closes))
        if closes:
            transport.close()
            return
        self._set_deadline(self._limits.idle_timeout_s)
        if self._buffer:
            # Scheduled instead of called: a thousand bad requests in a row would recurse a thousand
            # deep.
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
            if self._buffer and not self.busy:
                self.data_received(b"")

    def _set_deadline(self, within_s: float) -> None:
        """Require bytes from the peer within `within_s` seconds."""
        loop = asyncio.get_running_loop()
        self._deadline_s = loop.time() + within_s
        # One timer serves many requests: most arrive at once, and a timer for each is expensive.
        if self._timer is not None and self._timer.when() > self._deadline_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        loop, transport = asyncio.get_running_loop(), self._transport
        if transport is None:
            return
        if self.busy:
            self._deadline_s = loop.time() + self._limits.idle_timeout_s
        if self._deadline_s > loop.time():
            self._timer = loop.call_at(self._deadline_s, self._check_deadline)
            return
        if self._needed_bytes:
            answer = problem(408, "too-slow", "the body did not come in time")
            transport.write(_response(answer, close=True))
            linger(transport, self.connection_lost)
            return
        transport.close()

    def _detach(self) -> None:
        if self._transport is not None:
            self._transport = None
            self._server.closed(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _response(answer: Response, *, close: bool = False) -> bytes:
    body, own = answer.body, tuple(answer.headers.items())
    # By position: the key of a cache takes longer with a name in it.
    return _head(answer.status, own, len(body), int(time.time()), close) + body


@lru_cache(maxsize=64)
def _head(
    status: int,
    own: tuple[tuple[str, str], ...],
    length_bytes: int,
    at_s: int,
    close: bool,  # noqa: FBT001 - see `_response`
) -> bytes:
    """Render the head of a response; cached, because nearly all of one second are equal."""
    headers = {"Content-Length": str(length_bytes), "Date": formatdate(at_s, usegmt=True)}
    if close:
        headers["Connection"] = "close"
    lines = [f"{name}: {value}" for name, value in {**headers, **dict(own)}.items()]
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return "\r\n".join((first, *lines)).encode() + _END
