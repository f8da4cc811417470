"""The floor: aiohttp, lxml, and one SQLite transaction for what has arrived.

It subscribes, reads the MDIB and inserts it; then it reads of each report its number, its version,
and its states with their handles and classes, and upserts them as JSON together with the position,
as the product does; it answers when that is durable. No order, no duplicates, no gaps, no bad
input, no limits, no containment.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sqlite3
import time
from collections.abc import Iterator
from typing import Final

import aiohttp
import msgspec
from aiohttp import web
from lxml import etree
from lxml.etree import _Element

from bench.group_commit import GroupCommit, served
from bench.reports import device
from bench.reports.reading import Reading, StallMeter, peak_bytes

__all__ = ["TABLE", "main"]

TABLE: Final = "entity"
_SCHEMA: Final = f"""
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


def _write(db: sqlite3.Connection, rows: list[Row]) -> None:
    db.executemany(_UPSERT, rows)
    db.execute(_MOVE, (rows[-1][2],))


async def _align(url: str, notify_to: str, reports: GroupCommit) -> Reading:
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
    reports = GroupCommit(store, _SCHEMA, _write)

    async def take(request: web.BaseRequest) -> web.StreamResponse:
        await reports.add(_rows(await request.read()))
        return web.Response(status=202)

    async with served(take, reports) as port:
        gc.collect()
        gc.freeze()
        reading = await _align(url, f"http://127.0.0.1:{port}/bench", reports)
        print(msgspec.json.encode(reading).decode(), flush=True)


def main() -> None:
    """Read the MDIB, print how that went, and receive reports until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--store", required=True, metavar="FILE")
    given = parser.parse_args()
    asyncio.run(_run(given.url, given.store))


if __name__ == "__main__":
    main()
