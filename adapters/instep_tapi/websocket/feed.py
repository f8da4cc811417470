"""One open WebSocket to one stream (TR-548 ST-0.3, ST-0.4, 5.10).

Messages are moved from the socket into a bounded buffer. A full buffer stops the reading, which
stops the provider and loses nothing. A task keeps the connection alive meanwhile. `receive()`
decodes all that has arrived at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport
from picows.picows import WSCloseHandshake
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.model.streams import Start
from instep_tapi.endpoints.endpoint import Endpoint
from instep_tapi.feeds.buffered_feed import BufferedFeed
from instep_tapi.feeds.close_codes import closed_error, frame_too_big
from instep_tapi.feeds.held_bytes import HeldBytes
from instep_tapi.feeds.keep_alive import Due, KeepAlive
from instep_tapi.options import Options
from instep_tapi.websocket.assembly import BrokenMessage, MessageAssembler, MessageTooBig
from instep_tapi.websocket.handshake import connect
from instep_tapi.websocket.socket_reads import (
    MAX_READ_BYTES,
    MAX_STORM_READ_BYTES,
    limit_reads,
)
from instep_tapi.wire.decoder import FrameDecoder

__all__ = ["WebSocketFeed", "open_feed"]

_CLOSE_S = 2.0
_MAX_CONTROL_FRAMES = 10_000
"""Most Pings and Pongs accepted between two Pongs of ours; a peer that sends more is cut off."""
_AHEAD_BYTES: Final = 400_000
_AHEAD_OF_HEADERS_BYTES: Final = 4_000_000
"""Bytes that are held for the next `receive`: one or two milliseconds of decoding, with bodies and
without. Reading goes no further for a time: an event loop that always has something to read
leaves the thread that commits waiting for the interpreter's lock at each of its statements.
"""
_PATIENCE_S: Final = 1.0
"""After this time without a `receive`, in seconds, the socket is read up to the bounds of what a
stream may hold: something longer than a commit goes on, as the reading of a baseline.
"""
_CONTROL_BYTES: Final = 125
"""Most bytes of a control frame (RFC 6455 5.5): a longer frame is data."""


@asynccontextmanager
async def open_feed(
    endpoint: Endpoint,
    options: Options,
    address: URL,
    start: str | Start,
    decoder: FrameDecoder,
    clock_offset_us: int,
    held: HeldBytes,
) -> AsyncIterator[WebSocketFeed]:
    """Connect with the login of `endpoint`, and serve the connection while the context is open.
    `held` counts what all feeds of the source buffer.

    Raises `TokenRefusedError`, `StreamGoneError`, `AuthenticationError`, `UnreachableError`,
    `TlsError` on entering.
    """
    feed = WebSocketFeed(options, address, decoder, clock_offset_us, start, held)
    login = (endpoint.client, endpoint.tls, endpoint.auth)
    transport = await connect(feed, *login, options, address, start)
    feed.local_addresses = _addresses_of(transport)
    limit_reads(transport.underlying_transport, feed.most_read_bytes)
    keep_alive_task = asyncio.create_task(feed.keep_alive())
    keep_alive_task.add_done_callback(feed.task_ended)
    try:
        yield feed
    finally:
        keep_alive_task.cancel()
        try:
            await asyncio.gather(keep_alive_task, return_exceptions=True)
            await _close(transport)
        finally:
            feed.release()


def _addresses_of(transport: WSTransport) -> tuple[str, ...]:
    """Our end of the connection, with its port and without."""
    name = transport.underlying_transport.get_extra_info("sockname")
    if not isinstance(name, tuple) or len(name) < 2:
        return ()
    host, port = str(name[0]), name[1]
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _close(transport: WSTransport) -> None:
    """Send a close frame, and wait for the answer for a short time only."""
    with suppress(Exception):
        if not transport.is_disconnected:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
        async with asyncio.timeout(_CLOSE_S):
            await transport.wait_disconnected()
    if not transport.is_disconnected:
        transport.disconnect(graceful=False)


class WebSocketFeed(WSListener, BufferedFeed):
    """See `Feed`. Made by `open_feed`, which connects it and runs its task."""

    def __init__(
        self,
        options: Options,
        address: URL,
        decoder: FrameDecoder,
        clock_offset_us: int,
        start: str | Start,
        held: HeldBytes,
    ) -> None:
        WSListener.__init__(self)
        BufferedFeed.__init__(self, options, address, decoder, clock_offset_us, start, held)
        self._transport: WSTransport | None = None
        self._assembler = MessageAssembler(options.max_frame_bytes)
        self._writable = True
        self._keep_alive = KeepAlive(options.pong_interval_s, options.dead_peer_s, self._clock())
        self._withholds_pongs = False
        self._control_frames = 0
        self._unanswered_ping: bytes | None = None
        self._ping_received = asyncio.Event()
        self._fragmented = False
        self._read_messages: list[bytes] = []
        """Messages of the current read of the socket."""
        self._paused = False
        self._patience: asyncio.TimerHandle | None = None
        """Runs out `_PATIENCE_S` after the socket was read far enough ahead."""
        self._late = False
        """Whether `receive` was not called for so long."""

    @property
    def _under_way(self) -> bool:
        return self._fragmented or bool(self._frames)

    def most_read_bytes(self) -> int:
        """Most bytes that the next read of the socket may bring."""
        return MAX_STORM_READ_BYTES if self._decoder.leaves_bodies else MAX_READ_BYTES

    async def ping(self) -> None:
        """See `Feed`. A Pong comes after all that the provider had sent before it."""
        if self._transport is not None and self._writable:
            self._transport.send_ping()

    def withhold_pongs(self) -> None:
        """See `BufferedFeed.withhold_pongs`."""
        self._withholds_pongs = True
        self._ping_received.set()
        super().withhold_pongs()

    def limit_unread(self, size_bytes: int) -> None:
        if self._transport is not None:
            found = self._transport.underlying_transport.get_extra_info("socket")
            if found is not None:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)

    # -- events of the socket --------------------------------------------------------------------

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The handshake is done."""
        self._transport = transport
        extensions = transport.response.headers.getall("Sec-WebSocket-Extensions", ())
        try:
            self._assembler = MessageAssembler(self._options.max_frame_bytes, ", ".join(extensions))
        except BrokenMessage as error:
            self._abort(WSCloseCode.MANDATORY_EXTENSION, self._protocol_error(error))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """A frame came; called for one after the other of what was read at once."""
        if (
            frame.payload_size > _CONTROL_BYTES
            and frame.fin
            and not frame.rsv1
            and not self._fragmented
        ):
            self._read_messages.append(frame.get_payload_as_bytes())
        elif (message := self._handle_other_frame(transport, frame)) is not None:
            self._read_messages.append(message)
        if frame.last_in_buffer:
            if self._read_messages:
                self._put(self._read_messages)
                self._read_messages.clear()
                self._apply_back_pressure()
            self._signs.note(self._clock(), under_way=self._under_way)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection ended, on either side."""
        handshake = cast("WSCloseHandshake | None", transport.close_handshake)
        theirs = handshake is None or handshake.recv is not None
        self.closed_by_peer = theirs and self._ending is None
        if handshake is None:
            self._end(closed_error(None, "", self._where, self._start))
        elif handshake.recv is not None:
            code, reason = cast("int", handshake.recv.code), handshake.recv.reason or ""
            self._end(closed_error(code, reason, self._where, self._start))
        elif handshake.sent is not None and handshake.sent.code == WSCloseCode.MESSAGE_TOO_BIG:
            self._end(frame_too_big(self._options.max_frame_bytes, self._where))
        else:
            self._end(self._protocol_error(handshake.sent.reason if handshake.sent else ""))

    def pause_writing(self) -> None:
        """The peer does not read: stop sending."""
        self._writable = False

    def resume_writing(self) -> None:
        """The peer reads again: sending may go on."""
        self._writable = True

    def _handle_other_frame(self, transport: WSTransport, frame: WSFrame) -> bytes | None:
        """Handle a control frame, a fragment, a compressed frame or a short one.

        Returns the message that the frame completes, if any.
        """
        if self._ending is not None:
            return None
        payload = frame.get_payload_as_bytes()
        match frame.msg_type:
            case WSMsgType.PING:
                # The task answers it, and only the latest one (RFC 6455 5.5.3).
                self._unanswered_ping = payload
                self._ping_received.set()
                self._count_control_frame()
            case WSMsgType.PONG:
                self._count_control_frame()
            case WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code())
                transport.disconnect()
            case kind:
                first = kind is not WSMsgType.CONTINUATION
                self._fragmented = not frame.fin
                try:
                    message = self._assembler.add(
                        payload, first=first, last=frame.fin, deflated=frame.rsv1
                    )
                    unfinished_bytes = self._assembler.unfinished_bytes
                    if (error := self._count_unfinished(unfinished_bytes)) is not None:
                        self._abort(WSCloseCode.POLICY_VIOLATION, error)
                    return message
                except MessageTooBig:
                    error = frame_too_big(self._options.max_frame_bytes, self._where)
                    self._abort(WSCloseCode.MESSAGE_TOO_BIG, error)
                except BrokenMessage as broken:
                    self._abort(WSCloseCode.PROTOCOL_ERROR, self._protocol_error(broken))
        return None

    def _count_control_frame(self) -> None:
        self._control_frames += 1
        if self._control_frames > _MAX_CONTROL_FRAMES:
            error = UnreachableError(
                f"the peer floods us: more than {_MAX_CONTROL_FRAMES:,} Pings and Pongs"
                f" within {self._options.pong_interval_s:g} s",
                where=self._where,
            )
            self._abort(WSCloseCode.POLICY_VIOLATION, error)

    def release(self) -> None:
        """See `BufferedFeed.release`."""
        if self._patience is not None:
            self._patience.cancel()
        super().release()

    def _room(self) -> None:
        self._late = False
        if self._paused:
            self._apply_back_pressure()

    def _apply_back_pressure(self) -> None:
        """Read the socket only while there is room, and not far ahead of `receive`."""
        full = self._is_full
        leaves_bodies = self._decoder.leaves_bodies
        ahead_bytes = _AHEAD_OF_HEADERS_BYTES if leaves_bodies else _AHEAD_BYTES
        ahead = not self._late and self._held_bytes >= ahead_bytes
        if self._patience is not None and not ahead:
            self._patience.cancel()
            self._patience = None
        if ahead and self._patience is None and not full:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_PATIENCE_S, self._read_further)
        paused = full or ahead
        if paused != self._paused and self._transport is not None:
            self._paused = paused
            if not paused:
                # While the socket was not read, silence proves nothing.
                self._signs.note(self._clock(), under_way=True)
                self._transport.underlying_transport.resume_reading()
            else:
                self._transport.underlying_transport.pause_reading()

    def _read_further(self) -> None:
        self._patience, self._late = None, True
        self._apply_back_pressure()

    # -- tasks -----------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Send Pongs, and Pings after silence, until the peer is dead or the connection ends."""
        transport = self._transport
        assert transport is not None
        while self._ending is None and not self._withholds_pongs:
            self._keep_alive.note_activity(self._clock() if self._paused else self._signs.last_s)
            for action in self._keep_alive.due(self._clock()):
                match action:
                    case Due.PONG:
                        self._control_frames = 0
                        if self._writable:
                            transport.send_pong()
                            if self.tap is not None:
                                self.tap.pong_sent()
                    case Due.PING:
                        if self._writable:
                            transport.send_ping()
                    case Due.DEAD:
                        silence_s = self._options.dead_peer_s
                        self._end(
                            UnreachableError(
                                f"the peer is dead: {silence_s:g} s of silence, then no answer"
                                " to a Ping",
                                where=self._where,
                            )
                        )
            await self._wait_for_ping(max(self._keep_alive.next_s() - self._clock(), 0.01))
            answers = self._writable and not self._withholds_pongs
            if self._unanswered_ping is not None and answers:
                ping_payload, self._unanswered_ping = self._unanswered_ping, None
                transport.send_pong(ping_payload)

    async def _wait_for_ping(self, timeout_s: float) -> None:
        # Not `asyncio.timeout`: its error costs several times as much as the Pong.
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_s, self._ping_received.set)
        try:
            await self._ping_received.wait()
        finally:
            timer.cancel()
        self._ping_received.clear()

    def _protocol_error(self, error: object) -> SourceError:
        return UnreachableError(f"the WebSocket is broken: {error}"[:200], where=self._where)

    def _abort(self, code: WSCloseCode, error: SourceError) -> None:
        """End a connection whose peer breaks the protocol; further input is ignored."""
        self._end(error)
        if self._transport is not None:
            self._transport.send_close(code)
            self._transport.disconnect(graceful=False)

    def _end(self, ending: SourceError) -> None:
        super()._end(ending)
        self._ping_received.set()
