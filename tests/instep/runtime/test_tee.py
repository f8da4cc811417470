"""Several sinks from one consumer: each with its own position, none waiting for another."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from instep import Consumer, Group, Phase, Position, Record, StreamInfo
from instep.config.plugins import sink_plugin
from instep.errors import ConfigurationError, SinkError, StoreUnavailableError, UnreachableError
from instep.model import Batch, CommitResult, RecordChunk, Start, StreamState
from instep.ports import Feed, Source
from instep.runtime.streams.fan_out import SharedSource
from instep.runtime.tee import TeeSink
from instep_sql import SqlStore
from tests.instep.runtime.consumer_kit import LATER, QUICK, drained, keys
from tests.instep.scripted_source_kit import info, record


class LogSource(Source):
    """A log that grows, with its readers."""

    def __init__(self, *records: Record) -> None:
        self.log = list(records)
        self.grew = asyncio.Event()
        self.opened: list[str | Start] = []
        self.open = 0
        self.closed = 0

    def append(self, *records: Record) -> None:
        self.log += records
        grew, self.grew = self.grew, asyncio.Event()
        grew.set()

    async def discover(self) -> Sequence[StreamInfo]:
        return [info(clock_offset_us=len(self.opened))]

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:
        del stream
        self.opened.append(start)
        tokens = [one.token for one in self.log]
        self.open += 1
        try:
            yield LogFeed(self, 0 if isinstance(start, Start) else tokens.index(start) + 1)
        finally:
            self.open -= 1

    async def state(self, stream: StreamInfo) -> StreamState:
        del stream
        return StreamState.ACTIVE

    async def close(self) -> None:
        self.closed += 1


class LogFeed(Feed):
    def __init__(self, source: LogSource, at: int) -> None:
        self.source = source
        self.at = at

    async def receive(self) -> RecordChunk:
        while self.at >= len(self.source.log):
            await self.source.grew.wait()
        self.at += 1
        return RecordChunk([self.source.log[self.at - 1]], size_bytes=100)


class SlowStore(SqlStore):
    """A store that commits only when the test allows it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.let = asyncio.Event()

    async def commit(self, batch: Batch) -> CommitResult:
        await self.let.wait()
        return await super().commit(batch)


class FailingStore(SqlStore):
    async def commit(self, batch: Batch) -> CommitResult:
        raise StoreUnavailableError("no", where=batch.stream)


def shared(source: LogSource, *stores: SqlStore, limit_records: int = 1_000) -> list[Consumer]:
    of_all = SharedSource(source, len(stores), limit_records=limit_records)
    # A consumer reads ahead by a batch of its own: the bound of the connection comes on top.
    settings = msgspec.structs.replace(QUICK, batch_records=5)
    return [Consumer("c", of_all, store, settings, environment=LATER) for store in stores]


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    return [f"sqlite:///{tmp_path}/{name}.db" for name in ("a", "b")]


@pytest.mark.asyncio
async def test_one_connection_feeds_all(urls: list[str]) -> None:
    source = LogSource(record(1), record(2))
    tee = TeeSink([SqlStore(url) for url in urls])
    consumers = tee.consumers("c", source, QUICK, environment=LATER)
    async with Group(consumers) as group:
        source.append(record(3))
        await group.aligned(10)
        assert (source.opened, source.open) == ([Start.OLDEST], 1)
    assert (source.open, source.closed) == (0, 1)
    for url in urls:
        assert await keys(SqlStore(url)) == ["key-1", "key-2", "key-3"]
    # Both stand at one place, so they share a connection again.
    tee = TeeSink([SqlStore(url) for url in urls])
    async with Group(tee.consumers("c", source, QUICK, environment=LATER)):
        async with asyncio.timeout(5):
            while not source.open:
                await asyncio.sleep(0.01)
        assert (source.opened[1:], source.open) == (["token-3"], 1)


@pytest.mark.asyncio
async def test_the_slower_is_left_and_catches_up_from_its_own_position(urls: list[str]) -> None:
    source = LogSource(record(1))
    fast, slow = SqlStore(urls[0]), SlowStore(urls[1])
    first, second = shared(source, fast, slow, limit_records=20)
    async with Group([first, second]):
        await drained(first, 1)
        slow.let.set()
        await drained(second, 1)
        slow.let.clear()
        for offset in range(2, 200):
            source.append(record(offset))
            if offset % 10 == 0:
                await drained(first, offset)
        await drained(first, 199)
        assert source.opened == [Start.OLDEST]
        slow.let.set()
        await drained(second, 199)
        assert len(source.opened) > 1
        assert all(start != Start.OLDEST for start in source.opened[1:])
        held = await fast.position(info()), await slow.position(info())
        assert held[0].token == held[1].token == "token-199"
        assert held[0].attempt == held[1].attempt == 1


@pytest.mark.asyncio
async def test_a_failing_sink_holds_nobody_back(urls: list[str]) -> None:
    source = LogSource(*map(record, range(1, 50)))
    good, bad = shared(source, SqlStore(urls[0]), FailingStore(urls[1]))
    async with Group([good, bad]):
        await good.aligned(10)
        assert not bad.health().aligned
    assert len(await keys(SqlStore(urls[0]))) == 49
    # After a crash each resumes from its own: one has nothing, the other all.
    source.opened.clear()
    async with Group(shared(source, *map(SqlStore, urls))) as group:
        await group.aligned(10)
    assert set(source.opened) == {Start.OLDEST, "token-49"}
    assert len(await keys(SqlStore(urls[1]))) == 49


@pytest.mark.asyncio
async def test_where_one_sink_refuses_the_others_go_on_and_all_let_go(urls: list[str]) -> None:
    source = LogSource(record(1))
    sinks = [SqlStore(urls[0]), SqlStore("sqlite:////no/such/folder.db"), SqlStore(urls[1])]
    async with Group(TeeSink(sinks).consumers("c", source, QUICK, environment=LATER)) as group:
        with pytest.raises(SinkError, match="cannot be opened"):
            await group.aligned(10)
    assert (source.open, source.closed) == (0, 1)
    for url in urls:
        assert await keys(SqlStore(url)) == ["key-1"]


@pytest.mark.asyncio
async def test_a_connection_remembers_where_others_may_join() -> None:
    source = LogSource(*map(record, range(1, 40)))
    of_all = SharedSource(source, 2, limit_records=10)
    async with of_all.feed(info(), Start.OLDEST) as feed:
        read = [(await feed.receive()).records[0].token for _ in range(30)]
        assert read == [f"token-{n}" for n in range(1, 31)]
        async with of_all.feed(info(), "token-25") as near:
            assert (await near.receive()).records[0].token == "token-26"
            assert source.open == 1
            for _ in range(9):
                await feed.receive()
            source.append(*map(record, range(40, 60)))
            for _ in range(20):
                await feed.receive()
            with pytest.raises(UnreachableError, match="fell behind"):
                await near.receive()
        async with of_all.feed(info(), "token-5") as far:
            assert source.open == 2
            assert (await far.receive()).records[0].token == "token-6"
    assert source.open == 0


class LivingFeed(LogFeed):
    unheard_s = 7.0
    under_way_s = 5.0
    pings = 0

    async def ping(self) -> None:
        self.pings += 1


@pytest.mark.asyncio
async def test_signs_of_life_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    source = LogSource(record(1))
    async with SharedSource(source, 1).feed(info(), Start.OLDEST) as feed:
        await feed.ping()
        assert (feed.unheard_s, feed.under_way_s) == (0.0, 0.0)
    living = LivingFeed(source, 0)
    monkeypatch.setattr("tests.instep.runtime.test_tee.LogFeed", lambda *_: living)
    async with SharedSource(source, 1).feed(info(), Start.OLDEST) as feed:
        await feed.ping()
        assert (feed.unheard_s, feed.under_way_s, living.pings) == (7.0, 5.0, 1)


class AnsweringFeed(LogFeed):
    def __init__(self, source: LogSource) -> None:
        super().__init__(source, 0)
        self.positions: list[Position] = []

    def committed(self, position: Position) -> None:
        self.positions.append(position)


@pytest.mark.asyncio
async def test_what_all_have_committed_is_reported_to_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = LogSource()
    answering = AnsweringFeed(source)
    monkeypatch.setattr("tests.instep.runtime.test_tee.LogFeed", lambda *_: answering)
    of_all = SharedSource(source, 2)
    baselining = Position(token="a", phase=Phase.BASELINING)
    async with of_all.feed(info(), Start.LATEST) as one:  # noqa: SIM117 - the other goes first
        async with of_all.feed(info(), Start.LATEST) as other:
            one.committed(Position(token="b", phase=Phase.ALIGNED, offsets={"0": 7, "1": 1}))
            assert answering.positions == []
            other.committed(baselining)
            other.committed(Position(token="a", phase=Phase.ALIGNED, offsets={"0": 5}))
        # Whoever is gone is waited for no longer.
    positions = [(one.token, one.phase, one.offsets) for one in answering.positions]
    assert positions == [
        (None, Phase.BASELINING, {}),
        (None, Phase.ALIGNED, {"0": 5}),
        ("b", Phase.ALIGNED, {"0": 7, "1": 1}),
    ]


class RealigningFeed(LogFeed):
    async def receive(self) -> RecordChunk:
        return msgspec.structs.replace(await super().receive(), realign="lost")


@pytest.mark.asyncio
async def test_a_connection_that_asks_for_a_realignment_is_joined_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = LogSource(record(1))
    name = "tests.instep.runtime.test_tee.LogFeed"
    monkeypatch.setattr(name, lambda *_: RealigningFeed(source, 0))
    of_all = SharedSource(source, 2)
    async with of_all.feed(info(), Start.OLDEST) as one:
        assert (await one.receive()).realign == "lost"
        async with of_all.feed(info(), Start.OLDEST):
            assert source.open == 2


@pytest.mark.asyncio
async def test_a_session_is_joined_only_before_anything_came() -> None:
    source = LogSource(record(1))
    of_all, session = SharedSource(source, 2), info(resumable=False)
    async with of_all.feed(session, Start.OLDEST) as one, of_all.feed(session, Start.OLDEST):
        assert source.open == 1
        await one.receive()
        async with of_all.feed(session, Start.OLDEST):
            assert source.open == 2


@pytest.mark.asyncio
async def test_cancelling_a_reader_loses_nothing() -> None:
    source = LogSource(record(1))
    of_all = SharedSource(source, 1)
    async with of_all.feed(info(), Start.OLDEST) as feed:
        await feed.receive()
        waiting = asyncio.create_task(feed.receive())
        await asyncio.sleep(0.01)
        waiting.cancel()
        source.append(record(2), record(3))
        assert [(await feed.receive()).records[0].token for _ in range(2)] == ["token-2", "token-3"]


def test_options_are_checked_place_by_place() -> None:
    tee = sink_plugin("tee")
    good = {"kind": "sql", "url": "sqlite://"}
    tee.check({"sinks": [good, good]}, "x")
    wrong: list[tuple[dict[str, object], str]] = [
        ({}, "two sinks or more"),
        ({"sinks": [good]}, "two sinks or more"),
        ({"sinks": [good, {"url": "sqlite://"}]}, r"x.sinks\[1\]: this cannot be a sink of a tee"),
        ({"sinks": [good, {"kind": "sql", "ur": ""}]}, r"x.sinks\[1\]: unknown key 'ur'"),
        ({"sink": [good, good]}, "unknown key 'sink'"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            tee.check(options, "x")
