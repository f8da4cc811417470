"""The transaction of a commit: what is done, in which order (TR-548 ST-2.2; A1 and
A3 to A7).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from instep.position import Position
from instep.records import Batch, CommitResult, Record
from instep.stretch import all_whole
from instep_sql import journal, parts, quarantine, streams, uuids
from instep_sql.dialect import Dialect
from instep_sql.entity_rows import entity_rows
from instep_sql.options import Journal, SqlOptions
from instep_sql.streams import StreamRow
from instep_sql.sweep import sweep

__all__ = ["Written", "commit", "write_records"]


class Written(msgspec.Struct, frozen=True):
    """What became of the records of a batch."""

    written: int = 0
    deleted: int = 0
    unresolved_keys: tuple[str, ...] = ()


def commit(
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    stream: StreamRow,
    batch: Batch,
    now_us: int,
) -> CommitResult:
    """All of a batch, in the caller's transaction.

    1. The position moves, if nobody else has moved it (`FencedError`).
    2. Records are written by rule A3 and told to the journal.
    3. The sweep's step follows, so that what the batch states is marked before.
    4. What could not be read goes to quarantine, what departs from the specification is counted.
    5. The journal is trimmed to its retention.
    """
    streams.move(connection, dialect, stream.no, batch, now_us)
    written = Written()
    if batch.records:
        written = write_records(
            connection,
            dialect,
            options,
            stream,
            batch.position,
            batch.records,
            by_uuid=batch.by_uuid,
            now_us=now_us,
        )
    if written.unresolved_keys:
        streams.owe_baseline(connection, stream.no, batch.position)
    result = CommitResult(
        written=written.written, deleted=written.deleted, unresolved_keys=written.unresolved_keys
    )
    if batch.sweep is not None:
        swept = sweep(connection, dialect, stream, batch.sweep, mode=options.journal, now_us=now_us)
        result = msgspec.structs.replace(
            result, swept=swept.swept, sweep_cursor=swept.cursor, sweep_done=swept.done
        )
    if batch.unreadable:
        quarantine.keep(
            connection,
            stream.no,
            batch.unreadable,
            options=options,
            now_us=now_us,
            where=dialect.where,
        )
    if batch.deviations:
        streams.count_deviations(connection, stream.no, batch.deviations)
    if options.journal is not Journal.OFF:
        journal.trim(connection, dialect, options, len(batch.records) + result.swept, now_us)
    return result


def write_records(
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    stream: StreamRow,
    position: Position,
    records: Sequence[Record],
    *,
    by_uuid: bool,
    now_us: int,
) -> Written:
    """Write, mark or end entities as the records say, under the position's lineage and attempt.

    Records are first brought to whole statements under the keys of the stored entities, where the
    stream needs that; others pay nothing for it.
    """
    unresolved: tuple[str, ...] = ()
    shown: set[str] = set()
    if by_uuid:
        joined = uuids.join(connection, dialect, stream, position, records)
        records, unresolved = joined.records, joined.unresolved_keys
        shown = {record.key for record in records if not record.token and not record.ends}
    if stream.by_change or not all_whole(records):
        composed = parts.compose(connection, dialect, stream.no, position, records)
        stream.by_change = True
        records = composed.records
        parts.release(connection, dialect, stream.no, records)
        if composed.unresolved:
            quarantine.keep(
                connection,
                stream.no,
                composed.unresolved,
                options=options,
                now_us=now_us,
                where=dialect.where,
            )
    if options.journal is not Journal.OFF:
        journal.tell(
            connection,
            dialect,
            stream.no,
            position.lineage,
            records,
            mode=options.journal,
            decided=stream.by_change,
            now_us=now_us,
        )
    no, lineage, attempt = stream.no, position.lineage, position.attempt
    upserts, ends = entity_rows(records, no, lineage, decided=stream.by_change)
    deleted = dialect.end_entities(connection, ends)
    written = dialect.upsert_entities(connection, (no, lineage, attempt), upserts)
    if shown:
        uuids.prove(connection, dialect, no, attempt, shown)
    return Written(written, deleted, unresolved)
