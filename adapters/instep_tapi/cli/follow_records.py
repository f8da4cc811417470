"""`instep follow --records`: each record that comes over the wire, as it comes."""

from __future__ import annotations

import asyncio

from instep.errors import SourceError, StreamGoneError, TokenRefusedError
from instep.model.records import Record, RecordChunk
from instep.model.streams import Start, StreamInfo
from instep.ports.source import Source
from instep.runtime.retry import Environment, backoff_s, retrying
from instep.runtime.settings import ConsumerSettings
from instep.runtime.supervision import until_first_ended
from instep_tapi.cli.follow_printer import FollowPrinter

__all__ = ["follow_records"]


async def follow_records(source: Source, start: Start, printer: FollowPrinter) -> None:
    """Print records until the printer is full. After a loss a stream goes on behind the last
    record that was printed; where its provider has forgotten that place, it begins at the oldest
    record, and records come again.

    Raises what does not pass by itself: a refused login, a stream that does not exist.
    """
    infos = await source.discover()
    for info in infos:
        printer.profile(info)
    streams = [_Stream(source, info, start, printer) for info in infos]
    await until_first_ended(*[stream.follow() for stream in streams], printer.full.wait())


class _Stream:
    """One stream, over as many connections as it takes."""

    def __init__(
        self, source: Source, info: StreamInfo, start: Start, printer: FollowPrinter
    ) -> None:
        self._source = source
        self._info = info
        self._after: str | Start = start
        self._printer = printer
        self._settings = ConsumerSettings()
        self._environment = Environment()
        self._failures = 0
        self._deviations: set[str] = set()

    async def follow(self) -> None:
        """Follow until cancelled. Raises `SourceError` for what does not pass by itself."""
        while True:
            try:
                async with self._source.feed(self._info, self._after) as feed:
                    while True:
                        self._print(await feed.receive())
            except TokenRefusedError as error:
                if self._after in {Start.OLDEST, Start.LATEST}:
                    raise
                self._say(f"{error}; it is read from its oldest record on")
                self._after = Start.OLDEST
            except SourceError as error:
                if not error.retriable:
                    raise
                self._failures += 1
                wait_s = backoff_s(self._settings, self._environment, self._failures)
                self._say(f"disconnected: {error}; connects again in {wait_s:.1f} s")
                await asyncio.sleep(wait_s)
                if isinstance(error, StreamGoneError):
                    await self._find_again()

    def _print(self, chunk: RecordChunk) -> None:
        decoded = chunk.decode()
        for record in decoded.records:
            # What is left out is given as a header alone, and moves the place all the same.
            if isinstance(record, Record):
                self._printer.record(record)
            self._after, self._failures = record.token or self._after, 0
        for unreadable in (*chunk.unreadable, *decoded.unreadable):
            self._say(f"a record cannot be read: {unreadable.reason}")
        for kind in {*chunk.deviations, *decoded.deviations} - self._deviations:
            self._deviations.add(kind)
            self._say(f"the provider departs from its specification: {kind}")
        self._printer.flush()

    async def _find_again(self) -> None:
        """The stream as another discovery finds it, by its name."""
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                for info in await self._source.discover():
                    if info.id == self._info.id:
                        self._info = info

    def _say(self, text: str) -> None:
        self._printer.say(f"{self._info.id}: {text}")
