"""A handler of changes: its effects, the change and the position are one commit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, insert, text

from instep import Change, IntakeSettings, OnHandlerFailure
from instep.errors import ConfigurationError, SinkError
from instep.model.records import Record
from instep.ports.message_store import HandlerConnection
from instep_sql import ChangeHandler, SqlStore
from tests.instep_sql.references.references_kit import Network, end, network, statement
from tests.instep_sql.store_kit import ON_SQLITE

pytestmark = pytest.mark.asyncio

OUTBOX = Table(
    "outbox",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("key", Text),
    Column("change", Text),
    Column("at", Integer),
)
QUICK = IntakeSettings(
    handler_attempts=3, handler_retry_initial_s=0.01, handler_retry_max_s=0.02, handler_timeout_s=5
)
PATIENT = IntakeSettings(handler_attempts=3, handler_retry_initial_s=2.0, handler_timeout_s=5)
"""Waits for so long that a test can look in between."""
SKIPPING = IntakeSettings(
    handler_attempts=2, handler_retry_initial_s=0.01, on_handler_failure=OnHandlerFailure.SKIP
)


def node(key: str, at: int, **more: Any) -> Record:
    return statement("nodes", key, "NODE", {"uuid": key, "at": at, **more}, at=at)


class Outbox:
    """Writes a row for each change; fails at keys as often as it is told."""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.calls: list[str] = []

    def row(self, change: Change) -> dict[str, Any]:
        body = json.loads(change.body or b"{}")
        return {"key": change.key, "change": change.change.value, "at": body.get("at")}

    def fail(self, change: Change) -> None:
        self.calls.append(change.key)
        if self.fails.get(change.key, 0):
            self.fails[change.key] -= 1
            raise RuntimeError("it is odd")

    def handle(self, change: Change, connection: Connection) -> None:
        connection.execute(insert(OUTBOX), self.row(change))
        self.fail(change)

    async def handle_in_loop(self, change: Change, connection: HandlerConnection) -> None:
        await connection.execute(insert(OUTBOX), self.row(change))
        await asyncio.sleep(0)
        self.fail(change)

    def handler(self, kind: str = "sync", **given: Any) -> ChangeHandler:
        handle = self.handle if kind == "sync" else self.handle_in_loop
        return ChangeHandler(handle, name="outbox", **{"settings": QUICK, **given})


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def at_work(database: str, *handlers: ChangeHandler, **given: Any) -> Any:
    return network(database, journal="bodies", handlers=handlers, **given)


async def rows(at: Network, query: str = "SELECT key, change, at FROM outbox ORDER BY id") -> Any:
    def read(connection: Connection) -> list[tuple[Any, ...]]:
        return list(map(tuple, connection.execute(text(query))))

    return await at.reader.database.run(read)


async def made(database: str) -> None:
    async with network(database) as at:
        await at.store._database.run(OUTBOX.create)


async def until(at: Network, holds: Callable[[Any], bool], query: str = "") -> Any:
    async with asyncio.timeout(20):
        while not holds(found := await rows(at, *([query] if query else []))):
            await asyncio.sleep(0.01)
    return found


async def test_each_change_takes_effect_in_its_commit(database: str, kind: str) -> None:
    await made(database)
    async with at_work(database, Outbox().handler(kind)) as at:
        await at.commit(node("a", 1), node("b", 1))
        assert await rows(at) == [("a", "created", 1), ("b", "created", 1)]
        await at.commit(node("a", 2), node("a", 3), end("nodes", "b", 2))
        at.attempt = 2
        await at.commit(node("c", 4), sweep=2)
        assert await rows(at) == [
            ("a", "created", 1),
            ("b", "created", 1),
            ("a", "updated", 2),
            ("a", "updated", 3),
            ("b", "deleted", None),
            ("c", "created", 4),
            ("a", "swept", None),
        ]
        (status,) = await at.reader.handlers()
        assert (status.name, status.stream, status.error, status.blocked) == (
            "outbox",
            "nodes",
            "",
            False,
        )


async def test_a_commit_that_is_undone_has_no_effect(database: str, kind: str) -> None:
    await made(database)
    async with at_work(database, Outbox().handler(kind)) as at:
        await at.commit(node("a", 1))

        def broken(_connection: Connection) -> None:
            raise SinkError("the lease is lost")

        at.store._database.guard = broken
        with pytest.raises(SinkError, match="lease"):
            await at.commit(node("b", 2))
        assert await rows(at) == [("a", "created", 1)]


async def test_a_failure_is_undone_alone_and_tried_again_without_a_commit(
    database: str, kind: str
) -> None:
    await made(database)
    outbox = Outbox()
    # The first call is that of all at once.
    outbox.fails = {"b": 2}
    async with at_work(database, outbox.handler(kind, settings=PATIENT)) as at:
        result = await at.commit(node("a", 1), node("b", 1), node("c", 1))
        assert result.written == 3
        assert await rows(at) == [("a", "created", 1)]
        found = await until(at, lambda found: len(found) == 3)
        assert [key for key, *_ in found] == ["a", "b", "c"]
        assert len([one async for one in at.reader.entities()]) == 3


async def test_a_poisonous_change_blocks_its_stream_until_it_is_decided(
    database: str, kind: str
) -> None:
    await made(database)
    outbox = Outbox()
    outbox.fails = {"b": 99}
    async with at_work(database, outbox.handler(kind)) as at:
        await at.commit(node("a", 1), node("b", 1), node("c", 1))
        await until(at, bool, "SELECT id FROM instep_failed_change")
        # Other streams go on, and so do the entities of this one.
        await at.commit(statement("links", "l", "LINK", {"at": 1}, at=1))
        await at.commit(node("d", 2))
        assert [key for key, *_ in await rows(at)] == ["a", "l"]
        (failed,) = [one async for one in at.reader.failed_changes()]
        assert (failed.change.key, failed.blocks, failed.handler) == ("b", True, "outbox")
        assert "RuntimeError: it is odd" in failed.reason
        assert {one.stream: one.blocked for one in await at.reader.handlers()} == {
            "nodes": True,
            "links": False,
        }
        outbox.fails = {}
        assert await at.reader.retry_change(failed.id)
        found = await until(at, lambda found: len(found) == 5)
        assert [key for key, *_ in found] == ["a", "l", "b", "c", "d"]
        assert [one.error for one in await at.reader.handlers()] == ["", ""]
        assert not await at.reader.retry_change(failed.id)


@ON_SQLITE
async def test_a_dropped_change_is_left_out(database: str) -> None:
    await made(database)
    outbox = Outbox()
    outbox.fails = {"a": 99}
    async with at_work(database, outbox.handler()) as at:
        await at.commit(node("a", 1), node("b", 1))
        ((id,),) = await until(at, bool, "SELECT id FROM instep_failed_change")
        assert await at.reader.drop_change(id)
        assert [key for key, *_ in await until(at, bool)] == ["b"]


@ON_SQLITE
async def test_a_skipped_change_may_come_late(database: str) -> None:
    await made(database)
    outbox = Outbox()
    outbox.fails = {"a": 99}
    async with at_work(database, outbox.handler(settings=SKIPPING)) as at:
        await at.commit(node("a", 1), node("b", 1))
        assert [key for key, *_ in await until(at, bool)] == ["b"]
        (failed,) = [one async for one in at.reader.failed_changes()]
        assert not failed.blocks
        outbox.fails = {}
        await at.reader.retry_change(failed.id)
        found = await until(at, lambda found: len(found) == 2)
        assert [key for key, *_ in found] == ["b", "a"]


async def test_what_a_process_without_it_has_committed_is_given_later(
    database: str, kind: str
) -> None:
    await made(database)
    outbox = Outbox()
    async with at_work(database, outbox.handler(kind, classes=["NODE"])) as at:
        await at.commit(node("a", 1))
    async with at_work(database) as at:
        await at.commit(node("b", 2), statement("nodes", "l", "LINK", {}, at=2))
    async with at_work(database, outbox.handler(kind, classes=["NODE"])) as at:
        found = await until(at, lambda found: len(found) == 2)
        assert [key for key, *_ in found] == ["a", "b"]


async def test_one_that_is_added_to_a_store_without_a_journal_gets_what_it_holds(
    database: str, kind: str
) -> None:
    await made(database)
    async with network(database, journal="off") as at:
        await at.commit(node("a", 1), node("b", 2))
    outbox = Outbox()
    async with at_work(database, outbox.handler(kind)) as at:
        await at.commit(node("c", 3))
        found = await until(at, lambda found: len(found) == 3)
        assert [(key, change) for key, change, _ in found] == [
            ("a", "created"),
            ("b", "created"),
            ("c", "created"),
        ]


async def test_statements_that_fail_do_not_harm_the_commit(database: str, kind: str) -> None:
    await made(database)

    def handle(change: Change, connection: Connection) -> None:
        connection.execute(insert(OUTBOX), {"key": change.key})
        connection.execute(text("SELECT nothing FROM nowhere"))

    async def handle_in_loop(change: Change, connection: HandlerConnection) -> None:
        await connection.execute(insert(OUTBOX), {"key": change.key})
        await connection.execute("SELECT nothing FROM nowhere")

    given: Any = handle if kind == "sync" else handle_in_loop
    async with at_work(database, ChangeHandler(given, name="h", settings=SKIPPING)) as at:
        await at.commit(node("a", 1), node("b", 1))
        await until(at, lambda found: len(found) == 2, "SELECT id FROM instep_failed_change")
        assert await rows(at) == []
        assert len([one async for one in at.reader.entities()]) == 2


async def test_a_handler_that_commits_is_told(database: str) -> None:
    def handle(_change: Change, connection: Connection) -> None:
        connection.commit()

    async with at_work(database, ChangeHandler(handle, name="h", settings=QUICK)) as at:
        with pytest.raises(SinkError, match="has ended the transaction"):
            await at.commit(node("a", 1))

    async def handle_in_loop(_change: Change, connection: HandlerConnection) -> None:
        await connection.execute("COMMIT")

    handler = ChangeHandler(handle_in_loop, name="g", settings=SKIPPING)
    async with at_work(database, handler) as at:
        await at.commit(node("b", 2))
        await until(at, bool, "SELECT id FROM instep_failed_change WHERE name = 'g'")
        failed = [one async for one in at.reader.failed_changes()]
        assert "cannot begin or end a transaction" in failed[0].reason


@ON_SQLITE
async def test_one_that_takes_too_long_has_failed(database: str) -> None:
    async def wait(_change: Change, _connection: HandlerConnection) -> None:
        await asyncio.Event().wait()

    settings = IntakeSettings(handler_timeout_s=0.05, handler_attempts=1)
    async with at_work(database, ChangeHandler(wait, name="h", settings=settings)) as at:
        await at.commit(node("a", 1))
        (failed,) = [one async for one in at.reader.failed_changes()]
        assert "TimeoutError" in failed.reason


async def test_a_store_can_be_closed_while_a_handler_runs(database: str) -> None:
    begun = asyncio.Event()

    async def wait(_change: Change, _connection: HandlerConnection) -> None:
        begun.set()
        await asyncio.Event().wait()

    settings = IntakeSettings(handler_timeout_s=0.5)
    async with at_work(database, ChangeHandler(wait, name="h", settings=settings)) as at:
        committing = asyncio.create_task(at.commit(node("a", 1)))
        await begun.wait()
        committing.cancel()
        await asyncio.wait({committing})
    async with at_work(database) as at:
        assert len([one async for one in at.reader.entities()]) == 1


@ON_SQLITE
async def test_trimmed_changes_are_told(database: str) -> None:
    await made(database)
    outbox = Outbox()
    outbox.fails = {"a": 2}
    settings = IntakeSettings(handler_attempts=9, handler_retry_initial_s=60)
    handler = outbox.handler(settings=settings)
    async with at_work(database, handler, journal_retention_records=2) as at:
        await at.commit(node("z", 1))
        await at.commit(node("a", 2))
        for moment in range(3, 8):
            await at.commit(node(f"n{moment}", moment))
        await at.store._database.run(
            lambda connection: connection.execute(text("UPDATE instep_handler SET retry_at_us = 0"))
        )
        await until(at, lambda found: ("n7", "created", 7) in found)
        (status,) = await at.reader.handlers()
        assert status.missed == "changes 2 to 5 are no longer kept"


@ON_SQLITE
async def test_wrong_handlers_are_refused(database: str) -> None:
    handler = Outbox().handler()
    with pytest.raises(ConfigurationError, match="keeps no bodies") as caught:
        SqlStore(database, handlers=[handler])
    assert 'journal="bodies"' in caught.value.hint
    with pytest.raises(ConfigurationError, match="two handlers have the same name"):
        SqlStore(database, journal="bodies", handlers=[handler, handler])
    with pytest.raises(ConfigurationError, match="classes is the text"):
        Outbox().handler(classes="NODE")
