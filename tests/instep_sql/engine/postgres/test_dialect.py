"""What only PostgreSQL can do to a store: go away, refuse to serialise, deadlock, time out."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import psycopg
import pytest
from msgspec.structs import replace

from instep.errors import FencedError, SinkError, StoreUnavailableError
from instep.model.batches import SweepStep
from instep.model.position import Position
from instep_sql import SqlStore
from tests.instep.model.ordering_kit import NEWER, null_query, pairs_query
from tests.instep_sql.store_kit import (
    CHANGE_ONLY,
    Stage,
    create_update,
    end_record,
    stage,
    stream_info,
)
from tests.postgres_kit import Server

pytestmark = pytest.mark.asyncio

_FAIL_SOMETIMES = """
    CREATE SEQUENCE turn;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('turn') <= {times} THEN
            RAISE EXCEPTION 'not now' USING ERRCODE = '{state}';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER fail BEFORE INSERT ON instep_entity EXECUTE FUNCTION fail();
"""


@pytest.mark.parametrize("size", [1, 999, 1_000, 3_000])
async def test_a3_holds_whatever_the_size_of_the_batch(postgres_database: str, size: int) -> None:
    async with stage(postgres_database) as at:
        await at.commit(*[create_update(f"k{n}", n % 2 * 100) for n in range(size)])
        at.attempt = 2
        result = await at.commit(*[create_update(f"k{n}", 50) for n in range(size)])
        older = (size + 1) // 2
        assert result.written == older
        entities = await at.entities()
        assert list(entities) == [f"k{n}" for n in range(size)]
        assert sum(entity.attempt == 2 for entity in entities.values()) == older
        assert (await at.commit(*[end_record(f"k{n}", 60) for n in range(size)])).deleted == older


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_transaction_that_others_made_fail_is_run_again(
    postgres: Server, postgres_database: str, state: str
) -> None:
    async with stage(postgres_database, journal="changes") as at:
        postgres.execute(_FAIL_SOMETIMES.format(times=3, state=state), postgres_database)
        assert (await at.commit(create_update("a", 1))).written == 1
        assert await at.journal() == [("a", "created")]


async def test_one_that_fails_for_ever_is_given_up_and_can_be_tried_again(
    postgres: Server, postgres_database: str
) -> None:
    async with stage(postgres_database) as at:
        await at.commit(create_update("a", 1))
        postgres.execute(_FAIL_SOMETIMES.format(times=1_000, state="40001"), postgres_database)
        with pytest.raises(StoreUnavailableError, match="met others again and again") as caught:
            await at.commit(create_update("b", 2))
        assert caught.value.data == {"sqlstate": "40001"}
        postgres.execute("DROP TRIGGER fail ON instep_entity", postgres_database)
        await at.commit(create_update("b", 2))
        assert sorted(await at.entities()) == ["a", "b"]


async def test_a_real_deadlock_costs_one_more_run(postgres_database: str) -> None:
    async with stage(postgres_database) as at:
        await at.commit(create_update("a", 1))
        with psycopg.connect(postgres_database) as other:
            # The store is the one that looks for deadlocks first, and so the one that gives way.
            other.execute("SET deadlock_timeout = '60s'")
            other.execute("UPDATE instep_entity SET attempt = attempt WHERE key = 'a'")
            committing = asyncio.create_task(at.commit(create_update("a", 2)))
            await _until_waiting(postgres_database)
            await asyncio.to_thread(other.execute, "UPDATE instep_stream SET ordinal = ordinal")
            other.commit()
        assert (await committing).written == 1
        assert await at.bodies() == {"a": b'{"at":2}'}


async def _until_waiting(url: str) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(20):
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute(query).fetchone() == (0,):
                await asyncio.sleep(0.01)


async def test_a_statement_that_takes_too_long_is_ended(postgres_database: str) -> None:
    async with stage(postgres_database, statement_timeout_s=0.2) as at:
        await at.commit(create_update("a", 1))
        with psycopg.connect(postgres_database) as other:
            other.execute("SELECT 1 FROM instep_stream FOR UPDATE")
            with pytest.raises(StoreUnavailableError, match="raise statement_timeout_s"):
                await at.commit(create_update("a", 2))
        await at.commit(create_update("a", 2))


async def test_readers_and_the_sweep_estimate_do_not_hold_up_commits(
    postgres_database: str,
) -> None:
    async with stage(postgres_database, statement_timeout_s=5) as at:
        await at.commit(create_update("a", 1))
        entered, go_on = threading.Event(), threading.Event()

        def slow(connection: object) -> None:
            connection.exec_driver_sql("SELECT count(*) FROM instep_entity")  # type: ignore[attr-defined]
            entered.set()
            go_on.wait(20)

        reading = asyncio.create_task(at.store.reader.database.run(slow))
        await asyncio.to_thread(entered.wait, 20)
        at.attempt = 2
        await at.commit(create_update("a", 2), end_record("a", 3), sweep=SweepStep(2))
        go_on.set()
        await reading
        assert await at.entities() == {}


async def test_a_reader_cannot_write(postgres_database: str) -> None:
    async with stage(postgres_database) as at:
        with pytest.raises(SinkError, match="read-only transaction"):
            await at.store.reader.database.run(
                lambda connection: connection.exec_driver_sql("DELETE FROM instep_entity")
            )


@pytest.mark.parametrize("size", [3, 2_000])
@pytest.mark.parametrize("bad", ["key", "token", "entity_class", "uuid", "partition"])
async def test_a11_a_record_with_a_nul_is_quarantined_and_the_stream_goes_on(
    postgres_database: str, size: int, bad: str
) -> None:
    async with stage(postgres_database, journal="changes") as at:
        records = [create_update(f"k{n}", n) for n in range(size)]
        records[1] = replace(records[1], **{bad: "a\0b"})
        records[-1] = replace(records[-1], token="t\0")
        await at.commit(*records)
        assert len(await at.entities()) == size - 2
        kept = [one async for one in at.store.reader.quarantine()]
        assert [one.reason for one in kept] == ["a NUL character in a key, token or name"] * 2
        assert (await at.store.position(stream_info())).token == "t\0"


async def test_a11_a_change_with_a_nul_is_quarantined(postgres_database: str) -> None:
    async with stage(postgres_database, CHANGE_ONLY) as at:
        body = b'{"uuid":"a\\u0000"}'
        await at.commit(
            create_update("a", 1, whole=False), create_update("b", 2, body, whole=False)
        )
        assert list(await at.entities()) == ["a"]
        assert len([one async for one in at.store.reader.quarantine()]) == 1


async def test_cursors_are_in_the_order_of_commits_without_gaps(postgres_database: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stages: list[Stage] = []
        for consumer in ("east", "west", "north"):
            store = await stack.enter_async_context(SqlStore(postgres_database, journal="changes"))
            await store.open(consumer)
            stages.append(Stage(store, await store.position(stream_info())))
        seen: list[int] = []

        async def follow() -> None:
            while len(seen) < 3 * 40 * 5:
                after = seen[-1] if seen else 0
                seen.extend([change.cursor async for change in stages[0].store.changes(after)])
                await asyncio.sleep(0)

        async def write(at: Stage) -> None:
            for turn in range(40):
                if turn % 10 == 5:
                    # Rolled back: takes no cursor with it.
                    wrong = at.batch(
                        create_update("x", turn), expects_ordinal=99, position=Position(ordinal=100)
                    )
                    with pytest.raises(FencedError):
                        await at.store.commit(wrong)
                await at.commit(*[create_update(f"k{turn}-{n}", turn) for n in range(5)])

        following = asyncio.create_task(follow())
        await asyncio.gather(*map(write, stages))
        await asyncio.wait_for(following, 30)
        assert seen == list(range(1, 601))


async def test_a_commit_rolled_back_after_its_changes_leaves_no_gap(
    postgres_database: str,
) -> None:
    async with stage(postgres_database, journal="changes") as at:
        await at.commit(create_update("a", 1))
        with pytest.raises(SinkError, match="the database refused"):
            await at.commit(create_update("b", 2), create_update("c", 3, offset=1 << 63))
        await at.commit(create_update("d", 4))
        assert [change.cursor for change in await at.changes()] == [1, 2]


async def test_a3_in_postgresql(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        assert set(connection.execute(pairs_query().encode()).fetchall()) == NEWER
        assert connection.execute(null_query().encode()).fetchall() == [(0, 1)]
