"""One open stream of server-sent events (TR-548 ST-0.3, 3.7.1).

Events are moved from the socket into a bounded buffer. A full buffer stops the reading, which stops
the provider and loses nothing. `receive()` decodes all that has arrived at once.

There is no Ping and no Pong: whatever comes is a sign of life, comments too. A peer that sends
nothing at all for `dead_peer_s`, not even a comment, is given up, and the stream goes on over a new
connection. So no silence is taken from a connection that may be broken (A5): an attempt is over
only after a record, or a comment, has shown it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.model.records import RecordChunk
from instep.model.streams import Start
from instep.ports.source import Feed
from instep_http import FOREIGN_ERRORS, source_error
from instep_tapi.endpoints.endpoint import Endpoint
from instep_tapi.options import Options
from instep_tapi.sse.events import EventParser, EventTooBig
from instep_tapi.sse.request import request_events
from instep_tapi.websocket.close_codes import closed_error, frame_too_big
from instep_tapi.websocket.held_bytes import HeldBytes
from instep_tapi.websocket.keep_alive import SignsOfLife
from instep_tapi.wire.decoder import FrameDecoder

__all__ = ["EventFeed", "open_events"]

_RECORD_BYTES = 400
"""Bytes of a small record; a header alone has 300."""


@asynccontextmanager
async def open_events(
    endpoint: Endpoint,
    options: Options,
    address: URL,
    start: str | Start,
    decoder: FrameDecoder,
    clock_offset_us: int,
    held: HeldBytes,
) -> AsyncIterator[EventFeed]:
    """Connect with the login of `endpoint`, and read while the context is open. `held` counts what
    all feeds of the source buffer.

    Raises `TokenRefusedError`, `StreamGoneError`, `AuthenticationError`, `UnreachableError`,
    `TlsError` on entering.
    """
    response = await request_events(endpoint, options, address, start)
    try:
        feed = EventFeed(options, address, decoder, clock_offset_us, start, held)
        reading = asyncio.create_task(feed.read(response.content))
        reading.add_done_callback(feed.task_ended)
        try:
            yield feed
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            feed.release()
    finally:
        response.close()


class EventFeed(Feed):
    """See `Feed`. Made by `open_events`, which connects it and runs its task."""

    def __init__(
        self,
        options: Options,
        address: URL,
        decoder: FrameDecoder,
        clock_offset_us: int,
        start: str | Start,
        held: HeldBytes,
    ) -> None:
        self.clock_offset_us = clock_offset_us
        self._options = options
        self._where = str(address.with_query(None))
        self._decoder = decoder
        self._start = start
        self._clock = asyncio.get_running_loop().time
        self._parser = EventParser(options.max_frame_bytes)
        self._signs = SignsOfLife(self._clock())
        self._frames: list[bytes] = []
        self._held = held
        self._held_bytes = 0
        self._unfinished_bytes = 0
        # Counting the records of a list would cost as much as reading it.
        self._take_bytes = options.batch_records * _RECORD_BYTES
        self._hold_bytes = min(options.hold_bytes, options.hold_records * _RECORD_BYTES)
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._ending: SourceError | None = None

    def __repr__(self) -> str:
        state = "open" if self._ending is None else "ended"
        return f"<EventFeed {self._where} [{state}, {self._held_bytes} bytes held]>"

    @property
    def retry_s(self) -> float:
        """How long the provider wants us to wait before we connect again; 0 where it has not
        said.
        """
        return self._parser.retry_s or 0.0

    async def receive(self) -> RecordChunk:
        """See `Feed.receive`. What arrived before an error is delivered before it is raised."""
        while not self._frames:
            if self._ending is not None:
                raise self._ending
            self._arrived.clear()
            await self._arrived.wait()
        count, size_bytes = 0, 0
        for frame in self._frames:
            if count and size_bytes + len(frame) > self._take_bytes:
                break
            count, size_bytes = count + 1, size_bytes + len(frame)
        taken, self._frames = self._frames[:count], self._frames[count:]
        self._held_bytes -= size_bytes
        self._held.messages_bytes -= size_bytes
        self._signs.note(self._signs.last_s, under_way=self._under_way)
        self._taken.set()
        return self._decoder.scan(taken)

    @property
    def unheard_s(self) -> float:
        """See `Feed`: a comment is a sign of life, but not within an event."""
        return self._clock() - self._signs.idle_s

    def abandon(self, why: SourceError) -> None:
        """Make `receive` raise this error once all that has arrived is taken."""
        self._end(why)

    def release(self) -> None:
        """Count nothing of this feed any more: its connection is closed."""
        self._held.messages_bytes -= self._held_bytes
        self._held.unfinished_bytes -= self._unfinished_bytes
        self._held_bytes = self._unfinished_bytes = 0

    async def read(self, content: aiohttp.StreamReader) -> None:
        """Move events into the buffer until the connection ends."""
        try:
            while self._ending is None:
                await self._wait_for_room()
                async with asyncio.timeout(self._options.dead_peer_s):
                    received = await content.readany()
                if not received:
                    self._end(closed_error(None, "", self._where, self._start))
                    return
                self._take(self._parser.feed(received))
        except TimeoutError:
            silence_s = self._options.dead_peer_s
            self._end(
                UnreachableError(
                    f"the peer is dead: {silence_s:g} s without even a comment", where=self._where
                )
            )
        except EventTooBig:
            self._end(frame_too_big(self._options.max_frame_bytes, self._where))
        except FOREIGN_ERRORS as error:
            self._end(source_error(error, self._where))

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """End the feed when the task fails by a fault of ours, so that no caller waits for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(UnreachableError(f"internal fault: {error!r}"[:200], where=self._where))

    # -- inner parts -----------------------------------------------------------------------------

    @property
    def _under_way(self) -> bool:
        return bool(self._frames) or self._parser.unfinished_bytes > 0

    async def _wait_for_room(self) -> None:
        """Wait while too much is buffered: not reading stops the provider."""
        waited = False
        while self._is_full():
            waited = True
            self._taken.clear()
            await self._taken.wait()
        if waited:
            # While the buffer was full we did not read, so that silence proves nothing.
            self._signs.note(self._clock(), under_way=True)

    def _is_full(self) -> bool:
        return (
            self._held_bytes >= self._hold_bytes
            or len(self._frames) >= self._options.hold_records
            or (self._held.messages_bytes >= self._held.limit_bytes and bool(self._frames))
        )

    def _take(self, frames: list[bytes]) -> None:
        size_bytes = sum(map(len, frames))
        self._held_bytes += size_bytes
        self._held.messages_bytes += size_bytes
        self._frames += frames
        grown_bytes = self._parser.unfinished_bytes - self._unfinished_bytes
        self._unfinished_bytes += grown_bytes
        self._held.unfinished_bytes += grown_bytes
        self._signs.note(self._clock(), under_way=self._under_way)
        if grown_bytes > 0 and self._held.unfinished_bytes > self._held.limit_bytes:
            self._end(
                UnreachableError(
                    f"unfinished messages of all streams are over {self._held.limit_bytes:,} bytes",
                    where=self._where,
                    hint="raise hold_total_bytes if such messages are meant",
                )
            )
        if frames:
            self._arrived.set()

    def _end(self, ending: SourceError) -> None:
        if self._ending is None:
            self._ending = ending
        self._arrived.set()
        self._taken.set()
