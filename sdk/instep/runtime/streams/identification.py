"""Finds out which stream a new one is, by a reading of what it carries (A20)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection

import msgspec

from instep.alignment.stream_identity import StreamCandidate, alike, choose_place
from instep.errors import InstepError
from instep.model.position import Phase
from instep.model.streams import StreamInfo
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.health import StreamHealth
from instep.runtime.retry import Environment, late_wait_s
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.discovery import StreamDiscovery
from instep.runtime.streams.identity_snapshot import IdentitySnapshot

__all__ = ["StreamIdentification"]


class StreamIdentification:
    """The new streams of a consumer that may be known ones under other names.

    Each is read once, while what is stored stays as it is. Streams that carry the same are decided
    about together: the one that agrees most with a stored stream takes its place.
    """

    def __init__(
        self,
        discovery: StreamDiscovery,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings,
        environment: Environment,
        *,
        report: Callable[[str, str, str], None],
    ) -> None:
        self._discovery = discovery
        self._source, self._sink = source, sink
        self.settings, self._environment = settings, environment
        self._now = environment.steady()
        self._report = report
        self._readings: dict[str, IdentitySnapshot] = {}
        """By the origin of the stream."""
        self._deciding = asyncio.Lock()
        self._others_found: list[StreamInfo] = []
        """New streams that were none of the known ones."""

    def health(self) -> list[StreamHealth]:
        """The streams that are being read. None of them is aligned: nothing of it is stored."""
        return [
            msgspec.structs.replace(one.worker.health(), phase=Phase.UNALIGNED, caught_up=False)
            for one in self._readings.values()
        ]

    async def run(self, group: asyncio.TaskGroup, found: Callable[[StreamInfo], None]) -> None:
        """Identify doubtful streams until cancelled; `found` is called with each, under the id that
        it has in the store.
        """
        self._readings.clear()
        tasks: dict[str, asyncio.Task[None]] = {}
        while True:
            doubtful = {stream.origin: stream for stream in self._discovery.doubtful}
            for origin in tasks.keys() - doubtful.keys():
                tasks.pop(origin).cancel()
                self._readings.pop(origin, None)
            for origin, stream in doubtful.items():
                if origin not in tasks or tasks[origin].done():
                    tasks[origin] = group.create_task(self._identify(stream, found))
            await self._discovery.news.wait()
            self._discovery.news.clear()

    async def _identify(self, stream: StreamInfo, found: Callable[[StreamInfo], None]) -> None:
        self._report(stream.id, "identifying", "whether it is a stream that is stored already")
        while True:
            try:
                named = await self._decided(stream)
            except InstepError as error:
                self._report(stream.id, "stream-failed", str(error))
                await asyncio.sleep(late_wait_s(self.settings, self._environment))
            else:
                found(named)
                return

    async def _decided(self, stream: StreamInfo) -> StreamInfo:
        reading = IdentitySnapshot(
            stream,
            self._source,
            self.settings,
            self._environment,
            self._now,
            report=self._report,
        )
        try:
            if not await self._is_decided_by_counts(stream):
                self._readings[stream.origin] = reading
                await reading.run()
                await self._await_others(stream)
            async with self._deciding:
                return self._discovery.decided(stream, await self._place_of(reading))
        finally:
            self._readings.pop(stream.origin, None)

    async def _is_decided_by_counts(self, stream: StreamInfo) -> bool:
        """Whether nothing is stored of the one stream that it could be: no reading is needed."""
        candidates = self._candidates(stream)
        like = [one for one in self._discovery.doubtful if alike(one, stream)]
        if len(candidates) != 1 or len(like) > 1:
            return False
        stored = await self._sink.identities(candidates[0].id)
        return stored is not None and not stored

    async def _await_others(self, stream: StreamInfo) -> None:
        """Wait for those that carry the same: one of them may agree more. Not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.discover_confirm_s):
                await asyncio.gather(*(one.read() for one in self._others(stream)))

    def _others(self, stream: StreamInfo) -> Collection[IdentitySnapshot]:
        return [
            one
            for one in self._readings.values()
            if one.stream.origin != stream.origin and alike(one.stream, stream)
        ]

    def _candidates(self, stream: StreamInfo) -> list[StreamInfo]:
        return [one for one in self._discovery.missing if alike(one, stream)]

    async def _place_of(self, reading: IdentitySnapshot) -> str | None:
        """The id of the stream that this one is; None: a new one. Of several that agree with one
        place, the one that agrees most has it, whoever is asked first.
        """
        names, rivals = reading.names, self._others(reading.stream)
        candidates: list[StreamCandidate] = []
        for place in self._candidates(reading.stream):
            stored = await self._sink.identities(place.id)
            if stored is None:
                continue
            common = len(stored & names)
            if any(len(stored & one.names) > common for one in rivals):
                continue
            candidates.append(StreamCandidate(place.id, len(stored), reading.entities, common))
        like = [one for one in self._others_found if alike(one, reading.stream)]
        only = not rivals and not like and len(self._candidates(reading.stream)) == 1
        chosen = choose_place(candidates, only=only, id_=reading.stream.id)
        one = next((one for one in candidates if one.id == chosen), None)
        if one is None:
            self._others_found.append(reading.stream)
        else:
            text = (
                f"{reading.stream.id} has its place: {one.common:,} entities agree, of"
                f" {one.stored:,} stored and {one.stated:,} stated"
            )
            self._report(one.id, "stream-identified", text)
        return chosen
