"""A cursor of another journal: a restored backup, a copied file, a promoted replica that lagged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from instep import Subscription
from instep.config.plugins import open_reader
from instep.errors import JournalDivergedError
from instep.model.entities import JournalEnd
from instep.ports.reader import StoreReader
from tests.instep_sql.store_kit import create_update, stage
from tests.postgres_kit import Missing, Server, replica_of, serving

pytestmark = pytest.mark.asyncio


async def append(url: str, begin: int, count: int) -> None:
    """What a process does that begins, commits `count` changes one by one, and ends."""
    async with stage(url, journal="changes") as at:
        for n in range(begin, begin + count):
            await at.commit(create_update(f"k{n}", n))


async def read(url: str, cursor: int = 0, epoch: str = "") -> tuple[list[str], JournalEnd]:
    """The keys of the changes after a cursor, and where the subscriber stands then."""
    reader = open_reader(url)
    try:
        following = Subscription(reader, cursor, epoch=epoch, follow=False)
        keys = [change.key async for batch in following for change in batch]
        return keys, JournalEnd(following.cursor, following.epoch)
    finally:
        await reader.close()


async def refuses(url: str, at: JournalEnd, says: str) -> None:
    with pytest.raises(JournalDivergedError, match=says):
        await read(url, at.cursor, at.epoch)


async def test_a_cursor_beyond_the_newest_change_is_an_error_and_no_lag_of_zero(
    database: str,
) -> None:
    await append(database, 1, 3)
    reader = open_reader(database)
    try:
        ahead = Subscription(reader, 103, follow=False)
        with pytest.raises(JournalDivergedError, match="the newest change is 3") as caught:
            [batch async for batch in ahead]
        assert caught.value.data == {"newest": 3}
        assert not caught.value.retriable
        with pytest.raises(JournalDivergedError):
            await ahead.lag()
        with pytest.raises(JournalDivergedError):
            [change async for change in reader.changes(103)]
        with pytest.raises(JournalDivergedError):
            [change async for change in reader.changes(103, entity_class="NODE")]
    finally:
        await reader.close()


async def test_what_is_restarted_goes_on_under_epochs_of_its_own(database: str) -> None:
    at, every = JournalEnd(0), []
    for begin in (1, 4, 7):
        await append(database, begin, 3)
        keys, at = await read(database, at.cursor, at.epoch)
        assert keys == [f"k{n}" for n in range(begin, begin + 3)]
        every.append(at)
    assert len({one.epoch for one in every}) == 3
    # An epoch that has ended is still one of this journal.
    assert (await read(database, 2, every[0].epoch))[0] == [f"k{n}" for n in range(3, 10)]
    await append(database, 10, 0)
    assert await read(database, at.cursor, at.epoch) == ([], at)


def backed_up(file: Path, copy: Path) -> None:
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def vacuumed(file: Path, copy: Path) -> None:
    with closing(sqlite3.connect(file)) as source:
        source.execute("VACUUM INTO ?", [str(copy)])


def copied(file: Path, copy: Path) -> None:
    shutil.copyfile(file, copy)


@pytest.mark.parametrize("back_up", [backed_up, vacuumed, copied])
@pytest.mark.parametrize("further", [0, 2, 9])
async def test_a_restored_backup_is_seen_however_far_it_has_come_since(
    tmp_path: Path, back_up: Callable[[Path, Path], None], further: int
) -> None:
    file, backup = tmp_path / "s.db", tmp_path / "backup.db"
    url = f"sqlite:///{file}"
    await append(url, 1, 4)
    _, early = await read(url)
    back_up(file, backup)
    await append(url, 5, 4)
    _, late = await read(url, early.cursor, early.epoch)
    for one in tmp_path.glob("s.db*"):
        one.unlink()
    shutil.copyfile(backup, file)
    await append(url, 100, further)
    await refuses(url, late, "is of another journal")
    # Who has seen nothing that was lost goes on.
    keys, _ = await read(url, early.cursor, early.epoch)
    assert keys == [f"k{100 + n}" for n in range(further)]


async def test_a_copied_file_that_goes_on_by_itself_is_seen(tmp_path: Path) -> None:
    url, other = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    await append(url, 1, 4)
    shutil.copyfile(tmp_path / "a.db", tmp_path / "b.db")
    await append(url, 5, 4)
    await append(other, 5, 9)
    _, at = await read(url)
    await refuses(other, at, "its epoch is not of this journal")


async def test_a_transaction_that_fails_begins_no_epoch_and_the_next_one_does(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with stage(url, journal="changes") as at:
        await at.commit(create_update("a", 1))
        batch = at.batch(create_update("b", 2), expects_ordinal=0)
        with pytest.raises(Exception, match="another process"):
            await at.store.commit(batch)
        await at.commit(create_update("b", 2))
    keys, end = await read(url)
    assert keys == ["a", "b"]
    assert end.epoch


@pytest.fixture
def primary() -> Iterator[Server]:
    try:
        with serving() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


async def test_a_promoted_replica_that_lagged_is_seen_at_once_and_later(
    primary: Server,
) -> None:
    url = primary.url()
    await append(url, 1, 3)
    with replica_of(primary) as replica:
        await append(url, 4, 2)
        replica.wait_for("SELECT count(*) FROM instep_change", 5)
        replica.stop()
        await append(url, 6, 4)
        _, late = await read(url)
        reader: StoreReader = open_reader(url)
        try:
            running = aiter(Subscription(reader, 3, poll_s=0.01))
            assert len(await anext(running)) == 6
            primary.stop(immediate=True)
            replica.take_over(primary)
            assert replica.execute("SELECT count(*) FROM instep_change") == [(5,)]
            with pytest.raises(JournalDivergedError, match="the newest change is 5"):
                await anext(running)
        finally:
            await reader.close()
        await refuses(url, late, "the newest change is 5")
        await append(url, 50, 9)
        await refuses(url, late, "is of another journal")
        assert len((await read(url, 5))[0]) == 9
