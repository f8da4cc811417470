"""Discovery: finds the streams of a source, again after failures, and their names in the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)

from instep.alignment.stream_identity import match_streams
from instep.errors import AuthenticationError, DiscoveryError, InstepError, NoStreamError, SinkError
from instep.model.streams import StreamInfo
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.assigned_streams import AssignedStreams
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
        assigned: AssignedStreams | None = None,
    ) -> None:
        self.last_error = ""
        """Why the first discovery has not succeeded yet."""
        self.left = ""
        """The last failover: which instance of the provider was left, for which other, and why."""
        self._source, self._sink = source, sink
        self._settings, self._environment = settings, environment
        self._report = report
        self._assigned = assigned
        self._offered: dict[str, StreamInfo] = {}
        """The discovered streams, by their ids in the store."""
        self._discovering = asyncio.Lock()

    async def first(self) -> list[StreamInfo]:
        """Discover, with retries until it succeeds. Raises the fatal error."""
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    offered = await self._source.discover()
                    known = await self._sink.known_streams()
                    self._require_assigned(offered)
                except InstepError as error:
                    if await self._has_succeeded():
                        _retry(error)
                    self.last_error = str(error)
                    self._report("disconnected", self.last_error)
                    raise
                self.last_error = ""
                streams = self._named(known, offered)
                self._offered = {stream.id: stream for stream in streams}
                return streams
        raise AssertionError("retrying ends by returning or raising")

    async def _has_succeeded(self) -> bool:
        """Whether the consumer has ever followed a stream, also in an earlier process."""
        with contextlib.suppress(SinkError):
            return bool(await self._sink.known_streams())
        return False

    async def again(self, gone: StreamInfo, workers: Mapping[str, StreamWorker]) -> StreamInfo:
        """Discover the stream again, possibly at another instance (TR-548 ST-4.2).

        A known stream may be unavailable for a while, so a discovery without it is retried. One
        discovery serves all streams that ask for it meanwhile.
        """
        async with self._discovering:
            found = self._offered.get(gone.id)
            if found is None or found == gone:
                found = await self._anew(gone, workers)
        if found is None:
            raise NoStreamError("the stream is not offered any more", where=gone.id, retriable=True)
        return found

    async def further(self, followed: Collection[StreamInfo]) -> list[StreamInfo]:
        """Discover streams that are not followed yet. Raises `InstepError`."""
        ids = {stream.id for stream in followed}
        if self._assigned is not None and self._assigned.ids <= ids:
            return []
        async with self._discovering:
            offered = await self._source.discover()
            if all(stream.id in ids for stream in self._named(followed, offered)):
                return []
            known = [*await self._sink.known_streams(), *followed]
            return [stream for stream in self._named(known, offered) if stream.id not in ids]

    async def appearing(
        self,
        followed: Callable[[], Collection[StreamInfo]],
        wait: Callable[[], Awaitable[None]],
    ) -> AsyncGenerator[list[StreamInfo]]:
        """The streams that appear while the consumer runs (TR-548 3.6.7), looked for after each
        `wait`. Ends where the login is refused.
        """
        undiscovered = False
        while True:
            await wait()
            try:
                found = await self.further(followed())
            except InstepError as error:
                # The streams that are followed go on whatever becomes of this.
                if not undiscovered:
                    self._report("undiscovered", str(error))
                undiscovered = True
                if isinstance(error, AuthenticationError):
                    # To try a refused login again and again locks the account.
                    return
                continue
            undiscovered = False
            if found:
                yield found

    async def _anew(
        self, gone: StreamInfo, workers: Mapping[str, StreamWorker]
    ) -> StreamInfo | None:
        try:
            offered = await self._source.discover()
        except InstepError as error:
            _retry(error)
            raise
        known = [worker.stream for worker in workers.values()]
        self._offered = {stream.id: stream for stream in self._named(known, offered)}
        found = self._offered.get(gone.id)
        if found is not None and found.endpoint != gone.endpoint:
            why = workers[gone.id].health().last_error
            self.left = f"{gone.endpoint} for {found.endpoint}: {why}"
            self._report("failed-over", self.left)
        return found

    def _named(
        self, known: Iterable[StreamInfo], offered: Sequence[StreamInfo]
    ) -> list[StreamInfo]:
        """The offered streams that are to be followed, by their ids in the store."""
        return (
            match_streams(known, offered)
            if self._assigned is None
            else self._assigned.among(offered)
        )

    def _require_assigned(self, offered: Sequence[StreamInfo]) -> None:
        if self._assigned is not None and not self._assigned.among(offered):
            raise NoStreamError("no stream of this worker process is offered now", retriable=True)


def _retry(error: InstepError) -> None:
    """Make retriable what is a mistake of the configuration only where nothing has worked before:
    a provider may lack its streams for a while.
    """
    error.retry_late()
    if isinstance(error, DiscoveryError | NoStreamError):
        error.retriable = True
