"""A stream is what it carries, not what it is called (A20), with a real provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import Consumer, Phase
from instep.errors import SinkError
from instep_spark import DeltaSink
from instep_spark.plugin import sink as delta_sink
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.facts.names import LogStorageStrategy, StreamState
from instep_tapi.plugin import source
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from tests.end_to_end.site_kit import QUICK, network

pytestmark = pytest.mark.asyncio

DEADLINE_S = 100.0

SOON = msgspec.structs.replace(QUICK, discover_every_s=0.5, discover_confirm_s=1.0)
STORAGES = [LogStorageStrategy.COMPACTED, LogStorageStrategy.TRUNCATED]
NODES = frozenset({"NODE"})
REST = frozenset({"TOPOLOGY", "NODE_EDGE_POINT"})


def one(storage: LogStorageStrategy, stream_id: str = "first", **more: Any) -> Provider:
    settings = ProviderSettings(streams=(StreamSettings(stream_id, storage=storage),), **more)
    return Provider(network(4, 4), settings)


@asynccontextmanager
async def following(folder: Path, *served: Provider, **options: Any) -> AsyncIterator[Consumer]:
    built = source.build({"endpoints": [each.url for each in served], **options}, "test")
    store = SqlStore(f"sqlite:///{folder}/store.db", journal="changes")
    async with Consumer("test", built, store, SOON) as consumer:
        yield consumer


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; fail when it does not in time."""
    for _ in range(int(DEADLINE_S / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")


async def stored(folder: Path) -> dict[str, dict[str, Any]]:
    """Stream → entity-key → body."""
    reader = sink.reader(f"sqlite:///{folder}/store.db")
    found: dict[str, dict[str, Any]] = {}
    try:
        async for each in reader.entities():
            found.setdefault(each.stream, {})[each.key] = json.loads(each.body)
        return found
    finally:
        await reader.close()


async def changes(folder: Path, change: str) -> int:
    reader = sink.reader(f"sqlite:///{folder}/store.db")
    try:
        return sum([each.change.value == change async for each in reader.changes()])
    finally:
        await reader.close()


async def phases(folder: Path) -> dict[str, str]:
    reader = sink.reader(f"sqlite:///{folder}/store.db")
    try:
        return {each.stream: str(each.position.phase) for each in await reader.streams()}
    finally:
        await reader.close()


def truth(served: Provider, stream: str) -> dict[str, Any]:
    return {key: json.loads(body) for key, (_, body) in served.entities(stream).items()}


async def becomes(folder: Path, wanted: dict[str, dict[str, Any]]) -> None:
    """Wait until the store holds just this."""
    held: dict[str, dict[str, Any]] = {}
    for _ in range(int(DEADLINE_S / 0.1)):
        held = await stored(folder)
        if held == wanted:
            return
        await asyncio.sleep(0.1)
    assert held == wanted


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("running", [True, False])
async def test_3_7_2_a_stream_under_another_name_keeps_its_rows(
    storage: LogStorageStrategy, tmp_path: Path, *, running: bool
) -> None:
    async with one(storage) as served:
        async with following(tmp_path, served) as consumer:
            await consumer.aligned(DEADLINE_S)
            if running:
                served.rename_streams({"first": "second"})
                served.delete("n3")
                await until(
                    lambda: [s.attempt for s in consumer.health().streams] == [2], "its attempt"
                )
                await consumer.aligned(DEADLINE_S)
        if not running:
            served.rename_streams({"first": "second"})
            served.delete("n3")
            async with following(tmp_path, served) as consumer:
                await consumer.aligned(DEADLINE_S)
        assert await stored(tmp_path) == {"first": truth(served, "second")}
        assert await phases(tmp_path) == {"first": "aligned"}
        # n3 and its four ports: nothing else was removed, or made twice.
        assert await changes(tmp_path, "created") == 22
        assert await changes(tmp_path, "swept") + await changes(tmp_path, "deleted") == 5


def regions(storage: LogStorageStrategy, east: str, west: str) -> Provider:
    """Two streams of the same classes and strategy: the nodes of east, and those of west."""
    settings = tuple(StreamSettings(name, classes=NODES, storage=storage) for name in (east, west))
    served = Provider(network(12, 1), ProviderSettings(streams=settings))
    for number in range(12):
        gone = served.streams[number < 6]
        gone.end(f"n{number}", delete=False)
    served.forget_log()
    return served


@pytest.mark.parametrize("names", [("c", "d"), ("b", "a")], ids=["new", "swapped"])
async def test_a20_two_regions_are_never_taken_for_each_other(
    names: tuple[str, str], tmp_path: Path
) -> None:
    """Neither in the end nor meanwhile: no node is ever removed."""
    async with regions(LogStorageStrategy.COMPACTED, "a", "b") as served:
        async with following(tmp_path, served) as consumer:
            await consumer.aligned(DEADLINE_S)
        east, west = truth(served, "a"), truth(served, "b")
        assert len(east) == len(west) == 6
        served.rename_streams({"a": names[0], "b": names[1]})
        async with following(tmp_path, served) as consumer:
            await consumer.aligned(DEADLINE_S)
        assert await stored(tmp_path) == {"a": east, "b": west}
        assert await changes(tmp_path, "swept") == 0
        assert await changes(tmp_path, "created") == 12


async def test_of_two_regions_the_one_that_is_left_is_not_taken_for_the_other(
    tmp_path: Path,
) -> None:
    async with regions(LogStorageStrategy.COMPACTED, "a", "b") as served:
        served.pause("b", StreamState.TERMINATED)
        async with following(tmp_path, served) as consumer:
            await consumer.aligned(DEADLINE_S)
        served.pause("a", StreamState.TERMINATED)
        served.activate("b")
        served.rename_streams({"b": "c"})
        async with following(tmp_path, served) as consumer:
            await until(
                lambda: (
                    {s.stream: s.phase for s in consumer.health().streams}
                    == {"a": Phase.NOT_OFFERED, "c": Phase.ALIGNED}
                ),
                "two streams",
            )
            assert consumer.health().aligned
        assert await stored(tmp_path) == {"a": truth(served, "a"), "c": truth(served, "c")}
        assert await phases(tmp_path) == {"a": "not-offered", "c": "aligned"}


async def test_a_list_that_has_become_shorter_changes_nothing_at_once(tmp_path: Path) -> None:
    streams = (StreamSettings("nodes", classes=NODES), StreamSettings("rest", classes=REST))
    async with (
        Provider(network(4, 4), ProviderSettings(streams=streams)) as served,
        following(tmp_path, served) as consumer,
    ):
        await consumer.aligned(DEADLINE_S)
        before = await stored(tmp_path)
        served.pause("nodes", StreamState.TERMINATED)
        served.drop_clients("nodes")
        await until(lambda: not consumer.health().streams[0].connected, "the stream is away")
        assert (await phases(tmp_path))["nodes"] == "aligned"
        await until(
            lambda: any(s.phase is Phase.NOT_OFFERED for s in consumer.health().streams),
            "it is not offered",
        )
        assert (await phases(tmp_path))["nodes"] == "not-offered"
        assert await stored(tmp_path) == before
        reader = sink.reader(f"sqlite:///{tmp_path}/store.db")
        assert {each.proven async for each in reader.entities(stream="nodes")} == {False}
        assert {each.proven async for each in reader.entities(stream="rest")} == {True}
        status = {each.stream: each for each in await reader.streams()}
        assert status["nodes"].unproven == status["nodes"].entities == 4
        await reader.close()
        served.update("n1", {"operational-state": "DISABLED"})
        served.activate("nodes")
        await until(
            lambda: [s.phase for s in consumer.health().streams] == [Phase.ALIGNED] * 2,
            "it is offered again",
        )
        await consumer.aligned(DEADLINE_S)
        await becomes(tmp_path, {name: truth(served, name) for name in ("nodes", "rest")})
        assert (await phases(tmp_path))["nodes"] == "aligned"
        assert await changes(tmp_path, "swept") == 0


async def test_nothing_in_a_lake_stays_aligned_that_is_not_offered(tmp_path: Path) -> None:
    streams = (StreamSettings("nodes", classes=NODES), StreamSettings("rest", classes=REST))
    url = (tmp_path / "lake").as_uri()
    reader = delta_sink.reader(url)

    async def shown() -> dict[str, str]:
        return {each.stream: str(each.position.phase) for each in await reader.streams()}

    async with Provider(network(4, 4), ProviderSettings(streams=streams)) as served:
        built = source.build({"endpoints": [served.url]}, "test")
        async with Consumer("test", built, DeltaSink(url), SOON) as consumer:
            await consumer.aligned(DEADLINE_S)
            assert await shown() == {"nodes": "aligned", "rest": "aligned"}
            served.pause("nodes", StreamState.TERMINATED)
            served.drop_clients("nodes")
            await until(
                lambda: any(s.phase is Phase.NOT_OFFERED for s in consumer.health().streams),
                "it is not offered",
            )
            assert await shown() == {"nodes": "not-offered", "rest": "aligned"}
            assert {each.unproven async for each in reader.entities(stream="nodes")} == {
                "not-offered"
            }
            served.activate("nodes")
            await until(
                lambda: [s.phase for s in consumer.health().streams] == [Phase.ALIGNED] * 2,
                "it is offered again",
            )
            await consumer.aligned(DEADLINE_S)
            assert await shown() == {"nodes": "aligned", "rest": "aligned"}
            assert all([each.proven async for each in reader.entities()])
    await reader.close()


async def test_a_stream_whose_entities_other_streams_state_retires_by_itself(
    tmp_path: Path,
) -> None:
    """One stream of everything becomes two."""
    content = network(4, 4)
    async with Provider(content, ProviderSettings(streams=(StreamSettings("all"),))) as served:
        port = int(served.url.rpartition(":")[2])
        async with following(tmp_path, served) as consumer:
            await consumer.aligned(DEADLINE_S)
    streams = (StreamSettings("nodes", classes=NODES), StreamSettings("rest"))
    settings = ProviderSettings(streams=streams, port=port)
    async with Provider(content, settings) as served:
        async with following(tmp_path, served) as consumer:
            await becomes(tmp_path, {name: truth(served, name) for name in ("nodes", "rest")})
            await until(
                lambda: [s.stream for s in consumer.health().streams] == ["nodes", "rest"],
                "the old one is retired",
            )
        assert (await phases(tmp_path)).keys() == {"nodes", "rest"}


async def test_an_operator_retires_what_is_not_offered_and_nothing_else(tmp_path: Path) -> None:
    streams = (StreamSettings("nodes", classes=NODES), StreamSettings("rest", classes=REST))
    url = f"sqlite:///{tmp_path}/store.db"
    async with (
        Provider(network(4, 4), ProviderSettings(streams=streams)) as served,
        following(tmp_path, served) as consumer,
    ):
        await consumer.aligned(DEADLINE_S)
        reader = sink.reader(url)
        with pytest.raises(SinkError, match="the provider offers the stream"):
            await reader.retire("test", "nodes")
        served.pause("nodes", StreamState.TERMINATED)
        served.drop_clients("nodes")
        await until(
            lambda: any(s.phase is Phase.NOT_OFFERED for s in consumer.health().streams),
            "it is not offered",
        )
        assert (await reader.retire("test", "nodes")).removed == 4
        await until(lambda: [s.stream for s in consumer.health().streams] == ["rest"], "it is gone")
        assert await stored(tmp_path) == {"rest": truth(served, "rest")}
        assert await changes(tmp_path, "swept") == 4
        # It comes back: it is read as any new stream.
        served.activate("nodes")
        await until(lambda: len(consumer.health().streams) == 2, "it is found")
        await consumer.aligned(DEADLINE_S)
        assert (await stored(tmp_path))["nodes"] == truth(served, "nodes")
        await reader.close()


@pytest.mark.parametrize("storage", STORAGES)
async def test_st_4_2_another_instance_with_other_names_takes_the_place(
    storage: LogStorageStrategy, tmp_path: Path
) -> None:
    now = {"leave_after_s": 0.0, "probe_every_s": 60.0}
    async with one(storage, "first") as a, one(storage, "second") as b:
        b.delete("n3")
        async with following(tmp_path, a, b, fail_over=now) as consumer:
            await consumer.aligned(DEADLINE_S)
            down = asyncio.create_task(a.restart(down_s=600.0))
            await until(
                lambda: {s.endpoint for s in consumer.health().streams} == {b.url}, "the move"
            )
            await consumer.aligned(DEADLINE_S)
            assert [s.stream for s in consumer.health().streams] == ["first"]
            down.cancel()
        assert await stored(tmp_path) == {"first": truth(b, "second")}
        assert await changes(tmp_path, "created") == 22
