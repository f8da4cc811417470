"""What it costs to be watched: the port, its metrics, and a scheduled audit.

    python -m bench.operations [--turns 30] [--providers 100]

The first part follows one stream under a storm, and measures processor time a record in turns of a
few seconds: bare, then with the port, scraped more often than Prometheus would, then with the
requests for single entities of a scheduled audit. An audit's pass is measured by itself, between
two bare turns, and shared out over the time between two passes. The second part scrapes a process
that follows a thousand streams. Providers and the scraper are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.report import settle
from bench.scale import open_files_as_allowed, serving
from instep import Consumer, ConsumerSettings, Group
from instep.metrics import OperationsPort
from instep_sql import SqlStore
from instep_tapi.plugin import source

__all__ = ["OVERHEAD_SHARE", "SCRAPE_S", "Overhead", "Scrape", "measure_overhead", "measure_scrape"]

OVERHEAD_SHARE: Final = 0.03
"""Most of the processor time of a record that being watched may add."""
SCRAPE_S: Final = 0.05
"""Longest scrape of a thousand streams."""

_ROOT: Final = Path(__file__).parents[1]
_EVERY_S: Final = 1.0
"""Between two scrapes; what they cost is shared out over …"""
_SCRAPED_EVERY_S: Final = 15.0
"""… so many seconds, as in the run book."""
_AUDIT_SHARE: Final = 1.0
"""Of the audit that is counted: all of it every hour, four times as often as in the guide."""
_PASSES: Final = 5
_ALIGNED_S: Final = 600.0
_SCRAPER: Final = """
import sys, time, urllib.request
for line in sys.stdin:
    begun_s = time.perf_counter()
    size = len(urllib.request.urlopen(line.strip(), timeout=60).read())
    print(time.perf_counter() - begun_s, size, flush=True)
"""


class Overhead(msgspec.Struct, frozen=True):
    """What it costs a consumer to be watched."""

    turns: int
    records: int
    bare_us: float
    """Processor time a record of the process, in microseconds, medians of all turns …"""
    watched_us: float
    """… with the port, and a scrape a second."""
    watched_records: int
    scrapes: int
    asked_us: float
    """With the requests for single entities of `audit_share` 1."""
    audit_s: float
    """Processor time of one pass of the audit, the median of all."""
    entities: int
    records_per_s: float

    @property
    def scrape_s(self) -> float:
        """Processor time of one scrape."""
        return (self.watched_us - self.bare_us) / 1e6 * self.watched_records / self.scrapes

    def port_share(self, every_s: float) -> float:
        """What port and metrics add to the processor time of a record at this rate, where they are
        scraped once in so many seconds.
        """
        return self.scrape_s / (every_s * self.records_per_s * self.bare_us / 1e6)

    @property
    def audit_share(self) -> float:
        """What an audit every hour adds at this rate of records, with its single requests."""
        records = self.records_per_s * 3_600 / _AUDIT_SHARE
        asked = max(0.0, self.asked_us / self.bare_us - 1)
        return self.audit_s / (records * self.bare_us / 1e6) + asked

    def share(self, every_s: float) -> float:
        """All of it."""
        return self.port_share(every_s) + self.audit_share


class Scrape(msgspec.Struct, frozen=True):
    """What a scrape of many streams takes."""

    streams: int
    size_bytes: int
    scrapes: int
    seconds: float
    """Until the whole answer is there, the median …"""
    fastest_s: float
    """… and the fastest, which other work on the machine has held up least …"""
    cpu_seconds: float
    """… and the processor time of the process, each."""
    held_s: float
    """The longest time by which a scrape held up the event loop, median of the scrapes."""


class _Scraper:
    """Scrapes from a process of its own."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRAPER], stdin=pipe, stdout=pipe, text=True
        )

    async def scrape(self, url: str) -> tuple[float, int]:
        """Seconds and bytes of one scrape."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{url}/metrics\n")
        self._process.stdin.flush()
        seconds, size = (await asyncio.to_thread(self._process.stdout.readline)).split()
        return float(seconds), int(size)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def _scraper() -> Iterator[_Scraper]:
    one = _Scraper()
    try:
        yield one
    finally:
        one.close()


@contextmanager
def _provider() -> Iterator[str]:
    """A provider in a process of its own. Gives its URL."""
    words = ["--topology", "sndlib/germany50", "--alarms", "1000", "--compaction-delay", "2s"]
    command = [sys.executable, "-m", "instep.cli", "provider", *words, "--control"]
    with subprocess.Popen([*command, "--format", "jsonl"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline())["url"]
        finally:
            process.kill()


@asynccontextmanager
async def _port(group: Group, scraper: _Scraper) -> AsyncIterator[list[float]]:
    """The port, which is scraped again and again. Gives what the scrapes took."""
    took_s: list[float] = []

    async def scrape(url: str) -> None:
        while True:
            took_s.append((await scraper.scrape(url))[0])
            await asyncio.sleep(_EVERY_S)

    async with OperationsPort(lambda: group.consumers, "127.0.0.1:0", "bench") as port:
        scraping = asyncio.create_task(scrape(port.address))
        try:
            yield took_s
        finally:
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)


def _storm(url: str, rate: int) -> None:
    body = msgspec.json.encode({"changes_per_s": rate})
    with urllib.request.urlopen(f"{url}/_instep/storm", body, timeout=60) as answer:
        answer.read()


def _committed(consumer: Consumer) -> int:
    return sum(one.records for one in consumer.health().streams)


async def measure_overhead(turns: int, turn_s: float, rate: int) -> Overhead:
    """So many pairs of turns under a storm of so many changes a second."""
    with (
        _provider() as url,
        _scraper() as scraper,
        tempfile.TemporaryDirectory(prefix="instep-watched-") as folder,
    ):
        made = source.build({"endpoints": [url]}, "bench")
        consumer = Consumer("bench", made, SqlStore(f"sqlite:///{folder}/store.db"))
        async with Group([consumer]) as group:
            await group.aligned(_ALIGNED_S)
            settle()
            await asyncio.to_thread(_storm, url, rate)
            await asyncio.sleep(turn_s)

            async def turn() -> tuple[int, float]:
                records, cpu_s = _committed(consumer), time.process_time()
                await asyncio.sleep(turn_s)
                return _committed(consumer) - records, time.process_time() - cpu_s

            bare: list[float] = []
            watched: list[float] = []
            asked: list[float] = []
            asking = ConsumerSettings(audit_share=_AUDIT_SHARE)
            scrapes = records = watched_records = 0
            begun_s = time.perf_counter()
            for _ in range(turns):
                count, cpu_s = await turn()
                bare.append(cpu_s / count)
                records += count
                async with _port(group, scraper) as took_s:
                    count, cpu_s = await turn()
                watched.append(cpu_s / count)
                records += count
                watched_records += count
                scrapes += len(took_s)
                consumer.reconfigure(asking, None, "bench")
                count, cpu_s = await turn()
                consumer.reconfigure(ConsumerSettings(), None, "bench")
                asked.append(cpu_s / count)
                records += count
            rate_s = records / (time.perf_counter() - begun_s)
            passes: list[float] = []
            entities = 0
            for _ in range(_PASSES):
                # Beside the storm: what that costs, before and after, is taken off.
                before, before_s = await turn()
                count, cpu_s = _committed(consumer), time.process_time()
                entities = sum(one.counts.right for one in await consumer.audit())
                cpu_s, count = time.process_time() - cpu_s, _committed(consumer) - count
                after, after_s = await turn()
                passes.append(cpu_s - count * (before_s + after_s) / (before + after))
            return Overhead(
                turns,
                records,
                statistics.median(bare) * 1e6,
                statistics.median(watched) * 1e6,
                watched_records,
                scrapes,
                statistics.median(asked) * 1e6,
                max(0.0, statistics.median(passes)),
                entities,
                rate_s,
            )


async def measure_scrape(providers: int, scrapes: int) -> Scrape:
    """Scrape a process that follows so many providers of ten streams each."""
    with (
        serving(providers, 10) as urls,
        _scraper() as scraper,
        tempfile.TemporaryDirectory(prefix="instep-scraped-") as folder,
    ):
        consumers = [
            Consumer(
                f"provider-{number}",
                source.build({"endpoints": [url]}, "bench"),
                SqlStore(f"sqlite:///{folder}/{number}.db"),
            )
            for number, url in enumerate(urls)
        ]
        async with (
            Group(consumers) as group,
            OperationsPort(lambda: group.consumers, "127.0.0.1:0", "bench") as port,
        ):
            await group.aligned(_ALIGNED_S)
            settle()
            await asyncio.sleep(5)
            took: list[tuple[float, float]] = []
            held_s: list[float] = []
            size = 0
            for _ in range(scrapes):
                await asyncio.sleep(0.2)
                cpu_s = time.process_time()
                seconds, size = await scraper.scrape(port.address)
                took.append((seconds, time.process_time() - cpu_s))
                # Once more for the loop: looking at it a thousand times a second takes time, too.
                await asyncio.sleep(0.2)
                async with _held() as late_s:
                    await scraper.scrape(port.address)
                held_s.append(max(late_s))
            streams = sum(len(one.streams) for one in group.health())
    median = statistics.median
    seconds, cpu_s = median(one[0] for one in took), median(one[1] for one in took)
    fastest_s = min(one[0] for one in took)
    return Scrape(streams, size, scrapes, seconds, fastest_s, cpu_s, median(held_s))


@asynccontextmanager
async def _held() -> AsyncIterator[list[float]]:
    """By how many seconds the event loop is late meanwhile, again and again."""
    late: list[float] = [0.0]
    loop = asyncio.get_running_loop()

    async def look() -> None:
        while True:
            due_s = loop.time() + 0.001
            await asyncio.sleep(0.001)
            late.append(loop.time() - due_s)

    looking = asyncio.create_task(look())
    try:
        yield late
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def main() -> None:
    """Measure and print; ends with 1 where a bound is passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--turn-s", type=float, default=3.0)
    parser.add_argument("--rate", type=int, default=2_000, help="changes a second of the storm")
    parser.add_argument("--providers", type=int, default=100, help="of ten streams; 0: none")
    parser.add_argument("--scrapes", type=int, default=50)
    arguments = parser.parse_args()
    open_files_as_allowed()
    met = True
    if arguments.turns:
        told = asyncio.run(measure_overhead(arguments.turns, arguments.turn_s, arguments.rate))
        met = told.share(_SCRAPED_EVERY_S) < OVERHEAD_SHARE
        print(
            f"{told.records:,} records in {told.turns} turns of each kind,"
            f" {told.records_per_s:,.0f}/s: {told.bare_us:.1f} us of processor time a record bare,"
            f" {told.watched_us:.1f} us with {told.scrapes} scrapes, {told.scrape_s * 1e3:.1f} ms"
            f" each, {told.asked_us:.1f} us with single requests; a pass of the audit over"
            f" {told.entities:,} entities {told.audit_s:.2f} s"
        )
        for every_s in (_SCRAPED_EVERY_S, _EVERY_S):
            print(
                f"a scrape in {every_s:.0f} s and an audit in an hour add"
                f" {told.port_share(every_s):+.2%} {told.audit_share:+.2%} ="
                f" {told.share(every_s):+.2%}"
            )
    if arguments.providers:
        scrape = asyncio.run(measure_scrape(arguments.providers, arguments.scrapes))
        met = met and scrape.seconds < SCRAPE_S
        print(
            f"{scrape.streams:,} streams, {scrape.size_bytes:,} bytes: a scrape takes"
            f" {scrape.seconds * 1e3:.1f} ms (the fastest {scrape.fastest_s * 1e3:.1f}),"
            f" {scrape.cpu_seconds * 1e3:.1f} ms of processor time,"
            f" and holds the event loop for {scrape.held_s * 1e3:.1f} ms"
        )
    raise SystemExit(not met)


if __name__ == "__main__":
    main()
