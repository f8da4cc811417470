"""What the feeds of all transports share: the bounded buffer of messages, and how it ends."""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.model.position import Position
from instep.model.records import RecordChunk
from instep.model.streams import Start
from instep.ports.source import Feed
from instep_tapi.feeds.feed_tap import FeedTap
from instep_tapi.feeds.held_bytes import HeldBytes
from instep_tapi.feeds.keep_alive import ANSWER_S, SignsOfLife
from instep_tapi.options import Options
from instep_tapi.wire.decoder import FrameDecoder

__all__ = ["BufferedFeed"]

_RECORD_BYTES = 400
"""Bytes of a small record; a header alone has 300."""
_STORM_TAKES = 2
"""In a storm so many times as much is decoded at once: headers only."""


class BufferedFeed(Feed):
    """Buffers messages until `receive()` decodes all that has arrived. A full buffer must stop the
    reading of the transport: `_room` tells that there is room again.
    """

    detects_dead_peer = True
    local_addresses: tuple[str, ...] = ()
    """Our end of the connection, with its port and without."""
    committed_number = -1
    """The highest number of a committed record, by its token or its offset, of a log that has one
    partition.
    """

    def __init__(
        self,
        options: Options,
        address: URL,
        decoder: FrameDecoder,
        clock_offset_us: int,
        start: str | Start,
        held: HeldBytes,
    ) -> None:
        super().__init__()
        self.clock_offset_us = clock_offset_us
        self.heard_within_s = options.dead_peer_s + min(options.dead_peer_s, ANSWER_S)
        self._options = options
        self._where = str(address.with_query(None))
        self._decoder = decoder
        self._start = start
        self._clock = asyncio.get_running_loop().time
        self._signs = SignsOfLife(self._clock())
        self._began_s = self._signs.idle_s
        self._frames: list[bytes] = []
        self._held_bytes = 0
        self._unfinished_bytes = 0
        self._held = held
        # Counting the records of a list would cost as much as reading it.
        self._take_bytes = options.batch_records * _RECORD_BYTES
        self._hold_bytes = min(options.hold_bytes, options.hold_records * _RECORD_BYTES)
        self._arrived = asyncio.Event()
        self._ending: SourceError | None = None
        self.tap: FeedTap | None = None
        """Is told what comes and what we do, where somebody judges the provider."""
        self.closed_by_peer = False
        """Whether the connection ended by the provider, or on the way to it; not by us."""

    def __repr__(self) -> str:
        state = "open" if self._ending is None else "ended"
        return f"<{type(self).__name__} {self._where} [{state}, {self._held_bytes} bytes held]>"

    def committed(self, position: Position) -> None:
        """See `Feed.committed`."""
        if position.token is not None and position.token.isdecimal():
            self.committed_number = int(position.token)
        elif len(position.offsets) == 1:
            (self.committed_number,) = position.offsets.values()

    async def receive(self) -> RecordChunk:
        """See `Feed.receive`. What arrived before an error is delivered before it is raised."""
        while not self._frames:
            if self._ending is not None:
                raise self._ending
            self._arrived.clear()
            await self._arrived.wait()
        taken, self._frames = self._frames, []
        size_bytes = self._held_bytes
        # More of a storm at once means fewer bodies to decode: the latest ones of each chunk.
        take_bytes = self._take_bytes * (_STORM_TAKES if self._decoder.leaves_bodies else 1)
        if size_bytes > take_bytes:
            room = take_bytes - len(taken[0])
            count = 1
            while count < len(taken) and (room := room - len(taken[count])) >= 0:
                count += 1
            taken, self._frames = taken[:count], taken[count:]
            size_bytes = sum(map(len, taken))
        self._held_bytes -= size_bytes
        self._held.messages_bytes -= size_bytes
        self._began_s = self._signs.idle_s
        self._signs.note(self._signs.last_s, under_way=self._under_way)
        self._room()
        if self.tap is not None:
            self.tap.messages_taken(taken)
        return self._decoder.scan(taken, size_bytes)

    @property
    def ended_by(self) -> str:
        """Why the connection ended; empty as long as it has not."""
        return "" if self._ending is None else self._ending.message

    @property
    def unheard_s(self) -> float:
        """See `Feed`: whatever comes is a sign of life, but not within a message."""
        return self._clock() - self._signs.idle_s

    @property
    def silent_s(self) -> float:
        """See `Feed`."""
        return self._clock() - self._signs.last_s

    @property
    def under_way_s(self) -> float:
        """See `Feed`: what was received began to come after that."""
        return self._clock() - self._began_s

    def withhold_pongs(self) -> None:
        """Send nothing more that keeps an idle connection open, and take silence for no fault."""
        if self.tap is not None:
            self.tap.pongs_withheld()

    def limit_unread(self, size_bytes: int) -> None:
        """Have the operating system hold about so many bytes that we have not read, for the
        provider to feel a slow reader; where no socket is at hand, as many as it likes.
        """

    @property
    def backed_up(self) -> bool:
        """Whether so much waits for a `receive` that nothing more is read."""
        return self._is_full

    def abandon(self, why: SourceError) -> None:
        """Make `receive` raise this error once all that has arrived is taken."""
        self._end(why)

    def release(self) -> None:
        """Count nothing of this feed any more: its connection is closed."""
        held, self._held = self._held, HeldBytes(self._held.limit_bytes)
        held.messages_bytes -= self._held_bytes
        held.unfinished_bytes -= self._unfinished_bytes

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """End the feed when the task fails by a fault of ours, so that no caller waits for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(UnreachableError(f"internal fault: {error!r}"[:200], where=self._where))

    # -- for the transports ----------------------------------------------------------------------

    @property
    @abstractmethod
    def _under_way(self) -> bool:
        """Whether a message is unfinished, or was not taken yet."""

    @abstractmethod
    def _room(self) -> None:
        """Messages were taken: there may be room again."""

    @property
    def _is_full(self) -> bool:
        """Whether the transport must not be read now."""
        return (
            self._held_bytes >= self._hold_bytes
            or len(self._frames) >= self._options.hold_records
            or (self._held.messages_bytes >= self._held.limit_bytes and bool(self._frames))
        )

    def _put(self, messages: list[bytes]) -> None:
        """Buffer whole messages, at least one."""
        size_bytes = sum(map(len, messages))
        self._held_bytes += size_bytes
        self._held.messages_bytes += size_bytes
        self._frames += messages
        self._arrived.set()

    def _count_unfinished(self, unfinished_bytes: int) -> SourceError | None:
        """Count the unfinished message; the error if those of all streams are too much."""
        grown_bytes = unfinished_bytes - self._unfinished_bytes
        self._unfinished_bytes += grown_bytes
        self._held.unfinished_bytes += grown_bytes
        if grown_bytes > 0 and self._held.unfinished_bytes > self._held.limit_bytes:
            return UnreachableError(
                f"unfinished messages of all streams are over {self._held.limit_bytes:,} bytes",
                where=self._where,
                hint="raise hold_total_bytes if such messages are meant",
            )
        return None

    def _end(self, ending: SourceError) -> None:
        if self._ending is None:
            self._ending = ending
        self._arrived.set()
