"""One open WebSocket to one stream (TR-548 ST-0.3, ST-0.4, 5.10).

Two tasks serve it: one moves messages from the socket into a bounded buffer and stops reading when
that is full, which stops the provider and loses nothing; the other keeps the connection alive
whatever the first one does. Decoding waits for `receive()`, where it is done for all that arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import aiohttp
from aiohttp import WSMsgType
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.ports import Start
from instep.records import Delivery
from instep_tapi.auth import Authenticator
from instep_tapi.endings import CLOSE_TOO_BIG, closed_error, frame_too_big, handshake_error
from instep_tapi.liveness import Due, Liveness
from instep_tapi.options import Options
from instep_tapi.reader import Reader
from instep_tapi.transport import FOREIGN_ERRORS, source_error

__all__ = ["WebSocketFeed", "open_feed", "start_url"]

_WebSocket = aiohttp.ClientWebSocketResponse[bool]
_CLOSE_S = 2.0
_SEND_S = 15.0
_MAX_CONTROL_FRAMES = 10_000
"""Pings and Pongs taken between two Pongs of ours: who sends more keeps us from our work."""
_YIELD_CONTROL_FRAMES = 256
_RECORD_BYTES = 400
"""Of a small record; a header alone has 300."""
_DEFLATE_WINDOW_BITS = 15


def start_url(address: URL, start: str | Start) -> URL:
    """The connection-address with `start_from` (5.10.1); none for the oldest record."""
    if start is Start.OLDEST:
        return address
    value = "latest" if start is Start.LATEST else quote(start, safe="")
    joint = "&" if address.raw_query_string else "?"
    return URL(f"{address.with_fragment(None)}{joint}start_from={value}", encoded=True)


@asynccontextmanager
async def open_feed(
    session: aiohttp.ClientSession,
    auth: Authenticator,
    options: Options,
    address: URL,
    start: str | Start,
    reader: Reader,
    clock_offset_us: int,
) -> AsyncIterator[WebSocketFeed]:
    """Connect with login, and serve the connection while the context is open.

    Raises `TokenRefusedError`, `StreamGoneError`, `AuthenticationError`, `UnreachableError`,
    `TlsError` on entering.
    """
    with_token = not isinstance(start, Start)
    url = start_url(address, start)
    websocket = await _connect(session, auth, options, url, with_token=with_token)
    feed = WebSocketFeed(websocket, options, address, reader, clock_offset_us, with_token)
    tasks = [asyncio.create_task(feed.read_socket()), asyncio.create_task(feed.keep_alive())]
    for task in tasks:
        task.add_done_callback(feed.task_ended)
    try:
        yield feed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError, *FOREIGN_ERRORS):
            async with asyncio.timeout(_CLOSE_S):
                await websocket.close()


async def _connect(
    session: aiohttp.ClientSession,
    auth: Authenticator,
    options: Options,
    url: URL,
    *,
    with_token: bool,
) -> _WebSocket:
    where = str(url.with_query(None))
    headers = await auth.headers()
    for last_try in (False, True):
        try:
            # The session's timeouts are for silence: a handshake that drips would never end.
            async with asyncio.timeout(options.request_timeout_s):
                return await session.ws_connect(
                    url,
                    headers=headers,
                    autoping=False,
                    autoclose=True,
                    compress=_DEFLATE_WINDOW_BITS if options.compression else 0,
                    max_msg_size=options.max_frame_bytes,
                    decode_text=False,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                )
        except aiohttp.WSServerHandshakeError as error:
            if error.status != 401:
                raise handshake_error(error.status, where, with_token=with_token) from error
            if last_try:
                raise auth.refusal(where) from error
            headers = await auth.renew(headers, where)
        except (*FOREIGN_ERRORS, SourceError) as error:
            raise source_error(error, url) from error
    raise AssertionError("unreachable")


class WebSocketFeed:
    """Implements `Feed`. Made by `open_feed`, which runs its two tasks."""

    def __init__(
        self,
        websocket: _WebSocket,
        options: Options,
        address: URL,
        reader: Reader,
        clock_offset_us: int,
        with_token: bool,  # noqa: FBT001 - internal
    ) -> None:
        self.clock_offset_us = clock_offset_us
        self._websocket = websocket
        self._options = options
        self._where = str(address.with_query(None))
        self._reader = reader
        self._with_token = with_token
        self._clock = asyncio.get_running_loop().time
        self._liveness = Liveness(options.pong_interval_s, options.dead_peer_s, self._clock())
        self._heard_s = self._clock()
        self._control_frames = 0
        self._unanswered: bytes | None = None
        self._pinged = asyncio.Event()
        self._frames: list[bytes] = []
        self._held_bytes = 0
        # To count what is in a list would cost as much as to read it.
        self._take_bytes = options.batch_records * _RECORD_BYTES
        self._hold_bytes = min(options.hold_bytes, options.hold_records * _RECORD_BYTES)
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._ending: SourceError | None = None

    def __repr__(self) -> str:
        state = "open" if self._ending is None else "ended"
        return f"<WebSocketFeed {self._where} [{state}, {self._held_bytes} bytes held]>"

    async def receive(self) -> Delivery:
        """See `Feed.receive`. What arrived before the end is delivered before the end is told."""
        while not self._frames:
            if self._ending is not None:
                raise self._ending
            self._arrived.clear()
            await self._arrived.wait()
        taken, self._frames = self._frames, []
        if self._held_bytes > self._take_bytes:
            room = self._take_bytes - len(taken[0])
            count = 1
            while count < len(taken) and (room := room - len(taken[count])) >= 0:
                count += 1
            taken, self._frames = taken[:count], taken[count:]
        self._held_bytes -= sum(map(len, taken))
        self._drained.set()
        return self._reader.peek(taken)

    @property
    def unheard_s(self) -> float:
        """See `ProvesLife`: a frame of any kind is a sign of life."""
        return self._clock() - self._heard_s

    async def ping(self) -> None:
        """See `ProvesLife`. A Pong comes after all that the provider had sent before it."""
        try:
            await self._send(self._websocket.ping())
        except FOREIGN_ERRORS as error:
            self._end(source_error(error, self._where))

    async def read_socket(self) -> None:
        """Move messages into the buffer until the connection ends; wait while it is full."""
        receive = self._websocket.receive
        try:
            while self._ending is None:
                message = await receive()
                kind = message.type
                if kind is WSMsgType.TEXT or kind is WSMsgType.BINARY:
                    frame = message.data
                    self._frames.append(frame)
                    self._held_bytes += len(frame)
                    if not self._arrived.is_set():
                        self._heard_s = self._clock()
                        self._arrived.set()
                    if self._full():
                        await self._wait_for_room()
                    continue
                self._heard_s = self._clock()
                match kind:
                    case WSMsgType.PING:
                        # Answered by the other task, the latest only (RFC 6455 5.5.3).
                        self._unanswered = message.data
                        self._pinged.set()
                        await self._count_control_frame()
                    case WSMsgType.PONG:
                        await self._count_control_frame()
                    case WSMsgType.CLOSE:
                        self._end(self._closed(message.data, message.extra or ""))
                    case WSMsgType.ERROR:
                        self._end(self._broken(message.data))
                    case _:
                        self._end(self._closed(self._websocket.close_code, ""))
        except FOREIGN_ERRORS as error:
            self._end(source_error(error, self._where))

    async def keep_alive(self) -> None:
        """Send Pongs, and Pings into silence, until the peer is dead or the connection ends."""
        try:
            while self._ending is None:
                # While the buffer is full we do not listen: then silence says nothing.
                self._liveness.heard(self._clock() if self._full() else self._heard_s)
                for action in self._liveness.due(self._clock()):
                    match action:
                        case Due.PONG:
                            self._control_frames = 0
                            await self._send(self._websocket.pong())
                        case Due.PING:
                            await self._send(self._websocket.ping())
                        case Due.DEAD:
                            silence_s = self._options.dead_peer_s
                            self._end(
                                UnreachableError(
                                    f"the peer is dead: {silence_s:g} s of silence, then no answer"
                                    " to a Ping",
                                    where=self._where,
                                )
                            )
                await self._wait_for_ping(max(self._liveness.next_s() - self._clock(), 0.01))
                if self._unanswered is not None:
                    asked, self._unanswered = self._unanswered, None
                    await self._send(self._websocket.pong(asked))
        except FOREIGN_ERRORS as error:
            self._end(source_error(error, self._where))

    async def _wait_for_ping(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._pinged.wait()
        self._pinged.clear()

    async def _send(self, frame: Awaitable[None]) -> None:
        """A peer that does not read must not keep us from noticing that it is dead."""
        async with asyncio.timeout(_SEND_S):
            await frame

    async def _count_control_frame(self) -> None:
        self._control_frames += 1
        if self._control_frames > _MAX_CONTROL_FRAMES:
            self._end(
                UnreachableError(
                    f"the peer floods us: more than {_MAX_CONTROL_FRAMES:,} Pings and Pongs"
                    f" within {self._options.pong_interval_s:g} s",
                    where=self._where,
                )
            )
        elif self._control_frames % _YIELD_CONTROL_FRAMES == 0:
            await asyncio.sleep(0)

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """A task that ends by a fault of ours ends the feed too: nobody must wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(UnreachableError(f"internal fault: {error!r}"[:200], where=self._where))

    def _full(self) -> bool:
        return (
            self._held_bytes >= self._hold_bytes or len(self._frames) >= self._options.hold_records
        )

    async def _wait_for_room(self) -> None:
        while self._full():
            self._drained.clear()
            await self._drained.wait()

    def _closed(self, code: int | None, reason: str) -> SourceError:
        return closed_error(code, reason, self._where, with_token=self._with_token)

    def _broken(self, error: object) -> SourceError:
        if isinstance(error, aiohttp.WebSocketError) and error.code == CLOSE_TOO_BIG:
            return frame_too_big(self._options.max_frame_bytes, self._where)
        return UnreachableError(f"the WebSocket is broken: {error}"[:200], where=self._where)

    def leave(self, why: SourceError) -> None:
        """Let `receive` raise this, once all that has arrived is taken."""
        self._end(why)

    def _end(self, ending: SourceError) -> None:
        if self._ending is None:
            self._ending = ending
        self._arrived.set()
