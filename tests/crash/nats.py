"""Kills the receiver of a broker's messages and the broker with SIGKILL, again and again.

Each publisher sends its numbers shuffled, and again until the stream has them, so that many are in
it twice. One sequence in four lacks a number for good. At the end the broker has nothing left that
is not acknowledged; then each message must have had exactly one effect, in order, or be in the
inbox, behind a gap that is open.

Run by hand at full size: `python -m tests.crash.nats --kills 50`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import nats.errors
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from tests.crash.nats_receiver import TABLE
from tests.nats_kit import NatsServer

REPOSITORY = Path(__file__).resolve().parents[2]
WINDOW = 16
"""How far the messages of a publisher are shuffled."""
STREAM = "CRASH"


@dataclass
class Report:
    """The result of a run. Every list must be empty."""

    kills: Counter[str] = field(default_factory=Counter)
    published: int = 0
    """Messages in the stream, those that are in it twice included."""
    behind_gaps: int = 0
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    exit_code: int | None = None

    @property
    def good(self) -> bool:
        return not (self.missing or self.doubled or self.disordered) and self.exit_code == 0


class Receiver:
    """The receiving process."""

    def __init__(self, folder: Path, url: str) -> None:
        self.store = folder / "store.db"
        self._arguments = [str(self.store), url]
        self._errors = folder / "stderr"
        self._ready = folder / "store.db.ready"
        """Made once it takes SIGTERM."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        with self._errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.nats_receiver", *self._arguments],
                stderr=stderr,
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            )

    def stop(self, by: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(self._errors.read_text()[-2000:])
        until_s = time.monotonic() + 30
        while by is signal.SIGTERM and not self._ready.exists() and time.monotonic() < until_s:
            time.sleep(0.02)
        self._process.send_signal(by)
        return self._process.wait(30)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[JetStreamContext]:
    """A connection, made as soon as there is a server."""
    while True:
        client = Client()
        try:
            await client.connect(url, allow_reconnect=False, connect_timeout=2, error_cb=_ignore)
            break
        except (nats.errors.Error, OSError):
            await asyncio.sleep(0.05)
    try:
        yield client.jetstream(timeout=2)
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await client.close()


async def _ignore(_: Exception) -> None:
    pass


async def publish(url: str, sender: int, numbers: list[int], seed: int) -> None:
    """Publish until the stream has told that it has each message."""
    rng = random.Random(seed * 1000 + sender)
    order = sorted(numbers, key=lambda number: number + rng.uniform(0, WINDOW))
    while order:
        async with connected(url) as js:
            while order:
                body = json.dumps({"sender": sender, "number": order[0]}).encode()
                try:
                    for _ in range(2 if rng.random() < 0.1 else 1):
                        await js.publish(f"crash.{sender}", body)
                except (nats.errors.Error, OSError):
                    break
                order.pop(0)
                await asyncio.sleep(rng.uniform(0, 0.01))


async def settled(js: JetStreamContext) -> bool:
    """Whether every message of the stream is acknowledged."""
    info = await js.consumer_info(STREAM, "instep")
    return not (info.num_pending or info.num_ack_pending)


async def run(count: int, last: int, *, kills: int, seed: int) -> Report:
    """`count` publishers of `last` numbers each; receiver and server are killed at random."""
    report, rng = Report(), random.Random(seed)
    wanted = {sender: list(range(1, last + 1)) for sender in range(count)}
    for sender in range(0, count, 4):
        wanted[sender].remove(rng.randrange(2, last))
    with tempfile.TemporaryDirectory(prefix="nats-crash-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        server = NatsServer(folder)
        await server.start()
        receiver = Receiver(folder, server.url)
        try:
            async with connected(server.url) as js:
                await js.add_stream(name=STREAM, subjects=["crash.*"])
            receiver.start()
            publishing = [
                asyncio.create_task(publish(server.url, sender, numbers, seed))
                for sender, numbers in wanted.items()
            ]
            for _ in range(kills):
                await asyncio.sleep(rng.uniform(0.2, 1.2))
                if rng.random() < 0.5:
                    await asyncio.to_thread(receiver.stop, signal.SIGKILL)
                    report.kills["receiver"] += 1
                    receiver.start()
                else:
                    await asyncio.to_thread(server.stop)
                    report.kills["server"] += 1
                    await server.start()
            await asyncio.gather(*publishing)
            await _until_settled(server.url, report)
            await _until_handled(receiver.store)
            report.exit_code = await asyncio.to_thread(receiver.stop, signal.SIGTERM)
            compare(receiver.store, wanted, report)
        finally:
            with contextlib.suppress(RuntimeError):
                receiver.stop(signal.SIGKILL)
            server.stop()
    return report


async def _until_settled(url: str, report: Report) -> None:
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(nats.errors.Error):
                async with connected(url) as js:
                    report.published = (await js.stream_info(STREAM)).state.messages
                    if await settled(js):
                        return
            await asyncio.sleep(0.2)


async def _until_handled(store: Path) -> None:
    """Until the handler has taken all that was released."""
    async with asyncio.timeout(120):
        waiting = 1
        while waiting:
            await asyncio.sleep(0.2)
            with contextlib.closing(sqlite3.connect(store, timeout=30)) as raw:
                query = "SELECT count(*) FROM instep_inbox WHERE stage = 1"
                (waiting,) = raw.execute(query).fetchone()


def compare(store: Path, wanted: dict[int, list[int]], report: Report) -> None:
    """Hold the user's table and the inbox against what was published."""
    with contextlib.closing(sqlite3.connect(store)) as raw:
        found = raw.execute(f"SELECT sender, number FROM {TABLE} ORDER BY place").fetchall()
        kept = [
            (int(json.loads(body)["sender"]), number)
            for body, number in raw.execute("SELECT body, number FROM instep_inbox")
        ]
    counts = Counter(found)
    report.doubled += [f"{one}: {times}" for one, times in counts.items() if times > 1]
    for sender, numbers in wanted.items():
        handled = [number for of, number in found if of == sender]
        held = {number for of, number in kept if of == sender}
        gap = next((n for n in range(1, max(numbers) + 1) if n not in numbers), max(numbers) + 1)
        if handled != sorted(handled):
            report.disordered.append(str(sender))
        report.missing += [f"{(sender, n)}" for n in numbers if n < gap and n not in handled]
        report.missing += [f"{(sender, n)}" for n in numbers if n > gap and n not in held]
        report.behind_gaps += len(held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publishers", type=int, default=8)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    made = asyncio.run(run(given.publishers, given.messages, kills=given.kills, seed=given.seed))
    print(made)
    sys.exit(not made.good)
