"""A user's handler: its effects and the delivery are one commit, and its failure is its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, event, insert, select
from sqlalchemy.exc import IntegrityError

from instep import Message, OnHandlerFailure, SequencerSettings
from instep.errors import SinkError
from instep.ports.message_store import HandlerConnection
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    SCOPE,
    Spoken,
    message,
    outcomes,
    receive_together,
    spoken,
    until,
)

pytestmark = pytest.mark.asyncio

BIDS = Table(
    "bids", MetaData(), Column("scope", Text), Column("n", Integer), Column("id", Text, unique=True)
)


class Bidding:
    """A handler that writes to a table of the user's, and fails as it is told to."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.fails: dict[int, int] = {}
        """Number → how many times it still fails."""

    async def __call__(self, message: Message, connection: HandlerConnection) -> None:
        self.calls.append(message.number)
        await connection.run_sync(lambda c: BIDS.create(c, checkfirst=True))
        values = {"scope": message.scope, "n": message.number, "id": message.id}
        await connection.execute(insert(BIDS), values)
        await asyncio.sleep(0)
        if self.fails.get(message.number, 0):
            self.fails[message.number] -= 1
            raise RuntimeError("the bid is odd")


async def bids(at: Spoken) -> list[tuple[Any, ...]]:
    return await at.rows("SELECT scope, n FROM bids")


async def settled(at: Spoken, count: int) -> list[tuple[Any, ...]]:
    async def all_there() -> list[tuple[Any, ...]] | None:
        tables = await at.store._database.run(lambda c: c.dialect.has_table(c, "bids"))
        found = await bids(at) if tables else []
        return found if len(found) >= count else None

    found: list[tuple[Any, ...]] = await until(all_there)
    return found


async def test_effect_and_delivery_are_one_commit(database: str) -> None:
    handler = Bidding()
    async with spoken(database, handler=handler) as at:
        assert outcomes(await at.say(1, 3, 2)) == [ACCEPTED] * 3
        assert await settled(at, 3) == [(SCOPE, 1), (SCOPE, 2), (SCOPE, 3)]
        assert await at.rows("SELECT * FROM instep_inbox") == []
        assert await at.rows("SELECT * FROM instep_message") == []
    async with spoken(database, handler=handler) as at:
        await at.say(2)
        await at.say(4)
        assert len(await settled(at, 4)) == 4


async def test_a_failed_handler_is_undone_and_tried_again(database: str) -> None:
    handler = Bidding()
    handler.fails = {2: 2}
    async with spoken(database, handler=handler) as at:
        await at.say(1, 2, 3)
        await at.say(1, scope="other")
        found = await settled(at, 4)
        assert [n for scope, n in found if scope == SCOPE] == [1, 2, 3]
        assert handler.calls.count(2) == 3
        health = at.receiver.health().intake
        assert health is not None
        assert health.handler_failures == 2


async def test_a_handler_that_is_cancelled_from_inside_has_failed(database: str) -> None:
    calls: list[int] = []

    async def handle(message: Message, _: HandlerConnection) -> None:
        calls.append(message.number)
        if len(calls) == 1:
            of_its_own = asyncio.ensure_future(asyncio.Event().wait())
            of_its_own.cancel()
            await of_its_own

    async with spoken(database, handler=handle) as at:
        assert outcomes(await at.say(1, 2)) == [ACCEPTED] * 2
        async with asyncio.timeout(10):
            while len(calls) < 3:
                await asyncio.sleep(0.01)
        health = at.receiver.health().intake
        assert health is not None
        assert (calls, health.handler_failures) == ([1, 1, 2], 1)


async def test_a_message_that_keeps_failing_blocks_its_sequence_alone(database: str) -> None:
    handler = Bidding()
    handler.fails = {2: 99}
    async with spoken(database, handler=handler) as at:
        await at.say(1, 2, 3)
        await at.say(1, scope="other")
        (failed,) = await until(lambda: quarantined(at))
        assert (failed.stream, failed.raw) == (SCOPE, b'{"number": 2}')
        assert "the handler failed: RuntimeError: the bid is odd" in failed.reason
        assert sorted(await settled(at, 2)) == [("other", 1), (SCOPE, 1)]

        async def blocked() -> bool:
            health = at.receiver.health().intake
            return health is not None and health.blocked == (SCOPE,)

        await until(blocked)
        handler.fails = {}
        # As another process does it.
        if database.startswith("sqlite"):
            reader = sink.reader(database)
            assert await reader.deliver_again(failed.id)
            await reader.close()
        else:
            assert await at.store.reader.deliver_again(failed.id)
        found = await settled(at, 4)
        assert [n for scope, n in found if scope == SCOPE] == [1, 2, 3]

        async def counted() -> bool:
            health = at.receiver.health().intake
            return health is not None and (health.delivered, health.blocked) == (4, ())

        await until(counted)


async def test_dropping_the_message_lets_the_sequence_go_on(database: str) -> None:
    handler = Bidding()
    handler.fails = {1: 99}
    async with spoken(database, handler=handler) as at:
        await at.say(1, 2)
        (failed,) = await until(lambda: quarantined(at))
        assert await at.store.reader.drop([failed.id]) == 1
        assert await settled(at, 1) == [(SCOPE, 2)]
        assert await at.rows("SELECT * FROM instep_inbox") == []


async def test_skip_goes_on_and_the_message_can_follow_later(database: str) -> None:
    handler = Bidding()
    handler.fails = {2: 3}
    async with spoken(database, handler=handler, on_handler_failure=OnHandlerFailure.SKIP) as at:
        await at.say(1, 2, 3)
        assert await settled(at, 2) == [(SCOPE, 1), (SCOPE, 3)]
        (failed,) = await quarantined(at)
        assert await at.store.reader.deliver_again(failed.id)
        assert await settled(at, 3) == [(SCOPE, 1), (SCOPE, 3), (SCOPE, 2)]


@pytest.mark.parametrize("limit", [{"quarantine_max_records": 1}, {"quarantine_max_bytes": 20}])
async def test_a_full_quarantine_keeps_the_message_where_it_is(
    database: str, limit: dict[str, int]
) -> None:
    handler = Bidding()
    handler.fails = {1: 99, 2: 99}
    skip = OnHandlerFailure.SKIP
    store = SqlStore(database, **limit)  # type: ignore[arg-type]
    async with spoken(store=store, handler=handler, on_handler_failure=skip) as at:
        await at.say(1, 2)

        async def full() -> bool:
            ((error,),) = await at.rows("SELECT error FROM instep_sequence")
            return str(error).startswith("the quarantine is full; the handler failed")

        await until(full)
        (failed,) = await quarantined(at)
        assert await at.rows("SELECT number, stage FROM instep_inbox ORDER BY id") == [
            (1, 2),
            (2, 1),
        ]
        # What was replayed makes room.
        handler.fails = {2: 99}
        assert await at.store.reader.deliver_again(failed.id)
        await at.rows("UPDATE instep_sequence SET deliver_at_us = 1 RETURNING id")

        async def made_room() -> bool:
            return [one.raw for one in await quarantined(at)] == [b'{"number": 2}']

        await until(made_room)


async def test_an_error_of_a_statement_is_the_handlers_own(database: str) -> None:
    seen: list[str] = []

    async def handle(_message: Message, connection: HandlerConnection) -> None:
        await connection.run_sync(lambda c: BIDS.create(c, checkfirst=True))
        try:
            await connection.run_sync(
                lambda c: c.execute(insert(BIDS), [{"id": "same"}, {"id": "same"}])
            )
        except IntegrityError:
            seen.append("refused")
            raise
        seen.append("not refused")

    async with spoken(database, handler=handle, handler_attempts=1) as at:
        await at.say(1)
        await until(lambda: quarantined(at))
        assert seen == ["refused"]
        assert not await at.store._database.run(lambda c: c.dialect.has_table(c, "bids"))


async def test_statements_as_text_and_their_rows(database: str) -> None:
    got: list[Any] = []

    async def handle(_message: Message, connection: HandlerConnection) -> None:
        await connection.execute("CREATE TABLE IF NOT EXISTS notes (n INTEGER)")
        await connection.execute("INSERT INTO notes VALUES (:n)", [{"n": 7}, {"n": 8}])
        changed = await connection.execute("UPDATE notes SET n = n + 1 WHERE n = :n", {"n": 8})
        rows = await connection.execute("SELECT n FROM notes ORDER BY n")
        got.extend([changed.rowcount, rows.scalars().all()])

    async with spoken(database, handler=handle) as at:
        await at.say(1)
        await until(lambda: asyncio.sleep(0, got))
        assert got == [1, [7, 9]]


@pytest.mark.parametrize("statement", ["COMMIT", " /* x */ rollback", ";End", "SAVEPOINT a"])
async def test_a_handler_cannot_end_the_transaction(database: str, statement: str) -> None:
    told: list[str] = []

    async def handle(_message: Message, connection: HandlerConnection) -> None:
        try:
            await connection.execute(statement)
        except SinkError as error:
            told.append(str(error))
        await connection.execute("SELECT 1 -- COMMIT")

    async with spoken(database, handler=handle) as at:
        assert outcomes(await at.say(1, 2)) == [ACCEPTED] * 2
        async with asyncio.timeout(10):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        assert "cannot begin or end a transaction" in told[0]


async def test_a_handler_that_hangs_has_failed_and_is_undone(database: str) -> None:
    async def handle(message: Message, connection: HandlerConnection) -> None:
        await connection.execute("CREATE TABLE notes (n INTEGER)")
        if message.number == 1:
            await asyncio.Event().wait()

    async with spoken(
        database,
        handler=handle,
        handler_timeout_s=0.1,
        handler_attempts=1,
        on_handler_failure=OnHandlerFailure.SKIP,
    ) as at:
        await at.say(1, 2)
        (failed,) = await until(lambda: quarantined(at))
        assert "TimeoutError" in failed.reason
        await until(lambda: no_inbox(at, 1))
        assert await at.rows("SELECT * FROM notes") == []


async def test_a_connection_is_over_when_its_handler_has_returned(database: str) -> None:
    kept: list[HandlerConnection] = []

    async def handle(_message: Message, connection: HandlerConnection) -> None:
        kept.append(connection)

    async with spoken(database, handler=handle) as at:
        await at.say(1)
        await until(lambda: asyncio.sleep(0, kept))
        with pytest.raises(SinkError, match="is over"):
            await kept[0].execute(select(1))


async def test_a_stop_in_the_middle_of_a_handler_undoes_it(database: str) -> None:
    entered = asyncio.Event()

    async def hang(_message: Message, connection: HandlerConnection) -> None:
        await connection.run_sync(lambda c: BIDS.create(c, checkfirst=True))
        entered.set()
        await asyncio.Event().wait()

    async with spoken(database, handler=hang) as at:
        await at.say(1)
        await asyncio.wait_for(entered.wait(), 10)
    async with spoken(database, handler=Bidding()) as at:
        assert await settled(at, 1) == [(SCOPE, 1)]


async def test_a_stop_commits_what_the_handler_has_done(database: str) -> None:
    """What it did outside the store cannot be undone, so a stop must not make it happen twice."""
    outside: list[int] = []
    entered, going_on = asyncio.Event(), asyncio.Event()

    async def handle(message: Message, _connection: HandlerConnection) -> None:
        outside.append(message.number)
        if message.number == 2:
            entered.set()
            await going_on.wait()

    async with spoken(database, handler=handle) as at:
        await receive_together(at.intake, [message(number) for number in (1, 2, 3)])
        await asyncio.wait_for(entered.wait(), 10)
        at.receiver.stop()
        await asyncio.sleep(0.05)
        going_on.set()
    assert outside == [1, 2]
    async with spoken(database, handler=handle) as at:
        await until(lambda: no_inbox(at, 0))
    assert outside == [1, 2, 3]


async def test_a_stop_ends_a_handler_that_hangs_and_commits_those_before(database: str) -> None:
    outside: list[int] = []
    entered = asyncio.Event()

    async def hang(message: Message, _connection: HandlerConnection) -> None:
        outside.append(message.number)
        if message.number == 2 and not entered.is_set():
            entered.set()
            await asyncio.Event().wait()

    async with spoken(database, handler=hang) as at:
        await receive_together(at.intake, [message(number) for number in (1, 2, 3)])
        await asyncio.wait_for(entered.wait(), 10)
    async with spoken(database, handler=hang) as at:
        await until(lambda: no_inbox(at, 0))
        assert await at.rows("SELECT attempts, error FROM instep_sequence") == [(0, "")]
    assert outside == [1, 2, 2, 3]


async def test_too_many_waiting_for_the_handler_are_refused(database: str) -> None:
    async def hang(_message: Message, _connection: HandlerConnection) -> None:
        raise RuntimeError

    settings = SequencerSettings(limit_messages=3)
    async with spoken(
        database,
        handler=hang,
        sequence=settings,
        handler_retry_initial_s=60,
        handler_retry_max_s=60,
    ) as at:
        assert outcomes(await at.say(1, 2, 3, 4, 2)) == [ACCEPTED] * 3 + ["full", "duplicate"]


async def test_without_the_handler_what_waited_for_it_is_delivered(database: str) -> None:
    async def fail(_message: Message, _connection: HandlerConnection) -> None:
        raise RuntimeError

    async with spoken(database, handler=fail, handler_retry_initial_s=60) as at:
        await at.say(1, 2)
    async with spoken(database) as at:
        await at.say(3)
        assert await at.numbers() == [1, 2, 3]


async def quarantined(at: Spoken) -> list[Any]:
    return [one async for one in at.store.reader.quarantine()]


async def no_inbox(at: Spoken, left: int) -> bool:
    return len(await at.rows("SELECT id FROM instep_inbox")) == left


async def test_a_transaction_whose_commit_failed_leaves_nothing_open(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        failures = ["made by the test"]

        def fail(_connection: Connection) -> None:
            if failures:
                raise OverflowError(failures.pop())

        engine = store._database._engine
        assert engine is not None
        event.listen(engine, "commit", fail)
        with pytest.raises(SinkError):
            async with store._database.transaction() as transaction:
                await transaction.run(BIDS.create)
        assert not failures
        # SQLAlchemy takes that transaction for ended, SQLite would not.
        assert not await store._database.run(lambda c: c.dialect.has_table(c, "bids"))


async def replies(message: Message, connection: HandlerConnection) -> bytes | None:
    del connection
    return None if message.number == 2 else b"reply to " + message.body


async def test_a_reply_is_given_once_it_is_durable_and_again_after_a_restart(
    database: str,
) -> None:
    async with spoken(database, handler=replies) as at:
        await at.say(2)
        nothing = asyncio.create_task(at.intake.reply(SCOPE, 2, 20.0))
        await asyncio.sleep(0.05)
        assert not nothing.done()
        await at.say(1)
        waiting = asyncio.create_task(at.intake.reply(SCOPE, 1, 20.0))
        assert await waiting == b'reply to {"number": 1}'
        assert await nothing is None
        assert await at.rows("SELECT number FROM instep_reply") == [(1,)]
    async with spoken(database, handler=replies) as at:
        assert await at.intake.reply(SCOPE, 1, 20.0) == b'reply to {"number": 1}'
        assert await at.intake.reply(SCOPE, 2, 600.0) is None


async def test_a_reply_is_not_waited_for_where_none_can_come(database: str) -> None:
    handler = Bidding()
    handler.fails = {1: 99}
    async with spoken(database) as at:
        assert await at.intake.reply(SCOPE, 1, 600.0) is None
    async with spoken(database, handler=handler) as at:
        await at.say(1)
        assert await at.intake.reply(SCOPE, 1, 600.0) is None
        assert await at.intake.reply(SCOPE, 1, 600.0) is None
        await at.say(3)
        with pytest.raises(TimeoutError):
            await at.intake.reply(SCOPE, 3, 0.01)


async def test_replies_over_the_retention_are_forgotten(database: str) -> None:
    store = sink.build({"url": database, "dedup_max_records": 2}, "sink")
    async with spoken(database, handler=replies, store=store) as at:
        await at.say(1, 3, 4, 5, 2, 6)
        await at.intake.reply(SCOPE, 6, 20.0)
        assert await at.rows("SELECT number FROM instep_reply ORDER BY number") == [(5,), (6,)]
