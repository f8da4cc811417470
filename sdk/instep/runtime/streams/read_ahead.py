"""Hears one feed out: reads it ahead of the commits, and asks about its silence."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

from instep.errors import InstepError, StreamGoneError
from instep.model.columns import Columns
from instep.model.ordering import compacted
from instep.model.records import RecordChunk
from instep.model.streams import StreamInfo, StreamState
from instep.ports.source import Feed, Source, SupportsPing
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.buffer import ChunkBuffer

__all__ = ["ReadAhead"]

_LATELY_RECORDS = 5_000
_GIVE_WAY_S = 0.0001
_STORM_TURNS = 3
"""Of the loop, in which more arrives: the more there is of a storm at once, the fewer statements of
it are a last word."""


def _give_way() -> None:
    """Let the thread that writes have the interpreter: it waits for it at every statement, and does
    not wake up in time to get it between two steps of a loop that is never idle. So the loop would
    be ahead, and the store, which is slower, would do nothing for a third of its time.
    """
    time.sleep(_GIVE_WAY_S)


class ReadAhead:
    """What was read of a connection and not yet taken. Works within `listening`."""

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
        """`compacts`: only the last statement about each entity counts."""
        self.state = StreamState.UNKNOWN
        """The stream's, where it was asked for since the last record came."""
        self._compacts = compacts
        self._lately: set[str] = set()
        self._lately_records = 0
        self._storms = False
        self._feed = feed
        # Asked once: to look whether an object has a protocol costs more than to use it.
        self._prover = feed if isinstance(feed, SupportsPing) else None
        self._source = source
        self._stream = stream
        self._buffer = ChunkBuffer(settings.batch_records, settings.batch_bytes)
        self._ask_every_s = min(settings.poll_state_s, settings.alignment.quiet_s / 2)
        self._now = now
        self._heard_s = self._listens_since_s = self._arrived_s = now()
        self._taken_s: float | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Read, and ask, until the context is left."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch_silence())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, timeout_s: float) -> RecordChunk | None:
        """See `ChunkBuffer.take`."""
        chunk = await self._buffer.take(timeout_s)
        self._taken_s = None if chunk is None else self._arrived_s
        return chunk

    def silence_s(self) -> tuple[float, float]:
        """The time, by our clock, of which a silence is the provider's: since we do not hold it
        back, and until what was taken last had arrived, or else the last sign of life.
        """
        until_s = self._taken_s
        if until_s is None:
            until_s = self._now() - (0.0 if self._prover is None else self._prover.unheard_s)
        return self._listens_since_s, until_s

    async def _read(self) -> None:
        buffer = self._buffer
        try:
            while True:
                chunk = await self._feed.receive()
                chunk = self._prepared(chunk)
                self._heard_s = self._now()
                self.state = StreamState.UNKNOWN
                full = buffer.full
                if buffer.empty:
                    self._arrived_s = self._heard_s
                await buffer.put(chunk)
                if full:
                    self._listens_since_s = self._arrived_s = self._now()
                # Whatever else has arrived, a commit that is done makes room for the next first.
                for _ in range(1 + _STORM_TURNS * self._storms):
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - raised again where the inbox is read
            buffer.fail(error)

    def _prepared(self, chunk: RecordChunk) -> RecordChunk:
        """Opened while the batch before it is written. Where of late most statements were not the
        last about their entities, only those that are, and the rest is let go.
        """
        records = chunk.records
        if isinstance(records, Columns):
            self._storms = self._compacts and self._repeats(records.keys)
            if self._storms:
                return compacted(chunk)
            if not self._buffer.empty:
                _give_way()
        return chunk.decoded()

    def _repeats(self, keys: Sequence[str]) -> bool:
        """Whether of late most statements were about an entity that had one already."""
        if self._lately_records >= _LATELY_RECORDS:
            self._lately.clear()
            self._lately_records = 0
        self._lately.update(keys)
        self._lately_records += len(keys)
        return 2 * len(self._lately) <= self._lately_records

    async def _watch_silence(self) -> None:
        """Ask a silent stream whether it is still there, and for its state: ALIGNING and PAUSED
        explain the silence (TR-548 5.3.1).
        """
        while True:
            await asyncio.sleep(self._ask_every_s)
            if self._now() - self._heard_s < self._ask_every_s:
                continue
            if self._prover is not None:
                await self._prover.ping()
            with contextlib.suppress(InstepError):
                self.state = await self._source.state(self._stream)
            if self.state is StreamState.TERMINATED:
                gone = StreamGoneError("the stream is TERMINATED", where=self._stream.id)
                self._buffer.fail(gone)
