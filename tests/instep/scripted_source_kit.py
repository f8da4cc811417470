"""A source that plays a script, for what a real provider cannot be made to do on command.

Each connection is one list of steps: deliveries to give, errors to raise, `SILENT` to stay silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from instep import Mode, Record, RecordType, StreamInfo
from instep.model import RecordChunk, Start, StreamState
from instep.ports import Feed, Source

SILENT: Final = "silent"
Step = RecordChunk | Exception | str
STREAM = "alarms"
T0_US = 1_700_000_000_000_000


def info(**changes: object) -> StreamInfo:
    """A compacted stream with the retentions that TR-548 4.3 proposes."""
    fields: dict[str, object] = {
        "id": STREAM,
        "origin": "a/1",
        "kind": "scripted",
        "classes": ("NODE",),
        "may_start_with_snapshot": False,
        "compaction_delay_s": 600.0,
        "tombstone_retention_s": 4 * 3600.0,
    }
    return StreamInfo(**(fields | changes))  # type: ignore[arg-type]


def record(offset: int, key: str = "", *, ends: bool = False, at_s: float | None = None) -> Record:
    """The record at this offset of partition 0, appended `at_s` (default: the offset) after T0."""
    return Record(
        stream=STREAM,
        key=key or f"key-{offset}",
        kind=RecordType.TOMBSTONE if ends else RecordType.CREATE_UPDATE,
        token=f"token-{offset}",
        appended_at_us=T0_US + int((offset if at_s is None else at_s) * 1_000_000),
        partition="0",
        offset=offset,
        entity_class="NODE",
        body=b"" if ends else b'{"offset":%d}' % offset,
        ends=ends,
    )


def records(*offsets: int) -> RecordChunk:
    """One delivery of the records at these offsets."""
    return RecordChunk([record(offset) for offset in offsets])


class ScriptedFeed(Feed):
    """One connection."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)

    async def receive(self) -> RecordChunk:
        await asyncio.sleep(0)
        if not self._steps or self._steps[0] == SILENT:
            await asyncio.Event().wait()
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, RecordChunk)
        return step


class ScriptedSource(Source):
    """Plays one script a connection; the last one is repeated."""

    def __init__(self, *connections: Sequence[Step], stream: StreamInfo | None = None) -> None:
        self.stream = stream or info()
        self.moved: StreamInfo | None = None
        """What the stream is from the second discovery on."""
        self.starts: list[str | Start] = []
        """Where each connection was opened."""
        self.pages: list[list[Record]] = []
        self.stream_state = StreamState.ACTIVE
        self.discoveries = 0
        self.closed = False
        self._connections: Iterator[Sequence[Step]] = iter(connections)
        self._last: Sequence[Step] = [SILENT]

    async def discover(self) -> Sequence[StreamInfo]:
        self.discoveries += 1
        if self.discoveries > 1 and self.moved is not None:
            self.stream = self.moved
        return [self.stream]

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[ScriptedFeed]:
        assert stream is self.stream or stream.id == self.stream.id
        self.starts.append(start)
        steps = self._last = next(self._connections, self._last)
        if steps and isinstance(steps[0], ConnectionRefused):
            raise steps[0].error
        yield ScriptedFeed(steps)

    async def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        assert stream.mode is Mode.BASELINE
        assert opened_at_us >= T0_US
        for page in self.pages:
            yield page

    async def state(self, stream: StreamInfo) -> StreamState:
        assert stream.id == self.stream.id
        return self.stream_state

    async def close(self) -> None:
        self.closed = True


class ConnectionRefused(Exception):
    """As the first step: opening the connection raises `error`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
