"""`instep projections`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from instep_sql import SqlStore
from tests.instep.cli.cli_kit import failed, instep, lines, statement
from tests.instep_sql.store_kit import Stage, stream_info

CONFIG = """
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["https://controller"] }}
sink = {{ kind = "sql", url = "{url}", projections = ["node"] }}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration; its store has two nodes, one of which is no JSON."""
    url = f"sqlite:///{tmp_path}/network.db"

    async def fill() -> None:
        async with SqlStore(url, projections=["node"]) as store:
            await store.open("east")
            at = Stage(store, await store.position(stream_info()))
            await at.commit(statement(1, b'{"uuid":"u1"}'), statement(2, b'{"uuid":'))

    asyncio.run(fill())
    path = tmp_path / "instep.toml"
    path.write_text(CONFIG.format(url=url))
    return path


def test_a_table_is_filled_again(file: Path) -> None:
    with closing(sqlite3.connect(file.parent / "network.db")) as raw, raw:
        raw.execute("DELETE FROM node")
    assert instep("projections", "rebuild", str(file)).stdout == "east: node has 1 row\n"
    [line] = lines(instep("projections", "rebuild", str(file), "--format", "jsonl"))
    assert line == {"consumer": "east", "projection": "node", "rows": 1}


def test_what_a_table_could_not_hold_is_listed(file: Path) -> None:
    done = instep("projections", "errors", str(file))
    assert done.exit_code == 1
    assert "east / s1: NODE k2 is not in node: it is no JSON" in done.stdout
    line = json.loads(instep("projections", "errors", str(file), "--format", "jsonl").stdout)
    assert (line["class"], line["key"], line["projection"]) == ("NODE", "k2", "node")


def test_without_projections_there_is_nothing_to_look_after(file: Path) -> None:
    file.write_text(file.read_text().replace(', projections = ["node"]', ""))
    assert "no sink of kind sql names projections" in failed(
        instep("projections", "errors", str(file)), 2
    )
