"""Several streams of one consumer: one that fails ends no other; one that appears is followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from instep import Consumer, ConsumerState, Mode, Phase, Record, RecordType, StreamInfo
from instep.errors import (
    AuthenticationError,
    BaselineError,
    DiscoveryError,
    InstepError,
    TokenRefusedError,
    UnreachableError,
)
from instep.model import RecordChunk, Start, StreamState
from instep.ports import Feed, Source
from instep_sql import SqlStore
from tests.instep.runtime.consumer_kit import LATER, QUICK, drained, store
from tests.instep.scripted_source_kit import (
    SILENT,
    T0_US,
    ConnectionRefused,
    ScriptedSource,
    info,
    record,
)

pytestmark = pytest.mark.asyncio

__all__ = ["store"]

OFTEN = msgspec.structs.replace(QUICK, discover_every_s=0.02, reconnect_late_s=0.05)
FORBIDDEN = AuthenticationError("the stream is forbidden: 403", stream_only=True)


def says(stream: str, *offsets: int) -> RecordChunk:
    """Records of this stream."""
    return RecordChunk(
        [
            msgspec.structs.replace(record(offset), stream=stream, key=f"{stream}-{offset}")
            for offset in offsets
        ]
    )


class ManyStreams(Source):
    """Each stream is a scripted source of its own; `offered` are the ids that discovery finds."""

    def __init__(self, **scripts: ScriptedSource) -> None:
        self.scripts = scripts
        self.offered = list(scripts)
        self.undiscovered: InstepError | None = None
        self.discoveries = 0
        for id_, script in scripts.items():
            script.stream = msgspec.structs.replace(script.stream, id=id_)

    async def discover(self) -> Sequence[StreamInfo]:
        self.discoveries += 1
        if self.undiscovered is not None:
            raise self.undiscovered
        return [self.scripts[id_].stream for id_ in self.offered]

    def feed(self, stream: StreamInfo, start: str | Start) -> AbstractAsyncContextManager[Feed]:
        return self.scripts[stream.id].feed(stream, start)

    def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        return self.scripts[stream.id].baseline(stream, opened_at_us)

    async def state(self, stream: StreamInfo) -> StreamState:
        return await self.scripts[stream.id].state(stream)

    async def close(self) -> None:
        pass


def consumer(source: Source, store: SqlStore) -> Consumer:
    return Consumer("test", source, store, OFTEN, environment=LATER)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_3_6_7_a_stream_that_appears_later_is_followed(store: SqlStore) -> None:
    source = ManyStreams(
        a=ScriptedSource([says("a", 1), SILENT]), b=ScriptedSource([says("b", 2, 3), SILENT])
    )
    source.offered = ["a"]
    async with consumer(source, store) as started:
        await started.aligned(5)
        source.offered = ["a", "b"]
        await drained(started, 3)
        await started.aligned(5)
        assert [stream.stream for stream in started.health().streams] == ["a", "b"]
    assert source.scripts["a"].starts == [Start.OLDEST]
    assert source.scripts["b"].starts == [Start.OLDEST]


async def test_3_6_7_a_stream_that_was_followed_once_goes_on_from_its_token(
    store: SqlStore,
) -> None:
    """It was not offered when this consumer started."""
    first = ManyStreams(a=ScriptedSource([says("a", 1), SILENT]), b=ScriptedSource([says("b", 2)]))
    async with consumer(first, store) as started:
        await started.aligned(5)
    again = ManyStreams(a=ScriptedSource([SILENT]), b=ScriptedSource([says("b", 3), SILENT]))
    again.offered = ["a"]
    async with consumer(again, SqlStore(store.options.url)) as started:
        await until(lambda: again.discoveries > 1)
        again.offered = ["b", "a"]
        await drained(started, 1)
    assert again.scripts["b"].starts == ["token-2"]


async def test_a_discovery_that_fails_later_ends_nothing_and_is_told_once(
    store: SqlStore,
) -> None:
    source = ManyStreams(
        a=ScriptedSource([says("a", 1), SILENT]), b=ScriptedSource([says("b", 2), SILENT])
    )
    source.offered = ["a"]
    told: list[str] = []
    started = consumer(source, store)

    async def listen() -> None:
        told.extend([event.kind async for event in started.events()])

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    async with started:
        await started.aligned(5)
        source.undiscovered = DiscoveryError("not now")
        before = source.discoveries
        await until(lambda: source.discoveries > before + 3)
        assert started.health().aligned
        source.undiscovered, source.offered = None, ["a", "b"]
        await drained(started, 2)
    await listening
    assert told.count("undiscovered") == 1
    assert told.count("stream-found") == 1


async def test_a_login_that_is_refused_later_is_not_tried_again_to_discover(
    store: SqlStore,
) -> None:
    source = ManyStreams(a=ScriptedSource([says("a", 1), SILENT]))
    async with consumer(source, store) as started:
        await started.aligned(5)
        source.undiscovered = AuthenticationError("401")
        before = source.discoveries
        await until(lambda: source.discoveries > before)
        await asyncio.sleep(0.2)
        assert source.discoveries == before + 1
        assert started.health().aligned


@pytest.mark.parametrize(
    "error", [FORBIDDEN, BaselineError("current state is answered with 403")], ids=repr
)
async def test_3_6_7_what_is_fatal_for_one_stream_ends_no_other(
    store: SqlStore, error: InstepError
) -> None:
    source = ManyStreams(
        a=ScriptedSource([says("a", 1), SILENT]),
        b=ScriptedSource([ConnectionRefused(error)], [says("b", 2), SILENT]),
    )
    settings = msgspec.structs.replace(OFTEN, reconnect_late_s=1e6)
    async with Consumer("test", source, store, settings, environment=LATER) as started:
        await until(lambda: [one.failed for one in started.health().streams] == [False, True])
        await drained(started, 1)
        with pytest.raises(type(error), match="403"):
            await started.aligned(5)
        a, b = started.health().streams
        assert (a.connected, b.connected, b.last_error) == (True, False, str(error))
        assert started.health().state is ConsumerState.RETRYING
        assert started.error is None
    assert source.scripts["b"].starts == [Start.OLDEST]


async def test_a_stream_that_failed_alone_is_tried_again(store: SqlStore) -> None:
    source = ManyStreams(
        a=ScriptedSource([says("a", 1), SILENT]),
        b=ScriptedSource([ConnectionRefused(FORBIDDEN)], [says("b", 2), SILENT]),
    )
    async with consumer(source, store) as started:
        await drained(started, 2)
        await until(lambda: started.health().aligned)
        await started.aligned(5)
        assert not any(one.failed for one in started.health().streams)


async def test_when_no_stream_goes_on_the_consumer_has_failed(store: SqlStore) -> None:
    refused = [ConnectionRefused(FORBIDDEN)]
    source = ManyStreams(a=ScriptedSource(refused), b=ScriptedSource(refused))
    settings = msgspec.structs.replace(OFTEN, reconnect_late_s=1e6)
    async with Consumer("test", source, store, settings, environment=LATER) as started:
        with pytest.raises(AuthenticationError, match="403"):
            await asyncio.wait_for(started.wait(), 5)
        assert started.health().state is ConsumerState.FAILED


async def test_a_refused_login_is_that_of_all_streams(store: SqlStore) -> None:
    """Each further login with it may lock the account."""
    source = ManyStreams(
        a=ScriptedSource([says("a", 1), SILENT]),
        b=ScriptedSource([ConnectionRefused(AuthenticationError("401"))]),
    )
    async with consumer(source, store) as started:
        with pytest.raises(AuthenticationError, match="401"):
            await asyncio.wait_for(started.wait(), 5)


async def test_who_gives_up_after_some_failures_does_so_with_one_stream(store: SqlStore) -> None:
    source = ManyStreams(
        a=ScriptedSource([says("a", 1), SILENT]),
        b=ScriptedSource([ConnectionRefused(UnreachableError("no"))]),
    )
    settings = msgspec.structs.replace(OFTEN, reconnect_attempts=2)
    async with Consumer("test", source, store, settings, environment=LATER) as started:
        with pytest.raises(UnreachableError):
            await asyncio.wait_for(started.wait(), 5)


async def test_5_10_1_a_provider_that_does_not_know_latest_is_read_from_its_oldest_record(
    store: SqlStore,
) -> None:
    stream = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
    row = Record(
        "a", "x", RecordType.CREATE_UPDATE, "", T0_US, entity_class="NODE", body=b"{}", uuid="x"
    )
    script = ScriptedSource(
        [ConnectionRefused(TokenRefusedError("400"))], [says("a", 1), SILENT], stream=stream
    )
    script.pages = [[row]]
    async with consumer(ManyStreams(a=script), store) as started:
        await drained(started, 2)
        await started.aligned(5)
        assert started.health().streams[0].attempt == 1
    assert script.starts == [Start.LATEST, Start.OLDEST]


def ordered(source: ManyStreams, store: SqlStore, **settings: Any) -> Consumer:
    """A consumer that starts nodes, then points, then the rest."""
    chosen = msgspec.structs.replace(OFTEN, start_order=("NODE", "NODE_EDGE_POINT"), **settings)
    for id_, carried in {"a": (), "b": ("NODE_EDGE_POINT",), "c": ("NODE", "LINK")}.items():
        script = source.scripts[id_]
        script.stream = msgspec.structs.replace(script.stream, classes=carried)
    return Consumer("test", source, store, chosen, environment=LATER)


def three(**others: ScriptedSource) -> ManyStreams:
    scripts = {id_: ScriptedSource([says(id_, at), SILENT]) for at, id_ in enumerate("abc", 1)}
    return ManyStreams(**scripts | others)


def two_are_aligned(started: Consumer) -> bool:
    return [stream.phase for stream in started.health().streams].count(Phase.ALIGNED) == 2


async def test_st_4_1_streams_start_in_the_order_of_their_classes(store: SqlStore) -> None:
    started = ordered(three(), store)
    told: list[tuple[str, str]] = []

    async def listen() -> None:
        told.extend([(event.kind, event.stream) async for event in started.events()])

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    async with started:
        await started.aligned(30)
    await listening
    assert [stream for kind, stream in told if kind == "connected"] == ["c", "b", "a"]
    assert [stream for kind, stream in told if kind == "waiting"] == ["a", "b"]
    for before, after in (("c", "b"), ("b", "a")):
        assert told.index(("aligned", before)) < told.index(("connected", after))


async def test_st_4_1_a_stream_that_cannot_go_on_holds_up_no_other(store: SqlStore) -> None:
    source = three(c=ScriptedSource([ConnectionRefused(FORBIDDEN)]))
    async with ordered(source, store) as started:
        await until(lambda: two_are_aligned(started))
        assert [stream.stream for stream in started.health().streams if stream.failed] == ["c"]


async def test_st_4_1_one_that_says_nothing_is_waited_for_so_long_only(store: SqlStore) -> None:
    source = three(c=ScriptedSource([SILENT]))
    source.scripts["c"].stream_state = StreamState.PAUSED
    async with ordered(source, store, start_wait_s=0.2) as started:
        await until(lambda: two_are_aligned(started))
