"""What SQLite itself can refuse, and the errors of the store for it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from instep.errors import SinkError, StoreUnavailableError
from instep_sql import SqlStore
from instep_sql.engine.sqlite import Sqlite
from instep_sql.options import SqlOptions
from instep_sql.plugin import sink
from tests.instep_sql.store_kit import create_update, end_record, stage, stream_info

pytestmark = pytest.mark.asyncio


async def test_locked_beyond_the_timeout_can_be_tried_again(tmp_path: Path) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db", busy_timeout_s=0.1) as at:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="locked by another process") as caught:
            await at.commit(create_update("a", 1))
        assert (caught.value.retriable, caught.value.where) == (True, str(tmp_path / "s.db"))
        other.execute("ROLLBACK")
        other.close()
        await at.commit(create_update("a", 1))
        assert list(await at.entities()) == ["a"]


async def test_disk_full_loses_nothing_and_recovers(tmp_path: Path) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db") as at:
        await at.commit(create_update("a", 1))

        def limit(pages: int) -> object:
            return at.store._database.run(
                lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            )

        await limit(60)  # type: ignore[misc]
        records = [create_update(f"k{n}", n, b"x" * 4000) for n in range(100)]
        with pytest.raises(StoreUnavailableError, match="the disk is full — make room"):
            await at.commit(*records)
        assert (await at.store.position(stream_info())).ordinal == 1
        assert list(await at.entities()) == ["a"]
        await limit(1 << 30)  # type: ignore[misc]
        await at.commit(*records)
        assert len(await at.entities()) == 101


async def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        async with stage(f"sqlite:///{tmp_path}/s.db") as at:
            await at.commit(create_update("a", 1))
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(umask)
    assert modes == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}


async def test_a_file_that_others_can_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "s.db"
    file.touch(0o600)
    # It is told once in a process, whatever connections follow.
    for mode, reported in ((0o640, 0), (0o644, 1), (0o644, 1)):
        file.chmod(mode)
        async with SqlStore(f"sqlite:///{file}") as store:
            await store.open("east")
        assert len(caplog.records) == reported
        assert file.stat().st_mode & 0o777 == mode, "whoever made it chose so"
    assert "every user of this machine can read the store" in caplog.text


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    async with SqlStore(f"sqlite:///{tmp_path}/none/s.db") as store:
        with pytest.raises(SinkError, match="cannot be opened — the directory has to") as caught:
            await store.open("east")
        assert (caught.value.retriable, caught.value.where) == (False, f"{tmp_path}/none/s.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with stage(f"sqlite:///{path}"):
        pass
    path.chmod(0o444)
    async with SqlStore(f"sqlite:///{path}") as store:
        with pytest.raises(SinkError, match="write access"):
            await store.open("east")


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_text("not a database, " * 100)
    async with SqlStore(f"sqlite:///{tmp_path}/s.db") as store:
        with pytest.raises(SinkError, match="the file is not a SQLite database"):
            await store.open("east")


async def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with stage(f"sqlite:///{path}") as at:
        await at.commit(*[create_update(f"k{n}", n, b"x" * 500) for n in range(200)])
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xff" * (len(content) - 8192 - 4096)
    path.write_bytes(content)
    reader = sink.reader(f"sqlite:///{path}")
    with pytest.raises(SinkError, match="the database is damaged"):
        _ = [entity async for entity in reader.entities()]
    await reader.close()


@pytest.mark.parametrize(
    ("code", "message", "retriable"),
    [
        (sqlite3.SQLITE_READONLY_DIRECTORY, "the database cannot be written", False),
        (sqlite3.SQLITE_IOERR_WRITE, "the disk could not be read or written", True),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked by another process", True),
        (sqlite3.SQLITE_ERROR, "the database refused: boom", False),
    ],
)
async def test_extended_codes_are_understood(code: int, message: str, retriable: bool) -> None:
    error = sqlite3.OperationalError("boom")
    error.sqlite_errorcode = code
    translated = Sqlite(SqlOptions(url="sqlite:///s.db")).translate(error)
    assert message in str(translated)
    assert translated.retriable is retriable


async def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db", synchronous="normal") as at:
        largest = 0
        for n in range(40):
            await at.commit(*[create_update(f"k{m}", n, b"x" * 4000) for m in range(1000)])
            largest = max(largest, (tmp_path / "s.db-wal").stat().st_size)
        assert largest < 1.5 * 20_000 * 4096


async def test_connections_are_tuned_and_only_the_writer_may_write(tmp_path: Path) -> None:
    options = SqlOptions(url=f"sqlite:///{tmp_path}/s.db", cache_bytes=64 << 20)

    def ask(engine: Engine, *names: str) -> list[Any]:
        with engine.begin() as connection:
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    names = (
        "journal_mode",
        "synchronous",
        "cache_size",
        "page_size",
        "wal_autocheckpoint",
        "query_only",
    )
    writer = Sqlite(options).writer()
    assert ask(writer, *names) == ["wal", 2, -65536, 8_192, 10_000, 0]
    reader = Sqlite(options).reader()
    assert ask(reader, "query_only", "cache_size") == [1, -16384]
    writer.dispose()
    reader.dispose()


async def test_a_reader_leaves_a_foreign_database_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    before = (tmp_path / "other.db").read_bytes()
    reader = sink.reader(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(SinkError, match="holds no store"):
        await reader.streams()
    await reader.close()
    assert (tmp_path / "other.db").read_bytes() == before


async def test_a_number_that_no_column_holds_is_an_error_with_a_place() -> None:
    async with stage() as at:
        with pytest.raises(SinkError, match=r"sqlite \(memory\): the database refused: Python int"):
            await at.commit(create_update("a", 1, offset=1 << 64))
        await at.commit(create_update("a", 1))


async def test_a_store_in_memory_commits_and_is_read_over_one_connection() -> None:
    async with stage("sqlite://", journal="changes") as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
        await at.commit(create_update("a", 3))
        assert await at.bodies() == {"a": b'{"at":3}', "b": b'{"at":2}'}
        assert (await at.store.position(stream_info())).ordinal == 2
        assert len(await at.journal()) == 3


async def stored(file: Path, *, watched: bool) -> tuple[list[str], dict[str, Any], list[Any]]:
    """What is seen of the statements of some commits, and what they have stored and raised."""
    seen: list[str] = []
    results: list[Any] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    async with stage(f"sqlite:///{file}", journal="changes", busy_timeout_s=0.1) as at:
        if watched:
            event.listen(Engine, "before_cursor_execute", note)
        try:
            results.append(await at.commit(*(create_update(f"k{n % 60}", n) for n in range(99))))
            results.append(await at.commit(create_update("k1", 1), end_record("k2", 200)))
            with closing(sqlite3.connect(file, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailableError) as caught:
                    await at.commit(create_update("k3", 300))
            results.append(str(caught.value).replace(str(file), ""))
            results.append(await at.commit(create_update("k3", 300)))
        finally:
            if watched:
                event.remove(Engine, "before_cursor_execute", note)
        entities = {key: (one.token, one.body) for key, one in (await at.entities()).items()}
    return seen, entities, results


async def test_whoever_listens_sees_each_statement_and_the_store_is_the_same(
    tmp_path: Path,
) -> None:
    seen, *watched = await stored(tmp_path / "watched.db", watched=True)
    for begin in ("BEGIN", "UPDATE instep_stream", "INSERT INTO instep_entity", "DELETE FROM"):
        assert any(one.strip().startswith(begin) for one in seen), begin
    none, *unwatched = await stored(tmp_path / "unwatched.db", watched=False)
    assert not none
    assert watched == unwatched
    assert len(watched[0]) == 59


async def test_statements_of_sqlalchemy_and_of_the_driver_are_one_transaction(
    tmp_path: Path,
) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db") as at:
        dialect, database = at.store._dialect, at.store._database
        await at.commit(create_update("a", 1), create_update("b", 1))

        def work(connection: Connection, end: Callable[[], None]) -> None:
            dialect.execute_many(connection, "DELETE FROM instep_entity WHERE key = ?", [("a",)])
            connection.execute(text("DELETE FROM instep_entity WHERE key = 'b'"))
            end()

        def fail() -> None:
            raise ValueError

        with pytest.raises(ValueError):  # noqa: PT011 - our own
            await database.run(lambda connection: work(connection, fail))
        assert list(await at.entities()) == ["a", "b"]
        await database.run(lambda connection: work(connection, lambda: None))
        assert not await at.entities()


async def test_who_listens_to_commits_is_told_of_each(tmp_path: Path) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db") as at:
        told: list[str] = []
        database = at.store._database
        await at.commit(create_update("a", 1))
        assert database._engine is not None
        event.listen(database._engine, "begin", lambda _: told.append("begin"))
        event.listen(database._engine, "commit", lambda _: told.append("commit"))
        await at.commit(create_update("b", 2))
        assert told == ["begin", "commit"]
        assert list(await at.entities()) == ["a", "b"]
