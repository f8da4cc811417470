"""The network between provider and consumer: `Source` and `Feed` with everything that fails there.

A connection is the provider's own reader of its log at one end, the SDK's reader of frames at the
other. What is between them can be late, cut at any byte (the frame that is cut never arrives), half
open, or delivered again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from instep import Record, RecordType, StreamInfo
from instep.errors import DiscoveryError, StreamGoneError, TokenRefusedError, UnreachableError
from instep.model import RecordChunk, Start, StreamState, Unreadable
from instep.ports import Feed, Source
from instep.runtime.clock import SteadyClock
from instep_tapi.feeds.keep_alive import SignsOfLife
from instep_tapi.restconf.baseline_rows import BaselineScope, pages_of
from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.log import LogRecord
from instep_tapi_provider.log import Start as LogStart
from instep_tapi_provider.log_reader import LogReader
from instep_tapi_provider.stream import Listener
from tests.simulation.alignment.provider import STREAM, Instance, SimLog
from tests.simulation.alignment.records_2_6 import as_2_6
from tests.simulation.alignment.tree import TreeProvider
from tests.simulation.alignment.world import World

__all__ = ["SimFeed", "SimSource"]

_clients = itertools.count()


class SimSource(Source):
    """One process's view of the provider. Implements `Source`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = SteadyClock(world.consumer_now, world.loop.time)
        self._rng = random.Random(world.rng.getrandbits(64))
        self._has_discovered = False

    async def _request(self, error: type[Exception]) -> None:
        world = self._world
        await asyncio.sleep(self._rng.expovariate(1 / world.faults.latency_s))
        if not world.reachable or self._rng.random() < world.faults.request_fails_p:
            raise error("no answer")

    async def discover(self) -> Sequence[StreamInfo]:
        await self._request(UnreachableError)
        if not self._world.provider.current.up:
            if not self._has_discovered:
                self._world.count("provider away while the consumer starts")
            raise UnreachableError("nobody answers", suggests_restart=True)
        self._has_discovered = True
        offset_us = self._world.clock_offset_us(self._now())
        return [
            msgspec.structs.replace(self._world.provider.current.info(), clock_offset_us=offset_us)
        ]

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        """The stream as it is declared now, and what the clock shows. It draws nothing."""
        offset_us = self._world.clock_offset_us(self._now())
        declared = self._world.provider.current.info()
        found = declared if declared.origin == stream.origin else stream
        return msgspec.structs.replace(found, clock_offset_us=offset_us)

    @asynccontextmanager
    async def probe(self, stream: StreamInfo) -> AsyncIterator[SimFeed]:
        """A second connection, of which a provider may think what it wants."""
        world, way = self._world, int(self._world.faults.second_connection)
        world.count("probe")
        if self._rng.random() < world.faults.late_probe_p:
            world.count("late probe")
            await asyncio.sleep(self._rng.random() * world.log_options.compaction_delay_s)
        if way == 1:
            world.count("second connection refused")
            raise UnreachableError("409", status=409)
        if way == 2:
            world.count("first connection closed for the second")
            for feed in list(world.feeds):
                feed.cut()
        async with self._connected(stream, Start.OLDEST, probes=True) as feed:
            yield feed

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[SimFeed]:
        async with self._connected(stream, start) as feed:
            yield feed

    @asynccontextmanager
    async def _connected(
        self, stream: StreamInfo, start: str | Start, *, probes: bool = False
    ) -> AsyncIterator[SimFeed]:
        world, rng = self._world, self._rng
        await self._request(UnreachableError)
        instance = world.provider.current
        if rng.random() < world.faults.connect_fails_p:
            raise UnreachableError("the handshake failed")
        if stream.origin != instance.info().origin:
            raise StreamGoneError("the stream is served elsewhere")
        if not instance.up:
            raise UnreachableError("nobody listens", suggests_restart=True)
        resumes = not isinstance(start, Start)
        if resumes and rng.random() < world.faults.refuse_token_p:
            world.trace("token refused")
            raise TokenRefusedError("410")
        refuse_p = world.faults.refuse_latest_p if start is Start.LATEST else 0.0
        if refuse_p and rng.random() < refuse_p:
            world.trace("latest refused")
            raise TokenRefusedError("400")
        feed = SimFeed(world, instance, start, rng, self._now, probes=probes)
        try:
            yield feed
        finally:
            feed.close()

    async def baseline(
        self, stream: StreamInfo, opened_at_us: int
    ) -> AsyncIterator[list[Record] | RecordChunk]:
        """Class by class, as it is when each page is read: the network changes meanwhile. A tree is
        read at once, and stated page by page.
        """
        await self._request(UnreachableError)
        provider = self._world.provider
        if isinstance(provider, TreeProvider):
            if not provider.current.up:
                raise UnreachableError("nobody listens")
            readable = stream.readable
            scope = BaselineScope(stream.id, opened_at_us, readable, False, readable)
            for found in pages_of(provider.document(), scope, set()):
                stated = found.records
                for first in range(0, len(stated), 5):
                    await self._request(UnreachableError)
                    yield self._with_bad_elements(stated[first : first + 5])
            return
        shown: set[str] = set()
        while True:
            if not self._world.provider.current.up:
                raise UnreachableError("nobody listens")
            bodies = self._world.provider.bodies
            page = [key for key in bodies if key not in shown][:5]
            if not page:
                return
            shown.update(page)
            records = [
                Record(
                    stream.id,
                    key,
                    RecordType.CREATE_UPDATE,
                    "",
                    opened_at_us,
                    entity_class="NODE",
                    body=bodies[key],
                    uuid=key,
                )
                for key in page
            ]
            await self._request(UnreachableError)
            yield self._with_bad_elements(records)

    def _with_bad_elements(self, page: list[Record]) -> list[Record] | RecordChunk:
        """A page of which some elements perhaps have no identifier that can be read."""
        bad_p = self._world.faults.bad_element_p
        if not bad_p:
            return page
        bad = [one for one in page if self._rng.random() < bad_p]
        for one in bad:
            self._world.unreliable[one.key] = None
            self._world.must_realign = True
            self._world.count("element without an identifier")
        unreadable = [
            Unreadable(one.stream, b'{"uuid":1}' + one.body, "no uuid", entity_class="NODE")
            for one in bad
        ]
        return RecordChunk([one for one in page if one not in bad], unreadable)

    async def state(self, stream: StreamInfo) -> StreamState:
        assert stream.id == STREAM
        await self._request(DiscoveryError)
        return self._world.provider.state

    async def close(self) -> None:
        pass


class SimFeed(Feed):
    """One connection. Implements `Feed`."""

    def __init__(
        self,
        world: World,
        instance: Instance,
        start: str | Start,
        rng: random.Random,
        now: Callable[[], float],
        *,
        probes: bool = False,
    ) -> None:
        self._probes = probes
        self.clock_offset_us = world.clock_offset_us(now())
        self.clock_error_us = 2_000_000 if world.first_faults.skew >= 0 else 0
        self._world = world
        self._instance = instance
        self._rng = rng
        faults = world.faults
        resumes = not isinstance(start, Start)
        restarts = resumes and rng.random() < faults.restart_p
        rewinds = resumes and rng.random() < faults.rewind_p
        self._edge = Faults(
            expire_tokens=restarts,
            rewind_records=rng.randint(1, faults.rewind_records) if rewinds else 0,
            shuffle_partitions=faults.shuffle_partitions,
        )
        wish = {Start.OLDEST: None, Start.LATEST: "latest"}
        start_from = wish[start] if isinstance(start, Start) else start
        self._log = LogReader(instance.stream, start_from, self._edge, world.now())
        self._token = None if isinstance(start, Start) else start
        info = instance.info()
        with_uuid = info.record_retention_s is not None or info.partial_updates
        self._reader = FrameDecoder(STREAM, with_uuid=with_uuid)
        self._states_all = False
        """Whether what was read last is of a snapshot, which states whole entities."""
        self._is_cut = False
        self._half_open = False
        self._signs = SignsOfLife(world.loop.time())
        self._began_s = self._signs.idle_s
        self._under_way = False
        """Whether records have left the provider: no Pong overtakes them …"""
        self._delivered = 0
        self._waiting: list[LogRecord] = []
        """What was read of the log, and is delivered next."""
        self._partitions: set[int] = set()
        self._came: list[LogRecord] = []
        """What this connection has brought."""
        self._fragmented = False
        """… but between the fragments of a message."""
        self._listener = Listener(str(next(_clients)), "", self.cut)
        instance.stream.listeners[self._listener] = None
        world.feeds.append(self)
        # The provider's clock as the consumer computes it.
        self._opened_us = int(now() * 1_000_000) + self.clock_offset_us
        if not probes:
            self._tell_opening(restarted=self._log.start is LogStart.RESTARTED)
        world.trace(
            f"open {instance.name} {self._log.start.name} rewind={self._edge.rewind_records}"
        )

    def _tell_opening(self, *, restarted: bool) -> None:
        checks = self._world.checks
        checks.opened(self._instance, self._token, self._opened_us, restarted=restarted)

    def restart(self) -> None:
        """The provider restarts the stream at its oldest record, and closes nothing (5.8)."""
        if self._probes or self._log.log is not self._instance.stream.log:
            return
        self._world.count("restarted without closing")
        self._restart_shows_nothing()
        self._log = LogReader(self._instance.stream, None, self._edge, self._world.now())
        self._world.checks.restarted(self._instance)
        self._listener.wake.set()

    def _restart_shows_nothing(self) -> None:
        """A snapshot that is begun anew shows it by what it states again: not where all that the
        first one had shown of before the opening was changed (docs/topics/alignment.md).
        """
        if self._world.log_options.storage != "emulated":
            return
        before_s = (self._opened_us - self.clock_error_us) / 1_000_000 - 1
        # The last one may be a frame that was sent twice.
        old = {one.ordinal for one in self._came[:-1] if one.appended_s < before_s}
        entities = self._instance.stream.entities.values()
        if not any(one.record is not None and one.record.ordinal in old for one in entities):
            self._world.must_realign = True
            self._world.trace("nothing that the snapshot has shown comes again")

    def cut(self) -> None:
        self._is_cut = True
        self._listener.wake.set()

    def half_open(self) -> None:
        """Nothing arrives any more, and no error reports it."""
        self._half_open = True
        self._listener.wake.set()

    @property
    def _broken(self) -> bool:
        return self._is_cut or self._half_open

    @property
    def unheard_s(self) -> float:
        return self._world.loop.time() - self._signs.idle_s

    @property
    def under_way_s(self) -> float:
        return self._world.loop.time() - self._began_s

    async def ping(self) -> None:
        round_trip_s = 2 * self._world.faults.latency_s * self._rng.uniform(0.5, 1.5)
        self._world.loop.call_later(round_trip_s, self._pong)

    def _pong(self) -> None:
        if not self._broken and (self._fragmented or not self._under_way):
            self._signs.note(self._world.loop.time(), under_way=self._fragmented)

    def close(self) -> None:
        self._instance.stream.listeners.pop(self._listener, None)
        self._world.feeds.remove(self)

    async def receive(self) -> RecordChunk:
        while True:
            if 0 < self._world.faults.closes_after_records <= self._delivered:
                raise UnreachableError("the provider closes the connection")
            if self._is_cut:
                raise UnreachableError("the connection is lost")
            if self._half_open:
                await asyncio.sleep(self._world.faults.dead_peer_s)
                raise UnreachableError("the peer is dead")
            self._listener.wake.clear()
            if self._world.provider.state is StreamState.ACTIVE:
                records = self._waiting or self._read()
                self._waiting = []
                if self._world.faults.unreadable_alone and len(records) > 1:
                    # Each text is a delivery of its own.
                    records, self._waiting = records[:1], records[1:]
                if records:
                    self._under_way = True
                    await asyncio.sleep(self._world.faults.latency_s * self._rng.uniform(0.5, 1.5))
                    fragments = await self._fragments()
                    self._under_way = False
                    if self._broken:
                        # What was under way is lost, but for some of it.
                        records = records[: self._rng.randrange(len(records) + 1)]
                    chunk = self._chunk(records)
                    self._delivered += len(records)
                    self._partitions |= {record.partition for record in records}
                    if records:
                        self._began_s = self._signs.idle_s
                        self._signs.note(self._world.loop.time(), under_way=False)
                    if chunk is not None:
                        return chunk
                    if fragments:
                        # The consumer has seen that a message came, whatever became of it.
                        return RecordChunk([], [Unreadable(STREAM, b"", "dropped", key="-")])
                    continue
            await self._listener.wake.wait()

    async def _fragments(self) -> bool:
        """Come in fragments, perhaps: the first is there, the others are late."""
        faults = self._world.faults
        if not faults.fragment_p or self._rng.random() >= faults.fragment_p:
            return False
        self._world.trace("fragments")
        self._fragmented = True
        for _ in range(self._rng.randint(1, 4)):
            self._signs.note(self._world.loop.time(), under_way=True)
            await asyncio.sleep(faults.fragment_s * self._rng.random() ** 2)
        self._fragmented = False
        return True

    def _read(self) -> list[LogRecord]:
        overtaken = self._world.faults.never_drops and not self._instance.log.forgets_ends
        if overtaken and self._log.log is self._instance.stream.log:
            if self._log.lost():
                self._world.count("overtaken and not dropped")
                options = self._world.log_options
                # Where offsets are sparse, a gap is looked at within an hour only (A18). And before
                # the first record of a partition there is no offset that a gap could be seen by.
                at_latest = self._log.start is LogStart.LATEST
                unseen = at_latest and len(self._partitions) < options.partitions
                self._world.must_realign |= options.sparse or unseen
        elif self._log.lost():
            self._world.trace("dropped by the provider: lost")
            raise UnreachableError("dropped by the provider: too far behind")
        if self._rng.random() < self._world.faults.redeliver_p:
            self._log.position = self._log.log.back(self._log.position, self._rng.randint(1, 8))
        self._states_all = bool(self._log._snapshot)
        return list(self._log.read(self._rng.randint(1, self._world.log_options.delivery_records)))

    def _chunk(self, records: list[LogRecord]) -> RecordChunk | None:
        frames: list[bytes] = []
        faults, chance = self._world.faults, self._rng.random
        joined = faults.joined_p > 0 and len(records) > 1 and chance() < faults.joined_p
        if self._probes:
            return self._as_stated(self._reader.read([self._said(one) for one in records]))
        for record in records:
            if faults.drop_p and chance() < faults.drop_p:
                self._world.missed(record, "dropped")
                continue
            data = self._said(record)
            if faults.malformed_p and chance() < faults.malformed_p:
                self._world.missed(record, "malformed")
                data = data[: len(data) // 2]
            if faults.unreadable_p and chance() < faults.unreadable_p:
                data = self._unreadable(record, data)
            frames.append(data)
            self._came.append(record)
            self._world.checks.came(self._instance, self._opened_us, record)
            if faults.duplicate_p and chance() < faults.duplicate_p:
                frames.append(data)
        if not frames:
            return None
        if joined:
            self._world.count("two documents in one text")
            frames = [b"\n".join(frames)]
        return self._as_stated(self._reader.read(frames))

    def _unreadable(self, record: LogRecord, data: bytes) -> bytes:
        """What comes in the place of a record, and no reader can read."""
        self._world.missed(record, "unreadable")
        if self._rng.random() < 0.5:
            self._world.count("record in UTF-16")
            return data.decode().encode("utf-16")
        self._world.count("record without a key")
        return b'{"log-record-header":{"token":"?"}}'

    def _said(self, record: LogRecord) -> bytes:
        """The record as it goes over the wire: the log keeps whole entities (v3.2 5.2)."""
        log = self._log.log
        assert isinstance(log, SimLog)
        options, delay_s = self._world.log_options, self._instance.compaction_delay_s
        young = delay_s is None or self._world.now() - record.appended_s < delay_s
        young = young and not self._states_all
        return as_2_6(record, log, options.records, young=young) if options.records else record.data

    def _as_stated(self, chunk: RecordChunk) -> RecordChunk:
        """Without offsets, where the provider states none."""
        if self._world.log_options.offsets:
            return chunk
        bare = [msgspec.structs.replace(r, partition="", offset=-1) for r in chunk.records]
        return msgspec.structs.replace(chunk, records=bare)
