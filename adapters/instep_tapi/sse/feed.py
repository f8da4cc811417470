"""One open stream of server-sent events (TR-548 ST-0.3, 3.7.1).

Events are moved from the socket into a bounded buffer. A full buffer stops the reading, which stops
the provider and loses nothing. `receive()` decodes all that has arrived at once.

There is no Ping and no Pong: whatever comes is a sign of life, comments too. A peer that sends
nothing at all for `dead_peer_s` and 15 s, not even a comment, is given up, and the stream goes on
over a new connection. So no silence is taken from a connection that may be broken (A5): a record or
a comment must have shown that the peer is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.model.streams import Start
from instep_http import FOREIGN_ERRORS, source_error
from instep_tapi.endpoints.endpoint import Endpoint
from instep_tapi.feeds.buffered_feed import BufferedFeed
from instep_tapi.feeds.close_codes import closed_error, frame_too_big
from instep_tapi.feeds.held_bytes import HeldBytes
from instep_tapi.options import Options
from instep_tapi.sse.events import EventParser, EventTooBig
from instep_tapi.sse.request import request_events
from instep_tapi.wire.decoder import FrameDecoder

__all__ = ["EventFeed", "open_events"]


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


class EventFeed(BufferedFeed):
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
        super().__init__(options, address, decoder, clock_offset_us, start, held)
        self._parser = EventParser(options.max_frame_bytes)
        self._taken = asyncio.Event()

    @property
    def retry_s(self) -> float:
        """How long the provider wants us to wait before we connect again; 0 where it has not
        said.
        """
        return self._parser.retry_s or 0.0

    async def read(self, content: aiohttp.StreamReader) -> None:
        """Move events into the buffer until the connection ends."""
        try:
            while self._ending is None:
                await self._wait_for_room()
                # As long as a WebSocket may be silent: some peers comment once a minute.
                async with asyncio.timeout(self.heard_within_s):
                    received = await content.readany()
                if not received:
                    self.closed_by_peer = True
                    self._end(closed_error(None, "", self._where, self._start))
                    return
                self._take(self._parser.feed(received))
        except TimeoutError:
            text = f"the peer is dead: {self.heard_within_s:g} s without even a comment"
            self._end(UnreachableError(text, where=self._where))
        except EventTooBig:
            self._end(frame_too_big(self._options.max_frame_bytes, self._where))
        except FOREIGN_ERRORS as error:
            self.closed_by_peer = True
            self._end(source_error(error, self._where))

    # -- inner parts -----------------------------------------------------------------------------

    @property
    def _under_way(self) -> bool:
        return bool(self._frames) or self._parser.unfinished_bytes > 0

    async def _wait_for_room(self) -> None:
        """Wait while too much is buffered: not reading stops the provider."""
        waited = False
        while self._is_full:
            waited = True
            self._taken.clear()
            await self._taken.wait()
        if waited:
            # While the buffer was full we did not read, so that silence proves nothing.
            self._signs.note(self._clock(), under_way=True)

    def _room(self) -> None:
        self._taken.set()

    def _take(self, frames: list[bytes]) -> None:
        if frames:
            self._put(frames)
        self._signs.note(self._clock(), under_way=self._under_way)
        if (error := self._count_unfinished(self._parser.unfinished_bytes)) is not None:
            self._end(error)

    def _end(self, ending: SourceError) -> None:
        super()._end(ending)
        self._taken.set()
