"""A CHANGE of an entity that is not landed makes no row (TR-548 v3.2, 5.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.model.batches import SweepStep
from instep.model.position import UnknownState
from instep.model.records import Record, RecordType
from tests.instep_spark.sink_kit import rows, stage, url_of
from tests.instep_sql.store_kit import create_update, end_record

pytestmark = pytest.mark.asyncio


def change(key: str, offset: int) -> Record:
    body = b'{"uuid":"%s","x":%d}' % (key.encode(), offset)
    place: Any = {"partition": "0", "offset": offset, "body": body}
    return Record("s", key, RecordType.CHANGE, f"t{offset}", offset, **place)


async def test_v3_2_5_2_a_change_of_what_is_not_landed_makes_no_row(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(create_update("a", 1), change("a", 2))
        result = await at.commit(change("b", 3), change("a", 4))
        assert result.unknown_entities == {"b": "b"}
        stored = await at.sink.position(at.stream)
        assert stored.unknown["b"].state is UnknownState.DUE
        assert stored.token == "t4"
        # What it knows is read from the table, too.
    async with stage(url) as at:
        result = await at.commit(change("a", 5), change("b", 6))
        assert result.unknown_entities == {"b": "b"}
    found = [(row["key"], row["kind"]) for row in rows(url) if row["key"]]
    assert found == [("a", "CREATE_UPDATE"), ("a", "CHANGE"), ("a", "CHANGE"), ("a", "CHANGE")]
    kept = rows(url, "SELECT raw FROM quarantine")
    assert len(kept) == 2


async def test_v3_2_5_2_a_change_behind_the_end_of_its_key_is_none(tmp_path: Path) -> None:
    async with stage(url_of(tmp_path)) as at:
        await at.commit(create_update("a", 1), create_update("b", 2), change("b", 3))
        await at.commit(end_record("a", 4), change("a", 5))
        result = await at.commit(change("a", 6))
        assert result.unknown_entities == {}
        held = await at.commit(change("c", 7), end_record("c", 8))
        assert held.unknown_entities == {}
        stated = await at.commit(change("d", 9), create_update("d", 10), change("d", 11))
        assert stated.unknown_entities == {}


async def test_v3_2_5_2_a_change_of_what_was_swept_makes_no_row(tmp_path: Path) -> None:
    async with stage(url_of(tmp_path)) as at:
        await at.commit(create_update("a", 1), create_update("b", 2), change("b", 3))
        at.attempt = 2
        await at.commit(create_update("b", 4))
        await at.commit(sweep=SweepStep(2))
        result = await at.commit(change("a", 5), change("b", 6))
        assert result.unknown_entities == {"a": "a"}
