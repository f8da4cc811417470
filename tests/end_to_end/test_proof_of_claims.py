"""What stands as aligned is what the provider has, though its log, its answers or its names deceive
(A2, A13, A18 to A21). Providers and records are written out; only the tables are looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import Consumer
from instep_sql import SqlStore
from instep_sql.reader import SqlReader
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource
from tests.instep_tapi.hostile_kit import Peer, hostile
from tests.instep_tapi.small_provider_kit import (
    DEADLINE_S,
    SETTINGS,
    SmallProvider,
    node,
    running,
    second_now,
    serving,
    stated,
)

pytestmark = pytest.mark.asyncio
NAMES = [f"n{n}" for n in range(6)]


@asynccontextmanager
async def following(
    served: SmallProvider, folder: Path
) -> AsyncIterator[tuple[Consumer, SqlReader]]:
    store = SqlStore(f"sqlite:///{folder}/store.db")
    async with running(served, store) as consumer:
        yield consumer, store.reader


async def rows(reader: SqlReader) -> list[tuple[str, str]]:
    """Class and uuid of each row."""
    return sorted([(one.entity_class, one.uuid or one.key) async for one in reader.entities()])


async def becomes(reader: SqlReader, *names: str) -> None:
    """Wait until the rows are just these NODEs."""
    wanted = [("NODE", name) for name in sorted(names)]
    for _ in range(int(DEADLINE_S / 2 / 0.05)):
        if await rows(reader) == wanted:
            return
        await asyncio.sleep(0.05)
    assert await rows(reader) == wanted


async def rests(reader: SqlReader, *names: str) -> None:
    """The rows become just these NODEs, and stay so."""
    await becomes(reader, *names)
    await asyncio.sleep(1)
    await becomes(reader, *names)


WITHOUT: dict[str, Any] = {"full-log-record-offset-id": None}


@pytest.mark.parametrize("offsets", [True, False])
async def test_a2_a_log_that_was_rebuilt_leaves_no_phantom(tmp_path: Path, offsets: bool) -> None:
    """It is far beyond our offsets, and what has gone meanwhile has no end in it."""
    more: dict[str, Any] = {} if offsets else WITHOUT
    log = [node(name, n, **more) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
        served.log = [node(name, 15 + n, 60, "new", **more) for n, name in enumerate(NAMES[3:])]
        served.cut()
        await becomes(reader, *NAMES[3:])


async def test_a2_a_stream_with_another_uuid_is_another_log(tmp_path: Path) -> None:
    """It has its name still, and begins right behind ours."""
    log = [node(name, n) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
        served.stream = {"uuid": "another"}
        served.log = [node(name, 6 + n, 60, "new") for n, name in enumerate(NAMES[3:])]
        served.cut()
        await becomes(reader, *NAMES[3:])


async def test_a2_a_provider_that_was_away_before_the_start_was_restarted(tmp_path: Path) -> None:
    """The process of the consumer began while it answered with 503."""
    log = [node(name, n) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
    served.log = [node(name, 6 + n, 60, "new") for n, name in enumerate(NAMES[3:])]
    served.streams_status = "503 Service Unavailable"
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    settings = msgspec.structs.replace(SETTINGS, reconnect_late_s=0.1)
    async with serving(served) as source, Consumer("c", source, store, settings):
        await asyncio.sleep(0.3)
        served.streams_status = "200 OK"
        await becomes(store.reader, *NAMES[3:])


@pytest.mark.parametrize("changed", [{"uuid": "v"}, {"uuid": "v", "stream-id": "v"}])
async def test_a20_a_stream_under_another_uuid_is_read_though_the_old_one_stays_open(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    """Nothing is ever said on the old connection again, and nobody closes it."""
    log = [node(name, n) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    settings = msgspec.structs.replace(SETTINGS, discover_every_s=0.2, discover_confirm_s=0.2)
    async with running(served, store, settings):
        await becomes(store.reader, *NAMES)
        served.path, served.stream = "/another", changed
        served.log = [node(name, n, 60, "new") for n, name in enumerate(NAMES[:4])]
        await rests(store.reader, *NAMES[:4])


@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED", "FULL_HISTORY"])
@pytest.mark.parametrize("cut", [True, False])
async def test_a17_no_attempt_is_made_only_because_records_were_unreadable(
    tmp_path: Path, storage: str, cut: bool
) -> None:
    """They came alone, and each explains the offset that is missing behind them (A18)."""
    now = second_now()
    log = [node(name, n, now) for n, name in enumerate(NAMES)] if storage == "COMPACTED" else []
    served = SmallProvider("NODE", log=log, storage=storage)
    served.shows(*NAMES)
    bad: dict[str, Any] = {"log-append-time-stamp": "unknown"}
    async with following(served, tmp_path) as (consumer, reader):
        await becomes(reader, *NAMES)
        served.say(node("n5", len(served.log), second_now()))
        await asyncio.sleep(0.3)
        served.say(*(node("n0", len(served.log) + n, **bad) for n in range(3)))
        await asyncio.sleep(0.3)
        if cut:
            served.cut()
            await asyncio.sleep(0.5)
        served.shows(*NAMES, "new")
        served.say(node("new", len(served.log), second_now()))
        await rests(reader, *NAMES, "new")
        [stream] = consumer.health().streams
        assert (stream.attempt, stream.phase) == (1, "aligned")
        assert [one.key async for one in reader.entities(unproven=True)] == ["n0"]


@pytest.mark.parametrize("offsets", [True, False])
async def test_a2_a_snapshot_is_no_continuation(tmp_path: Path, offsets: bool) -> None:
    """Emulated compaction (3.19.2): the token is older than the retention, however short the loss.
    All but one have changed.
    """
    more: dict[str, Any] = {} if offsets else WITHOUT
    now = second_now()
    log = [node(name, n, now, **more) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    served.kind = {"compacted-log-details": {"tombstone-retention": "3", "compaction-delay": "3"}}
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
        # No wait can be shorter: the log must be idle for longer than its retention.
        await asyncio.sleep(max(0.0, now + 3.5 - second_now()))
        now = second_now()
        served.log = [node(name, 9 + n, now, "snap", **more) for n, name in enumerate(NAMES[1:])]
        served.cut()
        await becomes(reader, *NAMES[1:])


async def test_a2_an_empty_log_is_not_taken_for_ours(tmp_path: Path) -> None:
    log = [node(name, n) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    async with following(served, tmp_path) as (consumer, reader):
        await becomes(reader, *NAMES)
        served.log = []
        served.cut()
        async with asyncio.timeout(DEADLINE_S / 2):
            while consumer.health().streams[0].phase == "aligned":
                await asyncio.sleep(0.02)
        # It is not filled yet: nothing is lost by that.
        served.log = [node(name, n, 60, "new") for n, name in enumerate(NAMES[:4])]
        served.cut()
        await becomes(reader, *NAMES[:4])


async def test_a18_a_log_that_wraps_past_its_reader_is_read_anew(tmp_path: Path) -> None:
    served = SmallProvider("NODE")
    served.shows("c1", "c2")
    async with following(served, tmp_path) as (_, reader):
        served.say(node("c2", 0))
        await becomes(reader, "c1", "c2")
        served.shows("c2")
        served.say(node("c2", 32, 60))
        await becomes(reader, "c2")


@pytest.mark.parametrize("before", [0, 3])
async def test_a2_an_idle_truncated_stream_costs_no_get_at_each_reconnection(
    tmp_path: Path, before: int
) -> None:
    """Nothing was ever read of it. An empty log shows that nothing was missed; where it holds what
    was there before the opening, one reading comes to a token.
    """
    served = SmallProvider("NODE", log=[node(name, n) for n, name in enumerate(NAMES[:before])])
    served.shows(*NAMES)
    async with following(served, tmp_path) as (consumer, reader):
        for _ in range(4):
            opened = len(served.opened_at)
            served.cut()
            async with asyncio.timeout(DEADLINE_S):
                while len(served.opened_at) == opened or not consumer.health().aligned:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
        assert served.readings == (2 if before else 1)
        served.say(node("c", before, 60))
        await rests(reader, "c", *NAMES)


async def test_a2_what_came_while_nothing_was_ever_read_is_not_missed(tmp_path: Path) -> None:
    served = SmallProvider("NODE")
    served.shows(*NAMES)
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
        served.shows(*NAMES[1:])
        served.cut()
        # Its end has left the log, or was never in it.
        served.say(node("n1", 5, 60))
        await rests(reader, *NAMES[1:])


async def test_a20_streams_that_come_back_under_other_ids_double_nothing(tmp_path: Path) -> None:
    served = SmallProvider("NODE")
    served.shows(*NAMES)
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
        opened = len(served.opened_at)
        served.stream, served.path = {"uuid": "another", "stream-id": "another"}, "/another"
        served.shows(*NAMES[1:])
        served.cut()
        async with asyncio.timeout(DEADLINE_S / 2):
            while len(served.opened_at) == opened:
                await asyncio.sleep(0.02)
        await rests(reader, *NAMES[1:])


@pytest.mark.parametrize("offsets", [True, False])
async def test_a21_a_clock_that_goes_back_on_a_connection_drops_nothing(
    tmp_path: Path, offsets: bool
) -> None:
    more: dict[str, Any] = {} if offsets else WITHOUT
    log = [node(name, n, n, **more) for n, name in enumerate(NAMES)]
    served = SmallProvider("NODE", log=log, storage="COMPACTED")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, *NAMES)
        served.say(
            stated(6, "n4", kind="DELETE", second=2, **more),
            stated(7, "n4", kind="TOMBSTONE", second=2, **more),
            stated(8, "n5", "NODE", {"uuid": "n5", "log": "newer"}, second=2, **more),
        )
        await becomes(reader, *NAMES[:4], "n5")
        async with asyncio.timeout(DEADLINE_S / 2):
            while not [one async for one in reader.entities() if b"newer" in one.body]:
                await asyncio.sleep(0.05)


async def test_a13_a_change_of_what_is_gone_makes_no_entity(tmp_path: Path) -> None:
    """CHANGE_ONLY: an old change stands in the log, and an end whose key nobody can join."""
    part = {"uuid": "x", "operational-state": "DISABLED"}
    log = [
        stated(1, "k1/operational-state", "NODE", part),
        stated(2, "k1", kind="DELETE"),
        stated(3, "k1", kind="TOMBSTONE"),
    ]
    served = SmallProvider("NODE", log=log, records="CHANGE_ONLY")
    served.refuses_latest = "400 Bad Request"
    served.shows("y")
    async with following(served, tmp_path) as (_, reader):
        await rests(reader, "y")


async def test_a13_an_entity_made_anew_under_another_key_is_one(tmp_path: Path) -> None:
    served = SmallProvider("NODE", log=[stated(1, "k1", "NODE", {"uuid": "u"})])
    served.refuses_latest = "400 Bad Request"
    served.shows("u", "w")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, "u", "w")
    served.log = [
        stated(5, "k1", kind="DELETE", log="new"),
        stated(6, "k1", kind="TOMBSTONE", log="new"),
        stated(7, "k2", "NODE", {"uuid": "u"}, log="new"),
    ]
    async with following(served, tmp_path) as (_, reader):
        await rests(reader, "u", "w")
        served.shows("w")
        served.say(
            stated(8, "k2", kind="DELETE", second=90, log="new"),
            stated(9, "k2", kind="TOMBSTONE", second=91, log="new"),
        )
        await rests(reader, "w")


async def test_st_4_2_an_end_without_a_class_ends_what_another_instance_stated(
    tmp_path: Path,
) -> None:
    """CHANGE_ONLY, and the instances have keys of their own (3.10)."""
    first = SmallProvider("NODE", storage="FULL_HISTORY", records="CHANGE_ONLY")
    second = SmallProvider("NODE", storage="FULL_HISTORY", records="CHANGE_ONLY")
    first.kind = second.kind = {"record-retention": "FOREVER"}
    first.log = [
        stated(n, f"b{name}", "NODE", {"uuid": name}, second=0) for n, name in enumerate("yz")
    ]
    second.log = [
        *(
            stated(n, f"a{name}", "NODE", {"uuid": name}, second=0, log="a")
            for n, name in enumerate("yz")
        ),
        stated(2, "ay", "ANY_CLASS", kind="DELETE", second=60, log="a"),
        stated(3, "ay", kind="TOMBSTONE", second=61, log="a"),
        stated(4, "az/name", "NODE", {"uuid": "z", "name": []}, second=62, log="a"),
    ]
    away = False

    async def serve_first(peer: Peer) -> None:
        if away:
            peer.writer.transport.abort()
        else:
            await first.serve(peer)

    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(hostile(serve)) for serve in (serve_first, second.serve)
        ]
        fail_over = {"leave_after_s": 0.3, "fail_back_after_s": 1000.0}
        options = {"endpoints": urls, "fail_over": fail_over}
        source = TapiSource(read_options(options, "source"))
        stack.push_async_callback(source.close)
        store = SqlStore(f"sqlite:///{tmp_path}/store.db")
        consumer = await stack.enter_async_context(Consumer("c", source, store, SETTINGS))
        await consumer.aligned(DEADLINE_S)
        await becomes(store.reader, "y", "z")
        away = True
        first.cut()
        await rests(store.reader, "z")
