"""`instep run` with `kind = "wsrm"`: a process of its own, real HTTP, a real store, SIGKILL."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from instep.errors import SourceError
from instep_http import ClientSettings, GuardedClient
from instep_wsrm import RmSource

INSTEP = [sys.executable, "-m", "instep.cli"]
ORDER = "urn:shop/order"
CONFIG = """
[[consumers]]
name = "orders"
[consumers.source]
kind = "wsrm"
listen = "{url}"
[consumers.sink]
kind = "sql"
url = "{store}"
"""


class Site:
    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}/rm"
        self.store = f"sqlite:///{folder}/store.db"
        self.config = folder / "instep.toml"
        self.config.write_text(CONFIG.format(url=self.url, store=self.store))

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen([*INSTEP, "run", str(self.config), "--format", "jsonl"])
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    def listed(self, command: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*INSTEP, command, "--store", self.store, "--format", "jsonl"],
            check=True,
            capture_output=True,
            text=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


async def listening(source: RmSource) -> None:
    """Create the sequence, or ask for its acknowledgement, until the destination answers."""
    async with asyncio.timeout(60):
        while True:
            with suppress(SourceError):
                await (source.ask() if source.identifier else source.create())
                return
            await asyncio.sleep(0.05)


async def send(source: RmSource, *numbers: int) -> None:
    for number in numbers:
        body = f"<order xmlns='urn:shop'>{number}</order>".encode()
        await source.send(body, ORDER, number=number)


@pytest.mark.asyncio
async def test_a_cancelled_number_is_never_accepted_also_after_sigkill(tmp_path: Path) -> None:
    site = Site(tmp_path)
    settings = ClientSettings(connect_timeout_s=5.0, total_timeout_s=30.0)
    async with GuardedClient(settings, ssl.create_default_context()) as client:
        source = RmSource(site.url, client)
        with site.run() as process:
            await listening(source)
            await send(source, 1, 2, 6)
            await source.cancel((3, 5))
            assert list(source.cancelled.pairs()) == [(3, 5)]
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        with site.run() as process:
            await listening(source)
            assert list(source.cancelled.pairs()) == [(3, 5)]
            await send(source, 3, 4, 5, 2, 7)
            assert list(source.acknowledged.pairs()) == [(1, 2), (6, 7)]
            assert source.unacknowledged == []
            (shown,) = [one for one in site.listed("status") if "received" in one]
            assert (shown["received"], shown["cancelled"]) == ("1-2,6-7", "3-5")
            await source.fill((3, 5))
            await source.close()
            assert (list(source.acknowledged.pairs()), source.final) == ([(1, 7)], True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
    found = site.listed("messages")
    assert [one["number"] for one in found] == [1, 2, 6, 7]
    assert {one["stream"] for one in found} == {source.identifier}
    assert all("<order" in one["body"] for one in found)
