"""What providers answer to a request for one entity, and what becomes of an entity that something
unreadable may be about (A17): only a statement proves it, and only a refutation that is beyond
doubt ends it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from instep_sql import SqlStore
from tests.instep_tapi.small_provider_kit import (
    SETTINGS,
    SmallProvider,
    aligned_again,
    running,
    stated,
    until,
)

pytestmark = pytest.mark.asyncio
NAMES = [f"n{n}" for n in range(8)]
ASKING = msgspec.structs.replace(
    SETTINGS,
    lookups_per_s=100.0,
    alignment=msgspec.structs.replace(SETTINGS.alignment, empty_confirm_s=0.5),
)
UNREADABLE = b'{"log-record-header": {"token": "x"'
"""It could be about any entity."""


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 's.db'}", journal="changes")
    yield opened
    await opened.close()


def node(name: str, offset: int, second: float = 0, log: str = "t") -> bytes:
    entity = {"uuid": name, "log": log}
    above = ["topology-uuid:t"]
    return stated(offset, name, "NODE", entity, parent=above, second=second, log=log)


def log(names: list[str], name: str = "t", second: int = 0) -> list[bytes]:
    return [node(one, n, second, name) for n, one in enumerate(names)]


def shown(name: str, **members: Any) -> bytes:
    entity = {"uuid": name, "log": "t", **members}
    return json.dumps({"tapi-topology:node": [entity]}).encode()


async def reasons(store: SqlStore) -> dict[str, str]:
    return {one.key: one.unproven async for one in store.reader.entities()}


async def rebuilt(provider: SmallProvider) -> None:
    """Its log knows neither n6 nor n7, and has a text that cannot be read."""
    provider.log = [*log(NAMES[:6], "new", 60), UNREADABLE]
    provider.cut()


async def hangs(_: str) -> tuple[bytes, str]:
    await asyncio.sleep(3_600)
    raise AssertionError


def always(body: bytes, status: str = "200 OK") -> Any:
    async def answer(_: str) -> tuple[bytes, str]:
        return body, status

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        always(b"", "404 Not Found"),  # of everything: it shows nothing one by one
        always(b"", "401 Unauthorized"),
        always(b"<html>Login</html>"),
        always(b"{}"),
        always(b"", "204 No Content"),
        always(b"", "503 Service Unavailable"),
        always(shown("another")),
        always(b'{"tapi-topology:node": [{"uuid": "n6"'),
        hangs,
    ],
    ids=["404", "401", "html", "empty", "204", "503", "other", "cut", "hangs"],
)
async def test_a17_an_answer_that_is_no_statement_leaves_it_unproven(
    store: SqlStore, answer: Any
) -> None:
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    provider.single = answer
    async with running(provider, store, ASKING) as consumer:
        await rebuilt(provider)
        await aligned_again(consumer, 2)
        await until(lambda: bool(provider.singles))
        # The stream goes on beside it, also beside a request that hangs.
        records = consumer.health().streams[0].records
        provider.say(node("n8", 6, 90, "new"))
        await until(lambda: consumer.health().streams[0].records > records)
        await asyncio.sleep(1.5)
        found = await reasons(store)
        assert found["n6"].startswith("unreadable-record ")
        assert found["n7"].startswith("unreadable-record ")
        assert consumer.health().streams[0].unproven == 2
        assert "n8" in found
        # It is not asked again and again.
        assert len(provider.singles) <= 8


async def test_a17_what_is_shown_is_proven_and_what_is_not_there_ends(store: SqlStore) -> None:
    async def answer(name: str) -> tuple[bytes, str]:
        if name == "n7":
            return b'{"ietf-restconf:errors": {}}', "404 Not Found"
        return (shown(name) if name == "n6" else shown(name, log="new")), "200 OK"

    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    provider.single = answer
    async with running(provider, store, ASKING) as consumer:
        await rebuilt(provider)
        await aligned_again(consumer, 2)
        await until(lambda: not consumer.health().streams[0].unproven)
        assert await reasons(store) == dict.fromkeys(NAMES[:7], "")
        [status] = await store.reader.streams()
        assert status.unproven == 0
        told = [c async for c in store.changes() if c.change in ("unproven", "proven", "deleted")]
        assert [(str(one.change), one.key) for one in told if one.key] == [
            ("proven", "n6"),
            ("deleted", "n7"),
        ]


async def test_a17_what_is_shown_otherwise_is_stored_after_a_second_look(store: SqlStore) -> None:
    async def answer(name: str) -> tuple[bytes, str]:
        return shown(name, state="UP"), "200 OK"

    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    provider.single = answer
    async with running(provider, store, ASKING) as consumer:
        await rebuilt(provider)
        await aligned_again(consumer, 2)
        await until(lambda: not consumer.health().streams[0].unproven)
        bodies = {one.key: json.loads(one.body) async for one in store.reader.entities()}
        assert bodies["n6"] == {"uuid": "n6", "log": "t", "state": "UP"}
        # What the log has stated is compared with nothing: no share is asked for.
        assert bodies["n0"] == {"uuid": "n0", "log": "new"}
        assert set(provider.singles) == {"n6", "n7"}
        assert provider.singles.count("n6") >= 2
        assert len(provider.singles) <= 8


async def test_none_is_asked_for_where_that_is_turned_off(store: SqlStore) -> None:
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    provider.single = always(shown("n6"))
    settings = msgspec.structs.replace(ASKING, lookups_per_s=0.0)
    async with running(provider, store, settings) as consumer:
        await rebuilt(provider)
        await aligned_again(consumer, 2)
        await asyncio.sleep(1.5)
        assert provider.singles == []
        assert consumer.health().streams[0].unproven == 2
        consumer.reconfigure(ASKING, None, "test")
        await until(lambda: bool(provider.singles))
