"""Kills the receiver of numbered messages with SIGKILL, again and again, while many senders send.

Each sender has a thread of its own; the way to the receiver loses messages and answers, doubles
and shuffles. A sender goes on until every message was answered with 202. Then each message must
have exactly one effect in the user's table, and each thread must be in order.

Run by hand at full size: `python -m tests.crash.messages --senders 100 --messages 1000`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from tests.crash.message_receiver import PROTOCOL, TABLE

RECEIVER = [sys.executable, "-m", "tests.crash.message_receiver"]
REPOSITORY = Path(__file__).resolve().parents[2]
WINDOW = 32
"""How far a sender's messages are shuffled."""
IN_FLIGHT = 128
"""Requests at once, of all senders."""


@dataclass
class Report:
    """The result of a run. Every list must be empty."""

    kills: int = 0
    transmissions: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    """Status → answers; 0 for a connection that broke."""
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    exit_code: int | None = None
    """Of the receiver, after SIGTERM."""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return not (self.missing or self.doubled or self.disordered) and self.exit_code == 0


@dataclass(frozen=True)
class LinkFaults:
    """The faults of the link."""

    loss: float = 0.1
    """Share of transmissions that do not arrive; as many answers are lost."""
    duplication: float = 0.1


class Receiver:
    """The receiving process; always at the same port, so that senders find it again."""

    def __init__(
        self,
        folder: Path,
        program: list[str] = RECEIVER,
        path: str = "didcomm",
        *,
        database: str = "",
    ) -> None:
        self._program = program
        self.store = folder / "store.db"
        self._database = database or str(self.store)
        self._errors = folder / "stderr"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/{path}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*self._program, self._database, self.url],
                stderr=stderr,
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def errors(self) -> str:
        """The end of what it has written to its standard error."""
        return self._errors.read_text()[-2000:]

    def stop(self, by: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(by)
        return self._process.wait(30)

    async def answers(self) -> None:
        """Wait until it listens."""
        deadline_s = time.monotonic() + 600
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(self.errors) from None
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return

    @contextlib.asynccontextmanager
    async def killed_every(self, period_s: float, report: Report) -> AsyncIterator[None]:
        """Kill it and start it anew, each time when it has listened for this long. A period below
        a second grows up to that: on a busy machine, too, it comes to an end.
        """

        async def kill() -> None:
            listens_s = period_s
            while True:
                await self.answers()
                await asyncio.sleep(listens_s)
                listens_s = max(listens_s, min(1.0, 1.5 * listens_s))
                await asyncio.to_thread(self.stop, signal.SIGKILL)
                report.kills += 1
                self.start()

        killing = asyncio.create_task(kill())
        try:
            yield
        finally:
            killing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killing


class Senders:
    """All senders, over one session."""

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        link_faults: LinkFaults,
        seed: int,
        report: Report,
    ) -> None:
        self._url = url
        self._session = session
        self._link_faults = link_faults
        self._seed = seed
        self._report = report
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def send_all(self, senders: int, messages: int, first: int = 0) -> None:
        async with asyncio.TaskGroup() as group:
            for sender in range(first, first + senders):
                group.create_task(self._thread(sender, messages))

    async def _thread(self, sender: int, messages: int) -> None:
        rng = random.Random(self._seed * 1_000_003 + sender)
        order = sorted(range(1, messages + 1), key=lambda number: number + rng.uniform(0, WINDOW))
        for start in range(0, messages, WINDOW):
            part = order[start : start + WINDOW]
            await asyncio.gather(*(self._until_taken(sender, number, rng) for number in part))

    async def _until_taken(self, sender: int, number: int, rng: random.Random) -> None:
        count = 0
        while True:
            count += 1
            raw = message(sender, number, count)
            copies = 2 if rng.random() < self._link_faults.duplication else 1
            if rng.random() < self._link_faults.loss:
                continue
            statuses = await asyncio.gather(*(self._transmit(raw) for _ in range(copies)))
            if 202 in statuses and rng.random() >= self._link_faults.loss:
                return
            if statuses[0] != 202:
                await asyncio.sleep(rng.uniform(0.05, 0.3))

    async def _transmit(self, raw: bytes) -> int:
        headers = {"Content-Type": "application/didcomm-plain+json"}
        async with self._slots:
            self._report.transmissions += 1
            try:
                async with self._session.post(self._url, data=raw, headers=headers) as response:
                    status = response.status
            except (aiohttp.ClientError, OSError):
                status = 0
        self._report.answers[status] += 1
        return status


def message(sender: int, number: int, count: int) -> bytes:
    """The message of a sender: the same each time it is sent, except for `sent_count`."""
    content = {
        "id": f"{sender}-{number}",
        "type": f"{PROTOCOL}/say",
        "from": f"did:example:{sender}",
        "thid": f"thread-{sender}",
        "sender_order": number,
        "body": {"sender": sender, "number": number},
    }
    return msgspec.json.encode(content if count == 1 else {**content, "sent_count": count})


def effects(store: Path) -> list[tuple[int, int]]:
    """(sender, number) in the order of the user's table, as durable now."""
    with contextlib.closing(sqlite3.connect(store, timeout=60)) as raw:
        try:
            return list(raw.execute(f"SELECT sender, number FROM {TABLE} ORDER BY place"))
        except sqlite3.OperationalError:
            return []


def compare(found: list[tuple[int, int]], senders: int, messages: int, report: Report) -> None:
    """Hold the user's table against what was sent."""
    counts = Counter(found)
    for sender in range(senders):
        wanted = [(sender, number) for number in range(1, messages + 1)]
        report.missing += [f"{one}" for one in wanted if not counts[one]]
        numbers = [number for of, number in found if of == sender]
        if numbers != sorted(numbers):
            report.disordered.append(f"sender {sender}")
    report.doubled += [f"{one}: {count}" for one, count in counts.items() if count > 1]


async def run(
    senders: int,
    messages: int,
    *,
    seed: int,
    kill_every_s: float,
    link_faults: LinkFaults | None = None,
) -> Report:
    """Send everything over the faulty link to a receiver that is killed again and again."""
    report, started_s = Report(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="instep-crash-") as name:
        receiver = Receiver(Path(name))
        receiver.start()
        try:
            await receiver.answers()
            connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
            timeout = aiohttp.ClientTimeout(total=30)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                receiver.killed_every(kill_every_s, report),
            ):
                talk = Senders(receiver.url, session, link_faults or LinkFaults(), seed, report)
                await talk.send_all(senders, messages)
            await receiver.answers()
            deadline_s = time.monotonic() + 120
            found = effects(receiver.store)
            while len(found) < senders * messages and time.monotonic() < deadline_s:
                await asyncio.sleep(0.1)
                found = effects(receiver.store)
        finally:
            report.exit_code = receiver.stop(signal.SIGTERM)
        compare(effects(receiver.store), senders, messages, report)
    report.seconds = time.monotonic() - started_s
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--senders", type=int, default=100)
    parser.add_argument("--messages", type=int, default=1_000, help="of each sender")
    parser.add_argument("--kill-every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    report = asyncio.run(
        run(given.senders, given.messages, seed=given.seed, kill_every_s=given.kill_every)
    )
    print(report)
    sys.exit(0 if report.good else 1)


if __name__ == "__main__":
    main()
