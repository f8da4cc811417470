"""Stores of older versions open with their messages, streams and audits, and work goes on."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import Message
from instep.model.batches import Batch
from instep.ports.message_store import HandlerConnection
from instep_sql import SqlStore
from instep_sql.engine.registry import dialect_of
from instep_sql.options import SqlOptions
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    DUPLICATE,
    SCOPE,
    outcomes,
    spoken,
    until,
)
from tests.instep_sql.engine.old_stores_kit import (
    AUDIT,
    SPEAKING,
    STREAM_1,
    Row,
    insert,
    make,
    received,
)
from tests.instep_sql.store_kit import create_update, stage, stream_info

pytestmark = pytest.mark.asyncio


async def rows(store: SqlStore, query: str) -> list[tuple[Any, ...]]:
    return await store._database.run(
        lambda connection: [tuple(row) for row in connection.exec_driver_sql(query)]
    )


@pytest.mark.parametrize("revision", ["0003", "0004", "0005"])
async def test_a_receiver_of_an_older_version_goes_on(database: str, revision: str) -> None:
    make(database, revision, [*STREAM_1, AUDIT, SPEAKING, *received(3)])
    async with spoken(database) as at:
        reader = at.store.reader
        assert [one.stream for one in await reader.streams()] == ["s1"]
        assert await at.rows("SELECT stream, kind, phase FROM instep_stream ORDER BY id") == [
            ("s1", "stream", "aligned"),
            ("s1 audited at 5", "audit", "unaligned"),
        ]
        query = "SELECT id, consumer, kind, messages, deviations FROM instep_receiver"
        assert await at.rows(query) == [(3, "east", "spoken", 3, '{"content-changed": 1}')]
        (sequence,) = [one async for one in reader.sequences()]
        assert (sequence.consumer, str(sequence.state.received)) == ("east", "1-2,4")
        assert (sequence.held, await at.numbers()) == (1, [1])
        kept = [one async for one in reader.quarantine()]
        assert [(one.consumer, one.stream, one.token) for one in kept] == [("east", SCOPE, "2 m")]
        messages = at.store.messages()
        await messages.open("spoken", handled=False)
        assert await messages.outbox_bodies("t", [2]) == {2: b"sent"}
    async with spoken(database) as at:
        assert outcomes(await at.say(4, 2, 3)) == [DUPLICATE, DUPLICATE, ACCEPTED]
        assert await at.numbers() == [1, 3, 4]
        assert await at.rows("SELECT consumer, number FROM instep_messages ORDER BY cursor") == [
            ("east", number) for number in (1, 3, 4)
        ]
        # Neither a stream nor a receiver is given the number of one that is there.
        await at.store.position(stream_info("s2"))
        async with SqlStore(database) as other:
            await other.open("west")
            await other.messages().open("spoken", handled=False)
        (first,), (second,) = await at.rows("SELECT id FROM instep_receiver ORDER BY id")
        assert first == 3 < second


@pytest.mark.parametrize("handled", [False, True])
async def test_a_stream_and_a_receiver_that_shared_a_row_part(
    database: str, *, handled: bool
) -> None:
    """Before 0006 a receiver wrote its owner over the row of a stream that is named "messages"."""
    stream = {"position": '{"token": "t9", "ordinal": 4}', "phase": "aligned"}
    overwritten = SPEAKING[1] | stream
    content = [insert("instep_stream", **overwritten), *(received(1) if handled else ())]
    make(database, "0005", content)
    async with SqlStore(database) as store:
        await store.open("east")
        assert await store.known_streams() == []
        position = await store.position(stream_info("messages"))
        assert (position.token, position.ordinal) == ("t9", 4)
        assert await rows(store, "SELECT token, kind FROM instep_stream") == [("t9", "stream")]
        assert [one.id for one in await store.known_streams()] == ["messages"]
        position = msgspec.structs.replace(position, token="t10", ordinal=5)
        await store.commit(Batch(stream="messages", position=position, expects_ordinal=4))
    async with spoken(database) as at:
        assert outcomes(await at.say(3)) == [ACCEPTED]
        assert await at.numbers() == ([1, 3, 4] if handled else [])


async def test_a_users_view_on_a_public_view_stays(database: str) -> None:
    make(database, "0005", [*STREAM_1, SPEAKING, *received(2)])
    view = "CREATE VIEW mine AS SELECT consumer, number FROM instep_messages"
    engine = dialect_of(SqlOptions(url=database)).writer()
    with engine.begin() as connection:
        connection.exec_driver_sql(view)
    engine.dispose()
    async with SqlStore(database) as store:
        await store.open("east")
        assert await rows(store, "SELECT * FROM mine") == [("east", 1)]


async def test_numbers_given_before_are_not_given_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    gone: list[Row] = [("DELETE FROM instep_quarantine", {}), ("DELETE FROM instep_sequence", {})]
    make(url, "0005", [*STREAM_1, SPEAKING, *received(2), *gone])
    async with SqlStore(url) as store:
        await store.open("east")
        given = "SELECT name, seq FROM sqlite_sequence WHERE name LIKE 'instep_%e' ORDER BY name"
        assert dict(await rows(store, given)) == {
            "instep_message": 1,
            "instep_quarantine": 1,
            "instep_sequence": 1,
        }


async def test_a_store_of_0_1_opens_with_everything_in_it(tmp_path: Path) -> None:
    """The file was written by that version, and read out as SQL."""
    dump = Path(__file__).parent / "data" / "store_0_1.sql"
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.executescript(dump.read_text(encoding="utf-8"))
    url = f"sqlite:///{tmp_path}/s.db"
    async with stage(url, journal="previous") as at:
        reader = at.store.reader
        one, two = await reader.streams()
        assert (one.stream, one.position.token, one.entities, one.quarantined) == ("s1", "t3", 2, 1)
        assert one.deviations == {"offset-backwards": 2}
        assert (two.stream, two.position.token, two.entities, two.quarantined) == ("s2", "t2", 1, 0)
        assert two.info["partial_updates"] is True
        assert [one.id for one in await at.store.known_streams()] == ["s1", "s2"]
        port = b'{"uuid":"u1","state":{"admin":"UNLOCKED"},"port":[{"local-id":"1","speed":10}]}'
        assert await at.bodies() == {"a": b'{"at":3}', "b": b'{"at":2}', "u1": port}
        assert [(c.cursor, c.stream, c.key, c.change.value) for c in await at.changes()] == [
            (1, "s1", "a", "created"),
            (2, "s1", "b", "created"),
            (3, "s1", "a", "updated"),
            (4, "s2", "u1", "created"),
            (5, "s2", "u1", "updated"),
        ]
        kept = [(q.consumer, q.stream, q.raw) async for q in reader.quarantine()]
        assert kept == [("east", "s1", b"{not json"), ("east", SCOPE, b'{"number": 4}')]
        (sequence,) = [one async for one in reader.sequences()]
        assert (str(sequence.state.received), sequence.held, sequence.waiting) == ("1-6,8", 1, 2)
        assert sequence.blocked
        assert [m.number async for m in reader.messages(stream=SCOPE)] == [1, 2, 3]
        assert await rows(at.store, "PRAGMA foreign_key_check") == []

        # Work goes on: both streams,
        await at.commit(create_update("a", 4))
        changed = create_update("u1/state", 3, b'{"state":{"admin":"LOCKED"}}', whole=False)
        again = Batch(
            stream="s2",
            records=[msgspec.structs.replace(changed, stream="s2")],
            position=msgspec.structs.replace(two.position, token="t3", ordinal=2, records=3),
            expects_ordinal=1,
        )
        await at.store.commit(again)
        found = await at.bodies()
        assert (found["a"], found["u1"]) == (
            b'{"at":4}',
            port.replace(b"UNLOCKED", b"LOCKED"),
        )
        # the audit, of which one was killed,
        async with at.store.audit(stream_info("s2", partial_updates=True)):
            assert await rows(at.store, "SELECT count(*) FROM instep_stream") == [(3,)]
        assert await rows(at.store, "SELECT count(*) FROM instep_part WHERE stream_no = 3") == [
            (0,)
        ]
        # and what we send.
        messages = at.store.messages()
        await messages.open("spoken", handled=True)
        outbox = await messages.load_outbox("t")
        assert outbox is not None
        assert [one.number for one in outbox.sent] == [3]
        assert await messages.outbox_bodies("t", [3]) == {3: b"body 3"}

    handled: list[int] = []

    async def handle(message: Message, connection: HandlerConnection) -> None:  # noqa: ARG001
        handled.append(message.number)

    async with spoken(url, handler=handle) as receiving:
        assert outcomes(await receiving.say(8, 5, 7)) == [DUPLICATE, DUPLICATE, ACCEPTED]
        reader = receiving.store.reader
        (failed,) = [q async for q in reader.quarantine(stream=SCOPE)]
        assert await reader.deliver_again(failed.id)

        async def all_delivered() -> bool:
            return handled == [4, 5, 6, 7, 8]

        await until(all_delivered)
