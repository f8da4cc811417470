"""Read access beside the consumer: streams, entities, quarantine, replay."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep.errors import SinkError
from instep.model.batches import Batch
from instep.model.entities import ChangeKind
from instep.model.position import Position
from instep.model.records import Record, RecordChunk, Unreadable
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep_sql.store_kit import Stage, Stages, create_update, end_record, stream_info
from tests.instep_sql.store_kit import stage as made_stage
from tests.postgres_kit import Server

pytestmark = pytest.mark.asyncio


def unreadable(raw: bytes, token: str | None = None) -> Unreadable:
    return Unreadable("s1", raw, "no entity-key", token)


async def test_streams_show_position_counts_and_description(stage: Stages) -> None:
    described = stream_info(tombstone_retention_s=float("inf"), readable=frozenset({"NODE"}))
    async with stage(stream=described, clock_us=lambda: 5) as at:
        await at.commit(create_update("a", 1), create_update("b", 1), unreadable=[unreadable(b"x")])
        (status,) = await at.store.reader.streams()
        assert (status.consumer, status.stream, status.updated_at_us) == ("east", "s1", 5)
        assert (status.entities, status.quarantined) == (2, 1)
        assert status.position == at.position
        assert status.info["tombstone_retention_s"] == float("inf")
        assert (status.info["kind"], status.info["readable"]) == ("tapi", ["NODE"])


async def test_entities_come_in_pages_and_in_the_order_of_arrival(
    stage: Stages, database: str
) -> None:
    async with stage() as at:
        keys = [f"k{n * 7919 % 1301}" for n in range(1301)]
        await at.commit(*[create_update(key, n) for n, key in enumerate(keys)])
        await at.commit(
            create_update(keys[0], 5000), create_update("late", 5001, entity_class="LINK")
        )
        reader = sink.reader(database)
        assert [entity.key async for entity in reader.entities()] == [*keys, "late"]
        assert [e.key async for e in reader.entities(entity_class="LINK")] == ["late"]
        assert [e.key async for e in reader.entities(stream="none")] == []
        await reader.close()


async def test_reading_goes_on_while_the_writer_commits(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1200)])
        seen = []
        async for entity in at.store.reader.entities():
            seen.append(entity.key)
            if len(seen) == 10:
                await at.commit(
                    end_record("k700", 2000), create_update("k5", 2001), create_update("late", 2002)
                )
        assert seen == [f"k{n}" for n in range(1200) if n != 700] + ["late"]


async def test_plain_sql_sees_names_times_and_json_in_sqlite(tmp_path: Path) -> None:
    async with made_stage(f"sqlite:///{tmp_path}/s.db") as at:
        at_us = 1_667_562_629_000_123
        await at.commit(create_update("a", at_us, b'{"x": [1, 2]}', uuid="u"))
    with sqlite3.connect(tmp_path / "s.db") as connection:
        columns = "consumer, stream, key, uuid, appended_at, body ->> '$.x[1]'"
        query = f"SELECT {columns} FROM instep_entities"
        assert connection.execute(query).fetchall() == [
            ("east", "s1", "a", "u", "2022-11-04T11:50:29.000123Z", 2)
        ]


async def test_plain_sql_sees_names_times_and_json_in_postgresql(
    postgres: Server, postgres_database: str
) -> None:
    async with made_stage(postgres_database) as at:
        at_us = 1_667_562_629_000_123
        await at.commit(
            create_update("a", at_us, b'{"x": [1, 2]}', uuid="u"), create_update("b", 2, b"\xff")
        )
    columns = "consumer, stream, key, uuid, appended_at, body::json -> 'x' ->> 1"
    query = f"SELECT {columns} FROM instep_entities WHERE body IS NOT NULL"
    appended_at = datetime(2022, 11, 4, 11, 50, 29, 123, tzinfo=UTC)
    assert postgres.execute(query, postgres_database) == [
        ("east", "s1", "a", "u", appended_at, "2")
    ]


async def test_a11_what_cannot_be_read_is_kept_with_bytes_token_and_reason(
    stage: Stages,
) -> None:
    async with stage(clock_us=lambda: 9) as at:
        await at.commit(unreadable=[unreadable(b"\xff{", "t1"), unreadable(b"\xff[")])
        kept = [one async for one in at.store.reader.quarantine()]
        assert [(q.id, q.raw, q.token) for q in kept] == [(1, b"\xff{", "t1"), (2, b"\xff[", None)]
        assert (kept[0].reason, kept[0].received_at_us) == ("no entity-key", 9)
        assert [one.id async for one in at.store.reader.quarantine(id=2)] == [2]
        assert [one.id async for one in at.store.reader.quarantine(stream="none")] == []


async def test_a11_a_log_read_again_does_not_fill_the_quarantine(stage: Stages) -> None:
    async with stage() as at:
        for _ in range(3):
            await at.commit(unreadable=[unreadable(b"{", "t1"), unreadable(b"[", "t2")])
        kept = [(one.token, one.times) async for one in at.store.reader.quarantine()]
        assert kept == [("t1", 3), ("t2", 3)]


async def test_a11_a_replay_commits_by_a3_and_makes_room(stage: Stages) -> None:
    async with stage(quarantine_max_records=2, journal="changes") as at:
        await at.commit(
            create_update("a", 9), unreadable=[unreadable(b"1", "t1"), unreadable(b"2", "t2")]
        )
        reader = at.store.reader
        assert (
            await reader.replay(2, RecordChunk([create_update("a", 5), create_update("b", 5)])) == 1
        )
        assert (await at.bodies())["a"] == b'{"at":9}'
        assert await at.journal() == [("a", "created"), ("b", "created")]
        assert (await reader.streams())[0].quarantined == 1
        await at.commit(unreadable=[unreadable(b"3", "t3")])
        assert [one.token async for one in reader.quarantine()] == ["t1", "t3"]


async def test_the_quarantine_is_bounded_by_bytes_too(stage: Stages) -> None:
    async with stage(quarantine_max_bytes=1_000) as at:
        await at.commit(unreadable=[unreadable(b"1" * 400, "t1"), unreadable(b"2" * 400, "t2")])
        assert (await at.commit(unreadable=[unreadable(b"3" * 500, "t3")])).gave_way == 1
        reader = at.store.reader
        assert [one.token async for one in reader.quarantine()] == ["t2", "t3"]
        assert (await at.commit(unreadable=[unreadable(b"4" * 1_001, "t4")])).gave_way == 3
        assert [one.token async for one in reader.quarantine()] == []


@pytest.mark.parametrize(
    "limit", [{"quarantine_total_records": 3}, {"quarantine_total_bytes": 1_000}]
)
async def test_the_quarantine_of_all_streams_is_bounded(
    stage: Stages, limit: dict[str, Any]
) -> None:
    async with stage(**limit) as at:
        for stream in ("s2", "s3"):
            await at.store.position(stream_info(stream))
            batch = at.batch(unreadable=[unreadable(stream.encode() * 150, "t")])
            batch.stream = stream
            batch.expects_ordinal, batch.position = 0, Position(token="t", ordinal=1)
            await at.store.commit(batch)
        reader = at.store.reader
        result = await at.commit(
            unreadable=[unreadable(b"1" * 300, "t1"), unreadable(b"2" * 300, "t2")]
        )
        assert result.gave_way == 1
        assert [one.stream async for one in reader.quarantine()] == ["s3", "s1", "s1"]


async def test_a_replay_beside_a_running_consumer_leaves_its_fence_alone(
    stage: Stages, database: str
) -> None:
    async with stage() as at:
        await at.commit(unreadable=[unreadable(b"1")])
        reader = sink.reader(database)
        assert await reader.replay(1, RecordChunk([create_update("a", 5)])) == 1
        await reader.close()
        await at.commit(create_update("b", 6))
        assert sorted(await at.entities()) == ["a", "b"]
        (one,) = [one async for one in at.store.reader.quarantine()]
        assert one.replayed_at_us is not None


async def test_what_still_cannot_be_read_stays(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(unreadable=[unreadable(b"1")])
        with pytest.raises(SinkError, match="record 1 still cannot be read: no entity-key"):
            await at.store.reader.replay(1, RecordChunk([], [unreadable(b"1")]))
        with pytest.raises(SinkError, match="there is no record 7 in quarantine"):
            await at.store.reader.replay(7, RecordChunk([]))
        assert (await at.store.reader.streams())[0].quarantined == 1


async def test_consumers_and_streams_share_one_file(database: str) -> None:
    async with SqlStore(database) as east, SqlStore(database) as west:
        for store, consumer in ((east, "east"), (west, "west")):
            await store.open(consumer)
            for stream in ("s1", "s2"):
                await store.position(stream_info(stream))
                record = Record(stream, "k", create_update("k", 1).kind, consumer + stream, 1)
                await store.commit(Batch(stream, Position(ordinal=1), 0, [record]))
        found = [(e.consumer, e.stream, e.token) async for e in east.reader.entities()]
        assert found == [
            (consumer, stream, consumer + stream)
            for consumer in ("east", "west")
            for stream in ("s1", "s2")
        ]
        at = Stage(west, Position(ordinal=1))
        await at.commit(end_record("k", 2))
        assert {status.entities for status in await west.reader.streams()} == {0, 1}


async def test_consumers_of_one_database_are_chosen_and_counted(database: str) -> None:
    for consumer, keys in (("east", "ab"), ("west", "a")):
        async with SqlStore(database, journal="changes") as store:
            await store.open(consumer)
            position = await store.position(stream_info())
            position = msgspec.structs.replace(position, token="t", ordinal=1)
            records = [
                create_update(key, 1, entity_class="LINK" if key == "b" else "NODE") for key in keys
            ]
            await store.commit(Batch("s1", position, 0, records))
    reader = sink.reader(database)
    assert [e.consumer async for e in reader.entities(key="a")] == ["east", "west"]
    assert [e.key async for e in reader.entities(consumer="west")] == ["a"]
    assert [
        (one.consumer, one.entity_class, one.entities) for one in await reader.count_entities()
    ] == [("east", "LINK", 1), ("east", "NODE", 1), ("west", "NODE", 1)]
    assert await reader.count_entities(stream="none") == []
    assert [c.consumer async for c in reader.changes(consumer="west")] == ["west"]
    assert [c.key async for c in reader.changes(entity_class="LINK")] == ["b"]
    assert [c.key async for c in reader.changes(change=ChangeKind.DELETED)] == []
    assert await reader.newest_cursor() == 3
    assert [c.cursor async for c in reader.changes(await reader.newest_cursor())] == []
    await reader.close()


async def test_who_follows_one_class_is_not_overtaken_by_what_is_left_out(stage: Stages) -> None:
    async with stage(journal="changes", journal_retention_records=2) as at:
        await at.commit(create_update("n", 1))
        following = at.store.changes(1, entity_class="LINK", follow=True)
        first = asyncio.ensure_future(anext(following))
        for number in range(5):
            await asyncio.sleep(0.5)
            await at.commit(create_update("n", 2 + number, b'{"n":%d}' % number))
        await asyncio.sleep(0.5)
        await at.commit(create_update("l", 9, entity_class="LINK"))
        assert (await first).key == "l"
        await following.aclose()  # type: ignore[attr-defined]


async def test_a_reader_makes_no_store(tmp_path: Path) -> None:
    reader = sink.reader(f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(SinkError, match=r"none\.db: there is no such store"):
        await reader.streams()
    await reader.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_reader_names_a_database_without_store(empty_database: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    reader = sink.reader(empty_database)
    with pytest.raises(SinkError, match="holds no store of instep"):
        await reader.streams()
    await reader.close()
