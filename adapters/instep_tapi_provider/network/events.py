"""One client on one stream over server-sent events (TR-548 3.7.1, W3C EventSource)."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from aiohttp import web

from instep_tapi_provider.log import LogRecord
from instep_tapi_provider.log_reader import LogReader
from instep_tapi_provider.network.site import Site
from instep_tapi_provider.network.websocket import Session, open_log
from instep_tapi_provider.stream import Stream

EVENT_STREAM = "text/event-stream"
_POLL_S = 0.02
_COMMENT = b": here\n"


async def serve_events(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer a request for the events of a stream, and send them until the client leaves."""
    start_from = request.query.get("start_from") or request.headers.get("Last-Event-ID")
    opened = open_log(site, request, start_from)
    if isinstance(opened, web.Response):
        return opened
    response = web.StreamResponse(
        headers={"Content-Type": EVENT_STREAM, "Cache-Control": "no-store"}
    )
    try:
        await response.prepare(request)
        if site.settings.retry_s is not None:
            await response.write(b"retry: %d\n\n" % round(site.settings.retry_s * 1_000))
    except ConnectionResetError:
        return web.Response()  # the client has gone, and nobody reads it
    await EventSession(site, *opened, request, response).run()
    return response


class EventSession(Session):
    """Serves a client over server-sent events: an event for each frame, with the token of its last
    record for an id, and a comment now and then.
    """

    def __init__(
        self,
        site: Site,
        stream: Stream,
        reader: LogReader,
        request: web.Request,
        response: web.StreamResponse,
    ) -> None:
        super().__init__(site, stream, reader, request)
        # No client sends a Pong here.
        self._last_ping_at = float("inf")
        self._response = response
        self._ended = asyncio.Event()

    @property
    def _closed(self) -> bool:
        transport = self._request.transport
        return self._ended.is_set() or transport is None or transport.is_closing()

    async def _until_left(self) -> None:
        every_s, clock = self._site.settings.comment_every_s, asyncio.get_running_loop().time
        due_s = clock() + every_s
        with suppress(ConnectionError):
            while not self._closed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_POLL_S, every_s)):
                        await self._ended.wait()
                if clock() >= due_s:
                    due_s = clock() + every_s
                    if not self._site.faults.silent:
                        await self._write_events(_COMMENT)

    async def _end(self) -> None:
        self._ended.set()

    async def _write(self, records: Sequence[LogRecord]) -> None:
        style = self._stream.encoder.style
        for first in range(0, len(records), style.records_per_frame):
            part = records[first : first + style.records_per_frame]
            data = [record.data for record in part]
            frames = self._stream.encoder.frames(data, self._site.now())
            id_ = b"id: %b\n" % part[-1].token.encode()
            await self._write_events(b"".join(id_ + _event(frame) for frame in frames))

    async def _write_frames(self, frames: list[bytes]) -> None:
        await self._write_events(b"".join(map(_event, frames)))

    async def _write_in_fragments(self, record: LogRecord) -> None:
        for frame in self._stream.encoder.frames([record.data], self._site.now()):
            event = _event(frame)
            await self._write_events(event[:-1])
            await asyncio.sleep(self._site.faults.fragment_pause_s)
            await self._write_events(_COMMENT + event[-1:])

    async def _write_events(self, events: bytes) -> None:
        try:
            await self._response.write(events)
        except ConnectionError:
            self._ended.set()
            raise


def _event(frame: bytes) -> bytes:
    return b"".join(b"data: %b\n" % line for line in frame.splitlines()) + b"\n"
