"""Records that could not be read, or that a database cannot store, kept with their bytes (A11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.batches import Batch
from instep.model.records import Record, Unreadable
from instep.model.storable import without_nul
from instep_sql.engine.bulk_writes import StoredTable, typed
from instep_sql.engine.dialect import json_array
from instep_sql.entities.streams import StreamTransaction
from instep_sql.options import SqlOptions

__all__ = [
    "accept",
    "drop",
    "drop_keys",
    "keep",
    "keep_samples",
    "make_room_for_message",
    "mark_replayed",
    "split_storable",
    "to_unreadable",
]

_QUARANTINE: Final = StoredTable(
    "instep_quarantine",
    {
        **typed(int, "stream_no"),
        **typed(str, "reason", "token", "key"),
        **typed(int, "received_at_us", "last_at_us", "times"),
        **typed(bytes, "digest", "raw"),
    },
    key=("stream_no", "digest"),
    updated={
        "times": "instep_quarantine.times + excluded.times",
        "last_at_us": "excluded.last_at_us",
    },
)
_SIZE: Final = """
    SELECT count(*) AS records, coalesce(sum(length(raw)), 0) AS bytes
    FROM instep_quarantine WHERE {owned}
"""
_GIVING_WAY: Final = """
    SELECT id, length(raw) AS bytes FROM instep_quarantine WHERE {owned}
    ORDER BY CASE WHEN replayed_at_us IS NOT NULL THEN 0 WHEN key IS NULL THEN 1 ELSE 2 END,
             last_at_us, id
    LIMIT :most
"""
_MOST_AT_ONCE: Final = 1_000
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
_ACCEPT: Final = text("""
    UPDATE instep_quarantine SET accepted_at_us = :now_us
    WHERE digest = :digest
      AND stream_no IN (SELECT id FROM instep_stream WHERE consumer = :consumer)
""")
_REPLAYED: Final = text("UPDATE instep_quarantine SET replayed_at_us = :now_us WHERE id = :id")
_SAMPLE: Final = text("""
    INSERT INTO instep_sample (stream_no, deviation, raw, at_us)
    VALUES (:no, :kind, :raw, :now_us) ON CONFLICT DO NOTHING
""")
_NUL: Final = "\x00"
_ESCAPED_NUL: Final = b"\\u0000"
_INDEXED_BYTES: Final = 2_600
"""With its other columns, a row of an index is then below the limit of PostgreSQL."""


def keep(tx: StreamTransaction, unreadable: Sequence[Unreadable]) -> int:
    """Add records to the quarantine (A11): one row for each digest, with a counter.

    Over a limit the oldest give way: first those that were replayed, last those whose key can be
    read. What they left unproven stays so. Returns how many gave way.
    """
    connection, options, no, now_us = tx.connection, tx.options, tx.no, tx.now_us
    times = Counter(one.digest for one in unreadable)
    rows = [
        (
            no,
            without_nul(one.reason),
            None if one.token is None else without_nul(one.token),
            None if one.key is None else without_nul(one.key),
            now_us,
            now_us,
            times[digest],
            bytes.fromhex(digest),
            one.raw,
        )
        for digest, one in {one.digest: one for one in unreadable}.items()
    ]
    tx.dialect.upsert_rows(connection, _QUARANTINE, rows)
    of_stream = options.quarantine_max_records, options.quarantine_max_bytes
    in_all = options.quarantine_total_records, options.quarantine_total_bytes
    gone = _give_way(connection, _OF_STREAM, no, *of_stream)
    return gone + _give_way(connection, _OF_CONSUMER, no, *in_all)


def _give_way(
    connection: Connection, owned: str, no: int, limit_records: int, limit_bytes: int
) -> int:
    """Remove what exceeds the limits; returns how many."""
    gone = 0
    size = connection.execute(text(_SIZE.format(owned=owned)), {"no": no}).one()
    over_records, over_bytes = size.records - limit_records, size.bytes - limit_bytes
    find = text(_GIVING_WAY.format(owned=owned))
    while over_records > 0 or over_bytes > 0:
        for row in connection.execute(find, {"no": no, "most": _MOST_AT_ONCE}).all():
            if over_records <= 0 and over_bytes <= 0:
                break
            connection.execute(_DROP, {"id": row.id})
            over_records, over_bytes = over_records - 1, over_bytes - row.bytes
            gone += 1
    return gone


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


def accept(connection: Connection, consumer: str, digest: str, now_us: int) -> int:
    """Note that these records are lost: they hold no entity any more (A17). Returns how many."""
    values = {"consumer": consumer, "digest": bytes.fromhex(digest), "now_us": now_us}
    return connection.execute(_ACCEPT, values).rowcount


def drop(connection: Connection, ids: Sequence[int] | None, stream: str | None) -> int:
    """Remove these entries (None: all entries of the stream, or of the store). Returns their
    number.
    """
    if ids is not None:
        return sum(connection.execute(_DROP, {"id": id}).rowcount for id in ids)
    if stream is not None:
        return connection.execute(_DROP_STREAM, {"stream": stream}).rowcount
    return connection.execute(_DROP_ALL).rowcount


def drop_keys(tx: StreamTransaction, keys: Collection[str], reason: str) -> None:
    """Remove the records of a stream with these keys that are kept for this reason."""
    removal = text(
        "DELETE FROM instep_quarantine WHERE stream_no = :no AND reason = :reason "
        f"AND key IN {tx.dialect.members('keys')}"
    )
    values = {"no": tx.no, "reason": reason, "keys": json_array(keys)}
    tx.connection.execute(removal, values)


def keep_samples(
    connection: Connection, no: int, samples: Mapping[str, bytes], now_us: int
) -> None:
    """Keep the first text of each kind that was no record (A17)."""
    for kind, raw in samples.items():
        connection.execute(_SAMPLE, {"no": no, "kind": kind, "raw": raw, "now_us": now_us})


def split_storable(batch: Batch) -> Batch:
    """The batch with such records moved to `unreadable`: PostgreSQL's text type cannot hold a NUL
    character, and its indexes no key of more than 2,704 bytes.
    """
    reasons = [_unstorable(record) for record in batch.records]
    pairs = list(zip(batch.records, reasons, strict=True))
    storable = [record for record, reason in pairs if not reason]
    unstorable = [to_unreadable(record, reason) for record, reason in pairs if reason]
    return batch.replace(records=storable, unreadable=[*batch.unreadable, *unstorable])


def _unstorable(record: Record) -> str:
    """Why the record cannot be stored; empty where it can."""
    if _has_nul(record):
        return "a NUL character in a key, token or name"
    if any(len(text.encode()) > _INDEXED_BYTES for text in (record.key, record.uuid)):
        return f"a key or uuid of more than {_INDEXED_BYTES} bytes, too long for an index"
    return ""


def _has_nul(record: Record) -> bool:
    texts = (record.key, record.entity_class, record.token, record.partition, record.uuid)
    if any(_NUL in text for text in texts):
        return True
    # The store parses the bodies of partial updates.
    return not record.whole and _ESCAPED_NUL in record.body


def to_unreadable(record: Record, reason: str) -> Unreadable:
    """The quarantine entry of a record that was read but cannot be stored."""
    body = record.body.decode(errors="replace")
    raw = msgspec.json.encode({"entity-key": record.key, "kind": record.kind.name, "body": body})
    return Unreadable(record.stream, raw, reason, record.token)
