"""Every SQL of the documentation runs: on both databases, or on the one that it names."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from instep.model import Batch
from instep.model.position import Position
from instep_sql import SqlStore
from tests.docs.snippets_kit import pages, snippets
from tests.instep.cli.cli_kit import info, statement
from tests.postgres_kit import Missing, Server, serving

REPOSITORY = Path(__file__).resolve().parents[2]
LAKE = {"questions.md", "lake.md", "landing.md"}
"""Pages whose SQL is Spark's, which the tests of the lake run."""
ALARM = (
    b'{"condition-native-name":"LOS","alarm-condition-detector-detail":'
    b'{"legacy-properties":{"perceived-severity":"MAJOR"}}}'
)
VALUES = {":service": "'u1'", ":connection": "'u1'"}


def blocks() -> Iterator[object]:
    for page in pages(REPOSITORY):
        if page.name in LAKE or page.parent.name == "tables":
            continue
        for snippet in snippets(page.read_text(encoding="utf-8")):
            if snippet.language == "sql":
                name = f"{page.relative_to(REPOSITORY)}:{snippet.line}"
                yield pytest.param(snippet.text, id=name)


def statements(block: str, database: str) -> list[str]:
    """The statements of a block; none where it names another database in its first line."""
    first = block.partition("\n")[0].removeprefix("-- ")
    if first in {"PostgreSQL", "SQLite", "DuckDB"} and first != database:
        return []
    for name, value in VALUES.items():
        block = block.replace(name, value)
    lines = [line for line in block.splitlines() if not line.startswith("--")]
    return [one for one in "\n".join(lines).split(";") if one.strip()]


async def fill(url: str) -> None:
    async with SqlStore(
        url, alarms=True, references=True, journal="previous", class_index=True, measurements=True
    ) as store:
        await store.open("east")
        await store.position(info("network"))
        node = b'{"uuid":"u1","name":[{"value":"Aachen"}],"operational-state":"ENABLED"}'
        alarm = statement(2, ALARM, "CONDITION_DETECTOR")
        position = Position(token="t2", ordinal=1, attempt=1, lineage=1, records=2)
        await store.commit(Batch("network", position, 0, [statement(1, node), alarm]))


BLOCKS = list(blocks())


def test_the_pages_have_sql() -> None:
    assert len(BLOCKS) >= 6


@pytest.mark.asyncio
@pytest.mark.parametrize("block", BLOCKS)
async def test_it_runs_on_sqlite(block: str, tmp_path: Path) -> None:
    await fill(f"sqlite:///{tmp_path}/s.db")
    store = sqlite3.connect(tmp_path / "s.db")
    for one in statements(block, "SQLite"):
        store.execute(one).fetchall()
    store.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with serving() as started:
            yield started
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.asyncio
@pytest.mark.parametrize("block", BLOCKS)
async def test_it_runs_on_postgresql(block: str, server: Server) -> None:
    url = server.create()
    await fill(url)
    with psycopg.connect(url, autocommit=True) as store:
        for one in statements(block, "PostgreSQL"):
            store.execute(one.encode())


@pytest.mark.asyncio
async def test_the_program_that_listens_prints_each_change(server: Server, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/how-to/postgresql.md").read_text(encoding="utf-8")
    [program] = [one.text for one in snippets(page) if one.value == "listen.py"]
    (tmp_path / "listen.py").write_text(program)
    url = server.create()
    await fill(url)
    arguments = [sys.executable, str(tmp_path / "listen.py"), url, "1"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = await asyncio.to_thread(process.stdout.readline)
        async with SqlStore(url, journal="changes") as store:
            await store.open("east")
            position = Position(token="t3", ordinal=2, attempt=1, lineage=1, records=3)
            await store.position(info("network"))
            await store.commit(Batch("network", position, 1, [statement(3, b"{}")]))
        second = await asyncio.to_thread(process.stdout.readline)
        process.kill()
    assert first == "2 created CONDITION_DETECTOR k2\n"
    assert second == "3 created NODE k3\n"
