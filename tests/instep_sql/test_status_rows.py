"""A file is read for `instep status` as the reader reads it, or is left to the reader."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from instep import Record, RecordType
from instep.model import Batch, SweepStep, Unreadable
from instep.model.position import Phase, Position
from instep_sql import SqlStore
from instep_sql.status_rows import file_status
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


async def test_it_says_what_the_reader_says(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    await fill(url, "west", "b", 2)
    await fill(url, "east", "a", 5)
    found = file_status(url)
    assert found is not None
    async with SqlStore(url) as store:
        await store.open("reads")
        assert found == (await store.reader.streams(), await store.reader.leases())
    streams, leases = found
    of = {(one.consumer, one.stream): one for one in streams}
    assert [*of] == [
        ("east", "network"), ("east", "quiet"), ("west", "network"), ("west", "quiet")
    ]  # fmt: skip
    network = of["east", "network"]
    assert (network.entities, network.unproven, network.quarantined) == (6, 5, 1)
    assert network.deviations == {"blank": 3}
    assert network.position.token == "é"
    assert {name: one.holder for name, one in leases.items()} == {"east": "a", "west": "b"}


async def test_numbered_sequences_are_left_to_the_reader(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    async with spoken(url) as at:
        await at.say(1)
    assert file_status(url) is None


async def test_a_store_of_another_version_is_left_to_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    url = f"sqlite:///{file}"
    await fill(url, "east", "a", 1)
    assert file_status(url) is not None
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("UPDATE instep_schema SET version_num = '0001'")
    assert file_status(url) is None


async def test_what_is_no_store_is_left_to_the_reader_and_nothing_is_made(tmp_path: Path) -> None:
    missing, other, text = (tmp_path / name for name in ("missing.db", "other.db", "text.db"))
    with closing(sqlite3.connect(other)) as raw, raw:
        raw.execute("CREATE TABLE a (b)")
    text.write_text("no database" * 1_000)
    for file in (missing, other, text):
        assert file_status(f"sqlite:///{file}") is None
    assert not missing.exists()


async def test_a_locked_file_is_left_to_the_reader_which_waits(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    url = f"sqlite:///{file}"
    await fill(url, "east", "a", 1)
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("PRAGMA locking_mode = EXCLUSIVE")
        raw.execute("BEGIN EXCLUSIVE")
        assert file_status(url) is None
    assert file_status(url) is not None


@pytest.mark.parametrize("parameters", ["", "?mode=ro"])
async def test_what_is_no_plain_file_is_left_to_the_reader(parameters: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    await fill(url, "east", "a", 1)
    assert (file_status(url + parameters) is None) == bool(parameters)
    for other in ("sqlite://", "sqlite:///:memory:", "postgresql://127.0.0.1/database", "delta:/l"):
        assert file_status(other) is None
