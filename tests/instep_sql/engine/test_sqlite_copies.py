"""Copies of a SQLite store: on a medium that takes no writes, without its -wal, by VACUUM INTO."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from instep.errors import NoStoreError, SinkError, StoreUnavailableError
from instep.ports.reader import StoreReader
from instep_sql.engine import sqlite, sqlite_files
from instep_sql.plugin import sink
from tests.instep.cli.cli_kit import started
from tests.instep_sql.store_kit import Stage, create_update, stage

pytestmark = pytest.mark.asyncio


class Medium:
    """A folder of a medium of its own, which can be made to take no writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = os.geteuid() == 0

    def mount(self) -> None:
        command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(self.folder)]
        if self._root and subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("root may write everywhere, and no medium can be mounted here")

    def forbid_writes(self) -> None:
        self._change("ro", 0o555)

    def allow_writes(self) -> None:
        self._change("rw", 0o755)

    def _change(self, option: str, mode: int) -> None:
        if self._root:
            command = ["mount", "-o", f"remount,{option}", str(self.folder)]
            subprocess.run(command, check=True)
        else:
            self.folder.chmod(mode)

    def remove(self) -> None:
        if self._root:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        else:
            self.folder.chmod(0o755)


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Medium]:
    made = Medium(tmp_path / "medium")
    made.folder.mkdir()
    made.mount()
    yield made
    made.remove()


async def keys(reader: StoreReader) -> list[str]:
    return [entity.key async for entity in reader.entities()]


async def filled(at: Stage, count: int = 50) -> None:
    await at.commit(*[create_update(f"k{n}", n) for n in range(count)])


async def test_a_medium_that_takes_no_writes_is_read(medium: Medium) -> None:
    # The name has what means something else in a URI.
    url = f"sqlite:///{medium.folder}/a #b&c.db"
    async with stage(url, journal="changes") as at:
        await filled(at)
    medium.forbid_writes()
    reader = sink.reader(url)
    assert len(await keys(reader)) == 50
    assert len([change async for change in reader.changes()]) == 50
    await reader.close()
    assert [file.name for file in medium.folder.iterdir()] == ["a #b&c.db"]


async def test_the_commands_read_it_too(medium: Medium) -> None:
    async with stage(f"sqlite:///{medium.folder}/s.db", journal="changes") as at:
        await filled(at)
    medium.forbid_writes()
    for command in ("entities", "status"):
        with started(command, "--store", f"sqlite:///{medium.folder}/s.db") as process:
            shown, errors = await asyncio.to_thread(process.communicate)
        assert (process.returncode, errors) == (0, b"")
        assert b"s1" in shown


async def test_who_may_not_write_reads_a_store_that_another_user_begins_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with stage(url) as at:
        await filled(at)
    # As the user who may not, for what this process is not: one and the same file.
    monkeypatch.setattr(os, "access", lambda *_: False)
    reader = sink.reader(url)
    assert len(await keys(reader)) == 50
    async with stage(url) as at:
        await filled(at, 80)
        # Read anew as a store that has a writer.
        assert len(await keys(reader)) == 80
        await at.commit(create_update("last", 100))
        assert len(await keys(reader)) == 81
    assert len(await keys(reader)) == 81
    await reader.close()


async def test_what_is_written_while_it_is_read_is_not_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.db"
    async with stage(f"sqlite:///{file}") as at:
        await filled(at)
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = sqlite_files.finished_file(str(file))
    assert found is not None
    number = iter(range(1_000))
    monkeypatch.setattr(sqlite, "finished_file", lambda _: (*found[:2], next(number)))
    reader = sink.reader(f"sqlite:///{file}")
    with pytest.raises(StoreUnavailableError, match="is written while it is read"):
        await keys(reader)
    await reader.close()


async def test_a_wal_on_a_medium_that_takes_no_writes_is_named(medium: Medium) -> None:
    async with stage(f"sqlite:///{medium.folder}/s.db") as at:
        await filled(at)
        for name in ("s.db", "s.db-wal"):
            shutil.copy(medium.folder / name, medium.folder / f"copy-{name}")
    (medium.folder / "copy-s.db").rename(medium.folder / "copy.db")
    (medium.folder / "copy-s.db-wal").rename(medium.folder / "copy.db-wal")
    medium.forbid_writes()
    reader = sink.reader(f"sqlite:///{medium.folder}/copy.db")
    with pytest.raises(SinkError, match="copy the file and its -wal to a folder"):
        await keys(reader)
    await reader.close()


@pytest.mark.parametrize("writes", [True, False])
async def test_a_copy_without_its_wal_names_it(medium: Medium, writes: bool) -> None:
    async with stage(f"sqlite:///{medium.folder}/s.db") as at:
        await filled(at)
        copy = medium.folder / "copy.db"
        shutil.copy(medium.folder / "s.db", copy)
    if not writes:
        medium.forbid_writes()
    reader = sink.reader(f"sqlite:///{copy}")
    with pytest.raises(NoStoreError, match=r"copy\.db-wal is missing beside it.* VACUUM INTO"):
        await keys(reader)
    await reader.close()


async def test_a_database_of_another_program_is_no_copy(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (x)")
    reader = sink.reader(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(NoStoreError, match="holds no store of instep — look at the URL"):
        await keys(reader)
    await reader.close()


async def test_vacuum_into_copies_a_store_that_runs(tmp_path: Path) -> None:
    async with stage(f"sqlite:///{tmp_path}/s.db") as at:
        await filled(at)
        with closing(sqlite3.connect(tmp_path / "s.db")) as raw:
            raw.execute("VACUUM INTO ?", [str(tmp_path / "copy.db")])
        await at.commit(create_update("later", 100))
    async with stage(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert len(await copy.entities()) == 50
