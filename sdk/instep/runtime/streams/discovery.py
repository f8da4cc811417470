"""Discovery: finds the streams of a source, again after failures, and their names in the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)

import msgspec

from instep.alignment.stream_identity import log_of, match_streams, unused_id
from instep.errors import (
    AuthenticationError,
    DiscoveryError,
    InstepError,
    NoStreamError,
    SinkError,
    SourceError,
)
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
        self.settings, self._environment = settings, environment
        self._report = report
        self._left_for = ("", "")
        self.named: Mapping[str, StreamInfo] = {}
        """The streams that the last `further` has found, by their ids in the store."""
        self.restart_suggested = False
        """Whether something suggests that the provider was restarted before it was first found."""
        self._assigned = assigned
        self._offered: dict[str, StreamInfo] = {}
        """The discovered streams, by their ids in the store."""
        self._discovering = asyncio.Lock()
        self.doubtful: tuple[StreamInfo, ...] = ()
        """New streams that may be known ones under other names (A20)."""
        self.missing: tuple[StreamInfo, ...] = ()
        """Known streams that are not offered, or under no known name."""
        self.news = asyncio.Event()
        """Set when a discovery has found either of them otherwise than the one before."""
        self._missing_since_s: dict[str, float] = {}
        self._known: dict[str, StreamInfo] = {}
        self._proven: dict[str, str] = {}
        """The logs of streams that were recognised by what they carry → their ids in the store."""
        self._now = environment.steady()

    async def first(self, unoffered: Callable[[], Awaitable[None]]) -> list[StreamInfo]:
        """Discover, with retries until it succeeds. `unoffered` is called while no stream is
        offered. Raises the fatal error.
        """
        async for attempt in retrying(self.settings, self._environment):
            with attempt:
                try:
                    streams = await self._discover()
                    if self._assigned is not None and not streams:
                        text = "no stream of this worker process is offered now"
                        raise NoStreamError(text, retriable=True)
                except InstepError as error:
                    if isinstance(error, SourceError) and error.suggests_restart:
                        self.restart_suggested = True
                    if await self._has_succeeded():
                        _retry(error)
                    if isinstance(error, NoStreamError):
                        await unoffered()
                    self.last_error = str(error)
                    self._report("disconnected", self.last_error)
                    raise
                self.last_error = ""
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
                found = (await self._anew(workers)).get(gone.id)
        if found is None:
            raise NoStreamError("the stream is not offered any more", where=gone.id, retriable=True)
        if found.endpoint != gone.endpoint and (gone.endpoint, found.endpoint) != self._left_for:
            self._left_for = gone.endpoint, found.endpoint
            self.left = (
                f"{gone.endpoint} for {found.endpoint}: {workers[gone.id].health().last_error}"
            )
            self._report("failed-over", self.left)
        return found

    async def further(self, followed: Collection[StreamInfo]) -> list[StreamInfo]:
        """Discover streams that are not followed yet. Raises `InstepError`."""
        ids = {stream.id for stream in followed}
        if self._assigned is not None and self._assigned.ids <= ids:
            # Whoever assigns them discovers.
            self.named = self._assigned.take_renamed()
            return []
        async with self._discovering:
            named = await self._discover(followed)
            self.named = {stream.id: stream for stream in named}
            return [stream for stream in named if stream.id not in ids]

    def not_offered(self) -> list[StreamInfo]:
        """The known streams that have been missing for `discover_confirm_s`."""
        now_s, confirm_s = self._now(), self.settings.discover_confirm_s
        return [
            one
            for one in self.missing
            if one.not_offered_since_us or now_s - self._missing_since_s[one.id] >= confirm_s
        ]

    def decided(self, stream: StreamInfo, place: str | None) -> StreamInfo:
        """Take over which stream a doubtful one is; `place` is the id of a known one, or None.
        Returns it under the id that it has in the store.
        """
        used = {*self._known, *(one.id for one in self.doubtful if one is not stream)}
        id_ = place or (unused_id(stream, used) if stream.id in used else stream.id)
        named = msgspec.structs.replace(stream, id=id_)
        # Where an instance is gone back to, its stream needs no second reading.
        former = self._known.get(id_)
        for one in (named, former) if former is not None else (named,):
            self._proven[log_of(one)] = id_
        self._known[id_] = self._offered[id_] = named
        self.doubtful = tuple(one for one in self.doubtful if one.origin != stream.origin)
        self.missing = tuple(one for one in self.missing if one.id != id_)
        self._missing_since_s.pop(id_, None)
        return named

    async def appearing(
        self,
        followed: Callable[[], Collection[StreamInfo]],
        changed: asyncio.Event,
    ) -> AsyncGenerator[list[StreamInfo]]:
        """The streams that appear while the consumer runs (TR-548 3.6.7), looked for every
        `discover_every_s` and once `changed` is set, which is cleared then; often none. Ends where
        the login is refused.
        """
        undiscovered = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.discover_every_s):
                    await changed.wait()
            changed.clear()
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
                if isinstance(error, NoStreamError):
                    yield []
                continue
            undiscovered = False
            yield found

    async def _anew(self, workers: Mapping[str, StreamWorker]) -> dict[str, StreamInfo]:
        try:
            named = await self._discover([worker.stream for worker in workers.values()])
        except InstepError as error:
            _retry(error)
            raise
        self._offered = {stream.id: stream for stream in named}
        return self._offered

    async def _discover(self, followed: Collection[StreamInfo] = ()) -> list[StreamInfo]:
        """The offered streams that are to be followed, by their ids in the store. Raises
        `InstepError`.
        """
        try:
            offered = await self._source.discover()
        except NoStreamError:
            # That, too, is an answer: none of the known ones is offered.
            await self._named((), followed)
            raise
        return await self._named(offered, followed)

    async def _named(
        self, offered: Sequence[StreamInfo], followed: Collection[StreamInfo] = ()
    ) -> list[StreamInfo]:
        """The offered streams that are to be followed, by their ids in the store."""
        if self._assigned is not None:
            return self._assigned.among(offered)
        known = [*await self._sink.known_streams(), *followed]
        self._known = {stream.id: stream for stream in known}
        matched = match_streams(self._known.values(), offered, self._proven)
        if (matched.doubtful, matched.missing) != (self.doubtful, self.missing):
            self.doubtful, self.missing = matched.doubtful, matched.missing
            self.news.set()
        now_s = self._now()
        self._missing_since_s = {
            one.id: self._missing_since_s.get(one.id, now_s) for one in matched.missing
        }
        return list(matched.named)


def _retry(error: InstepError) -> None:
    """Make retriable what is a mistake of the configuration only where nothing has worked before:
    a provider may lack its streams for a while.
    """
    error.retry_late()
    if isinstance(error, DiscoveryError | NoStreamError):
        error.retriable = True
