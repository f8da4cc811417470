"""Commits what a record in quarantine was decoded to, after all (A11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.errors import SinkError
from instep.model.records import Record
from instep_sql import fencing
from instep_sql.engine.dialect import Dialect
from instep_sql.entities import commit, quarantine, streams, unproven
from instep_sql.options import SqlOptions

__all__ = ["replay"]

_QUARANTINED: Final = text("""
    SELECT s.consumer, s.stream
    FROM instep_quarantine AS q JOIN instep_stream AS s ON s.id = q.stream_no
    WHERE q.id = :id
""")


def replay(
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    entry: int,
    records: Sequence[Record],
    now_us: int,
) -> int:
    """Write the records of this entry by rule A3, beside a consumer that may be running (A11).
    Returns the number of entities changed. Raises `SinkError` if there is no such entry.
    """
    found = connection.execute(_QUARANTINED, {"id": entry}).one_or_none()
    if found is None:
        raise SinkError(
            f"there is no record {entry} in quarantine",
            where=dialect.where,
            hint="see `instep quarantine list`",
        )
    fencing.lock_stream(connection, found.consumer, found.stream)
    row = streams.find(connection, found.consumer, found.stream)
    assert row is not None
    options = msgspec.structs.replace(options, journal=row.journal)
    tx = streams.StreamTransaction(connection, dialect, row.no, now_us, options, row)
    done = commit.write_records(tx, row.position, records, by_uuid=row.baseline)
    if row.singled_out:
        unproven.prove_again(tx, row.position.attempt)
    unproven.recount(tx)
    commit.derive_changed(tx, ())
    quarantine.mark_replayed(connection, entry, now_us)
    return done.written + done.deleted
