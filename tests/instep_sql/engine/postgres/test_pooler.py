"""A store behind a real pgbouncer, in each of its modes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from instep.errors import SinkError
from instep_sql import SqlReader, SqlStore
from instep_sql.options import SqlOptions
from instep_sql.plugin import sink
from instep_sql.reader import now_us
from tests.instep_sql.store_kit import create_update, end_record, stage
from tests.pgbouncer_kit import Mode, Pooler, pooling
from tests.postgres_kit import Missing, Server

pytestmark = pytest.mark.asyncio
MODES = ["session", "transaction"]


@contextmanager
def pooled(server: Server, mode: Mode, **settings: str) -> Iterator[Pooler]:
    """Skips where there is no pgbouncer to start."""
    with ExitStack() as stack:
        try:
            pooler = stack.enter_context(pooling(server, mode, **settings))
        except Missing as missing:
            pytest.skip(str(missing))
        yield pooler


@pytest.fixture(scope="module", params=MODES)
def pooler(request: pytest.FixtureRequest, postgres: Server) -> Iterator[Pooler]:
    """As pgbouncer comes: it takes no startup options."""
    with pooled(postgres, request.param) as made:
        yield made


@pytest.fixture(scope="module")
def transactions(postgres: Server) -> Iterator[Pooler]:
    """A pool of transactions over so few sessions that each is shared, and none is cleaned."""
    settings = {"default_pool_size": "2", "server_round_robin": "1"}
    with pooled(postgres, "transaction", ignore_startup_parameters="options", **settings) as made:
        yield made


async def test_a_store_is_as_good_behind_it(
    pooler: Pooler, postgres: Server, postgres_database: str
) -> None:
    url = pooler.url(postgres_database)
    async with stage(url, journal="changes", schema="mine") as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(3_000)])
        await at.commit(end_record("k1", 5_000), create_update("k2", 5_000))
        assert len(await at.entities()) == 2_999
        assert len(await at.journal()) == 3_002
        for n in range(20):
            # The same statement often enough that the driver would prepare it.
            await at.commit(create_update("k3", 6_000 + n))
        counted = "SELECT count(*) FROM mine.instep_entity"
        assert postgres.execute(counted, postgres_database) == [(2_999,)]
        prepared = "SELECT 1 FROM pg_tables WHERE tablename = 'instep_entity'"
        assert len(postgres.execute(prepared, postgres_database)) == 1


async def test_the_limits_hold_in_each_transaction_and_are_left_to_nobody(
    transactions: Pooler, postgres: Server, postgres_database: str
) -> None:
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "search_path")
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    # It takes long enough that the next one needs the other session.
    query = f"SELECT {asked}, pg_backend_pid(), current_setting('transaction_read_only')"
    query += ", pg_sleep(0.02)"
    url = transactions.url(postgres_database)

    async def ask(store: SqlStore, *, reading: bool) -> tuple[Any, ...]:
        database = store.reader.database if reading else store._database
        return await database.run(lambda c: tuple(c.exec_driver_sql(query).one()))

    given: dict[str, Any] = {"schema": "mine", "statement_timeout_s": 7.0, "lease_s": None}
    async with stage(url, **given) as one, stage(url, **given) as other:
        seen = []
        for _ in range(5):
            of = [(at.store, reading) for at in (one, other) for reading in (True, False)]
            asking = [ask(store, reading=reading) for store, reading in of]
            for (_, reading), found in zip(of, await asyncio.gather(*asking), strict=True):
                seen.append(found[3])
                assert found[:3] == ("7s", "30s", '"mine"')
                assert found[4] == ("on" if reading else "off")
        assert len(set(seen)) == 2, "four connections share them"
        left = postgres.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(ARRAY"
            f"{sorted(set(seen))}) AND query LIKE 'LISTEN%'"
        )
        assert left == [(0,)]
        # What another client of the pool finds in them.
        clean = [postgres.execute(f"SELECT {asked}", url) for _ in range(4)]
        assert {row[0] for [row] in clean} == {"0"}
        temporary = "SELECT count(*) FROM pg_class WHERE relname = 'instep_incoming'"
        assert postgres.execute(temporary, postgres_database) == [(0,)]


async def test_many_share_few_sessions(transactions: Pooler, postgres_database: str) -> None:
    url = transactions.url(postgres_database)
    async with stage(url, journal="changes") as at:
        reader = SqlReader(SqlOptions(url=url), clock_us=now_us)
        following = aiter(reader.changes(follow=True))

        async def follow() -> list[str]:
            return [(await anext(following)).key for _ in range(1_205)]

        async def write() -> None:
            await at.commit(*[create_update(f"k{n}", n) for n in range(1_200)])
            for n in range(5):
                await at.commit(create_update(f"l{n}", 2_000 + n))

        async with asyncio.timeout(60):
            found, _ = await asyncio.gather(follow(), write())
        assert found == [*(f"k{n}" for n in range(1_200)), *(f"l{n}" for n in range(5))]
        await reader.close()


async def test_the_configuration_of_the_page_works(
    postgres: Server, postgres_database: str
) -> None:
    page = Path(__file__).parents[4] / "docs" / "how-to" / "postgresql.md"
    written = ConfigParser()
    written.read_string(page.read_text().partition("```ini\n")[2].partition("```")[0])
    given = dict(written["pgbouncer"])
    mode = given.pop("pool_mode")
    # Where it listens and whom it knows is of this machine.
    settings = {key: of for key, of in given.items() if not key.startswith(("listen", "auth"))}
    assert (mode, len(settings)) == ("transaction", 4)
    with pooled(postgres, "transaction", **settings) as pooler:
        async with stage(pooler.url(postgres_database)) as at:
            await at.commit(create_update("a", 1))
            assert list(await at.entities()) == ["a"]


async def test_a_status_is_read_behind_it(pooler: Pooler, postgres_database: str) -> None:
    url = pooler.url(postgres_database)
    async with stage(url) as at:
        await at.commit(create_update("a", 1))
        reader = sink.reader(url)
        assert [one.entities for one in await reader.streams()] == [1]
        await reader.close()


async def test_a_pool_of_statements_is_refused_by_name(
    postgres: Server, postgres_database: str
) -> None:
    with pooled(postgres, "statement") as pooler:
        async with SqlStore(pooler.url(postgres_database)) as store:
            with pytest.raises(SinkError, match="this pooler pools statements") as caught:
                await store.open("east")
    assert not caught.value.retriable
    assert caught.value.hint.startswith("set pool_mode = transaction or session")


@pytest.mark.parametrize("ignored", [True, False])
async def test_options_of_the_url_are_refused_where_they_would_be_lost(
    postgres: Server, postgres_database: str, transactions: Pooler, ignored: bool
) -> None:
    given = "?options=-c%20statement_timeout%3D5000"
    with pooled(postgres, "session") as strict:
        pooler = transactions if ignored else strict
        async with SqlStore(pooler.url(postgres_database) + given) as store:
            with pytest.raises(SinkError, match="does not pass on the options") as caught:
                await store.open("east")
    assert not caught.value.retriable
    async with stage(postgres_database + given) as at:
        await at.commit(create_update("a", 1))
