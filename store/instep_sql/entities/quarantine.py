"""Records that could not be read, kept with their bytes (A11)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from sqlalchemy import Connection, text

from instep.errors import StoreUnavailableError
from instep.model.records import Unreadable
from instep.model.storable import without_nul
from instep_sql.engine.bulk_writes import StoredTable, typed
from instep_sql.engine.dialect import Dialect
from instep_sql.options import SqlOptions

__all__ = ["drop", "keep", "make_room_for_message", "mark_replayed"]

_DIGEST_BYTES: Final = 16
_QUARANTINE: Final = StoredTable(
    "instep_quarantine",
    {
        **typed(int, "stream_no"),
        **typed(str, "reason", "token"),
        **typed(int, "received_at_us"),
        **typed(bytes, "digest", "raw"),
    },
    key=("stream_no", "digest"),
)
_SIZE: Final = """
    SELECT count(*) AS records, coalesce(sum(length(raw)), 0) AS bytes
    FROM instep_quarantine WHERE {owned}
"""
_REPLAYED_KEPT: Final = """
    SELECT id, length(raw) AS bytes FROM instep_quarantine
    WHERE {owned} AND replayed_at_us IS NOT NULL ORDER BY id
"""
_OF_STREAM: Final = "stream_no = :no"
_OF_RECEIVER: Final = "receiver_no = :no"
_OF_CONSUMER: Final = """stream_no IN (
    SELECT id FROM instep_stream
    WHERE consumer = (SELECT consumer FROM instep_stream WHERE id = :no))
"""
_DROP: Final = text("DELETE FROM instep_quarantine WHERE id = :id")
_DROP_ALL: Final = text("DELETE FROM instep_quarantine")
_DROP_STREAM: Final = text("""
    DELETE FROM instep_quarantine
    WHERE scope = :stream
       OR scope IS NULL AND stream_no IN (SELECT id FROM instep_stream WHERE stream = :stream)
""")
_REPLAYED: Final = text("UPDATE instep_quarantine SET replayed_at_us = :now_us WHERE id = :id")


def keep(
    connection: Connection,
    dialect: Dialect,
    no: int,
    unreadable: Sequence[Unreadable],
    *,
    options: SqlOptions,
    now_us: int,
) -> None:
    """Add records to the quarantine (A11); the same record received again is kept once.

    Over a limit, replayed entries are removed, oldest first. No other entry is removed: a full
    quarantine raises `StoreUnavailableError`, and the batch is not committed.
    """
    rows = [
        (
            no,
            without_nul(one.reason),
            None if one.token is None else without_nul(one.token),
            now_us,
            _digest(one),
            one.raw,
        )
        for one in unreadable
    ]
    dialect.insert_rows(connection, _QUARANTINE, rows, ignore_existing=True)
    of_stream = options.quarantine_max_records, options.quarantine_max_bytes
    in_all = options.quarantine_total_records, options.quarantine_total_bytes
    for owner, owned, key, (limit_records, limit_bytes) in (
        ("stream", _OF_STREAM, "quarantine_max", of_stream),
        ("consumer", _OF_CONSUMER, "quarantine_total", in_all),
    ):
        if not _make_room(connection, owned, no, limit_records, limit_bytes):
            raise StoreUnavailableError(
                f"the quarantine of the {owner} is full ({limit_records:,} records or"
                f" {limit_bytes:,} bytes)",
                where=dialect.where,
                hint="look at it with `instep quarantine list`, replay what can be read and drop"
                f" the rest, or raise {key}_records or {key}_bytes",
                limit_records=limit_records,
                limit_bytes=limit_bytes,
            )


def make_room_for_message(
    connection: Connection, receiver_no: int, options: SqlOptions, *, more_bytes: int
) -> bool:
    """Whether the quarantine of a receiver, with one more message of `more_bytes`, is within the
    limits. Replayed entries are removed if needed, oldest first.
    """
    limits = options.quarantine_max_records - 1, options.quarantine_max_bytes - more_bytes
    return _make_room(connection, _OF_RECEIVER, receiver_no, *limits)


def _make_room(
    connection: Connection, owned: str, no: int, limit_records: int, limit_bytes: int
) -> bool:
    """Whether what is owned is within the limits, after replayed entries are removed as needed."""
    size = connection.execute(text(_SIZE.format(owned=owned)), {"no": no}).one()
    over_records, over_bytes = size.records - limit_records, size.bytes - limit_bytes
    if over_records <= 0 and over_bytes <= 0:
        return True
    forgotten: list[dict[str, int]] = []
    replayed = text(_REPLAYED_KEPT.format(owned=owned))
    for row in connection.execute(replayed, {"no": no}).all():
        forgotten.append({"id": row.id})
        over_records, over_bytes = over_records - 1, over_bytes - row.bytes
        if over_records <= 0 and over_bytes <= 0:
            connection.execute(_DROP, forgotten)
            return True
    return False


def mark_replayed(connection: Connection, entry: int, now_us: int) -> None:
    """Note that the record was read after all. The entry stays until its space is needed."""
    connection.execute(_REPLAYED, {"id": entry, "now_us": now_us})


def drop(connection: Connection, ids: Sequence[int] | None, stream: str | None) -> int:
    """Remove these entries (None: all entries of the stream, or of the store). Returns their
    number.
    """
    if ids is not None:
        return sum(connection.execute(_DROP, {"id": id}).rowcount for id in ids)
    if stream is not None:
        return connection.execute(_DROP_STREAM, {"stream": stream}).rowcount
    return connection.execute(_DROP_ALL).rowcount


def _digest(unreadable: Unreadable) -> bytes | None:
    """Identifies a record that is received again. None without a token: two equal records may then
    be two.
    """
    if unreadable.token is None:
        return None
    return blake2b(
        unreadable.raw, key=unreadable.token.encode()[-64:], digest_size=_DIGEST_BYTES
    ).digest()
