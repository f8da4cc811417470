"""The floor: the same job without any guarantee, built from the fastest parts with their best
settings.

No discovery, no resumption, no order, no alignment, no bad input: frames of one known shape are
received, their headers decoded, compacted by key, and upserted with a position in one transaction;
the loop receives while one worker thread decodes and writes. With a journal it keeps of each record
what the product keeps of each change; other tables have the columns of the product's. It is what
the product is measured against, so anything that makes it faster belongs into it.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final

import msgspec
from picows import WSFrame, WSListener, WSTransport, ws_connect

from bench.alignment.alarm import SHAPES
from bench.alignment.floor_kept import KEPT, SCHEMA, Kept, kept_rows
from bench.alignment.floor_postgres import PostgresTable
from bench.report import Result, rss_bytes, settle

__all__ = ["main"]

_BATCH_RECORDS: Final = 20_000
_MARK: Final = b'"log-record-header"'

_SCHEMA: Final = """
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA cache_size = -262144;
PRAGMA wal_autocheckpoint = 10000;
CREATE TABLE IF NOT EXISTS entity (
    key TEXT PRIMARY KEY, token TEXT NOT NULL, appended_at TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS change (
    cursor INTEGER PRIMARY KEY, key TEXT NOT NULL, class TEXT NOT NULL, token TEXT NOT NULL,
    appended_at TEXT NOT NULL, committed_at REAL NOT NULL, envelope BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS position (stream INTEGER PRIMARY KEY, token TEXT NOT NULL);
"""
_ROWS_A_STATEMENT: Final = (5_000, 500, 50, 5, 1)
"""The driver releases the interpreter's lock once a statement, and waits for it afterwards; so a
statement writes many rows."""
_UPSERT: Final = """
INSERT INTO entity VALUES {} ON CONFLICT (key) DO UPDATE SET
    token = excluded.token, appended_at = excluded.appended_at, body = excluded.body
"""
_MOST_PARAMETERS: Final = 32_000
_CHANGE: Final = """
INSERT INTO change (key, class, token, appended_at, committed_at, envelope) VALUES {}
"""
_ENVELOPE: Final = bytearray(b'{"event-time-stamp":%b,"record-content":"%b"}')
_MOVE: Final = "INSERT OR REPLACE INTO position VALUES (1, ?)"


class _Header(msgspec.Struct, rename="kebab", gc=False):
    token: str
    log_append_time_stamp: str
    entity_key: str


class _Record(msgspec.Struct, rename="kebab", gc=False):
    log_record_header: _Header
    log_record_body: msgspec.Raw


class _Body(msgspec.Struct, rename="kebab", gc=False):
    """What the journal keeps of a body."""

    record_content: str
    event_time_stamp: msgspec.Raw


class _Listed(msgspec.Struct, rename="kebab", gc=False):
    log_record: list[_Record]


class _Inner(msgspec.Struct, rename="kebab", gc=False):
    log_record: _Record


def _with_module(name: str) -> str:
    return "tapi-streaming:" + name.replace("_", "-")


class _PrefixedHeader(_Header, rename=_with_module, gc=False):
    token: str
    log_append_time_stamp: str
    entity_key: str


class _Prefixed(msgspec.Struct, rename=_with_module, gc=False):
    log_record_header: _PrefixedHeader
    log_record_body: msgspec.Raw


_one = msgspec.json.Decoder(_Record)
_listed = msgspec.json.Decoder(_Listed)
_inner = msgspec.json.Decoder(_Inner)
_prefixed = msgspec.json.Decoder(_Prefixed)
_OF_SHAPES: Final[dict[str, Callable[[list[bytes]], list[Any]]]] = {
    "list": lambda frames: [one for frame in frames for one in _listed.decode(frame).log_record],
    "object": lambda frames: [_inner.decode(frame).log_record for frame in frames],
    "prefixed": lambda frames: [_prefixed.decode(frame) for frame in frames],
}
_many = msgspec.json.Decoder(list[_Record])
_body = msgspec.json.Decoder(_Body).decode


class _SqliteTable:
    """The database, used by one thread."""

    def __init__(self, url: str, *, journal: bool, kept: str = "") -> None:
        path = url.removeprefix("sqlite:///")
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.executescript(_SCHEMA + SCHEMA * bool(kept))
        self.journal = journal
        self.kept = kept

    def token(self) -> str | None:
        row = self._db.execute("SELECT token FROM position").fetchone()
        return None if row is None else str(row[0])

    def write(
        self,
        rows: list[tuple[Any, ...]],
        changes: list[tuple[Any, ...]],
        token: str,
        kept: Kept,
    ) -> None:
        """One transaction."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        self._insert(_UPSERT, rows)
        self._insert(_CHANGE, changes)
        for statement, own in kept.items():
            self._insert(statement, own)
        db.execute(_MOVE, (token,))
        db.execute("COMMIT")

    def _insert(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        done = 0
        for size in _ROWS_A_STATEMENT:
            while done + size <= len(rows) and size * len(rows[0]) <= _MOST_PARAMETERS:
                marks = _marks(len(rows[0]), size)
                values = tuple(chain.from_iterable(rows[done : done + size]))
                self._db.execute(statement.format(marks), values)
                done += size

    def close(self) -> None:
        self._db.close()


@lru_cache
def _marks(columns: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


def _bare_or_many(frames: list[bytes]) -> list[_Record]:
    return [
        record
        for frame in frames
        for record in (_many.decode(frame) if frame[:1] == b"[" else (_one.decode(frame),))
    ]


def _write(table: _SqliteTable | PostgresTable, shape: str, frames: list[bytes]) -> int:
    """Decode and commit these frames. Returns the number of records."""
    decoded = _OF_SHAPES.get(shape, _bare_or_many)(frames)
    headers = [record.log_record_header for record in decoded]
    latest = {record.log_record_header.entity_key: record for record in decoded}
    rows: list[tuple[Any, ...]] = [
        (
            key,
            record.log_record_header.token,
            record.log_record_header.log_append_time_stamp,
            bytearray(record.log_record_body),
        )
        for key, record in latest.items()
    ]
    changes = _changes(decoded) if table.journal else []
    kept: Kept = {}
    if table.kept:
        bodies = {key: bytes(record.log_record_body) for key, record in latest.items()}
        kept = kept_rows(table.kept, bodies)
    table.write(rows, changes, headers[-1].token, kept)
    return len(headers)


def _changes(decoded: list[_Record]) -> list[tuple[Any, ...]]:
    """What the journal of the product keeps of each change; of which of them is none, nothing is
    known here.
    """
    now_s = time.time()
    changes: list[tuple[Any, ...]] = []
    for record in decoded:
        of, body = record.log_record_header, _body(record.log_record_body)
        name, stamp = body.record_content, body.event_time_stamp
        envelope = _ENVELOPE % (stamp, name.encode())
        changes.append((of.entity_key, name, of.token, of.log_append_time_stamp, now_s, envelope))
    return changes


_Table = _SqliteTable | PostgresTable


class _Receiver(WSListener):
    """Keeps frames until they are taken. While it is full, the socket is not read."""

    def __init__(self) -> None:
        super().__init__()
        self._frames: list[bytes] = []
        self._records = 0
        self._transport: WSTransport | None = None
        self.filled = asyncio.Event()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        payload = frame.get_payload_as_bytes()
        self._frames.append(payload)
        self._records += payload.count(_MARK) if payload[:1] == b"[" else 1
        if self._records >= _BATCH_RECORDS:
            transport.underlying_transport.pause_reading()
        self.filled.set()

    def take(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        if self._records >= _BATCH_RECORDS and self._transport is not None:
            self._transport.underlying_transport.resume_reading()
        self._records = 0
        self.filled.clear()
        return frames


async def _run(
    url: str, store: str, records: int, shape: str, *, journal: bool, kept: str
) -> Result:
    loop = asyncio.get_running_loop()
    make: Callable[..., _Table] = _SqliteTable if store.startswith("sqlite:") else PostgresTable
    memory = []
    with ThreadPoolExecutor(1) as worker:
        table = await loop.run_in_executor(worker, partial(make, store, journal=journal, kept=kept))
        token = await loop.run_in_executor(worker, table.token)
        address = f"{url.replace('http', 'ws', 1)}/stream" + (
            f"?start_from={token}" if token else ""
        )
        settle()
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        receiver = _Receiver()
        transport, _ = await ws_connect(lambda: receiver, address, max_frame_size=1 << 20)
        done = 0
        while done < records:
            await receiver.filled.wait()
            done += await loop.run_in_executor(worker, _write, table, shape, receiver.take())
            memory.append((done, rss_bytes()))
        seconds = time.perf_counter() - start_s
        cpu_seconds = time.process_time() - start_cpu_s
        transport.disconnect()
        await loop.run_in_executor(worker, table.close)
    return Result(done, seconds, memory, cpu_seconds)


def main() -> None:
    """Receive so many records into a store, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--store", required=True, metavar="URL")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--kept", default="", choices=["", *KEPT])
    parser.add_argument("--shape", default="", choices=SHAPES)
    given = parser.parse_args()
    of = (given.url, given.store, given.records, given.shape)
    result = asyncio.run(_run(*of, journal=given.journal, kept=given.kept))
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
