"""Kills a receiver with SIGKILL, again and again, while gaps never close: senders lose some numbers
for good, and the gaps outlive their deadlines. Whatever was acknowledged is in a table.

The receiver is `instep run`. Run by hand at full size: `python -m tests.crash.gaps KIND --kills
50`. A broker's kind is tried by `python -m tests.crash.nats`.
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
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from tests.wire.listeners import PROTOCOL, SENDERS_OF, Sender, WsrSender, read_message

__all__ = ["KINDS", "Report", "run"]

KINDS = ("didcomm", "wsrm", "wsr")
SENDERS = 3
TOP = 12
QUICK = "gap_deadline_s = 1.0, gap_repeat_s = 0.5, gap_attempts = 1"
MORE = {
    "didcomm": f"sequence = {{ {QUICK} }}\n"
    f'protocols = [{{ type = "{PROTOCOL}/*", sequenced = true }}]',
    "wsrm": f"sequence = {{ {QUICK} }}",
    # Its gaps end when messages behind them expire.
    "wsr": "",
}
EXPIRES_S = 3


@dataclass
class Report:
    """The result of a run. `lost` must be empty."""

    kills: int = 0
    acknowledged: int = 0
    places: Counter[str] = field(default_factory=Counter)
    """Where what was acknowledged is."""
    lost: list[str] = field(default_factory=list)
    exit_code: int | None = None

    @property
    def good(self) -> bool:
        return not self.lost and self.exit_code == 0 and self.acknowledged > 0


class Process:
    """`instep run`."""

    def __init__(self, folder: Path, kind: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/in"
        self.store = folder / "store.db"
        self.config = folder / "instep.toml"
        self.config.write_text(
            f'[[consumers]]\nname = "crash"\n[consumers.source]\nkind = "{kind}"\n'
            f'listen = "{self.url}"\n{MORE[kind]}\n[consumers.sink]\nkind = "sql"\n'
            f'url = "sqlite:///{self.store}"\n'
        )
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "instep.cli", "run", str(self.config)],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            )

    async def listening(self) -> None:
        """Wait until it listens."""
        host, _, port = self.url.removeprefix("http://").partition("/")[0].partition(":")
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(host, int(port))
                    writer.close()
                    return
                await asyncio.sleep(0.05)

    def stop(self, by: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(self._log.read_text()[-2000:])
        self._process.send_signal(by)
        return self._process.wait(30)


async def send(sender: Sender, numbers: list[int]) -> None:
    """Send these, a few times at most: what is refused for good is not asked again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(8):
            await sender.begin()
            for _ in range(4):
                left = [n for n in numbers if n not in sender.acknowledged]
                await asyncio.gather(*(sender.send(n) for n in left))
                await asyncio.sleep(0.3)


async def run(kind: str, *, kills: int, seed: int) -> Report:
    """Begin new sequences and kill the receiver, in turn; then look for what is acknowledged."""
    report, rng = Report(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="gaps-crash-", ignore_cleanup_errors=True) as name:
        process = Process(Path(name), kind)
        process.start()
        timeout = aiohttp.ClientTimeout(total=3.0)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                senders, sending = list[Sender](), list[asyncio.Task[None]]()
                for _ in range(kills + 1):
                    await process.listening()
                    for _ in range(SENDERS):
                        one = SENDERS_OF[kind](len(senders), process.url, session)
                        if isinstance(one, WsrSender):
                            soon = datetime.now(UTC) + timedelta(seconds=EXPIRES_S)
                            one.expires = soon.replace(microsecond=0).isoformat()
                        top = one.first + TOP
                        lost = {rng.randrange(one.first, top - 1) for _ in range(rng.randint(1, 3))}
                        numbers = [n for n in range(one.first, top) if n not in lost]
                        rng.shuffle(numbers)
                        senders.append(one)
                        sending.append(asyncio.create_task(send(one, numbers)))
                    await asyncio.sleep(rng.uniform(0.2, 2.5))
                    if report.kills < kills:
                        await asyncio.to_thread(process.stop, signal.SIGKILL)
                        report.kills += 1
                        process.start()
                await asyncio.gather(*sending)
            await process.listening()
            await asyncio.sleep(EXPIRES_S + 2)
            report.exit_code = await asyncio.to_thread(process.stop, signal.SIGTERM)
            compare(process.store, senders, report)
        finally:
            with contextlib.suppress(RuntimeError):
                process.stop(signal.SIGKILL)
    return report


def compare(store: Path, senders: list[Sender], report: Report) -> None:
    """Look for each acknowledged message among the delivered, the held and the dead."""
    with contextlib.closing(sqlite3.connect(store)) as raw:
        inbox = raw.execute(
            "SELECT i.body, i.stage FROM instep_inbox AS i "
            "JOIN instep_sequence AS q ON q.id = i.sequence_no"
        ).fetchall()
        delivered: list[tuple[Any, Any]] = raw.execute(
            "SELECT body, 'delivered' FROM instep_message"
        ).fetchall()
    places: dict[tuple[int, int], str] = {}
    for body, place in [*inbox, *delivered]:
        sender, number, _ = read_message(body)
        places[sender, number] = {0: "held", 3: "dead"}.get(place, str(place))
    for one in senders:
        for number in sorted(one.acknowledged):
            report.acknowledged += 1
            place = places.get((one.place, number))
            report.places[place or "nowhere"] += 1
            if place is None:
                report.lost.append(f"({one.place}, {number})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    made = asyncio.run(run(given.kind, kills=given.kills, seed=given.seed))
    print(made)
    sys.exit(not made.good)
