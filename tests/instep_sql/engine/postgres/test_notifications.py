"""Who follows the journal is woken by the NOTIFY of a commit, not by looking again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep import Subscription
from instep_sql import SqlStore, reader
from tests.instep.cli.cli_kit import statement
from tests.instep_sql.store_kit import stage
from tests.postgres_kit import Server

NEVER_S = 3_600.0
PATIENCE_S = 30.0


async def listening(postgres: Server, url: str, count: int = 1) -> None:
    """Return when so many sessions of the database have begun to listen and wait."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    # What a session that listens has run last is the query for the schema.
    query += " AND query = 'SELECT current_schema()'"
    async with asyncio.timeout(PATIENCE_S):
        while postgres.execute(query, url) != [(count,)]:
            await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_a_commit_wakes_those_who_follow(
    postgres: Server, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_SAFETY_POLL_S", NEVER_S)
    async with (
        stage(postgres_database, journal="changes") as at,
        SqlStore(postgres_database) as other,
    ):
        changes = aiter(other.reader.changes(follow=True))
        batches = aiter(Subscription(other.reader, poll_s=NEVER_S))
        for number in (1, 2, 3):
            one = asyncio.ensure_future(anext(changes))
            several = asyncio.ensure_future(anext(batches))
            if number == 1:
                await listening(postgres, postgres_database)
            await at.commit(statement(number, b"{}"))
            async with asyncio.timeout(PATIENCE_S):
                assert (await one).key == f"k{number}"
                assert [change.key for change in await several] == [f"k{number}"]


@pytest.mark.asyncio
async def test_a_lost_connection_is_replaced(postgres: Server, postgres_database: str) -> None:
    async with (
        stage(postgres_database, journal="changes") as at,
        SqlStore(postgres_database) as other,
    ):
        changes = aiter(other.reader.changes(follow=True))
        following = asyncio.ensure_future(anext(changes))
        await listening(postgres, postgres_database)
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query = 'SELECT current_schema()'",
            postgres_database,
        )
        await at.commit(statement(1, b"{}"))
        async with asyncio.timeout(PATIENCE_S):
            assert (await following).key == "k1"


@pytest.mark.asyncio
async def test_sqlite_is_looked_at_again(tmp_path: Path) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db", journal="changes") as at:
        following = asyncio.ensure_future(anext(aiter(at.store.reader.changes(follow=True))))
        await at.commit(statement(1, b"{}"))
        async with asyncio.timeout(PATIENCE_S):
            assert (await following).key == "k1"
