"""A CHANGE of an entity that is not stored (TR-548 v3.2, 5.2), in every database and journal."""

from __future__ import annotations

from typing import Any

import pytest

from instep.model.position import UnknownState
from instep.model.records import Record, RecordType
from instep_sql.options import Journal
from tests.instep_sql.store_kit import STREAM, Stages, create_update, end_record, stream_info

pytestmark = pytest.mark.asyncio


def change(key: str, offset: int) -> Record:
    body = b'{"uuid":"%s","x":%d}' % (key.encode(), offset)
    place: Any = {"offset": offset, "body": body, "entity_class": "NODE"}
    return Record(STREAM, key, RecordType.CHANGE, f"t{offset}", offset, **place)


@pytest.mark.parametrize("journal", list(Journal))
async def test_v3_2_5_2_a_change_of_what_is_not_stored_makes_no_row(
    stage: Stages, journal: Journal
) -> None:
    async with stage(journal=journal) as at:
        await at.commit(create_update("a", 1), change("a", 2))
        result = await at.commit(change("b", 3), change("a", 4), change("b", 5))
        assert result.unknown_entities == {"b": "b"}
        stored = await at.store.position(stream_info())
        assert stored.unknown["b"].state is UnknownState.DUE
        assert list(await at.entities()) == ["a"]
        assert len([one async for one in at.store.reader.quarantine()]) == 2
        if journal is not Journal.OFF:
            told = [("a", "created"), ("a", "updated"), ("a", "updated")]
            assert await at.journal() == told
        # Once it is stated, what was kept of it goes.
        at.position = stored
        await at.commit(create_update("b", 6), change("b", 7))
        assert (await at.store.position(stream_info())).unknown == {}
        assert [one async for one in at.store.reader.quarantine()] == []
        if journal is not Journal.OFF:
            assert (await at.journal())[3:] == [("b", "created"), ("b", "updated")]


async def test_v3_2_5_2_a_change_behind_the_end_of_its_key_is_none(stage: Stages) -> None:
    async with stage(stream_info(partial_updates=True), journal="bodies") as at:
        await at.commit(create_update("a", 1, whole=False))
        await at.commit(end_record("a", 2), change("a", 3))
        result = await at.commit(change("a", 4))
        held = await at.commit(change("b", 5), end_record("b", 6))
        assert result.unknown_entities == held.unknown_entities == {}
        assert await at.entities() == {}
        assert await at.journal() == [("a", "created"), ("a", "deleted")]
