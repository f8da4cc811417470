"""`workers = n`: the streams of a consumer spread over processes, against a real provider."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from instep.cli.worker import multi_process_consumer
from instep.config.file import load
from instep.config.plugins import build_sink, build_source
from instep.coordination import Role
from instep.errors import AuthenticationError, ConfigurationError
from instep.ports import Source
from instep.runtime.health import ConsumerEvent, ConsumerState
from instep.runtime.workers.consumer import MultiProcessConsumer
from instep.runtime.workers.process import WorkerLostError
from instep_sql import SqlStore
from instep_sql.plugin import sink as sql
from instep_sql.reader import SqlReader
from instep_tapi.facts.names import StreamState
from instep_tapi_provider import AuthSettings, Provider, ProviderSettings, StreamSettings
from tests.end_to_end.site_kit import Site, network, site, until
from tests.instep_tapi.hostile_kit import hostile
from tests.instep_tapi.small_provider_kit import SmallProvider, node
from tests.postgres_kit import Missing, serving

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]
CONFIG = """
[[consumers]]
name = "test"
workers = {workers}
source = {{ kind = "tapi", endpoints = ["{url}"], auth = {{ kind = "bearer", token = "{token}" }} }}
[consumers.sink]
kind = "sql"
url = "{store}"
{sink}
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 0.5
poll_state_s = 0.1
discover_every_s = 0.2
reconnect_attempts = {attempts}
stale_after_s = {stale_s}
kill_silent_after_s = {kill_s}
start_order = [{order}]
alignment = {{ quiet_s = 0.3, unreached_quiet_s = 1.0 }}
"""
STREAMS = ("nodes", "points", "alarms", "rest")
TIMEOUT_S = 60


def served() -> Provider:
    """A provider with four streams, behind a login."""
    streams = (
        StreamSettings("nodes", classes=frozenset({"NODE"})),
        StreamSettings("points", classes=frozenset({"NODE_EDGE_POINT"})),
        StreamSettings("alarms", classes=frozenset({"CONDITION_DETECTOR"})),
        StreamSettings("rest"),
    )
    auth = AuthSettings(tokens=frozenset({"s3cret"}))
    return Provider(network(6, 3), ProviderSettings(streams=streams, auth=auth))


class Running:
    """A consumer with worker processes, and what it has told."""

    def __init__(self, consumer: MultiProcessConsumer) -> None:
        self.consumer = consumer
        self.events: list[ConsumerEvent] = []

    def kinds(self, kind: str) -> list[str]:
        return [event.stream for event in self.events if event.kind == kind]

    def told(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]

    @property
    def pids(self) -> dict[int, int]:
        """The last process of each worker."""
        texts = [text.split() for text in self.told("worker-started")]
        return {int(words[1]): int(words[4].rstrip(",")) for words in texts}


def consumer(
    here: Site,
    folder: Path,
    *,
    workers: int = 2,
    store: str = "",
    sink: str = "",
    token: str = "s3cret",
    order: str = "",
    attempts: int = 0,
    stale_s: float = 10.0,
    kill_s: float = 120.0,
) -> MultiProcessConsumer:
    return configured(
        folder,
        url=here.provider.url,
        store=store or here.url,
        workers=workers,
        sink=sink,
        token=token,
        order=order,
        attempts=attempts,
        stale_s=stale_s,
        kill_s=kill_s,
    )


def configured(folder: Path, **values: object) -> MultiProcessConsumer:
    file = folder / "instep.toml"
    usual = {"workers": 2, "sink": "", "token": "", "order": "", "attempts": 0}
    file.write_text(CONFIG.format(**{**usual, "stale_s": 10.0, "kill_s": 120.0, **values}))
    (one,) = load(file).consumers
    source = build_source(one.source)
    assert isinstance(source, Source)
    return multi_process_consumer(one, source, build_sink(one.sink))


@asynccontextmanager
async def running(made: MultiProcessConsumer) -> AsyncIterator[Running]:
    it = Running(made)

    async def listen() -> None:
        async for event in made.events():
            it.events.append(event)

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    try:
        async with made:
            yield it
    finally:
        await asyncio.wait_for(listening, TIMEOUT_S)


async def gone(pid: int) -> None:
    """Wait until there is no such process."""

    def is_gone() -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return False
        return True

    await until(is_gone, f"process {pid} has ended")


async def test_each_stream_is_followed_by_one_process_and_all_is_equal(tmp_path: Path) -> None:
    async with site(served(), tmp_path) as here, running(consumer(here, tmp_path)) as it:
        here.provider.raise_alarm("n1")
        await it.consumer.aligned(TIMEOUT_S)
        health = it.consumer.health()
        assert (health.state, health.error) == (ConsumerState.RUNNING, "")
        assert [one.stream for one in health.streams] == list(STREAMS)
        assert all(one.connected and one.attempt == 1 for one in health.streams)
        assert sorted(it.pids) == [1, 2]
        assert all("with 2 streams" in text for text in it.told("worker-started"))
        assert sorted(it.kinds("aligned")) == sorted(STREAMS)
        for stream in STREAMS:
            assert here.provider.counters(stream).connections == 1
            await here.equal(stream)
        pids = list(it.pids.values())
    for pid in pids:
        await gone(pid)
    assert it.events[-1].kind == "stopped"


async def test_the_streams_of_a_worker_that_hangs_are_stale_and_it_is_told(tmp_path: Path) -> None:
    async with (
        site(served(), tmp_path) as here,
        running(consumer(here, tmp_path, stale_s=5.0)) as it,
    ):
        await it.consumer.aligned(TIMEOUT_S)
        reader = sql.reader(here.url)

        def states() -> dict[str, str]:
            return {one.stream: one.freshness.state for one in it.consumer.health().streams}

        async def stored() -> dict[str, str]:
            return {one.stream: one.state for one in await reader.freshness()}

        first = it.pids[1]
        os.kill(first, signal.SIGSTOP)
        try:
            await until(lambda: list(states().values()).count("stale") == 2, "two are stale")
            mine = {stream for stream, state in states().items() if state == "stale"}
            await until(lambda: bool(it.told("worker-silent")), "the silence is told")
            assert "worker 1 was not heard for" in " ".join(it.told("worker-silent"))
            assert "its 2 streams are stale" in it.told("worker-silent")[0]
            assert it.consumer.health().state is ConsumerState.RETRYING
            assert not it.consumer.health().aligned
            # The store says the same, to whoever asks it.
            async with asyncio.timeout(TIMEOUT_S):
                while {one for one, state in (await stored()).items() if state == "stale"} != mine:
                    await asyncio.sleep(0.1)
        finally:
            os.kill(first, signal.SIGCONT)
        await until(lambda: bool(it.told("worker-heard")), "it is heard again")
        await it.consumer.aligned(TIMEOUT_S)
        assert it.pids[1] == first
        await reader.close()


async def test_a_worker_that_hangs_for_longer_is_killed_and_started_again(tmp_path: Path) -> None:
    async with (
        site(served(), tmp_path) as here,
        running(consumer(here, tmp_path, stale_s=5.0, kill_s=8.0)) as it,
    ):
        await it.consumer.aligned(TIMEOUT_S)
        first = it.pids[1]
        os.kill(first, signal.SIGSTOP)
        await until(lambda: bool(it.told("worker-lost")), "it is killed")
        await until(lambda: it.pids[1] != first, "another one is started")
        await it.consumer.aligned(TIMEOUT_S)


async def test_the_streams_of_a_killed_worker_are_taken_up_after_their_positions(
    tmp_path: Path,
) -> None:
    provider = served()
    provider.raise_alarm("n1")
    async with site(provider, tmp_path) as here, running(consumer(here, tmp_path)) as it:
        await it.consumer.aligned(TIMEOUT_S)
        records = {one.stream: one.records for one in it.consumer.health().streams}
        first = dict(it.pids)
        os.kill(first[1], signal.SIGKILL)
        await until(lambda: bool(it.told("worker-lost")), "the loss is told")
        assert "worker 1 has ended by SIGKILL; its 2 streams" in it.told("worker-lost")[0]
        here.provider.update("n1", {"operational-state": "DISABLED"})
        here.provider.raise_alarm("n2")
        await until(lambda: it.pids[1] != first[1], "it is started again")
        await it.consumer.aligned(TIMEOUT_S)
        for stream in STREAMS:
            await here.equal(stream)
        assert it.pids[2] == first[2]
        counted = {name: here.provider.counters(name) for name in STREAMS}
        assert sorted(one.connections for one in counted.values()) == [1, 1, 2, 2]
        assert sum(one.resumes_by_token for one in counted.values()) == 2
        health = {one.stream: one for one in it.consumer.health().streams}
        assert all(one.attempt == 1 for one in health.values()), "it continues"
        assert all(health[name].records >= records[name] for name in STREAMS)


async def test_3_6_7_a_stream_that_appears_is_assigned_without_a_restart(tmp_path: Path) -> None:
    async with site(served(), tmp_path) as here:
        here.provider.pause("rest", StreamState.TERMINATED)
        here.provider.pause("alarms", StreamState.TERMINATED)
        here.provider.raise_alarm("n1")
        async with running(consumer(here, tmp_path, workers=3)) as it:
            await it.consumer.aligned(TIMEOUT_S)
            assert sorted(it.pids) == [1, 2], "no process without streams"
            before = dict(it.pids)
            here.provider.activate("rest")
            await until(lambda: 3 in it.pids, "the third worker follows it")
            here.provider.activate("alarms")
            await until(lambda: len(it.consumer.health().streams) == 4, "it is assigned")
            await it.consumer.aligned(TIMEOUT_S)
            assert it.kinds("stream-found") == ["rest", "alarms"]
            assert before.items() <= it.pids.items(), "nothing was started again"
            for stream in STREAMS:
                await here.equal(stream)


async def test_st_4_1_streams_start_in_their_order_whoever_follows_them(tmp_path: Path) -> None:
    async with site(served(), tmp_path) as here:
        here.provider.raise_alarm("n1")
        order = '"NODE", "NODE_EDGE_POINT"'
        async with running(consumer(here, tmp_path, order=order)) as it:
            await it.consumer.aligned(TIMEOUT_S)
            told = [(event.kind, event.stream) for event in it.events]
            assert told.index(("aligned", "nodes")) < told.index(("connected", "points"))
            assert told.index(("aligned", "points")) < told.index(("connected", "rest"))
            assert set(it.kinds("waiting")) == {"points", "rest", "alarms"}


async def test_a_paused_stream_and_one_that_is_cut_go_on(tmp_path: Path) -> None:
    async with site(served(), tmp_path) as here, running(consumer(here, tmp_path)) as it:
        await it.consumer.aligned(TIMEOUT_S)
        here.provider.pause("nodes")
        here.provider.update("n1", {"operational-state": "DISABLED"})
        here.provider.drop_clients("points")
        here.provider.activate("nodes")
        await here.equal("nodes")
        await until(lambda: it.consumer.health().state == "running", "it is connected again")
        assert not it.told("worker-lost")


async def test_a_refused_login_is_raised_as_by_one_process(tmp_path: Path) -> None:
    async with (
        site(served(), tmp_path) as here,
        running(consumer(here, tmp_path, token="wr0ng")) as it,
    ):
        with pytest.raises(AuthenticationError):
            await asyncio.wait_for(it.consumer.wait(), TIMEOUT_S)
        assert it.consumer.health().state is ConsumerState.FAILED


async def test_a_worker_that_dies_too_often_ends_the_consumer(tmp_path: Path) -> None:
    async with (
        site(served(), tmp_path) as here,
        running(consumer(here, tmp_path, attempts=1)) as it,
    ):
        await it.consumer.aligned(TIMEOUT_S)
        os.kill(it.pids[1], signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            await asyncio.wait_for(it.consumer.wait(), TIMEOUT_S)
        await gone(it.pids[2])


async def test_of_a_pair_the_workers_write_under_the_lease_of_their_consumer(
    tmp_path: Path,
) -> None:
    async with site(served(), tmp_path) as here:
        a = consumer(here, tmp_path, sink='lease_s = 20\nholder = "a"')
        b = consumer(here, tmp_path, sink='lease_s = 20\nholder = "b"')
        async with running(a) as first:
            await a.aligned(TIMEOUT_S)
            async with running(b) as second:
                await until(lambda: b.health().state == "standby", "it stands by")
                assert not second.pids, "who stands by has no workers"
                workers = dict(first.pids)
                assert await a.handover() == "b"
                for pid in workers.values():
                    await gone(pid)
                await b.aligned(TIMEOUT_S)
                here.provider.update("n1", {"operational-state": "DISABLED"})
                for stream in STREAMS:
                    await here.equal(stream)
                pair = b.health().pair
                assert pair is not None
                assert pair.role is Role.ACTIVE
                assert a.health().state is ConsumerState.STANDBY
                assert not first.told("failed") + second.told("failed")


async def test_on_postgresql_as_on_sqlite(tmp_path: Path) -> None:
    try:
        with serving() as server:
            async with site(served(), tmp_path) as here:
                here.url = store = server.create()
                here.provider.raise_alarm("n1")
                async with running(consumer(here, tmp_path, store=store, workers=4)) as it:
                    await it.consumer.aligned(TIMEOUT_S)
                    os.kill(it.pids[1], signal.SIGKILL)
                    here.provider.update("n1", {"operational-state": "DISABLED"})
                    await until(lambda: len(it.told("worker-started")) == 5, "it is started again")
                    await it.consumer.aligned(TIMEOUT_S)
                    for stream in STREAMS:
                        await here.equal(stream)
    except Missing as missing:
        pytest.skip(str(missing))


async def test_a_sink_that_serves_one_process_is_refused(tmp_path: Path) -> None:
    async with site(served(), tmp_path) as here:
        with pytest.raises(ConfigurationError) as refused:
            consumer(here, tmp_path, store="sqlite://")
        assert refused.value.where.endswith("consumers[0].workers")


async def test_a20_a_stream_under_another_uuid_is_read_though_the_old_one_stays_open(
    tmp_path: Path,
) -> None:
    """Nothing is ever said on the old connection again, and nobody closes it."""
    names = [f"n{n}" for n in range(6)]
    log = [node(name, n) for n, name in enumerate(names)]
    provider = SmallProvider("NODE", log=log, storage="COMPACTED")
    url = f"sqlite:///{tmp_path}/store.db"

    async def become(reader: SqlReader, wanted: list[str]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while sorted([one.key async for one in reader.entities()]) != wanted:
                await asyncio.sleep(0.1)

    async with hostile(provider.serve) as address:
        made = configured(tmp_path, url=address, store=url, token="any")
        async with running(made):
            reader = SqlStore(url).reader
            await made.aligned(TIMEOUT_S)
            await become(reader, names)
            provider.path, provider.stream = "/another", {"uuid": "v"}
            provider.log = [node(name, n, 60, "new") for n, name in enumerate(names[:4])]
            await become(reader, names[:4])
