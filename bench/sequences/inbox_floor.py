"""The floor of the durable inbox: aiohttp, and one SQLite transaction for what has arrived.

No order, no duplicates, no bad input, no limits: the JSON or the envelope of each message is read.
Messages that arrive while a transaction runs are inserted by the next one, and answered only then:
with an acknowledgement of that one message where the protocol has it in the response.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from aiohttp import web
from lxml import etree

from bench.sequences.protocols import RM, SOAP_TYPE, WSR, envelope

__all__ = ["TABLE", "main"]

TABLE: Final = "message"
_SCHEMA: Final = f"""
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -131072;
PRAGMA wal_autocheckpoint = 10000;
CREATE TABLE {TABLE} (place INTEGER PRIMARY KEY, thread TEXT NOT NULL, sender TEXT NOT NULL,
                      number INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL);
"""
_INSERT: Final = f"INSERT INTO {TABLE} (thread, sender, number, id, body) VALUES (?, ?, ?, ?, ?)"

Row = tuple[str, str, int, str, bytes]


class _Message(msgspec.Struct, gc=False):
    id: str
    type: str
    thid: str
    sender_order: int
    sender: str = msgspec.field(name="from")


_decoder = msgspec.json.Decoder(_Message)


def _didcomm(raw: bytes) -> Row:
    message = _decoder.decode(raw)
    return message.thid, message.sender, message.sender_order, message.id, raw


def _wsrm(raw: bytes) -> Row | None:
    header = etree.fromstring(raw)[0]
    sequence = header.find(f"{{{RM}}}Sequence")
    if sequence is None:
        return None
    identifier, number = (one.text or "" for one in sequence)
    return identifier, "", int(number), header[1].text or "", raw


def _wsr(raw: bytes) -> Row:
    identified = etree.fromstring(raw)[0].find(f"{{{WSR}}}Request/{{{WSR}}}MessageId")
    assert identified is not None
    group, number = identified.get("groupId", ""), int(identified[0].get("number", ""))
    return group, "", number, f"{group}#{number}", raw


def _accepted(_: Row) -> web.Response:
    return web.Response(status=202)


def _acknowledged(row: Row) -> web.Response:
    scope, _, number, relates_to, _ = row
    header = (
        f'<a:Action s:mustUnderstand="1">{RM}/SequenceAcknowledgement</a:Action>'
        f"<a:RelatesTo>{relates_to}</a:RelatesTo>"
        f"<r:SequenceAcknowledgement><r:Identifier>{scope}</r:Identifier>"
        f'<r:AcknowledgementRange Lower="1" Upper="{number}"/></r:SequenceAcknowledgement>'
    )
    return web.Response(body=envelope(RM, header), content_type=SOAP_TYPE)


def _replied(row: Row) -> web.Response:
    scope, _, number, _, _ = row
    header = (
        f'<r:Response s:mustUnderstand="1"><r:SequenceReplies groupId="{scope}">'
        f'<r:ReplyRange from="0" to="{number}"/></r:SequenceReplies></r:Response>'
    )
    return web.Response(body=envelope(WSR, header), content_type=SOAP_TYPE)


_ANSWERS: Final[dict[str, Callable[[Row], web.Response]]] = {
    "didcomm": _accepted,
    "wsrm": _acknowledged,
    "wsr": _replied,
}
_DECODERS: Final[dict[str, Callable[[bytes], Row | None]]] = {
    "didcomm": _didcomm,
    "wsrm": _wsrm,
    "wsr": _wsr,
}


class _Inbox:
    """Takes messages, and writes them in groups."""

    def __init__(self, store: str, protocol: str) -> None:
        self._decode, self._answer = _DECODERS[protocol], _ANSWERS[protocol]
        self._db = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
        self._db.executescript(_SCHEMA)
        self._rows: list[Row] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._came = asyncio.Event()

    async def take(self, request: web.BaseRequest) -> web.StreamResponse:
        row = self._decode(await request.read())
        if row is None:
            return web.Response(status=202)
        self._rows.append(row)
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append(durable)
        self._came.set()
        await durable
        return self._answer(row)

    async def write(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as worker:
            while True:
                await self._came.wait()
                self._came.clear()
                rows, self._rows = self._rows, []
                waiting, self._waiting = self._waiting, []
                await loop.run_in_executor(worker, self._commit, rows)
                for durable in waiting:
                    durable.set_result(None)

    def _commit(self, rows: list[Row]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(_INSERT, rows)
        self._db.execute("COMMIT")


async def _run(store: str, protocol: str) -> None:
    inbox = _Inbox(store, protocol)
    runner = web.ServerRunner(web.Server(inbox.take, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    writing = asyncio.create_task(inbox.write())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writing.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    await runner.cleanup()


def main() -> None:
    """Listen on a free port, print it, and receive until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, metavar="FILE")
    parser.add_argument("--protocol", choices=_DECODERS, default="didcomm")
    given = parser.parse_args()
    asyncio.run(_run(given.store, given.protocol))


if __name__ == "__main__":
    main()
