"""What a writer checks with each of its transactions: a stream and a receiver do not meet."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from instep.errors import FencedError, JournalOffError, SinkError
from instep.model.batches import Batch
from instep.model.position import Position
from instep.model.records import RecordChunk
from instep_sql import SqlStore, fencing
from tests.instep.runtime.messages.intake_kit import ACCEPTED, outcomes, spoken, until
from tests.instep_sql.store_kit import create_update, stream_info

pytestmark = pytest.mark.asyncio

MESSAGES = "messages"
"""A stream of a provider may have this name."""


async def follow(store: SqlStore, at: int) -> None:
    """Commit one record on the stream."""
    position = await store.position(stream_info(MESSAGES))
    assert position.ordinal == at - 1
    await store.commit(
        Batch(
            stream=MESSAGES,
            records=[create_update("a", at)],
            position=Position(token=f"t{at}", ordinal=at, attempt=1, lineage=1),
            expects_ordinal=at - 1,
        )
    )


@pytest.mark.parametrize("first", ["stream", "receiver"])
async def test_a_stream_of_any_name_is_not_the_receiver(database: str, first: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        if first == "stream":
            await follow(store, 1)
        async with spoken(database) as at:
            assert outcomes(await at.say(1)) == [ACCEPTED]
            if first == "receiver":
                await follow(store, 1)
            await follow(store, 2)
            assert outcomes(await at.say(2)) == [ACCEPTED]
            assert await at.numbers() == [1, 2]
        (stream,) = await store.reader.streams()
        assert (stream.stream, stream.position.token, stream.entities) == (MESSAGES, "t2", 1)
        assert await store.known_streams() == [stream_info(MESSAGES)]
        rows = await store._database.run(
            lambda connection: connection.exec_driver_sql("SELECT token FROM instep_stream").all()
        )
        assert [row.token for row in rows] == ["t2"]


async def test_a_store_that_only_receives_keeps_no_journal(database: str) -> None:
    async with spoken(database) as at:
        with pytest.raises(JournalOffError):
            _ = [change async for change in at.store.changes()]
        async with SqlStore(database, journal="changes") as store:
            await store.open("east")
            await follow(store, 1)
            assert [change.key async for change in store.changes()] == ["a"]


async def test_a_message_in_quarantine_is_no_record_to_replay(database: str) -> None:
    async def fails(*_: object) -> None:
        raise ValueError("no")

    async with spoken(database, handler=fails, handler_attempts=1) as at:
        await at.say(1)

        async def kept() -> list[int]:
            return [one.id async for one in at.store.reader.quarantine()]

        (failed,) = await until(kept)
        assert await at.store.reader.streams() == []
        with pytest.raises(SinkError, match=f"there is no record {failed} in quarantine"):
            await at.store.reader.replay(failed, RecordChunk([]))


async def test_a_transaction_of_a_receiver_is_known_by_its_number(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        dialect = store._dialect
        run = store._database.run

        async def check(receiver: fencing.ReceiverRow, commits: int) -> None:
            await run(
                lambda connection: fencing.check_receiver(
                    connection, dialect, receiver, commits=commits, messages=2, now_us=7
                )
            )

        async def is_at(receiver: fencing.ReceiverRow, commits: int) -> bool:
            return await run(
                lambda connection: fencing.receiver_is_at(connection, receiver, commits)
            )

        one = await run(lambda connection: fencing.take_over(connection, "east", "1", "k", 5))
        assert await is_at(one, 0)
        await check(one, 1)
        assert (await is_at(one, 1), await is_at(one, 2)) == (True, False)
        two = await run(lambda connection: fencing.take_over(connection, "east", "2", "k", 6))
        assert (two.no, two.owner) == (one.no, "2")
        # It counts anew, and its numbers are not those of the owner before.
        assert (await is_at(one, 1), await is_at(two, 1), await is_at(two, 0)) == (0, 0, 1)
        with pytest.raises(FencedError, match="another process receives for this consumer"):
            await check(one, 2)
        await check(two, 1)
        other = await run(lambda connection: fencing.take_over(connection, "west", "3", "k", 6))
        assert other.no != one.no
        await check(other, 1)
        assert await is_at(two, 1)


async def test_the_question_waits_for_a_commit_under_way(postgres_database: str) -> None:
    """The server may still be committing what a client has lost its connection to."""
    async with SqlStore(postgres_database) as store:
        await store.open("east")
        run = store._database.run
        owner = await run(lambda connection: fencing.take_over(connection, "east", "1", "k", 5))
        with psycopg.connect(postgres_database) as lost:
            lost.execute("UPDATE instep_receiver SET commits = 1")
            asking = asyncio.create_task(
                run(lambda connection: fencing.receiver_is_at(connection, owner, 1))
            )
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with psycopg.connect(postgres_database, autocommit=True) as looking:
                async with asyncio.timeout(20):
                    while looking.execute(waiting).fetchone() == (0,):
                        assert not asking.done()
                        await asyncio.sleep(0.01)
            lost.commit()
        assert await asking
