"""What a consumer waits for at its start, and what it never ends by once it has worked."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from instep import Consumer, ConsumerState, StreamInfo
from instep.errors import (
    AuthenticationError,
    DiscoveryError,
    FrameTooBigError,
    InstepError,
    SinkError,
    StoreUnavailableError,
    UnreachableError,
)
from instep_sql import SqlStore
from tests.instep.runtime.consumer_kit import LATER, QUICK, drained, keys
from tests.instep.scripted_source_kit import (
    SILENT,
    ConnectionRefused,
    ScriptedSource,
    Step,
    records,
)

pytestmark = pytest.mark.asyncio
LATE = msgspec.structs.replace(QUICK, reconnect_late_s=0.01)
REFUSALS: list[InstepError] = [
    FrameTooBigError("a frame of more than 4 bytes"),
    UnreachableError("redirects", retriable=False, retriable_after_success=True),
    AuthenticationError("the stream is forbidden: 403", retriable_after_success=True),
]


def _source(*connections: list[Step]) -> ScriptedSource:
    return ScriptedSource(*connections)


def _consumer(source: ScriptedSource, store: SqlStore) -> Consumer:
    return Consumer("test", source, store, LATE, environment=LATER)


async def test_a_store_that_is_away_at_the_start_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = SqlStore(f"sqlite:///{file}", busy_timeout_s=0.0)
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with _consumer(_source([records(0), SILENT]), store) as consumer:
            await asyncio.sleep(0.05)
            health = consumer.health()
            assert health.state is ConsumerState.RETRYING
            assert "locked" in health.error
            other.rollback()
            await consumer.aligned(5)
            assert (consumer.health().state, consumer.health().error) == ("running", "")
    assert await keys(SqlStore(store.options.url)) == ["key-0"]


async def test_a_store_that_is_away_is_given_up_where_attempts_are_limited(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = SqlStore(f"sqlite:///{file}", busy_timeout_s=0.0)
    settings = msgspec.structs.replace(QUICK, reconnect_attempts=2)
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with Consumer("test", _source([SILENT]), store, settings) as consumer:
            with pytest.raises(StoreUnavailableError, match="locked"):
                await consumer.aligned(5)


async def test_a_store_that_no_waiting_mends_is_an_error_at_once() -> None:
    consumer = _consumer(_source([SILENT]), SqlStore("sqlite:////no/such/folder.db"))
    with pytest.raises(SinkError, match="cannot be opened"):
        async with consumer:
            pass
    assert isinstance(consumer.error, SinkError)
    assert consumer.health().state is ConsumerState.FAILED


async def test_what_has_failed_is_never_told_as_stopped(tmp_path: Path) -> None:
    for source, url in (
        (_source([SILENT]), "sqlite:////no/such/folder.db"),
        (_source([AuthenticationError("401")]), f"sqlite:///{tmp_path}/store.db"),
    ):
        consumer = _consumer(source, SqlStore(url))
        told = asyncio.create_task(_kinds(consumer))
        await asyncio.sleep(0)
        with contextlib.suppress(InstepError):
            await consumer.__aenter__()
            await consumer.wait()
        await consumer.__aexit__(None, None, None)
        assert (await told)[-1] == "failed"
        assert "stopped" not in await told


async def _kinds(consumer: Consumer) -> list[str]:
    return [event.kind async for event in consumer.events()]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: error.code)
async def test_what_a_provider_may_do_for_a_while_ends_nothing_after_a_success(
    refusal: InstepError, tmp_path: Path
) -> None:
    refusal = type(refusal)(
        refusal.message, retriable=False, retriable_after_success=refusal.retriable_after_success
    )
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    source = _source([records(0), refusal], [records(1), SILENT])
    async with _consumer(source, store) as consumer:
        await drained(consumer, 2)
    assert refusal.retried_late


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: error.code)
async def test_before_a_success_it_is_an_error(refusal: InstepError, tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    async with _consumer(_source([ConnectionRefused(refusal)]), store) as consumer:
        with pytest.raises(type(refusal)):
            await consumer.aligned(5)


async def test_a_refused_login_is_fatal_always(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    source = _source([records(0), AuthenticationError("401")])
    async with _consumer(source, store) as consumer:
        with pytest.raises(AuthenticationError):
            async with asyncio.timeout(5):
                await consumer.wait()


class _MaintenanceSource(ScriptedSource):
    """Discovery leads to a page of maintenance, until `over`."""

    def __init__(self, *connections: list[Step], error: InstepError) -> None:
        super().__init__(*connections)
        self.error, self.over = error, asyncio.Event()

    async def discover(self) -> list[StreamInfo]:
        self.discoveries += 1
        if self.over.is_set():
            return [self.stream]
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("redirects", retriable=False, retriable_after_success=True),
        DiscoveryError("no stream-context found"),
    ],
    ids=lambda error: error.code,
)
async def test_a_restart_within_a_maintenance_waits_for_its_end(
    error: InstepError, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with _consumer(_source([records(0), SILENT]), SqlStore(url)) as before:
        await before.aligned(5)
    source = _MaintenanceSource([records(1), SILENT], error=error)
    async with _consumer(source, SqlStore(url)) as consumer:
        async with asyncio.timeout(5):
            while source.discoveries < 3:
                await asyncio.sleep(0.01)
        source.over.set()
        await drained(consumer, 1)
    fresh = _MaintenanceSource(error=type(error)("no", retriable=False))
    async with _consumer(fresh, SqlStore(f"sqlite:///{tmp_path}/new.db")) as consumer:
        with pytest.raises(type(error)):
            await consumer.aligned(5)
