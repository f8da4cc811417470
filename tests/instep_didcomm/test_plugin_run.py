"""`instep run` with `kind = "didcomm"`: a process of its own, real HTTP, a real store."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.instep_didcomm.link_kit import faulty_link
from tests.instep_didcomm.listener_kit import BID, plain, post

ALICE, BOB, AUCTIONEER = "did:ex:alice", "did:ex:bob", "did:ex:auctioneer"
INSTEP = [sys.executable, "-m", "instep.cli"]
CONFIG = """
[[consumers]]
name = "auction"
[consumers.source]
kind = "didcomm"
listen = "{url}"
did = "{did}"
peers = [{{ did = "did:ex:alice", endpoint = "{alice}" }}]
protocols = [{{ type = "https://didcomm.org/auction/1.0/*", sequenced = true }}]
sequence = {{ gap_deadline_s = 0.2, gap_repeat_s = 0.2, gap_attempts = 100 }}
ack_delay_s = 0.05
[consumers.sink]
kind = "sql"
url = "{store}"
"""


class Site:
    def __init__(self, folder: Path, alice: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}/didcomm"
        self.store = f"sqlite:///{folder}/store.db"
        self.config = folder / "instep.toml"
        self.config.write_text(
            CONFIG.format(url=self.url, did=AUCTIONEER, alice=alice, store=self.store)
        )

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen([*INSTEP, "run", str(self.config), "--format", "jsonl"])
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    async def send(self, message: dict[str, Any]) -> int:
        """Until it is answered: the receiver may not listen yet."""
        async with asyncio.timeout(60):
            while True:
                with suppress(aiohttp.ClientError):
                    return (await post(self.url, message))[0]
                await asyncio.sleep(0.05)

    def messages(self) -> list[dict[str, Any]]:
        listed = subprocess.run(
            [*INSTEP, "messages", "--store", self.store, "--format", "jsonl"],
            check=True,
            capture_output=True,
            text=True,
        )
        return [json.loads(line) for line in listed.stdout.splitlines()]


@pytest.mark.asyncio
async def test_killed_and_started_anew_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """The specification's example: 1 and 2 from Bob, 1 and 4 from Alice; 2 and 3 come later."""
    async with faulty_link() as alice:
        site = Site(tmp_path, alice.url)
        with site.run() as process:
            for sender, orders in ((BOB, (1, 2)), (ALICE, (1, 4))):
                for order in orders:
                    assert await site.send(plain(order, **{"from": sender})) == 202
            # The gap persists: Alice is told.
            async with asyncio.timeout(30):
                while not alice.messages:
                    await asyncio.sleep(0.05)
            assert alice.messages[-1]["received_orders"] == [
                {"id": BOB, "last": 2, "gaps": []},
                {"id": ALICE, "last": 4, "gaps": [2, 3]},
            ] or alice.messages[-1]["received_orders"] == [
                {"id": ALICE, "last": 4, "gaps": [2, 3]},
                {"id": BOB, "last": 2, "gaps": []},
            ]
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        with site.run() as process:
            for order in (3, 4, 2, 1):
                assert await site.send(plain(order, **{"from": ALICE}, sent_count=2)) == 202
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
    listed = site.messages()
    for sender, last in ((BOB, 2), (ALICE, 4)):
        stream = [one for one in listed if one["stream"] == f"lot-7 {sender}"]
        assert [one["number"] for one in stream] == list(range(1, last + 1))
        assert [one["message_id"] for one in stream] == [
            f"bid-{order}" for order in range(1, last + 1)
        ]
        assert all(one["body"]["type"] == BID for one in stream)
        assert all(one["received_at"] and one["delivered_at"] for one in stream)
