"""A peer that acknowledges TCP and answers nothing: a proxy, a pooler or a server that hangs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from instep import Consumer
from instep.errors import StoreUnavailableError
from instep.model.records import Record
from instep.testing.relay import Dial, Relay, Rule, Stream
from instep_sql import SqlStore
from instep_sql.engine.postgres import answer_timeout
from instep_tapi.plugin import source as tapi
from tests.instep_sql.store_kit import Stage, create_update, stage, stream_info
from tests.postgres_kit import Server
from tests.wire.sources import QUICK, Changes, network_provider

pytestmark = pytest.mark.asyncio

NO_ANSWER = r"no answer for 0\.5 s, so the connection was given up"
PATIENCE_S = 60.0
SHORT_S = 0.3


@pytest.fixture(autouse=True)
def _short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_timeout, "MARGIN_S", 0.2)


class Stalled(Rule):
    """From these bytes of the client on, nothing is read from either side; afterwards it comes
    late.
    """

    def __init__(self, after: bytes = b"") -> None:
        super().__init__()
        self._after = after
        self._going_on = asyncio.Event()
        self._going_on.set()

    def heal(self) -> None:
        self.active = False
        self._going_on.set()

    async def from_client(self, data: bytes) -> bytes:
        if self.active and self._after in data:
            self._going_on.clear()
        await self._going_on.wait()
        return data

    async def from_server(self, data: bytes) -> bytes:
        await self._going_on.wait()
        return data


class LostAnswers(Rule):
    """From these bytes of the client on, the server gets everything and its answers go nowhere."""

    def __init__(self, after: bytes) -> None:
        super().__init__()
        self._after = after
        self._lost = False
        self.connections = 0

    async def serve(self, client: Stream, dial: Dial) -> None:
        self.connections += 1
        await super().serve(client, dial)

    async def from_client(self, data: bytes) -> bytes:
        self._lost = self._lost or (self.active and self._after in data)
        return data

    async def from_server(self, data: bytes) -> bytes:
        return b"" if self._lost and self.active else data


@contextlib.asynccontextmanager
async def relayed(server: Server, url: str, rule: Rule) -> AsyncIterator[str]:
    rule.active = False
    async with Relay(f"127.0.0.1:{server.port}", [rule]) as relay:
        place = f"postgresql://postgres@{relay.address}/{url.rpartition('/')[2]}"
        yield f"{place}?connect_timeout=2"


async def available(at: Stage, *records: Record) -> None:
    """Commit as soon as it is possible: the server may yet work on what came late."""
    while True:
        try:
            await at.commit(*records)
        except StoreUnavailableError:
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.parametrize(
    ("count", "after"),
    [(1, b""), (1, b"UPDATE instep_stream"), (3_000, b"x" * 1_000)],
    ids=["BEGIN", "a statement", "the data of a COPY"],
)
async def test_a_commit_without_an_answer_is_unavailable_and_tried_again(
    postgres: Server, postgres_database: str, count: int, after: bytes
) -> None:
    rule = Stalled(after)
    records = [create_update(f"k{number}", 2, b"x" * 2_000) for number in range(count)]
    async with (
        relayed(postgres, postgres_database, rule) as url,
        stage(url, statement_timeout_s=SHORT_S) as at,
        asyncio.timeout(PATIENCE_S),
    ):
        await at.commit(create_update("a", 1))
        rule.active = True
        with pytest.raises(StoreUnavailableError, match=NO_ANSWER) as caught:
            await at.commit(*records)
        assert caught.value.where == url.partition("?")[0]
        assert "proxy or pooler" in (caught.value.hint or "")
        rule.heal()
        await available(at, *records)
        assert len(await at.entities()) == 1 + count


async def test_who_connects_to_what_hangs_is_told_after_one_timeout(
    postgres: Server, postgres_database: str
) -> None:
    rule = LostAnswers(b"")
    async with relayed(postgres, postgres_database, rule) as url, SqlStore(url) as store:
        rule.active = True
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(
                StoreUnavailableError, match=r"cannot be reached: .*timeout expired"
            ):
                await store.open("east")
        assert rule.connections == 1


async def test_a_commit_whose_answer_does_not_come_is_done_once(
    postgres: Server, postgres_database: str
) -> None:
    rule = LostAnswers(b"COMMIT\0")
    async with (
        relayed(postgres, postgres_database, rule) as url,
        stage(url, statement_timeout_s=SHORT_S) as at,
        asyncio.timeout(PATIENCE_S),
    ):
        rule.active = True
        with pytest.raises(StoreUnavailableError, match=NO_ANSWER):
            await at.commit(create_update("a", 1))
        rule.active = False
        # As after any commit that is uncertain: the position tells.
        at.position = await at.store.position(stream_info())
        assert at.position.ordinal == 1
        await at.commit(create_update("a", 2))
        assert await at.bodies() == {"a": b'{"at":2}'}


async def test_readers_and_steps_do_not_wait_for_ever(
    postgres: Server, postgres_database: str
) -> None:
    rule = Stalled()
    async with (
        relayed(postgres, postgres_database, rule) as url,
        stage(url, statement_timeout_s=SHORT_S) as at,
        asyncio.timeout(PATIENCE_S),
    ):
        await at.commit(create_update("a", 1))
        await at.entities()

        async def steps() -> None:
            async with at.store._database.transaction() as transaction:
                await transaction.run(lambda one: one.exec_driver_sql("DELETE FROM instep_entity"))
                rule.active = True
                await transaction.run(lambda one: one.exec_driver_sql("SELECT 1"))

        with pytest.raises(StoreUnavailableError, match=NO_ANSWER):
            await steps()
        with pytest.raises(StoreUnavailableError, match=NO_ANSWER):
            await at.entities()
        rule.heal()
        assert list(await at.entities()) == ["a"]


async def test_what_takes_long_and_is_allowed_to_is_waited_for(postgres_database: str) -> None:
    """The bound follows the option: no statement is given up before the server ends it."""
    async with stage(postgres_database, statement_timeout_s=5) as at:
        await at.store._database.run(lambda one: one.exec_driver_sql("SELECT pg_sleep(1)"))
    async with stage(postgres_database, statement_timeout_s=SHORT_S) as at:
        with pytest.raises(StoreUnavailableError, match="raise statement_timeout_s"):
            await at.store._database.run(lambda one: one.exec_driver_sql("SELECT pg_sleep(9)"))


async def test_a_consumer_tells_that_it_waits_and_stops(
    postgres: Server, postgres_database: str
) -> None:
    rule = Stalled()
    async with (
        network_provider() as provider,
        relayed(postgres, postgres_database, rule) as url,
        asyncio.timeout(PATIENCE_S),
    ):
        source = tapi.build({"endpoints": [provider.url]}, "wire")
        store, change = SqlStore(url, statement_timeout_s=SHORT_S), Changes(provider)
        async with Consumer("wire", source, store, QUICK) as consumer:
            await consumer.aligned(PATIENCE_S)
            rule.active = True
            await change()
            while "so the connection was given up" not in consumer.health().streams[0].last_error:
                await asyncio.sleep(0.02)
            assert not consumer.health().aligned
            rule.heal()
            await consumer.aligned(PATIENCE_S)
            rule.active = True
            await change()
        # It has stopped, although nothing has let it go.
        assert rule.active
