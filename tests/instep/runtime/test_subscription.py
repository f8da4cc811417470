"""Subscribers of the journal: batches, choice, lag, retention, and a handler that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import Change, ConsumerSettings, Phase, Position
from instep.errors import ChangesTrimmedError, JournalOffError, UnreachableError
from instep.model import Freshness, StreamReport
from instep.model.batches import SweepStep
from instep.model.records import Record
from instep.runtime.subscription import Subscription
from tests.instep_sql.store_kit import create_update, end_record, stage, stream_info

pytestmark = pytest.mark.asyncio

QUICK = ConsumerSettings(reconnect_initial_s=0.001, reconnect_max_s=0.002, reconnect_attempts=4)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def placed(key: str, at: int, *address: str, entity_class: str = "NODE", **body: Any) -> Record:
    """A statement about the entity `key` at this parent-address."""
    envelope = json.dumps({"parent-address": list(address)} if address else {}).encode()
    stated = json.dumps({"uuid": f"u-{key}", "at": at, **body}).encode()
    return create_update(key, at, stated, envelope=envelope, entity_class=entity_class)


async def read(subscription: Subscription) -> list[list[str]]:
    return [[change.key for change in batch] async for batch in subscription]


async def test_batches_in_order_and_the_cursor_behind_them(database: str) -> None:
    async with stage(database, journal="changes") as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(5)])
        subscription = Subscription(at.store.reader, follow=False, batch_changes=2)
        assert await subscription.lag() == 5
        # What is under way is not behind us yet.
        cursors = [(subscription.cursor, batch[-1].cursor) async for batch in subscription]
        assert cursors == [(0, 2), (2, 4), (4, 5)]
        assert (subscription.cursor, await subscription.lag()) == (5, 0)
        await at.commit(create_update("k9", 9))
        assert await read(subscription) == [["k9"]]
        assert await read(Subscription(at.store.reader, 4, follow=False)) == [["k4", "k9"]]


async def test_it_waits_for_more(database: str) -> None:
    async with stage(database, journal="changes") as at:
        await at.commit(create_update("a", 1))
        batches = aiter(Subscription(at.store.reader, poll_s=0.01))
        assert [change.key for change in await anext(batches)] == ["a"]
        waiting = asyncio.ensure_future(anext(batches))
        await at.commit(create_update("b", 2))
        async with asyncio.timeout(30):
            assert [change.key for change in await waiting] == ["b"]


async def test_by_class_stream_and_consumer(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(
            placed("n", 1), placed("l", 2, entity_class="LINK"), placed("s", 3, entity_class="X")
        )

        async def keys(**chosen: Any) -> list[list[str]]:
            return await read(Subscription(at.store.reader, follow=False, **chosen))

        assert await keys(classes=["LINK"]) == [["l"]]
        assert await keys(classes=["LINK", "NODE"]) == [["n", "l"]]
        assert await keys(stream="other") == []
        assert await keys(stream="s1", consumer="other") == []


async def test_what_is_left_out_moves_the_cursor(database: str) -> None:
    async with stage(database, journal="changes", journal_retention_records=10) as at:
        subscription = Subscription(at.store.reader, classes=["LINK", "X"], follow=False)
        for n in range(60):
            await at.commit(create_update(f"k{n}", n))
            assert await read(subscription) == []
        assert (subscription.cursor, await subscription.lag()) == (60, 0)


async def test_3_12_what_is_below_an_entity(database: str) -> None:
    below = ("topology-uuid:T", "node-uuid:u-n")
    async with stage(database, journal="bodies") as at:
        await at.commit(
            placed("n", 1, "topology-uuid:T"),
            placed("p", 2, *below),
            placed("c", 3, *below, "node-edge-point-uuid:u-p"),
            placed("other", 4, "topology-uuid:T", "node-uuid:u-m"),
            placed("top", 5),
        )
        reader = at.store.reader
        assert await read(Subscription(reader, below="u-n", follow=False)) == [["n", "p", "c"]]
        assert await read(Subscription(reader, below="u-p", follow=False)) == [["p", "c"]]
        # An end may state no place, and a sweep has none.
        await at.commit(end_record("other", 6), placed("n", 7, "topology-uuid:T"))
        at.attempt = 2
        await at.commit(placed("n", 8, "topology-uuid:T"), sweep=SweepStep(2))
        ended = await read(Subscription(reader, 5, below="u-n", follow=False))
        assert ended == [["other", "n", "n", "p", "c", "top"]]


async def test_one_that_retention_has_passed_is_told(database: str) -> None:
    async with stage(database, journal="changes", journal_retention_records=5) as at:
        for n in range(40):
            await at.commit(create_update(f"k{n}", n))
        with pytest.raises(ChangesTrimmedError) as caught:
            await read(Subscription(at.store.reader, 7, follow=False))
        assert caught.value.data["oldest"] == 36


async def test_without_a_journal_it_is_refused(database: str) -> None:
    async with stage(database) as at:
        await at.commit(create_update("a", 1))
        with pytest.raises(JournalOffError):
            await read(Subscription(at.store.reader))


class Handler:
    """Takes batches; fails with these errors first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.taken: list[str] = []

    async def __call__(self, batch: Sequence[Change]) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        self.taken += [change.key for change in batch]


async def test_a_handler_gets_a_batch_again_until_it_has_taken_it(database: str) -> None:
    saved: list[int] = []

    async def save(cursor: int) -> None:
        saved.append(cursor)

    async with stage(database, journal="changes") as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(3)])
        handler = Handler(UnreachableError("away"), UnreachableError("away"))
        subscription = Subscription(at.store.reader, follow=False, batch_changes=2)
        await subscription.run(handler, saved=save, settings=QUICK)
    assert handler.taken == ["k0", "k1", "k2"]
    assert (handler.calls, saved) == (4, [2, 3])


@pytest.mark.parametrize(
    ("error", "calls"), [(UnreachableError("away"), 4), (ValueError("a mistake"), 1)]
)
async def test_a_handler_that_goes_on_failing_raises(
    error: Exception, calls: int, database: str
) -> None:
    async with stage(database, journal="changes") as at:
        await at.commit(create_update("a", 1))
        handler = Handler(*[error] * 10)
        with pytest.raises(type(error)):
            await Subscription(at.store.reader, follow=False).run(handler, settings=QUICK)
        assert handler.calls == calls


async def test_the_store_may_be_away_for_a_while(database: str) -> None:
    async with stage(database, journal="changes") as at:
        await at.commit(create_update("a", 1))
        handler = Handler()
        subscription = Subscription(at.store.reader, follow=False)
        newest = at.store.reader.newest_cursor
        away = [True]

        async def once() -> int:
            if away:
                away.clear()
                raise UnreachableError("away")
            return await newest()

        at.store.reader.newest_cursor = once  # type: ignore[method-assign]
        await subscription.run(handler, settings=QUICK)
    assert handler.taken == ["a"]


async def test_who_handles_changes_is_told_how_fresh_the_streams_are(database: str) -> None:
    told: list[list[str]] = []
    twice = asyncio.Event()

    async def tell(found: Sequence[Freshness]) -> None:
        told.append([one.state for one in found])
        if len(told) == 2:
            twice.set()

    async def handle(batch: Sequence[Change]) -> None:
        pass

    async with stage(database, journal="changes") as at:
        aligned = Position(phase=Phase.ALIGNED, token="t1", ordinal=1, attempt=1, lineage=1)
        await at.commit(create_update("a", 1), position=aligned)
        good = StreamReport(stream="s1", connected=True, caught_up=True)
        await at.store.report([good], 1e6)
        running = asyncio.create_task(
            Subscription(at.store.reader).run(handle, freshness=tell, settings=QUICK)
        )
        async with asyncio.timeout(60):
            while not told:
                await asyncio.sleep(0.01)
            # Nothing comes from the provider any more: no change says so.
            await at.store.report([msgspec.structs.replace(good, connected=False)], 1e6)
            await twice.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert told == [["aligned"], ["disconnected"]]


async def test_who_chooses_classes_is_told_of_the_streams_that_carry_them(database: str) -> None:
    stream = stream_info(classes=("NODE", "LINK"))
    async with stage(database, stream, journal="changes") as at:
        await at.commit(create_update("a", 1))
        of = {
            chosen: len(await Subscription(at.store.reader, classes=chosen).freshness())
            for chosen in ((), ("LINK",), ("LINK", "X"), ("X",))
        }
    assert of == {(): 1, ("LINK",): 1, ("LINK", "X"): 1, ("X",): 0}


async def test_the_cursor_that_is_saved_has_its_epoch(database: str) -> None:
    saved: list[tuple[int, str]] = []

    async def handle(batch: Sequence[Change]) -> None:
        pass

    async with stage(database, journal="changes") as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
        subscription = Subscription(at.store.reader, follow=False, batch_changes=1)

        async def save(cursor: int) -> None:
            saved.append((cursor, subscription.epoch))

        await subscription.run(handle, saved=save, settings=QUICK)
        epochs = [(one.cursor, one.epoch) for one in await at.changes()]
    assert saved == epochs
    assert epochs[0][1]
