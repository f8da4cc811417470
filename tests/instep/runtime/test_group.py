"""Several consumers as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep import Consumer, Group
from instep.errors import AuthenticationError
from instep_sql import SqlStore
from tests.instep.runtime.consumer_kit import LATER, QUICK, keys
from tests.instep.scripted_source_kit import SILENT, ScriptedSource, records

pytestmark = pytest.mark.asyncio


async def test_a_group_aligns_several_consumers_into_one_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    pair = [
        Consumer(
            name, ScriptedSource([records(0, 1), SILENT]), SqlStore(url), QUICK, environment=LATER
        )
        for name in ("east", "west")
    ]
    async with Group(pair) as group:
        await group.aligned(5)
        assert all(health.aligned for health in group.health())
        assert "Group of 2" in repr(group)
    assert await keys(SqlStore(url)) == ["key-0", "key-0", "key-1", "key-1"]


async def test_a_group_fails_with_the_first_that_fails(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    good = ScriptedSource([records(0), SILENT])
    bad = ScriptedSource([AuthenticationError("refused")])
    pair = [
        Consumer(name, source, SqlStore(url), QUICK, environment=LATER)
        for name, source in (("good", good), ("bad", bad))
    ]
    async with Group(pair) as group:
        with pytest.raises(AuthenticationError):
            await group.wait()
