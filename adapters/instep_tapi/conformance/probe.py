"""Follows a provider for a time, so that its conformance can be judged from what it sends.

By default as a consumer does: one connection a stream, and where the provider closes it, another
one behind the last record. `active` does more, and says so before: it closes by itself, uses tokens
again, reads slowly, and reads the log once more at the end; beside that it opens a second
connection, and at last holds the Pongs of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from yarl import URL

from instep.conformance import Event
from instep.errors import InstepError, NoStreamError, SourceError, TokenRefusedError
from instep.model.streams import Start, StreamInfo
from instep_tapi.feeds.buffered_feed import BufferedFeed
from instep_tapi.feeds.feed_tap import now_us
from instep_tapi.source import TapiSource

__all__ = ["ACTIVE", "PROBED", "Probe", "probe_source"]

PROBED: Final = {"hold_records": 500, "hold_bytes": 16 * 1024}
"""Options of a source that is probed. What is read is judged at once: a reader that waits shall be
felt by the provider.
"""
ACTIVE: Final = {**PROBED, "compression": False}
"""The same where it is read with pauses: compressed, ten times as much would wait unfelt."""
_POLL_S: Final = 10.0
_RECONNECT_S: Final = 0.5
_MAX_RECONNECT_S: Final = 10.0
_SLOW_SHARE: Final = 0.1
_AWAY_SHARE: Final = 0.03
_SLOW_TIMES: Final = 3
_UNREAD_BYTES: Final = 64 * 1024
"""What the operating system is to hold of a connection that we will not read for a while: from its
beginning, since what it has once granted to a sender it does not take back.
"""
_SECOND_SHARE: Final = 0.35
_SETTLED_S: Final = 6.0
_SETTLED_SHARE: Final = 0.1
_OTHERWISE: Final = 1.4
"""Another wait than the one before it: what ends after the same time each time is no displacement.
"""
_WITHHELD_S: Final = 95.0
"""A provider drops who sends no Pong for 30 s (5.8); one that does not after this has no limit."""
_WITHHELD_SHARE: Final = 0.25
_WITHHELD_FROM_S: Final = 60.0
"""A run that is as long may take longer for it."""
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
        self._settled_s = min(_SETTLED_S, seconds * _SETTLED_SHARE)
        """How long two connections are to be open beside each other, or not to be."""
        self._say = say
        self._note = note
        self._streams: list[_Stream] = []
        """They are read until the run ends."""

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
        tasks: list[asyncio.Task[None]] = []
        for info in infos:
            wait_s = self._settled_s * _OTHERWISE if self._active else _RECONNECT_S
            stream = _Stream(self._source, info, self._note, wait_s, paused=self._active)
            self._streams.append(stream)
            tasks.append(asyncio.create_task(self._stream(info, stream)))
            if self._active:
                tasks.append(asyncio.create_task(self._second_client(info, stream)))
        polling = asyncio.create_task(self._poll())
        try:
            if tasks:
                longest_s = self._seconds + _MAX_RECONNECT_S
                await asyncio.wait(tasks, timeout=longest_s + self._active * _WITHHELD_S)
            # The streams go on while the network is read once more.
            await self._read_network(survey.address.endpoint, survey.address.context)
            with suppress(SourceError):
                await self._source.survey()
        finally:
            for task in (*tasks, polling):
                task.cancel()
            await asyncio.gather(*tasks, polling, return_exceptions=True)
            await asyncio.gather(*(stream.close() for stream in self._streams))

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

    async def _stream(self, info: StreamInfo, stream: _Stream) -> None:
        try:
            await (self._provoke(stream) if self._active else stream.read(self._seconds))
        except SourceError as error:
            self._note(f"{info.id}: {error}")

    async def _provoke(self, stream: _Stream) -> None:
        """Do what a consumer would not do; each within what the provider states."""
        total_s = self._seconds
        away_s, idle_s = total_s * _AWAY_SHARE, total_s * _SLOW_SHARE

        async def reconnect() -> None:
            self._say(
                f"{stream.name}: closes, and goes on with the last token {away_s:.1f} s later"
            )
            await stream.close()
            await asyncio.sleep(away_s)

        async def use_old_token() -> None:
            if (token := stream.old_token()) is not None:
                self._say(f"{stream.name}: uses a token older than the tombstone retention")
                await stream.restart(token)

        async def read_slowly() -> None:
            for _ in range(_SLOW_TIMES):
                self._say(f"{stream.name}: reads nothing for {idle_s:.1f} s")
                if not await stream.pause(idle_s):
                    return
                # Whoever drops a slow client once may have had another reason.
                await stream.read(stream.reconnect_s + _RECONNECT_S)

        steps = [read_slowly, reconnect, reconnect, reconnect, use_old_token]
        await stream.read(total_s * 0.25)
        for step in steps:
            await step()
            await stream.read(total_s * 0.3 / len(steps))
        self._say(f"{stream.name}: reads the log once more from its oldest record")
        await stream.restart(Start.OLDEST)
        await stream.read(total_s * 0.25)

    async def _second_client(self, info: StreamInfo, first: _Stream) -> None:
        """Be another client of the stream, twice, and one that sends no Pong."""
        # The first one is to be settled, so that it is known which one came second.
        try:
            await asyncio.wait_for(first.opened.wait(), self._seconds)
        except TimeoutError:
            return
        await asyncio.sleep(self._settled_s)
        second = _Stream(self._source, info, self._note, _RECONNECT_S, second=True)
        try:
            for _ in range(2):
                self._say(f"{second.name} opens, and reads the log")
                await second.restart(Start.OLDEST)
                lasting = asyncio.create_task(asyncio.sleep(self._seconds * _SECOND_SHARE))
                await second.read(self._seconds * _SECOND_SHARE)
                await lasting
            held_s = self._seconds * _WITHHELD_SHARE
            if self._seconds >= _WITHHELD_FROM_S:
                held_s = max(held_s, _WITHHELD_S)
            if second.withhold_pongs():
                self._say(f"{second.name} holds its Pongs for up to {held_s:.1f} s")
                await second.read(held_s)
        finally:
            await second.close()


class _Stream:
    """One stream, over as many connections as it takes."""

    def __init__(
        self,
        source: TapiSource,
        info: StreamInfo,
        note: Callable[[str], None],
        reconnect_s: float,
        *,
        second: bool = False,
        paused: bool = False,
    ) -> None:
        self.name = f"{info.id}: the second connection" if second else info.id
        self.reconnect_s = reconnect_s
        """The wait before the next connection, where the provider has closed one."""
        self._second = second
        """Whether it is the second one, which does not come back where it ends."""
        self._paused = paused
        """Whether it is read with pauses."""
        self._source = source
        self._info = info
        self._note = note
        self._after: str | Start = Start.OLDEST
        self._oldest: tuple[int, str] | None = None
        """The append time of the first record that came, in microseconds, and its token."""
        self._task: asyncio.Task[None] | None = None
        self._reading = asyncio.Event()
        self._reading.set()
        self._feed: BufferedFeed | None = None
        self._withholds_pongs = False
        self.opened = asyncio.Event()
        """Whether there ever was a connection."""
        self._ended = asyncio.Event()
        """Whether a connection has ended since it was cleared."""

    async def read(self, seconds: float) -> None:
        """Read for so long, and go on reading. Raises `SourceError` where there is nothing to be
        read any more.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        for task in done:
            task.result()

    async def pause(self, seconds: float) -> bool:
        """Read nothing for so long; returns whether the connection had ended meanwhile."""
        feed = self._feed
        if feed is None or feed.tap is None:
            return False
        self._ended.clear()
        self._reading.clear()
        feed.tap.reading_paused()
        await asyncio.sleep(seconds)
        if self._feed is feed:
            feed.tap.reading_resumed(backed_up=feed.backed_up)
            if not feed.backed_up:
                self._note(
                    f"{self.name}: all that came while we read nothing fits into our buffer: the"
                    " provider did not feel a slow client"
                )
        self._reading.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_RECONNECT_S):
                await self._ended.wait()
        return self._ended.is_set()

    def withhold_pongs(self) -> bool:
        """Send no Pong from now on; returns whether there is a connection."""
        if self._feed is None:
            return False
        self._withholds_pongs = True
        self._feed.withhold_pongs()
        return True

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
        wait_s = self.reconnect_s
        while True:
            began = self._after
            try:
                await self._read_connection()
            except SourceError as error:
                if self._after != began:
                    wait_s = self.reconnect_s
                refused = isinstance(error, TokenRefusedError)
                if refused or (self._second and not self._withholds_pongs):
                    self._note(f"{self.name}: {error}")
                if self._second:
                    return
                if refused:
                    if self._after in {Start.OLDEST, Start.LATEST}:
                        raise
                    self._after = Start.OLDEST
                    continue
                if not error.retriable:
                    raise
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _MAX_RECONNECT_S)
                with suppress(SourceError):
                    infos = await self._source.discover()
                    self._info = next((one for one in infos if one.id == self._info.id), self._info)

    async def _read_connection(self) -> None:
        """Read one connection until it ends, by the error that it ends with."""
        try:
            async with self._source.feed(self._info, self._after) as feed:
                assert isinstance(feed, BufferedFeed)
                self._feed = feed
                self.opened.set()
                if self._paused:
                    feed.limit_unread(_UNREAD_BYTES)
                while True:
                    await self._reading.wait()
                    chunk = await feed.receive()
                    for record in chunk.records:
                        self._after = record.token or self._after
                        if self._oldest is None and record.token:
                            self._oldest = (record.appended_at_us, record.token)
        finally:
            self._feed = None
            self._ended.set()

    def old_token(self) -> str | None:
        """A token that is older than the tombstone retention, where there is one by now."""
        retention_s = self._info.tombstone_retention_s
        if retention_s is None or self._oldest is None:
            return None
        appended_us, token = self._oldest
        age_s = (now_us() + self._info.clock_offset_us - appended_us) / 1e6
        return token if age_s > retention_s * _OLDER else None
