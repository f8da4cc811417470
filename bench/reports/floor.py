"""The floor: aiohttp, lxml, and one SQLite transaction for what has arrived.

It subscribes, reads the MDIB and inserts it; then it reads of each report its number, its version,
and its states with their handles and classes, and upserts them as JSON together with the position,
as the product does; it answers when that is durable. No order, no duplicates, no gaps, no bad
input, no limits, no containment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import aiohttp
import msgspec
from aiohttp import web
from lxml import etree
from lxml.etree import _Element

from bench.reports import device
from bench.reports.reading import Reading, StallMeter, peak_bytes

__all__ = ["TABLE", "main"]

TABLE: Final = "entity"
_SCHEMA: Final = f"""
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -131072;
PRAGMA wal_autocheckpoint = 10000;
CREATE TABLE {TABLE} (key TEXT PRIMARY KEY, class TEXT NOT NULL, number INTEGER NOT NULL,
                      version INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE position (stream INTEGER PRIMARY KEY, number INTEGER NOT NULL);
"""
_UPSERT: Final = f"""
INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET class = excluded.class,
    number = excluded.number, version = excluded.version, body = excluded.body
"""
_MOVE: Final = "INSERT OR REPLACE INTO position VALUES (1, ?)"
_TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"
_NUMBER: Final = f"{{{device.SDPI}}}ReportSequence"
_STATES: Final = (f"{{{device.MESSAGE}}}MetricState", f"{{{device.PARTICIPANT}}}State")

Row = tuple[str, str, int, int, bytes]


def _state(element: _Element, number: int, version: int) -> Row:
    key = f"state/{element.get('DescriptorHandle')}"
    body = msgspec.json.encode(_members(element))
    return key, element.get(_TYPE, ""), number, version, body


def _members(element: _Element) -> dict[str, object]:
    """Attributes and children by their local names, as in the product."""
    members: dict[str, object] = dict(element.items())  # type: ignore[arg-type] # no bytes
    for child in element:
        members[child.tag.rpartition("}")[2]] = _members(child)
    return members


def _rows(raw: bytes) -> list[Row]:
    header, body = etree.fromstring(raw)
    (report,) = body
    number = int(header.findall(_NUMBER)[0].get("MessageNumber", ""))
    version = int(report.get("MdibVersion", ""))
    return [_state(one, number, version) for one in report.iter(*_STATES)]


def _mdib_rows(raw: bytes) -> Iterator[Row]:
    for element in etree.fromstring(raw, etree.XMLParser(huge_tree=True)).iter():
        handle = element.get("Handle")
        if handle is not None:
            shallow = {name: str(text) for name, text in element.attrib.items()}
            body = msgspec.json.encode(shallow)
            yield f"descriptor/{handle}", element.get(_TYPE, element.tag), 0, 0, body
        elif element.tag in _STATES:
            yield _state(element, 0, 0)


class _Reports:
    """Takes reports, and writes them in groups."""

    def __init__(self, store: str) -> None:
        self._db = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
        self._db.executescript(_SCHEMA)
        self._rows: list[Row] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._came = asyncio.Event()

    async def take(self, request: web.BaseRequest) -> web.StreamResponse:
        self._rows += _rows(await request.read())
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append(durable)
        self._came.set()
        await durable
        return web.Response(status=202)

    async def write(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as worker:
            while True:
                await self._came.wait()
                self._came.clear()
                rows, self._rows = self._rows, []
                waiting, self._waiting = self._waiting, []
                await loop.run_in_executor(worker, self.commit, rows)
                for durable in waiting:
                    durable.set_result(None)

    def commit(self, rows: list[Row]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(_UPSERT, rows)
        self._db.execute(_MOVE, (rows[-1][2],))
        self._db.execute("COMMIT")


async def _align(url: str, notify_to: str, reports: _Reports) -> Reading:
    """Subscribe, read the MDIB and insert it."""
    wanted = (
        f"<wse:Subscribe><wse:Delivery><wse:NotifyTo><wsa:Address>{notify_to}</wsa:Address>"
        "</wse:NotifyTo></wse:Delivery></wse:Subscribe>"
    )
    start_s = time.perf_counter()
    async with aiohttp.ClientSession() as session, StallMeter() as meter:
        subscribe = device.envelope("<wsa:Action>urn:bench/Subscribe</wsa:Action>", wanted)
        async with session.post(url, data=subscribe) as answer:
            await answer.read()
        get_mdib = device.envelope("<wsa:Action>urn:bench/GetMdib</wsa:Action>", "")
        async with session.post(url, data=get_mdib) as answer:
            raw = await answer.read()
        rows = await asyncio.to_thread(lambda: list(_mdib_rows(raw)))
        await asyncio.to_thread(reports.commit, rows)
        seconds = time.perf_counter() - start_s
    return Reading(len(rows), seconds, peak_bytes(), meter.longest_s)


async def _run(url: str, store: str) -> None:
    reports = _Reports(store)
    runner = web.ServerRunner(web.Server(reports.take, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    writing = asyncio.create_task(reports.write())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writing.cancel)
    notify_to = f"http://127.0.0.1:{runner.addresses[0][1]}/bench"
    gc.collect()
    gc.freeze()
    reading = await _align(url, notify_to, reports)
    print(msgspec.json.encode(reading).decode(), flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    await runner.cleanup()


def main() -> None:
    """Read the MDIB, print how that went, and receive reports until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--store", required=True, metavar="FILE")
    given = parser.parse_args()
    asyncio.run(_run(given.url, given.store))


if __name__ == "__main__":
    main()
