"""Several consumers as one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep import Consumer, ConsumerState, Group
from instep.errors import AuthenticationError, SinkError
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


def _consumer(name: str, source: ScriptedSource, url: str) -> Consumer:
    return Consumer(name, source, SqlStore(url), QUICK, environment=LATER)


async def test_one_that_fails_is_parked_and_the_others_go_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    good = ScriptedSource([records(0), SILENT])
    bad = ScriptedSource([AuthenticationError("refused")])
    group = Group([_consumer("bad", bad, url), _consumer("good", good, url)])
    async with group:
        with pytest.raises(AuthenticationError):
            await group.aligned(5)
        failed, working = group.health()
        assert (failed.state, failed.error) == (ConsumerState.FAILED, "refused")
        assert working.aligned
        waiting = asyncio.create_task(group.wait())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert isinstance(group.error, AuthenticationError)
        waiting.cancel()
    assert await keys(SqlStore(url)) == ["key-0"]


async def test_one_whose_store_cannot_be_used_is_parked(tmp_path: Path) -> None:
    urls = ["sqlite:////no/such/folder.db", f"sqlite:///{tmp_path}/store.db"]
    sources = [ScriptedSource([records(0), SILENT]) for _ in urls]
    group = Group([_consumer("c", *pair) for pair in zip(sources, urls, strict=True)])
    async with group:
        with pytest.raises(SinkError, match="cannot be opened"):
            await group.aligned(5)
        assert [health.state for health in group.health()] == ["failed", "running"]
    assert await keys(SqlStore(urls[1])) == ["key-0"]
    assert [source.closed for source in sources] == [True, True]


async def test_a_group_ends_when_all_have_failed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    bad = [ScriptedSource([AuthenticationError(text)]) for text in ("no", "no")]
    async with Group([_consumer(str(n), one, url) for n, one in enumerate(bad)]) as group:
        with pytest.raises(AuthenticationError, match="no"):
            async with asyncio.timeout(5):
                await group.wait()
