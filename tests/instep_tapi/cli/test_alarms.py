"""`instep alarms`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep_sql import SqlStore
from tests.instep.cli.cli_kit import failed, instep, lines
from tests.instep_sql.alarms.alarms_kit import alarms_stage, statement
from tests.instep_sql.store_kit import create_update

EVENT = {"condition-detector-type": "EVENT_DETECTOR"}


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """A store with an alarm that stands, one that has ended, and an event."""
    url = f"sqlite:///{tmp_path}/a.db"

    async def fill() -> None:
        async with alarms_stage(url) as at:
            await at.commit(
                statement(10, severity="MAJOR"),
                statement(11, key="d2"),
                statement(3_671, "CLEAR", key="d2"),
                statement(12, None, None, "e", **EVENT),
            )
            await at.commit(create_update("p", 13, b'{"uuid":"port-1"}'))

    asyncio.run(fill())
    return url


def test_those_that_stand(filled: str) -> None:
    (line,) = lines(instep("alarms", "--store", filled, "--format", "jsonl"))
    assert (line["key"], line["state"], line["severity"]) == ("d1", "ACTIVE", "MAJOR")
    assert line["raised_at"] == "1970-01-01T00:00:10.000000Z"
    assert (line["cleared_at"], line["duration_s"]) == (None, None)
    assert line["measured_known"] is True


def test_all_of_them_and_the_events(filled: str) -> None:
    found = lines(instep("alarms", "--store", filled, "--all", "--format", "jsonl"))
    assert [(one["key"], one["duration_s"]) for one in found] == [("d1", None), ("d2", 3660.0)]
    chosen = ("--all", "--key", "d2", "--measured", "port-1", "--stream", "s1")
    found = lines(instep("alarms", "--store", filled, *chosen, "--format", "jsonl"))
    assert [one["ended_by"] for one in found] == ["CLEAR"]
    found = lines(instep("alarms", "--store", filled, "--events", "--format", "jsonl"))
    assert [one["key"] for one in found] == ["e"]


def test_a_table(filled: str) -> None:
    shown = instep("alarms", "--store", filled, "--all")
    assert "Loss Of" in shown.stdout
    assert "2 alarms" in shown.stdout
    assert "1 event\n" in instep("alarms", "--store", filled, "--events").stdout
    assert "1 alarm (--limit)" in instep("alarms", "--store", filled, "--limit", "1").stdout


def test_what_cannot_be(filled: str, tmp_path: Path) -> None:
    assert "--all and --events" in failed(instep("alarms", "--all", "--events"), 2)
    assert "no stream 'x'" in failed(instep("alarms", "--store", filled, "--stream", "x"), 2)

    async def plain() -> None:
        async with SqlStore(f"sqlite:///{tmp_path}/plain.db") as store:
            await store.open("c")

    asyncio.run(plain())
    answer = failed(instep("alarms", "--store", f"sqlite:///{tmp_path}/plain.db"), 1)
    assert "set alarms = true" in answer
