"""A SOAP source written by hand, over a link that loses messages and answers, doubles and
shuffles; and a receiver that is killed while many of them send.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import aiohttp
from lxml import etree

from tests.crash import messages
from tests.crash.messages import IN_FLIGHT, LinkFaults, Receiver, effects

__all__ = ["Link", "Report", "SoapSource", "run_from_command_line", "run_killed"]


@dataclass
class Report(messages.Report):
    """The result of a run. Every list must be empty."""

    broken_promises: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.broken_promises and super().good


class Link(Protocol):
    """The way to a receiver."""

    async def post(self, raw: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer; status 0: the connection broke."""
        ...


class HttpLink:
    """The way over HTTP, of all sources."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def post(self, raw: bytes) -> tuple[int, bytes]:
        media = {"Content-Type": "application/soap+xml"}
        async with self._slots:
            try:
                async with self._session.post(self._url, data=raw, headers=media) as response:
                    return response.status, await response.read()
            except (aiohttp.ClientError, OSError):
                return 0, b""


class SoapSource:
    """Sends envelopes over a faulty link."""

    def __init__(
        self, place: int, link: Link, link_faults: LinkFaults, seed: int, report: Report
    ) -> None:
        self.place = place
        self.report = report
        self.rng = random.Random(seed * 1_000_003 + place)
        self._link = link
        self._faults = link_faults

    @property
    def copies(self) -> int:
        """How often the next message is sent."""
        return 2 if self.rng.random() < self._faults.duplication else 1

    async def run(self, last: int) -> None:
        """Send messages up to a number, until each is settled."""
        raise NotImplementedError

    async def transmit(self, raw: bytes) -> etree._Element | None:
        """Send an envelope; None: no answer came, or one that is no 200."""
        rng, loss = self.rng, self._faults.loss
        if rng.random() < loss:
            # Nobody knows at once that nothing arrived.
            await asyncio.sleep(rng.uniform(0, 0.02))
            return None
        self.report.transmissions += 1
        status, answer = await self._link.post(raw)
        self.report.answers[status] += 1
        if status not in (200, 202):
            await asyncio.sleep(rng.uniform(0.05, 0.3))
        if status != 200 or rng.random() < loss:
            return None
        return etree.fromstring(answer)


SourceT = TypeVar("SourceT", bound=SoapSource)


async def run_killed(
    program: list[str],
    make: Callable[[int, Link, LinkFaults], SourceT],
    compare: Callable[[list[tuple[int, int]], Sequence[SourceT]], None],
    report: Report,
    *,
    count: int,
    last: int,
    kill_every_s: float,
    expected: Callable[[SourceT], int],
    link_faults: LinkFaults | None = None,
) -> None:
    """Let sources send everything to a receiver that is killed again and again, then compare the
    effects. `expected`: how many effects a source must have had.
    """
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="instep-crash-") as name:
        receiver = Receiver(Path(name), program, "rm")
        receiver.start()
        try:
            await receiver.answers()
            connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
            timeout = aiohttp.ClientTimeout(total=30)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                receiver.killed_every(kill_every_s, report),
                asyncio.TaskGroup() as group,
            ):
                link, faults = HttpLink(receiver.url, session), link_faults or LinkFaults()
                sources = [make(place, link, faults) for place in range(count)]
                for source in sources:
                    group.create_task(source.run(last))
            await receiver.answers()
            wanted = sum(map(expected, sources))
            deadline_s = time.monotonic() + 120
            while len(effects(receiver.store)) < wanted and time.monotonic() < deadline_s:
                await asyncio.sleep(0.1)
        finally:
            report.exit_code = receiver.stop(signal.SIGTERM)
        compare(effects(receiver.store), sources)
    report.seconds = time.monotonic() - started_s


def run_from_command_line(
    doc: str | None, run: Callable[..., Awaitable[Report]], *, first_number: int
) -> None:
    """Run as the command line says, print the report, and exit with 1 where a list is not empty."""
    parser = argparse.ArgumentParser(
        description=doc,
        epilog="Exit 0: nothing is missing, doubled, out of order or wrongly promised; else 1. "
        "The same seed loses, doubles and shuffles the same.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sources", type=int, default=20, help="(%(default)s)")
    parser.add_argument("--messages", type=int, default=5_000, help="of each source (%(default)s)")
    parser.add_argument(
        "--kill-every", type=float, default=1.0, metavar="SECONDS", help="(%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="(random)")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    last = first_number + given.messages - 1

    async def story() -> Report:
        return await run(given.sources, last, seed=given.seed, kill_every_s=given.kill_every)

    report = asyncio.run(story())
    print(report)
    sys.exit(0 if report.good else 1)
