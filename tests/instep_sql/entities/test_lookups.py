"""What requests for single entities read of the store, and what their proofs change (A17)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from instep.model.batches import SweepStep
from instep.model.holds import Hold, UnprovenReason
from instep.model.lookups import EntityProof
from instep.model.records import Unreadable
from tests.instep_sql.store_kit import Stage, Stages, create_update, stream_info

pytestmark = pytest.mark.asyncio
UNREADABLE = Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab")
SHOWN = ("NODE", "LINK")


@pytest_asyncio.fixture
async def at(stage: Stages) -> AsyncIterator[Stage]:
    """Entities a to e, of which an attempt has met a, and could not read everything."""
    async with stage(journal="changes") as opened:
        await opened.commit(*[create_update(one, n) for n, one in enumerate("abcd", 1)])
        await opened.commit(create_update("e", 5, entity_class="LINK"))
        opened.attempt = 2
        await opened.commit(create_update("a", 11))
        await opened.commit(sweep=SweepStep(2, holds=(UNREADABLE,)))
        yield opened


async def tokens(at: Stage) -> dict[str, str]:
    return {one.key: one.token async for one in at.store.reader.entities()}


async def unproven(at: Stage) -> str:
    return "".join([one.key async for one in at.store.reader.entities(unproven=True)])


async def prove(at: Stage, *proofs: EntityProof, **batch: Any) -> int:
    return (await at.commit(proofs=proofs, **batch)).kept


async def test_pages_of_all_and_of_what_is_unproven(at: Stage) -> None:
    rows = at.store.entity_rows(stream_info())
    page = await rows.page(SHOWN, 0, 3)
    assert [one.key for one in page] == ["a", "b", "c"]
    assert [one.key for one in await rows.page(SHOWN, page[-1].row, 3)] == ["d", "e"]
    assert [one.key for one in await rows.page(["LINK"], 0, 3)] == ["e"]
    assert [one.key for one in await rows.page(SHOWN, 0, 9, unproven=True)] == list("bcde")
    assert [await rows.count(one) for one in (SHOWN, ["LINK"], None)] == [5, 1, 5]
    found = await rows.entity("b")
    assert found is not None
    assert (found.key, found.proven, found.unproven) == ("b", False, "unreadable-record ab")
    assert await rows.entity("x") is None


async def test_what_no_request_can_prove_is_not_asked_for(at: Stage) -> None:
    at.attempt = 3
    hold = Hold(UnprovenReason.EMPTY_ANSWER, "NODE")
    await at.commit(sweep=SweepStep(3, holds=(hold,)))
    assert await unproven(at) != ""
    rows = at.store.entity_rows(stream_info())
    assert await rows.page(SHOWN, 0, 9, unproven=True) == []


async def test_a17_proofs_confirm_change_and_end(at: Stage) -> None:
    now = await tokens(at)
    kept = await prove(
        at,
        EntityProof("b", now["b"], exists=True),
        EntityProof("c", now["c"], exists=True, body=b'{"name":"shown"}'),
        EntityProof("d", now["d"], exists=False),
    )
    assert kept == -3
    assert await unproven(at) == "e"
    entities = {one.key: one async for one in at.store.reader.entities()}
    assert "".join(sorted(entities)) == "abce"
    assert entities["c"].body == b'{"name":"shown"}'
    told = [(str(one.change), one.key) for one in await at.changes()]
    assert {*told[-4:]} == {
        ("updated", "c"),
        ("deleted", "d"),
        ("proven", "b"),
        ("proven", "c"),
    }
    [status] = await at.store.reader.streams()
    assert status.unproven == 1
    # A record of the stream goes on from there.
    await at.commit(create_update("c", 20), create_update("d", 21))
    assert "".join(sorted(await at.entities())) == "abcde"


async def test_a17_a_row_that_the_stream_has_changed_since_stays(at: Stage) -> None:
    before = await tokens(at)
    await at.commit(create_update("b", 20))
    await at.commit(create_update("d", 21))
    stated = await at.entities()
    kept = await prove(
        at,
        EntityProof("b", before["b"], exists=False),
        EntityProof("d", before["d"], exists=True, body=b'{"name":"shown"}'),
        EntityProof("x", "t1", exists=False),
    )
    assert kept == 0
    assert await at.entities() == stated


async def test_a17_one_that_was_singled_out_is_proven(at: Stage) -> None:
    await at.commit(unreadable=[Unreadable("s", b"{", "no JSON", key="a", offset=30)])
    assert "a" in await unproven(at)
    now = await tokens(at)
    assert await prove(at, EntityProof("a", now["a"], exists=True)) == -1
    assert "a" not in await unproven(at)
