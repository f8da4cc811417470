"""The short cut of `instep status` says what the reader says, or leaves it to the reader."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from instep import Record, RecordType
from instep.model import Batch, SweepStep, Unreadable
from instep.model.position import Phase, Position
from instep.ports.status import StoreStatus
from instep_sql import SqlStore
from instep_sql.engine.postgres.answer_timeout import TimedConnection
from instep_sql.engine.postgres.connection import connect_arguments
from instep_sql.options import SqlOptions
from instep_sql.quick_status import quick_status
from tests.instep.runtime.messages.intake_kit import spoken
from tests.instep_sql.store_kit import stream_info

pytestmark = pytest.mark.asyncio


def node(number: int) -> Record:
    return Record(
        "network", f"k{number}", RecordType.CREATE_UPDATE, f"t{number}", number, "", number, "NODE"
    )


async def fill(url: str, consumer: str, holder: str, entities: int) -> None:
    """A stream with entities, unproven ones, quarantine and deviations, and one with nothing."""
    async with SqlStore(url, lease_s=30, holder=holder) as store:
        await store.open(consumer)
        assert store.lease is not None
        assert await store.lease.acquire(await store.lease.read()) is not None
        await store.position(stream_info("quiet", compaction_delay_s=1.5))
        await store.position(stream_info("network"))
        position = Position(token="t1", ordinal=1, attempt=1, lineage=1, records=entities)
        records = [node(number) for number in range(entities)]
        await store.commit(Batch("network", position, 0, records))
        position = Position(
            token="é", ordinal=2, attempt=2, lineage=1, phase=Phase.ALIGNED, recent=b"\0\xff"
        )
        unreadable = [Unreadable("network", b"\xff", "not JSON", "t9")]
        sweep = SweepStep(2, readable=frozenset({"LINK"}))
        await store.commit(
            Batch("network", position, 1, [node(99)], unreadable, {"blank": 3}, sweep)
        )


async def read(url: str) -> StoreStatus:
    async with SqlStore(url) as store:
        await store.open("reads")
        return StoreStatus(await store.reader.streams(), await store.reader.leases())


async def test_it_says_what_the_reader_says(database: str) -> None:
    await fill(database, "west", "b", 2)
    await fill(database, "east", "a", 5)
    quick = quick_status(database)
    assert quick == await read(database)
    assert quick is not None
    of = {(one.consumer, one.stream): one for one in quick.streams}
    assert [*of] == [
        ("east", "network"), ("east", "quiet"), ("west", "network"), ("west", "quiet")
    ]  # fmt: skip
    network = of["east", "network"]
    assert (network.entities, network.unproven, network.quarantined) == (6, 5, 1)
    assert network.deviations == {"blank": 3}
    assert network.position.token == "é"
    assert {name: one.holder for name, one in quick.leases.items()} == {"east": "a", "west": "b"}


async def test_numbered_sequences_are_left_to_the_reader(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1)
    assert quick_status(database) is None


async def test_a_store_of_another_version_is_left_to_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    url = f"sqlite:///{file}"
    await fill(url, "east", "a", 1)
    assert quick_status(url) is not None
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("UPDATE instep_schema SET version_num = '0001'")
    assert quick_status(url) is None


async def test_what_is_no_store_is_left_to_the_reader_and_nothing_is_made(tmp_path: Path) -> None:
    missing, other, text = (tmp_path / name for name in ("missing.db", "other.db", "text.db"))
    with closing(sqlite3.connect(other)) as raw, raw:
        raw.execute("CREATE TABLE a (b)")
    text.write_text("no database" * 1_000)
    for file in (missing, other, text):
        assert quick_status(f"sqlite:///{file}") is None
    assert not missing.exists()


async def test_a_locked_file_is_left_to_the_reader_which_waits(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    url = f"sqlite:///{file}"
    await fill(url, "east", "a", 1)
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("PRAGMA locking_mode = EXCLUSIVE")
        raw.execute("BEGIN EXCLUSIVE")
        assert quick_status(url) is None
    assert quick_status(url) is not None


async def test_a_server_that_cannot_be_reached_is_left_to_the_reader() -> None:
    assert quick_status("postgresql://127.0.0.1:1/database") is None


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///network.db?mode=ro",
        "postgresql://127.0.0.1,other.example/database",
        "postgresql://127.0.0.1/database?schema=other",
        "postgresql://user:pass%20word@127.0.0.1/database",
        "postgresql://127.0.0.1/database?sslmode=disable&host=other.example",
        "postgresql://127.0.0.1/",
        "postgresql:///database",
        "postgresql://10.0.0.5/database?sslmode=disable&sslmode=require",
        "delta:/lake",
    ],
)
async def test_what_is_not_plain_is_left_to_the_reader(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimedConnection, "connect", None)
    assert quick_status(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1/database",
        "postgresql://127.0.0.1.example:5433/database",
        "postgresql+psycopg://user:localhost@other.example/database",
        "postgresql://10.0.0.5/database?sslmode=disable",
        "postgresql://10.0.0.5/database?sslrootcert=ca.pem",
    ],
)
async def test_it_is_encrypted_as_the_readers_connection_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def connect(conninfo: str, **given: Any) -> None:
        asked.append(psycopg.conninfo.conninfo_to_dict(conninfo) | given)
        raise psycopg.OperationalError

    monkeypatch.setattr(TimedConnection, "connect", connect)
    assert quick_status(url) is None
    options = SqlOptions(url=url)
    reader = connect_arguments(options)
    names = ("sslmode", "sslrootcert")
    theirs = {name: reader.get(name) or options.place.query.get(name) for name in names}
    assert {name: asked[0].get(name) for name in names} == theirs
