"""What `instep status` asks a store, and what the rows say: plain SQL, which SQLAlchemy and the
drivers understand alike.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from instep.coordination.lease import LeaseState
from instep.model.entities import StreamStatus, Unproven
from instep.model.freshness import ProviderMonitor, StreamReport
from instep.model.position import Phase, Position, decode_position
from instep_sql.proof_sql import IS_UNPROVEN

__all__ = [
    "CONFORMANCE",
    "FOLLOWERS",
    "HEAD",
    "LEASES",
    "LEASE_COLUMNS",
    "SAMPLES",
    "SCOPES",
    "SQLITE_NOW_US",
    "STORED_VERSION",
    "STREAMS",
    "UNCOUNTED_STREAMS",
    "VERSION_TABLE",
    "file_status",
    "lease_state",
    "stream_statuses",
]

VERSION_TABLE: Final = "instep_schema"
HEAD: Final = "0109"
"""The newest revision in `migrations/versions` (a test holds them equal)."""
STORED_VERSION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
SQLITE_NOW_US: Final = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
"""The time of the database, in microseconds since 1970."""
_STREAM: Final = """
    SELECT s.*, f.connected, f.caught_up, f.opened_at_us, f.read_at_us, f.refused, f.readable,
      f.trouble, f.known_at_us, f.monitor, w.stale_after_s, {now_us} - w.heard_at_us AS silent_us,
      (SELECT count(*) FROM instep_quarantine AS q
       WHERE q.stream_no = s.id AND q.replayed_at_us IS NULL) AS quarantined,
      {counts}
    FROM instep_stream AS s
    LEFT JOIN instep_freshness AS f ON f.stream_no = s.id
    LEFT JOIN instep_follower AS w ON w.id = f.follower_no
    WHERE s.kind = 'stream' ORDER BY s.consumer, s.stream
"""
STREAMS: Final = _STREAM.replace(
    "{counts}",
    f"""(SELECT count(*) FROM instep_entity AS e WHERE e.stream_no = s.id) AS entities,
      CASE WHEN EXISTS (SELECT 1 FROM instep_unproven AS u
                        WHERE u.stream_no = s.id AND u.key = '')
        THEN (SELECT count(*) FROM instep_entity AS t
              WHERE t.stream_no = s.id AND {IS_UNPROVEN})
        ELSE (SELECT count(*) FROM instep_entity AS t WHERE t.stream_no = s.id AND t.proven = 0)
      END AS unproven""",
)
"""Format it with `now_us`: SQL for the time of the database."""
UNCOUNTED_STREAMS: Final = _STREAM.replace("{counts}", "0 AS entities, 0 AS unproven")
"""The same without the counts of entities, which take long where there are many."""
SCOPES: Final = """
    SELECT stream_no, class AS entity_class, partition, reason, digest, since_us
    FROM instep_unproven WHERE key = '' ORDER BY id
"""
FOLLOWERS: Final = """
    SELECT consumer, {now_us} - heard_at_us AS silent_us, stale_after_s FROM instep_follower
    ORDER BY heard_at_us
"""
"""The one heard last comes last."""
CONFORMANCE: Final = "SELECT consumer, report FROM instep_conformance ORDER BY consumer"
SAMPLES: Final = "SELECT stream_no, deviation, raw FROM instep_sample"
LEASE_COLUMNS: Final = "consumer, epoch, nonce, beat, holder, lease_s, asked_epoch = epoch AS asked"
LEASES: Final = f"SELECT {LEASE_COLUMNS} FROM instep_lease ORDER BY consumer"
_BY_READER: Final = """
    SELECT 1 FROM instep_sequence UNION ALL SELECT 1 FROM instep_conformance LIMIT 1
"""
_FILE: Final = "sqlite:///"


def file_status(url: str) -> tuple[list[StreamStatus], dict[str, LeaseState]] | None:
    """What `SqlReader.streams` and `leases` return, of a plain SQLite file: without SQLAlchemy,
    which takes longer to import than all else that `instep status` does.

    None: ask the reader, which waits, or says what is wrong. So for a server, further parameters in
    the URL, another version, a lock, a file that is no store, for numbered sequences, and for a
    consumer whose peer is judged.
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
            if connection.execute(_BY_READER).fetchone() is not None:
                return None
            return (
                stream_statuses(
                    connection.execute(STREAMS.format(now_us=SQLITE_NOW_US)),
                    connection.execute(SCOPES),
                    connection.execute(SAMPLES),
                ),
                {row.consumer: lease_state(row) for row in connection.execute(LEASES)},
            )
    except sqlite3.Error:
        return None


def _with_attributes(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> SimpleNamespace:
    """A row as SQLAlchemy would give it."""
    names = (column[0] for column in cursor.description)
    return SimpleNamespace(**dict(zip(names, row, strict=True)))


def stream_statuses(
    rows: Iterable[Any], scopes: Iterable[Any], samples: Iterable[Any]
) -> list[StreamStatus]:
    """The rows of `STREAMS` with those of `SCOPES` and `SAMPLES`, whose columns are attributes."""
    because: dict[int, list[Unproven]] = {}
    for one in scopes:
        because.setdefault(one.stream_no, []).append(
            Unproven(
                reason=one.reason,
                entity_class=one.entity_class,
                partition=one.partition,
                digest=one.digest,
                since_us=one.since_us,
            )
        )
    seen: dict[int, dict[str, bytes]] = {}
    for one in samples:
        seen.setdefault(one.stream_no, {})[one.deviation] = bytes(one.raw)
    return [
        StreamStatus(
            consumer=row.consumer,
            stream=row.stream,
            position=_position(row, info),
            info=info,
            entities=row.entities,
            quarantined=row.quarantined,
            deviations=json.loads(row.deviations),
            updated_at_us=row.updated_at_us,
            unproven=row.unproven,
            unproven_because=tuple(because.get(row.id, ())),
            samples=seen.get(row.id, {}),
            report=_report(row),
            monitor=_monitor(row.monitor) if row.monitor else None,
            heard_s=None if row.silent_us is None else max(0.0, row.silent_us / 1e6),
            stale_after_s=row.stale_after_s or 0.0,
        )
        for row in rows
        for info in [json.loads(row.info)]
    ]


def _position(row: Any, info: dict[str, Any]) -> Position:
    position = decode_position(row.position)
    if info.get("not_offered_since_us"):
        # Its worker may go on for a while, where its connection stands.
        return msgspec.structs.replace(position, phase=Phase.NOT_OFFERED)
    return position


_monitor: Final = msgspec.json.Decoder(ProviderMonitor).decode


def _report(row: Any) -> StreamReport | None:
    if row.connected is None:
        return None
    return StreamReport(
        stream=row.stream,
        connected=bool(row.connected),
        caught_up=bool(row.caught_up),
        opened_at_us=row.opened_at_us,
        read_at_us=row.read_at_us,
        refused=row.refused,
        readable=bool(row.readable),
        trouble=row.trouble,
        known_at_us=row.known_at_us,
        monitor=_monitor(row.monitor) if row.monitor else None,
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
