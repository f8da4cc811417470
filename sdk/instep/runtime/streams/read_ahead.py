"""Reads one feed ahead of the commits, and queries the state of a silent stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from math import inf
from typing import Final

from instep.alignment.resume import retention_s
from instep.errors import InstepError, StreamGoneError
from instep.model.columns import concatenated
from instep.model.records import RecordChunk
from instep.model.streams import StreamInfo, StreamState
from instep.ports.source import Feed, Source
from instep.runtime.group_commit import GatheringQueue
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.storm_compaction import decoded_storm, is_storm

__all__ = ["ReadAhead"]

_GATHER_S: Final = 0.001
"""Longest wait, in seconds, for more records between two reads while a commit runs: nobody waits
for records then. One large chunk costs less than many small ones. A feed that has read far enough
ahead leaves the event loop idle meanwhile, and the thread that commits gets the interpreter's lock.
"""
_IDLE_ASK_S: Final = 300.0
"""Longest time between two queries of a silent stream that is aligned."""
_IDLE_TICK_S: Final = 60.0
"""The same between two ticks of its alignment."""
_IDLE_GROWTH: Final = 4.0
"""Until then both are this many times the silence so far."""
_IDLE_RETENTION_SHARE: Final = 0.125
"""Nor are both longer than this share of the time after which the log forgets."""
_STORM_TURNS: Final = 8
"""In a storm, turns of the event loop instead, for every sink: commits are short then, and reading
is what takes time. The more records there are at once, the fewer of them are the latest of their
entities. With a journal, storms of 100 keys are committed a third faster.
"""
_STORM_PAUSE_S: Final = 0.002
"""A commit waits for more of a storm until nothing has come for so long, in seconds …"""
_STORM_LOOKS: Final = 10
"""… but no more than so many times as long. A commit costs the same for one chunk of a storm as for
ten: they are about the same entities.
"""
_STORM_GATHER_RECORDS: Final = 200
"""Fewer records at once are committed without waiting: reading them takes less time than a commit.
"""


class ReadAhead:
    """Buffers what was read from a connection and not yet taken. It reads within `listening`.

    It buffers at most one batch (`batch_records`, `batch_bytes`). When the buffer is full it stops
    reading, so that the feed applies back-pressure: in an event storm the provider waits for a slow
    client, and nothing is dropped (ST-0.5). Cancelling `take` loses nothing.
    """

    def __init__(
        self,
        feed: Feed,
        source: Source,
        stream: StreamInfo,
        settings: ConsumerSettings,
        now: Callable[[], float],
        *,
        compacts: bool = False,
    ) -> None:
        """Create a read-ahead; with `compacts`, only the latest record of each entity is needed."""
        self.state = StreamState.UNKNOWN
        """The stream's state, if it was queried since the last record arrived."""
        self.aligned = False
        """Whether the stream is aligned and read up to its head. Nothing waits for a proof of its
        silence then, so it is asked less often, the longer it is silent.
        """
        self.ended = asyncio.Event()
        """Whether the connection is over; `take` raises its error."""
        self._decoded = decoded_storm if compacts else RecordChunk.decoded
        self._feed = feed
        self._source = source
        self._stream = stream
        self._queue = GatheringQueue[RecordChunk](settings.batch_records, settings.batch_bytes)
        self._wanted = False
        """Whether `take` waits: then no commit runs."""
        self._gathered = asyncio.Event()
        self._storm = False
        """Whether the last chunk was a storm, and more of it may be gathered for a commit."""
        self._enough = asyncio.Event()
        self._chunks = 0
        """How many chunks were received …"""
        self._waits = False
        """… and whether the next one is waited for."""
        self._enough_records = settings.batch_records // 2
        self._enough_bytes = settings.batch_bytes // 2
        self._ask_every_s = min(settings.poll_state_s, settings.alignment.quiet_s / 2)
        self._tick_s = min(1.0, settings.alignment.quiet_s / 4)
        keeps_s = retention_s(stream)
        self._idle_s = inf if keeps_s is None else keeps_s * _IDLE_RETENTION_SHARE
        self._now = now
        self._received_s = self._listens_since_s = self._arrived_s = now()
        self._taken_s: float | None = None
        self.record_s: float | None = None
        """When the last record came; None: none has."""

    @property
    def holds(self) -> bool:
        """Whether something was read and not taken yet."""
        return bool(self._queue)

    @property
    def taken_s(self) -> float:
        """When the first frame of what was taken last had arrived."""
        return self._arrived_s if self._taken_s is None else self._taken_s

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Read, and query the state of a silent stream, until the context is left."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch_silence())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def tick_s(self) -> float:
        """How long the alignment may wait for records until time has to pass for it, in seconds."""
        return self._rarer(self._tick_s, _IDLE_TICK_S)

    def _silent_s(self) -> float:
        return self._now() - self._received_s

    def _rarer(self, usual_s: float, idle_s: float) -> float:
        """The time between two looks at the stream."""
        if not (self.aligned and self._feed.detects_dead_peer):
            return usual_s
        return max(usual_s, min(self._silent_s() * _IDLE_GROWTH, idle_s, self._idle_s))

    def wake(self) -> None:
        """Let `take` return, although nothing has arrived."""
        self._enough.set()
        self._queue.wake()

    async def take(self, timeout_s: float) -> RecordChunk | None:
        """All records that were read and not taken, as one chunk; None if none arrived within
        `timeout_s`, or before `wake`.

        Raises the error that ended the reading, after all records read before it were taken.
        """
        self._taken_s = None
        if not self._queue:
            self._wanted = True
            self._gathered.set()
            try:
                if not await self._queue.arrival(timeout_s):
                    return None
            finally:
                self._wanted = False
        if self._storm and self._queue and timeout_s > 0:
            await self._gather_storm()
        taken = self._queue.take()
        if not taken:
            return None
        self._taken_s = self._arrived_s
        return taken[0] if len(taken) == 1 else _joined(taken)

    def silence_s(self) -> tuple[float, float]:
        """The interval, by our clock, in which a silence is the provider's: it begins when we
        stopped holding the provider back, and ends at the last sign of life; of what was taken
        last, at the one before it: a message may have been under way for long.
        """
        until_s = self._taken_s
        if until_s is None:
            until_s = self._now() - self._feed.unheard_s
        return self._listens_since_s, until_s

    async def _read(self) -> None:
        queue = self._queue
        try:
            while True:
                # Decoded here, while the previous batch is committed.
                self._waits = True
                chunk = await self._feed.receive()
                self._waits = False
                self._chunks += 1
                storm = is_storm(chunk.records)
                chunk = self._decoded(chunk)
                records, size_bytes = len(chunk.records), chunk.size_bytes
                self._received_s = self._now()
                if records:
                    self.record_s = self._received_s
                self.state = StreamState.UNKNOWN
                if not queue:
                    self._arrived_s = self._received_s - self._feed.under_way_s
                self._note_storm(chunk, storm=storm)
                if not queue.offer(chunk, records, size_bytes):
                    await queue.put(chunk, records, size_bytes)
                    self._listens_since_s = self._arrived_s = self._now()
                await self._gather(storm=storm)
        except Exception as error:  # noqa: BLE001 - raised again by `take`
            self.ended.set()
            self._storm = False
            self._enough.set()
            queue.close(error)

    def _note_storm(self, chunk: RecordChunk, *, storm: bool) -> None:
        """Note that this chunk comes next, and whether a commit may wait for more."""
        queue, records = self._queue, len(chunk.records)
        enough = (
            queue.records + records >= self._enough_records
            or queue.size_bytes + chunk.size_bytes >= self._enough_bytes
        )
        self._storm = storm and records >= _STORM_GATHER_RECORDS and not enough
        if not self._storm:
            self._enough.set()

    async def _gather_storm(self) -> None:
        """Let more of a storm queue up for one commit, but not for long."""
        self._enough.clear()
        self._look_for_pause(_STORM_LOOKS, -1)
        try:
            await self._enough.wait()
        finally:
            self._look.cancel()

    def _look_for_pause(self, looks: int, chunks: int) -> None:
        """End the gathering after so many `looks`, or if the feed has been waited for since it had
        brought so many `chunks`.
        """
        if looks == 0 or (self._waits and self._chunks == chunks):
            self._enough.set()
            return
        loop, seen = asyncio.get_running_loop(), self._chunks if self._waits else -1
        self._look = loop.call_later(_STORM_PAUSE_S, self._look_for_pause, looks - 1, seen)

    async def _gather(self, *, storm: bool) -> None:
        """Let records queue up in the feed until they are needed, but not for long."""
        # If `take` waits, it gets the records before more are read.
        for _ in range(_STORM_TURNS if storm else 1):
            await asyncio.sleep(0)
        if storm or self._wanted or self._feed.peer_waits:
            return
        self._gathered.clear()
        # Not `asyncio.timeout`: a commit takes longer, and its error would cost more than a record.
        timer = asyncio.get_running_loop().call_later(_GATHER_S, self._gathered.set)
        try:
            await self._gathered.wait()
        finally:
            timer.cancel()

    async def _watch_silence(self) -> None:
        """Ping a silent stream and query its state: ALIGNING and PAUSED explain the silence (TR-548
        5.3.1).
        """
        while True:
            await asyncio.sleep(self._rarer(self._ask_every_s, _IDLE_ASK_S))
            if self._silent_s() < self._ask_every_s:
                continue
            await self._feed.ping()
            with contextlib.suppress(InstepError):
                self.state = await self._source.state(self._stream)
            if self.state is StreamState.TERMINATED:
                gone = StreamGoneError("the stream is TERMINATED", where=self._stream.id)
                self._queue.close(gone)


def _joined(chunks: list[RecordChunk]) -> RecordChunk:
    deviations: dict[str, int] = {}
    samples: dict[str, bytes] = {}
    for chunk in chunks:
        samples = chunk.samples | samples
        for kind, times in chunk.deviations.items():
            deviations[kind] = deviations.get(kind, 0) + times
    return RecordChunk(
        concatenated([chunk.records for chunk in chunks]),
        [bad for chunk in chunks for bad in chunk.unreadable],
        deviations,
        sum(chunk.size_bytes for chunk in chunks),
        next((one.decoder for one in chunks if one.decoder is not None), None),
        all(chunk.whole for chunk in chunks),
        next((chunk.realign for chunk in chunks if chunk.realign), ""),
        samples,
    )
