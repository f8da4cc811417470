"""All who follow the journal through one reader share one look at it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from instep import Change, Subscription
from instep.model.entities import JournalEnd
from instep_sql.journal_tail import JournalTail
from tests.instep_sql.store_kit import ON_SQLITE, create_update, stage

pytestmark = pytest.mark.asyncio


async def keys(batches: AsyncIterator[Sequence[Change]], count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [change.key for change in await anext(batches)]
    return found


async def test_each_of_many_gets_each_change_once_in_order(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(create_update("before", 1))
        reader = at.store.reader
        begun = [Subscription(reader, 0), reader.subscribe(1, batch_changes=3, poll_s=0.02)]
        begun += [reader.subscribe(1, classes=["NODE"]) for _ in range(20)]
        following = [asyncio.ensure_future(keys(aiter(begun[0]), 41))]
        following += [asyncio.ensure_future(keys(aiter(one), 40)) for one in begun[1:]]
        chance = random.Random(7)
        for number in range(40):
            await at.commit(create_update(f"k{number}", number + 2))
            await asyncio.sleep(chance.choice((0, 0.01, 0.1)))
        expected = [f"k{number}" for number in range(40)]
        first, *others = await asyncio.gather(*following)
        assert first == ["before", *expected]
        assert all(one == expected for one in others)


@ON_SQLITE
async def test_a_thousand_that_wait_ask_the_store_as_often_as_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(create_update("a", 1))
        reader = at.store.reader
        asked = 0
        run = reader.database.run

        async def counted(*args: object, **given: object) -> object:
            nonlocal asked
            asked += 1
            return await run(*args, **given)  # type: ignore[arg-type]

        monkeypatch.setattr(reader.database, "run", counted)
        following = [
            asyncio.ensure_future(keys(aiter(reader.subscribe(1, poll_s=0.05)), 1))
            for _ in range(1_000)
        ]
        # Each reads first what there was. Then all of them look once in 0.05 s, or more seldom.
        rate = 1_000.0
        async with asyncio.timeout(60):
            while rate > 25:
                before, begun = asked, time.monotonic()
                await asyncio.sleep(0.4)
                rate = (asked - before) / (time.monotonic() - begun)
        before = asked
        await at.commit(create_update("b", 2))
        assert await asyncio.gather(*following) == [["b"]] * 1_000
        assert asked - before < 50


@ON_SQLITE
async def test_a_thousand_that_come_at_once_ask_the_store_a_few_times(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(database, journal="bodies") as at:
        for number in range(4):
            await at.commit(create_update(f"k{number}", number + 1))
        reader = at.store.reader
        asked = 0
        run = reader.database.run

        async def counted(*args: object, **given: object) -> object:
            nonlocal asked
            asked += 1
            return await run(*args, **given)  # type: ignore[arg-type]

        monkeypatch.setattr(reader.database, "run", counted)
        end = await reader.journal_end()
        # They come from places near the end, as browsers do whose server was started again.
        places = [end.cursor, end.cursor - 1, end.cursor - 2]
        following = [
            keys(aiter(reader.subscribe(place, epoch=end.epoch)), 1)
            for place in places
            for _ in range(300)
        ]
        committing = at.commit(create_update("k4", 5))
        found, _ = await asyncio.gather(asyncio.gather(*following), committing)
        assert [one[0] for one in found] == ["k4"] * 300 + ["k3"] * 300 + ["k2"] * 300
        assert asked < 60


@ON_SQLITE
async def test_a_reading_to_the_end_sees_what_nobody_waited_for(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(create_update("a", 1))
        reader = at.store.reader
        end = await reader.journal_end()
        waiting = asyncio.ensure_future(keys(aiter(reader.subscribe(end.cursor)), 1))
        await at.commit(create_update("b", 2))
        assert await waiting == ["b"]
        seen = await reader.journal_end()
        await asyncio.sleep(0.5)  # nobody waits any more: nobody looks
        await at.commit(create_update("c", 3))
        rest = [batch async for batch in reader.subscribe(seen.cursor, follow=False)]
        assert [change.key for batch in rest for change in batch] == ["c"]


class Journal:
    """A journal in memory, with cursors that may have gaps."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.end = JournalEnd(0)

    def append(self, cursor: int, epoch: str = "e") -> None:
        change = Change(
            cursor=cursor,
            stream="s",
            key=f"k{cursor}",
            entity_class="N",
            change="created",  # type: ignore[arg-type]
            kind=None,
            token="t",
            appended_at_us=0,
            committed_at_us=0,
            epoch=epoch,
        )
        self.changes.append(change)
        self.end = JournalEnd(cursor, epoch)

    async def newest(self) -> JournalEnd:
        return self.end

    async def read(self, at: JournalEnd, most: int) -> Sequence[Change]:
        return [one for one in self.changes if one.cursor > at.cursor][:most]


async def pause(_: float) -> None:
    await asyncio.sleep(0)


async def test_what_is_in_memory_is_what_the_journal_has() -> None:
    chance = random.Random(3)
    journal = Journal()
    journal.append(5)
    tail = JournalTail(journal.newest, journal.read, pause)
    seen = await tail.wait(-1, 1)
    for _ in range(300):
        waiting = asyncio.ensure_future(tail.wait(seen, 1))
        await asyncio.sleep(0)
        for _ in range(chance.randint(1, 3)):
            journal.append(journal.end.cursor + chance.randint(1, 2))
        seen = await waiting
        for at in range(journal.end.cursor + 2):
            found = tail.after(JournalEnd(at, "e"))
            if found is not None:
                changes, end = found
                expected = [c for c in journal.changes if at < c.cursor <= end.cursor]
                assert list(changes) == expected
        assert tail.after(JournalEnd(journal.changes[-1].cursor, "of another journal")) is None
    await tail.close()
    assert tail.after(journal.end) is None
