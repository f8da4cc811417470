"""A reader of an older store names the command that upgrades it, and that command does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep.errors import StoreVersionError
from instep_sql.plugin import sink
from tests.instep.cli.cli_kit import started
from tests.instep_sql.engine.old_stores_kit import STREAM_1, make

CONFIG = """
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["http://127.0.0.1:1"] }}
sink = {{ kind = "sql", url = "{url}" }}
"""


@pytest.mark.asyncio
async def test_the_command_that_upgrades_an_older_store_is_named_and_does(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    make(url, "0005", STREAM_1)
    for command in ("entities", "status"):
        with started(command, "--store", url) as process:
            _, errors = await asyncio.to_thread(process.communicate)
        assert process.returncode == 1
        assert b"`instep run CONFIG` upgrades it" in errors.replace(b"\n", b" ")
    reader = sink.reader(url)
    with pytest.raises(StoreVersionError, match="`instep run CONFIG` upgrades it"):
        await reader.streams()
    (tmp_path / "instep.toml").write_text(CONFIG.format(url=url))
    # No provider answers there.
    with started("run", str(tmp_path / "instep.toml")) as process:
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
