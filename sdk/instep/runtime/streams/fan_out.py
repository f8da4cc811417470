"""Shares one connection to a stream among several consumers, each at its own pace within a bound.

Consumers at the same position share what is received. The others have connections of their own, and
join a shared one when they open a stream whose shared connection still buffers their token. A
consumer that falls behind by more than the bound loses the shared connection, and opens its own
from its own position. So no consumer waits for another, and memory is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import msgspec

from instep.errors import UnreachableError
from instep.model.entities import StoredEntity
from instep.model.freshness import ProviderMonitor
from instep.model.lookups import LookupAnswer
from instep.model.position import Phase, Position
from instep.model.records import Record, RecordChunk
from instep.model.streams import Start, StreamInfo, StreamState
from instep.ports.source import Feed, Source

__all__ = ["SharedSource"]

_REMEMBERED_RECORDS: Final = 40_000
_REMEMBERED_BYTES: Final = 64 << 20


class SharedSource(Source):
    """A source shared by several consumers; each uses it as an `instep.ports.source.Source`.

    Each of the `members` consumers closes it; the last one closes the underlying source.
    `limit_records` and `limit_bytes` bound, per stream, how far a consumer may be behind the
    fastest.
    """

    def __init__(
        self,
        source: Source,
        members: int,
        *,
        limit_records: int = _REMEMBERED_RECORDS,
        limit_bytes: int = _REMEMBERED_BYTES,
    ) -> None:
        self._source = source
        self._members = members
        self._limit_records = limit_records
        self._limit_bytes = limit_bytes
        self._connections: list[_SharedConnection] = []
        self._discovering = asyncio.Lock()

    async def discover(self) -> Sequence[StreamInfo]:
        """See `Source`."""
        async with self._discovering:
            return await self._source.discover()

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        """See `Source`."""
        return await self._source.refresh(stream)

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:
        """See `Source`: joins a connection that still buffers all from `start` on, or opens a new
        one.

        Raises `SourceError` on entering.
        """
        for connection in self._connections:
            member = connection.join(stream, start)
            if member is not None:
                break
        else:
            connection = _SharedConnection(
                self._source, stream, start, self._limit_records, self._limit_bytes
            )
            self._connections.append(connection)
            member = connection.first()
        try:
            await connection.opened()
            member.sync_clock()
            yield member
        finally:
            if connection.leave(member):
                self._connections.remove(connection)
                await connection.close()

    def probe(self, stream: StreamInfo) -> AbstractAsyncContextManager[Feed]:
        """See `Source`: a connection of its own."""
        return self._source.probe(stream)

    def baseline(
        self, stream: StreamInfo, opened_at_us: int
    ) -> AsyncIterator[list[Record] | RecordChunk]:
        """See `Source`."""
        return self._source.baseline(stream, opened_at_us)

    async def look_up(self, stream: StreamInfo, entity: StoredEntity) -> LookupAnswer | None:
        """See `Source`."""
        return await self._source.look_up(stream, entity)

    async def state(self, stream: StreamInfo) -> StreamState:
        """See `Source`."""
        return await self._source.state(stream)

    async def monitor(self, stream: StreamInfo) -> ProviderMonitor | None:
        """See `Source`."""
        return await self._source.monitor(stream)

    async def close(self) -> None:
        """The last consumer to close it closes the source."""
        self._members -= 1
        if self._members == 0:
            await self._source.close()


class _SharedConnection:
    """A shared connection, its buffered chunks, and its members."""

    def __init__(
        self,
        source: Source,
        stream: StreamInfo,
        start: str | Start,
        limit_records: int,
        limit_bytes: int,
    ) -> None:
        self._stream = stream
        self._start = start
        self._limit_records = limit_records
        self._limit_bytes = limit_bytes
        self._kept: deque[RecordChunk] = deque()
        self._first = 0
        """The number of chunks removed from the buffer."""
        self._records = self._bytes = 0
        self._members: list[_Member] = []
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._realigns = False
        """Whether the feed has requested a realignment: no new member may join then."""
        self.error: BaseException | None = None
        self.feed: Feed | None = None
        # The context of the feed must be left in the task that entered it, so a task of its own
        # runs it.
        self._task = asyncio.create_task(
            self._serve(source), name=f"instep shared connection {stream.id}"
        )

    @property
    def end(self) -> int:
        return self._first + len(self._kept)

    def first(self) -> _Member:
        """The member that the connection was opened for."""
        member = _Member(self, 0)
        self._members.append(member)
        return member

    def join(self, stream: StreamInfo, start: str | Start) -> _Member | None:
        """A member that reads from `start` on; None if the buffer does not reach back to it."""
        if self.error is not None or self._realigns or _place(stream) != _place(self._stream):
            return None
        if not stream.resumable and self.end:
            # A session cannot be joined late: its baseline was not read for this consumer.
            return None
        member = None
        if start == self._start and self._first == 0:
            member = _Member(self, 0)
        elif not isinstance(start, Start):
            member = self._after(start)
        if member is not None:
            self._members.append(member)
        return member

    def _after(self, token: str) -> _Member | None:
        for back, chunk in enumerate(reversed(self._kept), 1):
            for at in range(len(chunk.records) - 1, -1, -1):
                if chunk.records[at].token == token:
                    rest = msgspec.structs.replace(
                        chunk, records=chunk.records[at + 1 :], unreadable=(), deviations={}
                    )
                    return _Member(self, self.end - back + 1, rest if rest.records else None)
        return None

    async def opened(self) -> None:
        """Wait until the connection is open. Raises the error if it fails."""
        while self.feed is None:
            if self.error is not None:
                raise self.error
            await self._arrived.wait()

    async def next(self, at: int) -> RecordChunk:
        """The chunk at this index; waits until it is received."""
        while at >= self.end:
            if self.error is not None:
                raise self.error
            self._wanted.set()
            await self._arrived.wait()
        if at < self._first:
            raise UnreachableError(
                "this consumer fell behind the others that shared its connection",
                where=self._stream.id,
                hint="it goes on from its own position over a connection of its own",
            )
        return self._kept[at - self._first]

    def leave(self, member: _Member) -> bool:
        """Remove a member. Returns whether it was the last."""
        self._members.remove(member)
        self.report_committed()
        return not self._members

    def report_committed(self) -> None:
        """Report to the connection what is durable for all members."""
        if self.feed is None:
            return
        positions = [member.position for member in self._members if member.position is not None]
        if positions and len(positions) == len(self._members):
            self.feed.committed(_passed_by_all(positions))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self, source: Source) -> None:
        try:
            async with source.feed(self._stream, self._start) as feed:
                self.feed = feed
                self._wake()
                while True:
                    # Read only when the fastest member wants more: that is the back-pressure.
                    await self._wanted.wait()
                    self._wanted.clear()
                    self._keep(await feed.receive())
                    self._wake()
        except Exception as error:  # noqa: BLE001 - raised to each that reads
            self.error = error
            self._wake()

    def _keep(self, chunk: RecordChunk) -> None:
        self._kept.append(chunk)
        self._realigns = self._realigns or bool(chunk.realign)
        self._records += len(chunk.records)
        self._bytes += chunk.size_bytes
        while len(self._kept) > 1 and (
            self._records > self._limit_records or self._bytes > self._limit_bytes
        ):
            oldest = self._kept.popleft()
            self._first += 1
            self._records -= len(oldest.records)
            self._bytes -= oldest.size_bytes

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()


def _place(stream: StreamInfo) -> StreamInfo:
    """The stream without the fields that each discovery measures anew."""
    return msgspec.structs.replace(stream, clock_offset_us=0)


def _passed_by_all(positions: Sequence[Position]) -> Position:
    """The position that all of these have passed, see `Feed.committed`."""
    first = positions[0]
    if len(positions) == 1:
        return first
    behind = next((one for one in positions if one.phase is Phase.BASELINING), first)
    common = set(first.offsets).intersection(*(one.offsets for one in positions))
    same_token = all(one.token == first.token for one in positions)
    return msgspec.structs.replace(
        behind,
        token=first.token if same_token else None,
        offsets={name: min(one.offsets[name] for one in positions) for name in common},
    )


class _Member(Feed):
    """One consumer's feed on a shared connection."""

    def __init__(
        self, connection: _SharedConnection, at: int, rest: RecordChunk | None = None
    ) -> None:
        self._connection = connection
        self._at = at
        self._rest = rest
        """The rest of a chunk that was joined in its middle."""
        self.position: Position | None = None
        """What this consumer has committed over the connection."""
        self.clock_offset_us = 0

    def sync_clock(self) -> None:
        """Copy the clock offset of the connection."""
        if self._connection.feed is not None:
            self.clock_offset_us = self._connection.feed.clock_offset_us
            self.clock_error_us = self._connection.feed.clock_error_us
            self.detects_dead_peer = self._connection.feed.detects_dead_peer
            self.heard_within_s = self._connection.feed.heard_within_s

    @property
    def unheard_s(self) -> float:
        """See `Feed`."""
        feed = self._connection.feed
        return 0.0 if feed is None else feed.unheard_s

    @property
    def silent_s(self) -> float:
        """See `Feed`."""
        feed = self._connection.feed
        return 0.0 if feed is None else feed.silent_s

    @property
    def under_way_s(self) -> float:
        """See `Feed`."""
        feed = self._connection.feed
        return 0.0 if feed is None else feed.under_way_s

    def committed(self, position: Position) -> None:
        """See `Feed.committed`."""
        self.position = position
        self._connection.report_committed()

    async def ping(self) -> None:
        """See `Feed`."""
        if self._connection.feed is not None:
            await self._connection.feed.ping()

    async def receive(self) -> RecordChunk:
        """See `Feed`. Raises `UnreachableError` when this consumer fell too far behind."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        chunk = await self._connection.next(self._at)
        self._at += 1
        self.sync_clock()
        return chunk
