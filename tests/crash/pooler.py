"""Ends the sessions of PostgreSQL behind a pgbouncer, restarts the server and makes it read-only,
round after round, while a provider storms and many senders send messages.

`instep run` and a receiver with a handler reach their store by the pooler alone. A sender goes on
until each of its messages was answered with 202. Neither process may end. At the end the store
holds what the provider states, entity by entity, and each message has had one effect, in order.

Run by hand for many rounds of each fault: `make pooler ROUNDS=20`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import aiohttp
from rich.progress import track

from tests.crash import messages
from tests.crash.message_receiver import TABLE
from tests.crash.messages import IN_FLIGHT, LinkFaults, Receiver, Senders
from tests.crash.site_kit import Site, compare, site
from tests.pgbouncer_kit import Mode, pooling
from tests.postgres_kit import Server, serving

DEADLINE_S = 120.0
SENDERS, MESSAGES = 5, 40
"""A round."""
_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_READ_ONLY = "ALTER SYSTEM SET default_transaction_read_only = {}"
_MAY_WRITE = "?options=-c%20default_transaction_read_only%3Doff"


def end_sessions(server: Server, rng: random.Random) -> None:
    """All, some times in a row."""
    for _ in range(rng.randint(1, 4)):
        server.execute(_OTHERS)
        time.sleep(rng.uniform(0, 0.3))


def restart(server: Server, rng: random.Random) -> None:
    """Fast or immediate; for a while nobody answers."""
    server.stop(immediate=rng.random() < 0.5)
    time.sleep(rng.uniform(0, 1.0))
    server.start()


def read_only(server: Server, rng: random.Random) -> None:
    """By a setting, with the sessions left or ended; or by a start as a hot standby."""
    if rng.random() < 0.3:
        server.demote()
        time.sleep(rng.uniform(0.2, 1.5))
        server.promote()
        return
    for value in ("on", "off"):
        server.execute(_READ_ONLY.format(value), server.url() + _MAY_WRITE)
        server.execute("SELECT pg_reload_conf()")
        if rng.random() < 0.5:
            server.execute(_OTHERS)
        time.sleep(rng.uniform(0.2, 1.5))


FAULTS: dict[str, Callable[[Server, random.Random], None]] = {
    "end-sessions": end_sessions,
    "restart": restart,
    "read-only": read_only,
}


@dataclass
class Report:
    """What the rounds showed. `faults` must be empty."""

    rounds: Counter[str] = field(default_factory=Counter)
    entities: int = 0
    records: int = 0
    attempts: set[int] = field(default_factory=set)
    talk: messages.Report = field(default_factory=messages.Report)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{dict(self.rounds)}: {self.entities:,} entities of {self.records:,} records, "
            f"attempts {sorted(self.attempts)}; messages answered {dict(self.talk.answers)}; "
            f"faults: {len(self.faults)}"
        )


@contextlib.contextmanager
def consuming(here: Site, store: str) -> Iterator[subprocess.Popen[bytes]]:
    with here.run(store=store) as consumer, (here.folder / "events").open("wb") as events:
        assert consumer.stdout is not None
        # Whatever it tells is taken from it, else it would wait.
        reading = threading.Thread(target=shutil.copyfileobj, args=(consumer.stdout, events))
        reading.start()
        try:
            yield consumer
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                consumer.terminate()
                consumer.wait(30)
            consumer.kill()
            reading.join()


@contextlib.asynccontextmanager
async def receiving(folder: Path, store: str, report: Report) -> AsyncIterator[Receiver]:
    receiver = Receiver(folder, database=store)
    receiver.start()
    try:
        await receiver.answers()
        yield receiver
    finally:
        report.talk.exit_code = receiver.stop(signal.SIGTERM)


async def _until(good: Callable[[], bool]) -> bool:
    """Whether it becomes good in time."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not await asyncio.to_thread(good):
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(0.1)
    return True


async def rounds(
    count: int, *, mode: Mode, seed: int, storm_per_s: float = 300.0, show: bool = False
) -> Report:
    """`count` rounds of each fault, mixed."""
    rng = random.Random(seed)
    names = [name for name in FAULTS for _ in range(count)]
    rng.shuffle(names)
    report = Report()
    options = ("--seed", str(seed), "--storm", str(storm_per_s), "--alarms", "50")
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(serving())
        pooler = stack.enter_context(pooling(server, mode))
        database = server.create()
        store = pooler.url(database)
        here = stack.enter_context(site(database, *options))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="instep-pooler-")))
        receiver = await stack.enter_async_context(receiving(folder, store, report))
        consumer = stack.enter_context(consuming(here, store))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=IN_FLIGHT),
                timeout=aiohttp.ClientTimeout(total=30),
            )
        )
        talk = Senders(receiver.url, session, LinkFaults(), seed, report.talk)
        for number, name in enumerate(track(names, f"breaking, {mode}", disable=not show)):
            sending = asyncio.create_task(talk.send_all(SENDERS, MESSAGES, number * SENDERS))
            await asyncio.sleep(rng.uniform(0, 0.2))
            await asyncio.to_thread(FAULTS[name], server, rng)
            try:
                await asyncio.wait_for(sending, DEADLINE_S)
            except TimeoutError:
                report.faults.append(f"round {number}, {name}: messages are not taken any more")
            report.rounds[name] += 1
            if consumer.poll() is not None:
                text = (here.folder / "stderr").read_text()[-2000:]
                report.faults.append(f"round {number}, {name}: the consumer has ended: {text}")
            if receiver.exit_code is not None:
                report.faults.append(f"round {number}, {name}: the receiver: {receiver.errors}")
            if report.faults:
                return report
        here.command("storm", changes_per_s=0)
        wanted = len(names) * SENDERS * MESSAGES

        def effects() -> list[tuple[int, int]]:
            found = server.execute(f"SELECT sender, number FROM {TABLE} ORDER BY place", database)
            return [(int(str(sender)), int(str(number))) for sender, number in found]

        await _until(lambda: len(effects()) >= wanted)
        await _until(lambda: not compare(here))
        report.faults += compare(here)
        positions, entities = here.durable()
        report.entities = len(entities)
        report.records = sum(position.records for position in positions.values())
        report.attempts = {position.attempt for position in positions.values()}
        messages.compare(effects(), len(names) * SENDERS, MESSAGES, report.talk)
    found = report.talk
    report.faults += [*found.missing, *found.doubled, *found.disordered]
    report.faults += [
        f"{who} ended with {code}"
        for who, code in (("the receiver", found.exit_code), ("the consumer", consumer.returncode))
        if code != 0
    ]
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of each fault (%(default)s)")
    modes = [mode for mode in get_args(Mode) if mode != "statement"]
    parser.add_argument("--mode", action="append", choices=modes, help="(both)")
    parser.add_argument("--storm", type=float, default=300.0, help="changes per second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    good = True
    for mode in chosen.mode or modes:
        report = asyncio.run(
            rounds(chosen.rounds, mode=mode, seed=chosen.seed, storm_per_s=chosen.storm, show=True)
        )
        print(f"{mode}, seed {chosen.seed}: {report}", flush=True)
        for line in report.faults[:20]:
            print(line)
        good = good and not report.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
