"""Follows a provider for a time, so that its conformance can be judged from what it sends.

By default as a consumer does: one connection a stream, and where the provider closes it, another
one behind the last record. `active` does more, and says so before: it closes by itself, uses tokens
again, reads slowly, and reads the log once more at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from yarl import URL

from instep.conformance import Event
from instep.errors import InstepError, NoStreamError, SourceError, TokenRefusedError
from instep.model.records import RecordHeader
from instep.model.streams import Start, StreamInfo
from instep_tapi.feeds.feed_tap import now_us
from instep_tapi.source import TapiSource

__all__ = ["PROBED", "Probe", "probe_source"]

PROBED: Final = {"hold_records": 2_000, "hold_bytes": 1024 * 1024}
"""Options of a source that is probed. What is read is judged at once: a reader that waits shall be
felt by the provider.
"""
_POLL_S: Final = 10.0
_RECONNECT_S: Final = 0.5
_MAX_RECONNECT_S: Final = 10.0
_SLOW_SHARE: Final = 0.1
_AWAY_SHARE: Final = 0.03
_OLDER: Final = 1.2
"""An old token is older than the tombstone retention by this factor."""


async def probe_source(
    source: TapiSource,
    seconds: float,
    record: Callable[[Event], None],
    note: Callable[[str], None],
    *,
    active: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Probe a source and close it; `record` is given each event. Raises `SourceError` where nothing
    was seen: what was seen until then is judged all the same.
    """
    seen = False

    def recorded(event: Event) -> None:
        nonlocal seen
        seen = True
        record(event)

    source.record(recorded)
    try:
        await Probe(source, seconds, active=active, say=say, note=note).run()
    except SourceError as error:
        if not seen:
            raise
        note(str(error))
    finally:
        await source.close()


class Probe:
    """One probing run.

    Args:
        source: Records to whoever judges; it is closed by the caller.
        seconds: How long streams are read.
        active: Whether it does what a consumer would not do by itself.
        say: Is told what is done before it is done.
        note: Is told what keeps us from seeing more.
    """

    def __init__(
        self,
        source: TapiSource,
        seconds: float,
        *,
        active: bool,
        say: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._source = source
        self._seconds = seconds
        self._active = active
        self._say = say
        self._note = note

    async def run(self) -> None:
        """Read for the time. Raises `SourceError` where nothing can be read at all."""
        try:
            survey = await self._source.survey()
        except NoStreamError as error:
            self._note(str(error))
            return
        await self._read_network(survey.address.endpoint, survey.address.context)
        try:
            infos = await self._source.discover()
        except NoStreamError as error:
            self._note(str(error))
            infos = []
        tasks = [asyncio.create_task(self._stream(info)) for info in infos]
        polling = asyncio.create_task(self._poll())
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=self._seconds + _MAX_RECONNECT_S)
            # The streams go on while the network is read once more.
            await self._read_network(survey.address.endpoint, survey.address.context)
            with suppress(SourceError):
                await self._source.survey()
        finally:
            for task in (*tasks, polling):
                task.cancel()
            await asyncio.gather(*tasks, polling, return_exceptions=True)

    async def _read_network(self, endpoint: str, context: str) -> None:
        try:
            answer = await self._source.rest_at(endpoint).get(URL(context, encoded=True))
        except InstepError as error:
            self._note(f"the context cannot be read: {error}")
        else:
            if not answer.found:
                self._note(f"the context is answered with {answer.status}")

    async def _poll(self) -> None:
        """Read the states of the streams now and then."""
        every_s = min(_POLL_S, self._seconds / 4)
        while True:
            await asyncio.sleep(every_s)
            with suppress(SourceError):
                await self._source.survey()

    async def _stream(self, info: StreamInfo) -> None:
        stream = _Stream(self._source, info, self._note)
        try:
            await (self._provoke(stream) if self._active else stream.read(self._seconds))
        except SourceError as error:
            self._note(f"{info.id}: {error}")

    async def _provoke(self, stream: _Stream) -> None:
        """Do what a consumer would not do; each within what the provider states."""
        total_s = self._seconds
        away_s, idle_s = total_s * _AWAY_SHARE, total_s * _SLOW_SHARE

        async def reconnect() -> None:
            self._say(f"{stream.id}: closes, and goes on with the last token {away_s:.1f} s later")
            await stream.close()
            await asyncio.sleep(away_s)

        async def use_old_token() -> None:
            if stream.old_token:
                self._say(f"{stream.id}: uses a token older than the tombstone retention")
                await stream.restart(stream.old_token)

        async def read_slowly() -> None:
            self._say(f"{stream.id}: reads nothing for {idle_s:.1f} s")
            await asyncio.sleep(idle_s)

        steps = [reconnect, reconnect, reconnect, use_old_token, read_slowly]
        await stream.read(total_s * 0.25)
        for step in steps:
            await step()
            await stream.read(total_s * 0.3 / len(steps))
        self._say(f"{stream.id}: reads the log once more from its oldest record")
        await stream.restart(Start.OLDEST)
        await stream.read(total_s * 0.25)


class _Stream:
    """One stream, over as many connections as it takes."""

    def __init__(self, source: TapiSource, info: StreamInfo, note: Callable[[str], None]) -> None:
        self._source = source
        self._info = info
        self._note = note
        self._after: str | Start = Start.OLDEST
        self.old_token = ""
        """One that is older than the tombstone retention, where the log has it."""
        self._task: asyncio.Task[None] | None = None
        self._reading = asyncio.Event()
        self._reading.set()

    @property
    def id(self) -> str:
        return self._info.id

    async def read(self, seconds: float) -> None:
        """Read for so long, and keep the connection."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        self._reading.set()
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        self._reading.clear()
        for task in done:
            task.result()

    async def close(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def restart(self, after: str | Start) -> None:
        """Close, to begin behind this token or at the oldest record."""
        await self.close()
        self._after = after

    async def _follow(self) -> None:
        wait_s = _RECONNECT_S
        try:
            while True:
                try:
                    async with self._source.feed(self._info, self._after) as feed:
                        while True:
                            await self._reading.wait()
                            chunk = await feed.receive()
                            wait_s = _RECONNECT_S
                            for record in chunk.records:
                                self._after = record.token or self._after
                                self._note_age(record)
                except TokenRefusedError as error:
                    self._note(f"{self.id}: {error}")
                    if self._after in {Start.OLDEST, Start.LATEST}:
                        raise
                    self._after = Start.OLDEST
                except SourceError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _MAX_RECONNECT_S)
                    with suppress(SourceError):
                        infos = await self._source.discover()
                        self._info = next((one for one in infos if one.id == self.id), self._info)
        finally:
            self._reading.set()

    def _note_age(self, record: RecordHeader) -> None:
        retention_s = self._info.tombstone_retention_s
        if retention_s is None or self.old_token or not record.token:
            return
        age_s = (now_us() + self._info.clock_offset_us - record.appended_at_us) / 1e6
        if age_s > retention_s * _OLDER:
            self.old_token = record.token
