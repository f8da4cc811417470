"""What a source offers, and under which names the store knows it: discovery, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from instep.alignment.stream_identity import match_streams
from instep.errors import DiscoveryError, InstepError, NoStreamError
from instep.model.streams import StreamInfo
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.worker import StreamWorker

__all__ = ["StreamDiscovery"]


class StreamDiscovery:
    """The streams of one consumer, as last discovered."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings,
        environment: Environment,
        *,
        report: Callable[[str, str], None],
    ) -> None:
        self.last_error = ""
        """Why the first discovery has not come to its end yet."""
        self.left = ""
        """Which instance of the provider was left last, for which other, and why."""
        self._source, self._sink = source, sink
        self._settings, self._environment = settings, environment
        self._report = report
        self._offered: dict[str, StreamInfo] = {}
        """By the ids of the store."""
        self._discovering = asyncio.Lock()

    async def first(self) -> list[StreamInfo]:
        """Discover, however long it takes. Raises the error that is fatal."""
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    offered = await self._source.discover()
                    known = await self._sink.known_streams()
                except InstepError as error:
                    self.last_error = str(error)
                    self._report("disconnected", self.last_error)
                    raise
                self.last_error = ""
                streams = match_streams(known, offered)
                self._offered = {stream.id: stream for stream in streams}
                return streams
        raise AssertionError("retrying ends by returning or raising")

    async def again(self, gone: StreamInfo, workers: Mapping[str, StreamWorker]) -> StreamInfo:
        """The same stream as it is offered now, maybe by another instance (TR-548 ST-4.2).

        What was there once may be away for a while: not finding it is retried. What one stream
        finds serves the others that ask meanwhile.
        """
        async with self._discovering:
            found = self._offered.get(gone.id)
            if found is None or found == gone:
                found = await self._anew(gone, workers)
        if found is None:
            raise NoStreamError("the stream is not offered any more", where=gone.id, retriable=True)
        return found

    async def _anew(
        self, gone: StreamInfo, workers: Mapping[str, StreamWorker]
    ) -> StreamInfo | None:
        try:
            offered = await self._source.discover()
        except (DiscoveryError, NoStreamError) as error:
            error.retriable = True
            raise
        known = [worker.stream for worker in workers.values()]
        self._offered = {stream.id: stream for stream in match_streams(known, offered)}
        found = self._offered.get(gone.id)
        if found is not None and found.endpoint != gone.endpoint:
            why = workers[gone.id].health().last_error
            self.left = f"{gone.endpoint} for {found.endpoint}: {why}"
            self._report("failed-over", self.left)
        return found
