"""`instep handlers`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection

from instep import Change, IntakeSettings
from instep_sql import ChangeHandler, SqlStore
from tests.instep.cli.cli_kit import failed, instep, lines, statement
from tests.instep_sql.store_kit import Stage, stream_info

ONCE = IntakeSettings(handler_attempts=1)


def fail_at(key: str) -> ChangeHandler:
    def handle(change: Change, _connection: Connection) -> None:
        if change.key == key:
            raise RuntimeError(f"{key} is odd")

    return ChangeHandler(handle, name="outbox", settings=ONCE)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store whose handler has failed at the first of two changes, and is blocked."""
    url = f"sqlite:///{tmp_path}/network.db"

    async def fill() -> None:
        async with SqlStore(url, journal="bodies", handlers=[fail_at("k1")]) as store:
            await store.open("east")
            at = Stage(store, await store.position(stream_info()))
            await at.commit(statement(1, b'{"uuid":"u1"}'), statement(2, b'{"uuid":"u2"}'))

    asyncio.run(fill())
    return url


def test_failed_changes_are_listed_retried_and_dropped(url: str) -> None:
    there = ("--store", url)
    (status,) = lines(instep("handlers", "list", *there, "--format", "jsonl"))
    assert (status["handler"], status["failed_changes"], status["blocked"]) == ("outbox", 1, True)
    assert "outbox" in instep("handlers", "list", *there).stdout
    (one,) = lines(instep("handlers", "failed", *there, "--format", "jsonl"))
    assert (one["key"], one["change"], one["blocks"]) == ("k1", "created", True)
    assert one["body"] == {"uuid": "u1"}
    assert "RuntimeError: k1 is odd" in one["reason"]
    assert "k1 is odd" in instep("handlers", "failed", *there).stdout
    none = instep("handlers", "failed", *there, "--handler", "other", "--format", "jsonl")
    assert lines(none) == []
    assert instep("handlers", "retry", str(one["id"]), *there).stdout == "1 asked for again\n"
    assert instep("handlers", "drop", "--all", "--yes", *there).stdout == "1 dropped\n"
    assert lines(instep("handlers", "failed", *there, "--format", "jsonl")) == []


def test_a_wrong_choice_is_refused(url: str) -> None:
    there = ("--store", url)
    assert "no failed change has the ID 77" in failed(instep("handlers", "retry", "77", *there), 2)
    assert "not clear what to retry" in failed(instep("handlers", "retry", *there), 2)
    assert "give --yes" in failed(instep("handlers", "drop", "--all", *there), 2)
    assert len(lines(instep("handlers", "failed", *there, "--format", "jsonl"))) == 1
