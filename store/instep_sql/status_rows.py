"""What `instep status` asks a store, and what the rows say: plain SQL, which SQLAlchemy and the
drivers understand alike.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from instep.coordination.lease import LeaseState
from instep.model.entities import StreamStatus
from instep.model.position import Phase, decode_position

__all__ = [
    "HEAD",
    "LEASES",
    "LEASE_COLUMNS",
    "STORED_VERSION",
    "STREAMS",
    "VERSION_TABLE",
    "file_status",
    "lease_state",
    "stream_status",
]

VERSION_TABLE: Final = "instep_schema"
HEAD: Final = "0100"
"""The newest revision in `migrations/versions` (a test holds them equal)."""
STORED_VERSION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
STREAMS: Final = """
    SELECT s.*,
      (SELECT count(*) FROM instep_entity AS e WHERE e.stream_no = s.id) AS entities,
      (SELECT count(*) FROM instep_entity AS e WHERE e.stream_no = s.id AND e.proven = 0)
        AS unproven,
      (SELECT count(*) FROM instep_quarantine AS q
       WHERE q.stream_no = s.id AND q.replayed_at_us IS NULL) AS quarantined
    FROM instep_stream AS s WHERE s.kind = 'stream' ORDER BY s.consumer, s.stream
"""
LEASE_COLUMNS: Final = "consumer, epoch, nonce, beat, holder, lease_s, asked_epoch = epoch AS asked"
LEASES: Final = f"SELECT {LEASE_COLUMNS} FROM instep_lease ORDER BY consumer"
_SEQUENCE: Final = "SELECT id FROM instep_sequence LIMIT 1"
_FILE: Final = "sqlite:///"


def file_status(url: str) -> tuple[list[StreamStatus], dict[str, LeaseState]] | None:
    """What `SqlReader.streams` and `leases` return, of a plain SQLite file: without SQLAlchemy,
    which takes longer to import than all else that `instep status` does.

    None: ask the reader, which waits, or says what is wrong. So for a server, further parameters in
    the URL, another version, a lock, a file that is no store, and for numbered sequences.
    """
    file = Path(url.removeprefix(_FILE))
    if not url.startswith(_FILE) or "?" in url or not file.exists():
        return None
    try:
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
            connection.row_factory = _with_attributes
            connection.execute("PRAGMA query_only = ON")
            # One transaction: streams and leases are of one moment.
            connection.execute("BEGIN")
            version = connection.execute(STORED_VERSION).fetchone()
            if version is None or version.version_num != HEAD:
                return None
            if connection.execute(_SEQUENCE).fetchone() is not None:
                return None
            return (
                [stream_status(row) for row in connection.execute(STREAMS)],
                {row.consumer: lease_state(row) for row in connection.execute(LEASES)},
            )
    except sqlite3.Error:
        return None


def _with_attributes(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> SimpleNamespace:
    """A row as SQLAlchemy would give it."""
    names = (column[0] for column in cursor.description)
    return SimpleNamespace(**dict(zip(names, row, strict=True)))


def stream_status(row: Any) -> StreamStatus:
    """A row of `STREAMS`, whose columns are its attributes."""
    position, info, unproven = decode_position(row.position), json.loads(row.info), row.unproven
    if info.get("not_offered_since_us"):
        position = msgspec.structs.replace(position, phase=Phase.NOT_OFFERED)
        unproven = row.entities
    return StreamStatus(
        consumer=row.consumer,
        stream=row.stream,
        position=position,
        info=info,
        entities=row.entities,
        quarantined=row.quarantined,
        deviations=json.loads(row.deviations),
        updated_at_us=row.updated_at_us,
        unproven=unproven,
    )


def lease_state(row: Any) -> LeaseState:
    """A row of `LEASE_COLUMNS`, whose columns are its attributes."""
    return LeaseState(
        epoch=row.epoch,
        nonce=row.nonce,
        beat=row.beat,
        holder=row.holder,
        lease_s=row.lease_s,
        asked=bool(row.asked),
    )
