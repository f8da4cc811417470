"""Each entity carries its proof (A22), and what an attempt could not read is not swept (A17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from instep.model.batches import SweepStep
from instep.model.holds import Hold, UnprovenReason
from instep.model.records import Unreadable
from instep.model.streams import Mode
from instep_sql import SqlStore
from tests.instep_sql.store_kit import Stage, Stages, create_update, stream_info

pytestmark = pytest.mark.asyncio
RECORD = UnprovenReason.UNREADABLE_RECORD


@pytest_asyncio.fixture
async def at(stage: Stages) -> AsyncIterator[Stage]:
    async with stage(journal="changes") as opened:
        yield opened


def statements(names: str, offset: int, **changes: Any) -> list[Any]:
    return [create_update(one, offset + n, **changes) for n, one in enumerate(names)]


async def unproven(at: Stage) -> dict[str, str]:
    return {one.key: one.unproven async for one in at.store.reader.entities() if not one.proven}


async def sweep(at: Stage, attempt: int, *holds: Hold, **step: Any) -> int:
    at.attempt = attempt
    result = await at.commit(sweep=SweepStep(attempt, holds=holds, **step))
    assert result.sweep_done
    return result.swept


@pytest.mark.parametrize(
    ("hold", "left"),
    [
        (Hold(RECORD), "abcd"),
        (Hold(RECORD, "NODE"), "abc"),
        (Hold(RECORD, "LINK"), "ad"),
        (Hold(RECORD, "", "p1"), "ac"),
        (Hold(RECORD, "", "p2"), "a"),
        (Hold(RECORD, "", "p1", offset=1, lineage=1), "ac"),
        (Hold(RECORD, "", "p1", offset=1, lineage=1, met_before=True), "a"),
        (Hold(RECORD, "", "p1", offset=9, lineage=1, met_before=True), "ac"),
        (Hold(RECORD, "", "p1", offset=1, lineage=2, met_before=True), "ac"),
    ],
)
async def test_a17_what_may_be_meant_is_not_swept(at: Stage, hold: Hold, left: str) -> None:
    await at.commit(
        create_update("a", 1),
        create_update("b", 2),
        create_update("c", 3, partition="p1"),
        create_update("d", 4, entity_class="LINK"),
    )
    at.attempt = 2
    await at.commit(create_update("a", 11))
    assert await sweep(at, 2, hold) == 4 - len(left)
    assert "".join(await at.entities()) == left
    assert set(await unproven(at)) == set(left) - {"a"}


async def test_a22_a_class_becomes_unproven_and_proven_with_a_row_each(at: Stage) -> None:
    await at.commit(*statements("abcdef", 1))
    hold = Hold(RECORD, "NODE", digest="ab")
    assert await sweep(at, 2, hold) == 0
    assert await unproven(at) == dict.fromkeys("abcdef", "unreadable-record ab")
    [status] = await at.store.reader.streams()
    [why] = status.unproven_because
    assert (status.unproven, why.reason, why.entity_class, why.digest) == (6, RECORD, "NODE", "ab")
    since = why.since_us
    assert await sweep(at, 3, hold) == 0
    [status] = await at.store.reader.streams()
    assert [one.since_us for one in status.unproven_because] == [since]
    at.attempt = 4
    await at.commit(*statements("abcdef", 11))
    assert await unproven(at) == {}
    assert await sweep(at, 4) == 0
    told = [(c.change.value, c.key, c.entity_class) for c in await at.changes()][6:]
    assert [one for one in told if not one[1]] == [
        ("unproven", "", "NODE"),
        ("proven", "", "NODE"),
    ]
    [status] = await at.store.reader.streams()
    assert status.unproven_because == ()


async def test_a22_a_journal_that_begins_later_says_what_is_unproven(stage: Stages) -> None:
    async with stage(journal="off") as at:
        await at.commit(*statements("ab", 1))
        await at.commit(unreadable=[Unreadable("s1", b"?", "odd", "t9", key="a")])
        assert set(await unproven(at)) == {"a"}
    async with stage(journal="changes") as at:
        told = [(one.change.value, one.key) for one in await at.changes()]
        assert told == [("created", "a"), ("created", "b"), ("unproven", "a")]


async def test_a22_of_several_reasons_the_one_that_matters_most_is_shown(at: Stage) -> None:
    async def view() -> dict[str, str]:
        query = text("SELECT key, unproven FROM instep_entities WHERE unproven IS NOT NULL")
        run = at.store.reader.database.run
        return {one.key: one.unproven for one in await run(lambda c: c.execute(query).all())}

    async def shown() -> dict[str, str]:
        found = await unproven(at)
        assert await view() == {key: reason.partition(" ")[0] for key, reason in found.items()}
        return found

    await at.commit(*statements("abc", 1))
    at.attempt = 2
    await at.commit(unreadable=[Unreadable("s1", b"?", "odd", "t9", key="b")])
    [digest] = [one.digest async for one in at.store.reader.quarantine()]
    element = UnprovenReason.UNREADABLE_ELEMENT
    holds = (Hold(UnprovenReason.EMPTY_ANSWER, "NODE"), Hold(element, "NODE", digest="cd"))
    assert await sweep(at, 2, *holds) == 0
    apart = {
        "a": "unreadable-element cd",
        "b": f"unreadable-record {digest}",
        "c": "unreadable-element cd",
    }
    assert await shown() == apart
    await at.store.mark_offered("s1", offered=False)
    assert await shown() == dict.fromkeys("abc", "not-offered")
    await at.store.mark_offered("s1", offered=True)
    assert await shown() == apart


async def test_a22_what_has_proven_an_entity_last(at: Stage) -> None:
    await at.commit(create_update("a", 1), create_update("b", 2))
    await sweep(at, 1)
    far = 2**52
    await at.commit(create_update("b", far))
    found = await at.entities()
    assert (found["a"].proven_by, found["b"].proven_by) == ("attempt", "record")
    assert found["b"].proven_at_us == far
    assert 2 < found["a"].proven_at_us < far


async def test_a17_a_record_marks_its_entity_by_its_key(at: Stage) -> None:
    await at.commit(*statements("abc", 1))
    at.attempt = 2
    bad = Unreadable("s1", b"?", "odd", "t12", "b", "", 12)
    old = Unreadable("s1", b"!", "odd", "t0", "c", "", 0)
    await at.commit(create_update("a", 11), unreadable=[bad, old])
    assert await unproven(at) == {"b": f"unreadable-record {bad.digest}"}
    found = (await at.entities())["b"]
    assert (found.proven_by, found.proven_at_us) == ("record", 2)
    assert await sweep(at, 2) == 1
    assert list(await at.entities()) == ["a", "b"]
    only = [one.key async for one in at.store.reader.entities(unproven=True)]
    assert only == ["b"]
    await at.commit(create_update("b", 20))
    assert await unproven(at) == {}
    told = [one for one in await at.journal() if one[1] in ("unproven", "proven")]
    assert told == [("b", "unproven"), ("b", "proven")]


async def test_a17_an_accepted_record_holds_nothing(at: Stage) -> None:
    bad = Unreadable("s1", b"?", "odd")
    await at.commit(create_update("a", 1), unreadable=[bad])
    assert (await at.store.estimate_sweep("s1", 2)).accepted == frozenset()
    assert await at.store.reader.accept("west", bad.digest) == 0
    assert await at.store.reader.accept("east", bad.digest) == 1
    estimate = await at.store.estimate_sweep("s1", 2)
    assert estimate.accepted == {bad.digest}
    assert estimate.by_class == {"NODE": (1, 1)}


async def test_a22_the_view_has_the_proof(at: Stage, database: str) -> None:
    await at.commit(*statements("ab", 1), unreadable=[Unreadable("s1", b"?", "", "t", "b", "", 9)])
    await sweep(at, 1)

    def ask() -> list[tuple[Any, ...]]:
        engine = at.store._dialect.reader()
        query = "SELECT key, proven, unproven, proven_by FROM instep_entities ORDER BY key"
        with engine.connect() as connection:
            rows = [tuple(row) for row in connection.exec_driver_sql(query)]
        engine.dispose()
        return rows

    if database.startswith("sqlite"):
        rows = await asyncio.to_thread(ask)
        assert rows == [
            ("a", 1, None, "attempt"),
            ("b", 0, "unreadable-record", "record"),
        ]


async def test_one_row_a_digest_and_the_oldest_give_way(stage: Stages) -> None:
    """A11: a full quarantine never stops a stream of healthy records."""
    async with stage(quarantine_max_records=3) as at:
        keyed = Unreadable("s1", b"keyed", "odd", "t0", "a", "", 5)
        results = [await at.commit(create_update("a", 1), unreadable=[keyed, keyed])]
        for n in range(5):
            bad = Unreadable("s1", b"%d" % n, "odd")
            results.append(await at.commit(create_update("b", 10 + n), unreadable=[bad] * (n + 1)))
        assert [one.gave_way for one in results] == [0, 0, 0, 1, 1, 1]
        kept = [(one.raw, one.times, one.key) async for one in at.store.reader.quarantine()]
        assert kept == [(b"keyed", 2, "a"), (b"3", 4, None), (b"4", 5, None)]
        assert list(await at.entities()) == ["a", "b"]
        assert set(await unproven(at)) == {"a"}


async def test_what_no_get_shows_is_unproven_by_a_reason(database: str) -> None:
    info = stream_info(
        mode=Mode.BASELINE,
        classes=("NODE", "ODD"),
        readable=frozenset({"NODE"}),
        unprovable=frozenset({"ODD"}),
    )
    async with SqlStore(database) as store:
        await store.open("east")
        at = Stage(store, await store.position(info))
        await at.commit(create_update("a", 1), create_update("o", 2, entity_class="ODD"))
        at.attempt = 2
        await sweep(at, 2, readable=info.readable)
        assert await unproven(at) == {"o": "no-resource"}
        [status] = await store.reader.streams()
        assert [one.reason for one in status.unproven_because] == ["no-resource"]
