"""A reader of an older store names the command that upgrades it, and that command does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from instep.errors import StoreVersionError
from instep_sql.engine import schema
from instep_sql.plugin import sink
from tests.instep_sql.engine.revisions_kit import NEXT, write_revision
from tests.instep_sql.store_kit import stage

CONFIG = """
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["http://127.0.0.1:1"] }}
sink = {{ kind = "sql", url = "{url}" }}
"""
PROGRAM = """
from instep.cli import main
from tests.instep_sql.engine.revisions_kit import Path, use_revision
use_revision(Path({scripts!r}))
main()
"""


@pytest.mark.asyncio
async def test_the_command_that_upgrades_an_older_store_is_named_and_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with stage(url):
        pass
    program = PROGRAM.format(scripts=str(write_revision(tmp_path)))

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=Path(__file__).parents[3],
            stderr=subprocess.PIPE,
        )

    with start("entities", "--store", url) as process:
        _, errors = await asyncio.to_thread(process.communicate)
    assert process.returncode == 1
    assert b"`instep run CONFIG` upgrades it" in errors.replace(b"\n", b" ")
    monkeypatch.setattr(schema, "HEAD", NEXT)
    reader = sink.reader(url)
    with pytest.raises(StoreVersionError, match="`instep run CONFIG` upgrades it"):
        await reader.streams()
    (tmp_path / "instep.toml").write_text(CONFIG.format(url=url))
    # No provider answers there.
    with start("run", str(tmp_path / "instep.toml")) as process:
        async with asyncio.timeout(60):
            while True:
                try:
                    assert [one.stream for one in await reader.streams()] == ["s1"]
                    break
                except StoreVersionError:
                    await asyncio.sleep(0.1)
        process.terminate()
        await asyncio.to_thread(process.communicate)
    await reader.close()
