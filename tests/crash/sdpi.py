"""Kills `instep run` with SIGKILL while it follows a BICEPS provider behind a relay that loses,
repeats, delays, cuts, and answers 503 by itself.

The store is read from outside all the time: it never has what the provider has not stated, never
goes back, and when it says that it is aligned, it has all that was confirmed (or something newer).
In the end both sides are equal.

Run by hand at full size: `make relay MINUTES=10`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.instep_sdpi.provider_kit import FakeProvider, FakeSubscription, providing
from tests.instep_sdpi.relay_kit import Relay, relaying

__all__ = ["Report", "Row", "Truth", "Witness", "run"]

CONFIG: Final = """
[[consumers]]
name = "bed-7"
[consumers.source]
kind = "sdpi"
provider = "{provider}"
listen = "127.0.0.1:{port}"
notify_to = "{relay}"
actions = ["DescriptionModificationReport", "EpisodicMetricReport"]
feed = {{ reorder_window_s = 1.0 }}
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 1.0
alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.3 }}
[consumers.sink]
kind = "sql"
url = "sqlite:///{store}"
"""
HANDLES: Final = [f"m{number}" for number in range(40)]
_TRIES: Final = 8
"""After so many failures a provider drops a subscription."""
_MOST_QUEUED: Final = 500
_EQUAL_WITHIN_S: Final = 90
_SEQUENCE: Final = re.compile(rb'MdibVersion="(\d+)" SequenceId="([^"]+)"')
_STATE: Final = re.compile(rb'DescriptorHandle="(m\d+)" StateVersion="(\d+)"')
_DELETED: Final = re.compile(rb'ModificationType="Del"><m:Descriptor [^>]*Handle="(m\d+)"')

At = tuple[int, int]
"""The ordinal of a SequenceId, and a version of the MDIB: they order what a provider states."""


@dataclass
class Report:
    """The result of a run. `wrong` and `differences` must be empty."""

    reports: int = 0
    confirmed: int = 0
    kills: int = 0
    subscriptions: int = 0
    restarts: int = 0
    """Of the provider, with a new SequenceId."""
    looks: int = 0
    looks_aligned: int = 0
    """Looks at a store that said that it was aligned."""
    wrong: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.wrong or self.differences)


@dataclass(frozen=True)
class Row:
    """A metric as stored."""

    at: At
    value: str


class Truth:
    """What the provider has stated, and what the consumer has confirmed of it."""

    def __init__(self) -> None:
        self.sequences: dict[str, int] = {}
        self.stated: set[tuple[str, At, str]] = set()
        self.ended: dict[str, list[At]] = {}
        self.confirmed: dict[str, At] = {}
        self.count = 0

    def at(self, sequence: str, version: int) -> At:
        return self.sequences.setdefault(sequence, len(self.sequences)), version

    def state(self, provider: FakeProvider, handle: str) -> None:
        value, version = provider.metrics[handle]
        self.stated.add((handle, self.at(provider.sequence, version), value))

    def end(self, provider: FakeProvider, handle: str) -> None:
        self.ended.setdefault(handle, []).append(self.at(provider.sequence, provider.version))

    def confirm(self, body: bytes) -> None:
        """The consumer has answered a report with 2xx."""
        found = _SEQUENCE.search(body)
        if found is None:
            return
        self.count += 1
        at = self.at(found[2].decode(), int(found[1]))
        for handle in [*_DELETED.findall(body), *(one[0] for one in _STATE.findall(body))]:
            name = handle.decode()
            self.confirmed[name] = max(at, self.confirmed.get(name, at))


class Witness:
    """Holds the store against the truth, each time it looks."""

    def __init__(self, truth: Truth, report: Report) -> None:
        self._truth = truth
        self._report = report
        self._reached: dict[str, At] = {}

    def look(self, rows: dict[str, Row], confirmed: dict[str, At], *, aligned: bool) -> None:
        """`confirmed`: as it was before the store was read."""
        self._report.looks += 1
        self._report.looks_aligned += aligned
        for key, row in rows.items():
            if (key, row.at, row.value) not in self._truth.stated:
                self._note(f"{key} was never {row}")
            reached = self._reached.get(key, row.at)
            if row.at < reached:
                self._note(f"{key} went back from {reached} to {row.at}")
            self._reached[key] = max(row.at, reached)
        if aligned:
            for key, at in confirmed.items():
                self._check_confirmed(key, at, rows.get(key))

    def _check_confirmed(self, key: str, at: At, row: Row | None) -> None:
        if row is not None and row.at < at:
            self._note(f"{key} of {at} was confirmed, an aligned store has {row}")
        elif row is None and not any(end >= at for end in self._truth.ended.get(key, ())):
            self._note(f"{key} of {at} was confirmed, and is not in a store that is aligned")

    def _note(self, text: str) -> None:
        if text not in self._report.wrong:
            self._report.wrong.append(text)


class Site:
    """A provider, the relay, the store, and a consumer that is killed."""

    def __init__(
        self, provider: FakeProvider, relay: Relay, folder: Path, rng: random.Random, report: Report
    ) -> None:
        self.provider = provider
        self.report = report
        self.truth = Truth()
        self.witness = Witness(self.truth, report)
        self._rng = rng
        self._store = folder / "store.db"
        self._config = folder / "instep.toml"
        self._queues: dict[str, asyncio.Queue[str]] = {}
        self._senders: set[asyncio.Task[None]] = set()
        port = free_port()
        relay.target = f"http://127.0.0.1:{port}"
        relay.confirmed = self.truth.confirm
        config = {"provider": provider.url, "port": port, "relay": relay.url, "store": self._store}
        self._config.write_text(CONFIG.format(**config))
        for handle in provider.metrics:
            self.truth.state(provider, handle)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "instep.cli",
            "run",
            str(self._config),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # -- the provider ----------------------------------------------------------------------------

    async def storm(self, per_s: float) -> None:
        """Change something at this rate, and report it to all."""
        due_s = time.monotonic()
        while True:
            due_s += 1 / per_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            self.change()

    def change(self) -> None:
        provider, handle = self.provider, self._rng.choice(HANDLES)
        chance = self._rng.random()
        value = str(self._rng.randrange(10**6))
        if chance < 0.001:
            self.report.restarts += 1
            provider.begin_anew()
            for each in provider.metrics:
                self.truth.state(provider, each)
            return
        if handle not in provider.metrics:
            body = provider.create(handle, value)
        elif chance < 0.02:
            body = provider.remove(handle)
        else:
            body = provider.set(handle, value)
        if handle in provider.metrics:
            self.truth.state(provider, handle)
        else:
            self.truth.end(provider, handle)
        self.report.reports += 1
        for name, subscription in list(provider.subscriptions.items()):
            if name not in self._queues:
                self._queues[name] = asyncio.Queue(_MOST_QUEUED)
                self.report.subscriptions += 1
                sender = asyncio.create_task(self._send_to(subscription))
                self._senders.add(sender)
                sender.add_done_callback(self._senders.discard)
            if self._queues[name].full():
                del provider.subscriptions[name]
            else:
                self._queues[name].put_nowait(body)

    async def _send_to(self, subscription: FakeSubscription) -> None:
        """One report at a time, until it is confirmed (R0801)."""
        subscriptions = self.provider.subscriptions
        while subscription.name in subscriptions:
            body = await self._queues[subscription.name].get()
            for _ in range(_TRIES):
                status = await self.provider.post(subscription, body, subscription.number)
                if 200 <= status < 300:
                    subscription.number += 1
                    break
                await asyncio.sleep(0.05)
            else:
                subscriptions.pop(subscription.name, None)

    async def stop(self) -> None:
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    # -- the store -------------------------------------------------------------------------------

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.look()

    def look(self) -> dict[str, Row]:
        confirmed = dict(self.truth.confirmed)
        phase, rows = self.read()
        self.witness.look(rows, confirmed, aligned=phase == "aligned")
        return rows

    def read(self) -> tuple[str, dict[str, Row]]:
        """The phase and the metrics, as one moment of the store."""
        if not self._store.exists():
            return "", {}
        with closing(sqlite3.connect(self._store, timeout=30, isolation_level=None)) as raw:
            try:
                raw.execute("BEGIN")
                stream = raw.execute("SELECT position FROM instep_stream").fetchone()
                found = raw.execute("SELECT key, envelope, body FROM instep_entity").fetchall()
            except sqlite3.OperationalError:
                return "", {}  # it is not made yet
        rows = {}
        for key, envelope, body in found:
            if key.startswith("state/"):
                read, sequence = json.loads(body), json.loads(envelope)["sequence-id"]
                at = self.truth.at(sequence, int(read["StateVersion"]))
                rows[key.removeprefix("state/")] = Row(at, read["MetricValue"]["Value"])
        return (json.loads(stream[0])["phase"] if stream else ""), rows

    async def converge(self) -> None:
        """With nothing in the way any more, both sides become equal."""
        wanted: dict[str, str] = {}
        rows: dict[str, Row] = {}
        phase = ""
        until_s = time.monotonic() + _EQUAL_WITHIN_S
        while time.monotonic() < until_s:
            # What was lost last shows by what comes after it.
            self.change()
            await asyncio.sleep(1)
            wanted = {handle: value for handle, (value, _) in self.provider.metrics.items()}
            phase, rows = self.read()
            if phase == "aligned" and wanted == {key: row.value for key, row in rows.items()}:
                return
        found = {key: row.value for key, row in rows.items()}
        self.report.differences += [
            f"{key}: {wanted.get(key)}, stored {found.get(key)}, {phase}"
            for key in sorted(wanted.keys() | found.keys())
            if wanted.get(key) != found.get(key)
        ] or [f"the phase is {phase!r}"]


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def run(
    duration_s: float, *, seed: int, per_s: float = 50, kill_every_s: float = 6, share: float = 0.1
) -> Report:
    """Follow, fail and kill for this time; then heal and compare."""
    rng, report = random.Random(seed), Report()
    with tempfile.TemporaryDirectory(prefix="instep-sdpi-") as folder:
        async with relaying(seed, share) as relay, providing() as provider:
            provider.expires_s = 10
            site = Site(provider, relay, Path(folder), rng, report)
            beside = [asyncio.create_task(site.storm(per_s)), asyncio.create_task(site.watch())]
            ends_s = time.monotonic() + duration_s
            try:
                while time.monotonic() < ends_s:
                    async with site.run():
                        await asyncio.sleep(rng.uniform(0, 2 * kill_every_s))
                    report.kills += 1
                    site.look()
                relay.share = 0.0
                beside[0].cancel()
                async with site.run():
                    await site.converge()
                    site.look()
            finally:
                for task in beside:
                    task.cancel()
                ended = await asyncio.gather(*beside, return_exceptions=True)
                await site.stop()
            report.wrong += [repr(one) for one in ended if isinstance(one, Exception)]
            report.confirmed = site.truth.count
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--per-s", type=float, default=50, help="reports a second")
    parser.add_argument("--kill-every", type=float, default=6, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args()
    report = asyncio.run(
        run(
            given.minutes * 60,
            seed=given.seed,
            per_s=given.per_s,
            kill_every_s=given.kill_every,
        )
    )
    print(f"seed {given.seed}: {report}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
