"""`instep conformance wsrm`, and the same by the configuration of a consumer, as processes."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.instep_wsrm.rm_kit import create, envelope, message, sequence
from tests.json_names_kit import check_names

pytestmark = pytest.mark.asyncio
CONFIG = """
[[consumers]]
name = "orders"
[consumers.source]
kind = "wsrm"
listen = "http://127.0.0.1:0/rm"
[consumers.sink]
kind = "sql"
url = "sqlite:///{store}"
"""
MINUTES = "0.1"


async def judged(*arguments: str) -> tuple[int, dict[str, str]]:
    """Let a source send one number with two contents; the exit code, and what is said of each
    rule.
    """
    command = [sys.executable, "-m", "instep.cli", "conformance", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--minutes", MINUTES, "--format", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        found = None
        while found is None:
            line = (await process.stderr.readline()).decode()
            assert line, "it ended before it listened"
            found = re.search(r"listening on (http://\S+)", line)

        async def say(raw: bytes) -> str:
            async with session.post(
                found[1], data=raw, headers={"Content-Type": "application/soap+xml"}
            ) as answer:
                return await answer.text()

        answered = await say(envelope(body=create()))
        name = re.search(r"Identifier>([^<]+)<", answered)
        assert name, answered
        for content in ("one", "other"):
            await say(envelope(sequence(name[1], 1), message(content)))
        out, _ = await process.communicate()
    assert process.returncode is not None
    named = arguments[0] if arguments[0] == "wsrm" else "config"
    check_names(["conformance", named], out)
    return process.returncode, {
        one["rule"].removeprefix("wsrm-"): one["status"] for one in json.loads(out)["rules"]
    }


async def test_a_source_is_judged_while_it_sends(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    code, found = await judged("wsrm", "--trace", str(trace))
    assert code == 1
    broken = {name for name, status in found.items() if status == "broken"}
    assert broken == {"content-repeated", "must-understand"}
    again = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "instep.cli", "conformance", "trace", str(trace)),
        *("--protocol", "wsrm"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(again.communicate(), 60)
    assert (again.returncode, b"came again with other content" in out) == (1, True)


async def test_a_consumer_s_configuration_says_where_to_listen(tmp_path: Path) -> None:
    config, store = tmp_path / "instep.toml", tmp_path / "store.db"
    config.write_text(CONFIG.format(store=store))
    code, found = await judged(str(config))
    assert (code, found["content-repeated"]) == (1, "broken")
    assert not store.exists()
