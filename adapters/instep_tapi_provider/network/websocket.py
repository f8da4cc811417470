"""One client on one stream over WebSocket (TR-548 5.8, 5.10): send what its reader returns, and
drop the client when due.

The log is read only when the socket has room, so back-pressure reaches the log and nothing piles up
here. Without compression many frames go out in one write: the frames are formed here, since a
library's call per frame costs more than the frame.
"""

import asyncio
import re
import socket
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence

from aiohttp import WSMsgType, web

from instep_tapi.facts.names import StreamState
from instep_tapi_provider.deviations import CONFORMING, Deviation
from instep_tapi_provider.log import LogRecord, Start
from instep_tapi_provider.log_reader import LogReader
from instep_tapi_provider.network.site import Site, restconf_error
from instep_tapi_provider.stream import Listener, Stream

_MAX_CLIENT_FRAME_BYTES = 64 * 1024
_POLL_S = 0.25
_FLUSH_S = 1.0
_BLOCKED_S = 2.0
_LITTLE_BYTES = 4 * 1024
_TEXT_TO_GO_ON, _LAST_CONTINUATION = 0x01, 0x80
_PONG = b"\x8a\x00"


async def serve_stream(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer a WebSocket handshake on a stream's connection-address, and serve it until it ends."""
    opened = open_log(site, request, request.query.get("start_from") or None)
    if isinstance(opened, web.Response):
        return opened
    ws = web.WebSocketResponse(
        autoping=False,
        compress=site.settings.compression,
        max_msg_size=_MAX_CLIENT_FRAME_BYTES,
        timeout=1.0,
    )
    try:
        await ws.prepare(request)
    except ConnectionResetError:
        return web.Response()  # the client has gone, and nobody reads it
    await WebSocketSession(site, *opened, request, ws).run()
    return ws


def open_log(
    site: Site, request: web.Request, start_from: str | None
) -> tuple[Stream, LogReader] | web.Response:
    """The stream of a request and the way of its client through the log, or a refusal."""
    stream = site.stream(request.match_info["uuid"])
    if stream is None or stream.state is StreamState.TERMINATED:
        return restconf_error(404, "invalid-value", "no such stream", request.path)
    counters, faults = stream.counters, site.faults
    counters.last_start_from = start_from
    refused = faults.refuse_latest if start_from == "latest" else faults.refuse_tokens
    deviation = faults.deviation or CONFORMING
    status = faults.handshake_status or (start_from and refused)
    status = status or deviation.refusal(start_from, len(stream.listeners))
    if status:
        counters.refused += 1
        return restconf_error(status, "access-denied", "refused", request.path)
    if stream.listeners:
        if faults.refuse_second:
            counters.refused += 1
            return restconf_error(
                faults.refuse_second, "access-denied", "one connection only", request.path
            )
        if faults.displace_first or deviation.displaces:
            for listener in list(stream.listeners):
                listener.drop()
    if faults.forget_log:
        faults.forget_log = False
        stream.forget_log()
    reader = LogReader(stream, start_from, faults, site.now())
    counters.connections += 1
    match reader.start:
        case Start.OLDEST:
            counters.starts_from_oldest += 1
        case Start.RESUMED:
            counters.resumes_by_token += 1
        case Start.RESTARTED:
            counters.restarts_from_oldest += 1
        case Start.LATEST:
            counters.starts_from_latest += 1
    return stream, reader


class Session(ABC):
    """The serving of one client: a sender, a watchdog, and the wait for the client's end."""

    def __init__(self, site: Site, stream: Stream, reader: LogReader, request: web.Request) -> None:
        self._site = site
        self._stream = stream
        self._reader = reader
        self._restarts = site.faults.restarts_open
        self._request = request
        self._last_ping_at = self._last_sent_at = asyncio.get_running_loop().time()
        self._sending_at: float | None = None
        """Since when something is sent that the client does not take."""
        self._sent_records = 0
        self._listener = Listener(str(uuid.uuid4()), request.remote or "", drop=self.drop)
        self._listener.updated_s = site.now()

    async def run(self) -> None:
        """Serve until the client leaves or is dropped."""
        self._stream.listeners[self._listener] = None
        if self._deviation.feels_slow_clients:
            self._hold_little()
        tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._watch())]
        try:
            await self._until_left()
        finally:
            self._stream.listeners.pop(self._listener, None)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _hold_little(self) -> None:
        """Have the operating system hold little that the client does not take."""
        transport = self._request.transport
        held = None if transport is None else transport.get_extra_info("socket")
        if transport is not None and held is not None:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LITTLE_BYTES)
            transport.set_write_buffer_limits(_LITTLE_BYTES)

    def drop(self, *, flush: bool = False) -> None:
        """Cut the connection without a closing handshake; `flush`: what was written still goes
        out.
        """
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        self._stream.counters.dropped += 1
        if flush:
            transport.close()
            # A client that does not read would keep the connection half closed for ever.
            asyncio.get_running_loop().call_later(_FLUSH_S, transport.abort)
        else:
            transport.abort()

    @property
    @abstractmethod
    def _closed(self) -> bool:
        """Whether the client cannot be sent anything any more."""

    @abstractmethod
    async def _until_left(self) -> None:
        """Wait until the client has left."""

    @abstractmethod
    async def _end(self) -> None:
        """End the connection in good order: the stream is terminated."""

    @abstractmethod
    async def _write(self, records: Sequence[LogRecord]) -> None:
        """Send these records."""

    @abstractmethod
    async def _write_frames(self, frames: list[bytes]) -> None:
        """Send this, whatever it is."""

    @abstractmethod
    async def _write_in_fragments(self, record: LogRecord) -> None:
        """Send a record with a pause within it."""

    async def _watch(self) -> None:
        """Drop a client that is silent, or blocked on a record past tombstone retention (5.8)."""
        timeout_s = self._site.settings.pong_timeout_s
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_POLL_S, timeout_s / 4))
            now, deviation = loop.time(), self._deviation
            silent = now - self._last_ping_at > timeout_s and deviation.waits_for_pongs
            if silent or now - self._last_sent_at > deviation.idle_s:
                self.drop(flush=True)
                return
            if self._sending_at is not None and now - self._sending_at > deviation.slow_s:
                self.drop()
                return
            if self._stream.state is StreamState.TERMINATED:
                await self._end()
                return
            if self._stream.state is StreamState.ACTIVE and self._reader.lost():
                self.drop()
                return

    async def _send(self) -> None:
        wake = self._listener.wake
        while not self._closed:
            wake.clear()
            records: Sequence[LogRecord] = ()
            if self._restarts != self._site.faults.restarts_open:
                self._restarts = self._site.faults.restarts_open
                faults = self._site.faults
                self._reader = LogReader(self._stream, None, faults, self._site.now())
            goes_on = self._stream.state is StreamState.ACTIVE or self._deviation.sends_paused
            if goes_on and not self._site.faults.silent:
                if self._reader.lost():
                    self.drop()
                    return
                position = self._reader.position
                records = self._reader.read()
                if not records and position != self._reader.position:
                    continue  # all of them are left out by a deviation
            if records:
                try:
                    await self._take_turn(records)
                except ConnectionError:
                    return
            else:
                await wake.wait()

    @property
    def _deviation(self) -> Deviation:
        return self._site.faults.deviation or CONFORMING

    async def _take_turn(self, records: Sequence[LogRecord]) -> None:
        deviation, loop = self._deviation, asyncio.get_running_loop()
        began_at = self._sending_at = loop.time()
        if deviation.serves_together:
            async with self._stream.turn:
                await self._deliver(records)
        else:
            await self._deliver(records)
        self._sending_at, self._last_sent_at = None, loop.time()
        if deviation.queue_records is not None and self._last_sent_at - began_at > _BLOCKED_S:
            self._reader.overflow(deviation.queue_records)

    async def _deliver(self, records: Sequence[LogRecord]) -> None:
        faults = self._site.faults
        if faults.drop_probability and self._site.rng.random() < faults.drop_probability:
            self.drop(flush=True)
            raise ConnectionResetError("dropped, as the fault wants")
        if faults.on_each_record:
            for record in records:
                await self._deliver_with_faults(record)
        else:
            await self._write(records)
            self._delivered(records[-1], len(records))

    def _delivered(self, last: LogRecord, count: int) -> None:
        self._sent_records += count
        self._stream.counters.records_sent += count
        self._listener.last_read = last
        self._listener.updated_s = self._site.now()

    async def _deliver_with_faults(self, record: LogRecord) -> None:
        faults = self._site.faults
        if faults.stall_after_records == self._sent_records:
            await asyncio.sleep(faults.stall_s)
        if faults.delay_per_frame_s:
            await asyncio.sleep(faults.delay_per_frame_s)
        number = self._sent_records + 1
        if faults.oversized_every and number % faults.oversized_every == 0:
            await self._write_frames([b'"%b"' % (b"x" * (faults.oversized_bytes - 2))])
        if faults.malformed_every and number % faults.malformed_every == 0:
            await self._write_frames([record.data[: len(record.data) // 2]])
        elif faults.unreadable_every and number % faults.unreadable_every == 0:
            await self._write_frames([_without_time(record.data)])
        elif faults.fragment_every and number % faults.fragment_every == 0:
            await self._write_in_fragments(record)
        else:
            copies = 1
            if faults.duplicate_every and number % faults.duplicate_every == 0:
                copies = 2
            await self._write([record] * copies)
        self._delivered(record, 1)
        if faults.drop_after_records is not None and (
            self._sent_records >= faults.drop_after_records
        ):
            self.drop(flush=True)
            raise ConnectionResetError("dropped, as the fault wants")


def _without_time(data: bytes) -> bytes:
    """The record with an append time that says nothing."""
    return re.sub(rb'("log-append-time-stamp":")[^"]*', rb"\1unknown", data)


class WebSocketSession(Session):
    """Serves a client over WebSocket."""

    def __init__(
        self,
        site: Site,
        stream: Stream,
        reader: LogReader,
        request: web.Request,
        ws: web.WebSocketResponse,
    ) -> None:
        super().__init__(site, stream, reader, request)
        self._ws = ws

    @property
    def _closed(self) -> bool:
        return self._ws.closed

    async def _end(self) -> None:
        await self._ws.close(code=1001, message=b"stream terminated")

    async def _until_left(self) -> None:
        """Take the client's frames. An unsolicited Pong keeps the connection (ST-0.4)."""
        while not self._ws.closed:
            message = await self._ws.receive()
            if message.type is WSMsgType.PING:
                await self._ws.pong(message.data)
            if message.type in (WSMsgType.PING, WSMsgType.PONG):
                self._last_ping_at = asyncio.get_running_loop().time()
            elif message.type in (
                WSMsgType.CLOSE,
                WSMsgType.CLOSING,
                WSMsgType.CLOSED,
                WSMsgType.ERROR,
            ):
                return

    async def _write(self, records: Sequence[LogRecord]) -> None:
        data = [record.data for record in records]
        await self._write_frames(list(self._stream.encoder.frames(data, self._site.now())))

    async def _write_frames(self, frames: list[bytes]) -> None:
        if self._ws.compress:
            for frame in frames:
                await self._ws.send_frame(frame, WSMsgType.TEXT)
            return
        pieces: list[bytes] = []
        for frame in frames:
            pieces += (_frame_head(len(frame)), frame)
        await self._write_bytes(b"".join(pieces))

    async def _write_in_fragments(self, record: LogRecord) -> None:
        for frame in self._stream.encoder.frames([record.data], self._site.now()):
            half = len(frame) // 2
            await self._write_bytes(_frame_head(half, _TEXT_TO_GO_ON) + frame[:half])
            await asyncio.sleep(self._site.faults.fragment_pause_s)
            last = _frame_head(len(frame) - half, _LAST_CONTINUATION)
            await self._write_bytes(_PONG + last + frame[half:])

    async def _write_bytes(self, data: bytes) -> None:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        transport.write(data)
        await self._request.writer.drain()
        if transport.is_closing():
            raise ConnectionResetError("the client is gone")


def _frame_head(size_bytes: int, first: int = 0x81) -> bytes:
    """The head of an unmasked frame (RFC 6455 5.2), of a final text frame by default."""
    if size_bytes < 126:
        return struct.pack("!BB", first, size_bytes)
    if size_bytes < 1 << 16:
        return struct.pack("!BBH", first, 126, size_bytes)
    return struct.pack("!BBQ", first, 127, size_bytes)
