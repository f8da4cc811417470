"""The transaction of a commit: its steps and their order (TR-548 ST-2.2; A1, A3 to A7)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from instep.model.batches import Batch, CommitResult
from instep.model.columns import all_whole
from instep.model.position import Position
from instep.model.records import Record
from instep_sql import fencing
from instep_sql.derived.entities import derive_entities
from instep_sql.derived.statements import apply_records, end_swept, trim_tables
from instep_sql.deviations import count_deviations
from instep_sql.engine.dialect import Dialect
from instep_sql.entities import journal, quarantine, streams
from instep_sql.entities.change_only import compose_records
from instep_sql.entities.entity_rows import write_rounds
from instep_sql.entities.key_reconciliation import JoinedRecords, join_baseline, mark_proven
from instep_sql.entities.streams import StreamRow
from instep_sql.entities.sweep import sweep
from instep_sql.options import Journal, SqlOptions
from instep_sql.projections import maintenance as projected
from instep_sql.projections.projection import Projection

__all__ = ["Written", "commit", "derive_changed", "write_records"]


class Written(msgspec.Struct, frozen=True):
    """The result of writing the records of a batch, as counts of entities."""

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
    projections: Sequence[Projection] = (),
) -> CommitResult:
    """Write all of a batch in the caller's transaction.

    1. The position is advanced (A1); `FencedError` if another process has advanced it.
    2. Records are written by rule A3, and their changes appended to the journal. What is derived
       from statements follows each of them.
    3. The step of the sweep follows: the entities of the batch are marked by then.
    4. What is derived from entities follows those that have changed, and so do projections.
    5. Unreadable records go to quarantine, and departures from the specification are counted.
    6. The journal and what is derived are trimmed to their retention.
    """
    fencing.advance_stream(connection, dialect, stream.no, batch, now_us)
    written = Written()
    if batch.records:
        written = write_records(
            connection,
            dialect,
            options,
            stream,
            msgspec.structs.replace(batch.position, lineage=batch.lineage),
            batch.records,
            by_uuid=batch.by_uuid,
            now_us=now_us,
        )
    if written.unresolved_keys:
        # An end under an unknown key may be about an entity that only a GET has shown.
        streams.set_baseline_pending(connection, stream.no, batch.position)
    result = CommitResult(
        written=written.written, deleted=written.deleted, unresolved_keys=written.unresolved_keys
    )
    if batch.sweep is not None:
        swept = sweep(connection, dialect, stream, batch.sweep, mode=options.journal, now_us=now_us)
        result = msgspec.structs.replace(
            result, swept=len(swept.keys), sweep_cursor=swept.cursor, sweep_done=swept.done
        )
        if stream.kept.statements:
            end_swept(
                connection,
                dialect,
                stream.no,
                stream.kept.statements,
                swept.keys,
                batch.position.attempt_started_at_us,
                done=swept.done,
            )
    # After the sweep: what it has removed counts as changed, too.
    derive_changed(connection, dialect, stream, projections, now_us)
    if batch.unreadable:
        quarantine.keep(
            connection,
            dialect,
            stream.no,
            batch.unreadable,
            options=options,
            now_us=now_us,
        )
    if batch.deviations:
        count_deviations(connection, "instep_stream", stream.no, batch.deviations)
    if options.journal is not Journal.OFF:
        journal.trim(connection, dialect, options, len(batch.records) + result.swept, now_us)
    if stream.kept.statements:
        trim_tables(connection, dialect, stream.kept.statements, options, len(batch.records))
    return result


def derive_changed(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    projections: Sequence[Projection],
    now_us: int,
) -> None:
    """Derive what the entities of a stream state that have changed, whatever changed them."""
    for derivation in stream.kept.entities:
        derive_entities(connection, dialect, stream.no, derivation, now_us)
    projected.follow(connection, dialect, stream.no, projections, now_us)


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
    """Write, mark or end the entities of the records, under the position's lineage and attempt.

    If the stream needs it, the records are first given the keys of the stored entities and composed
    into whole records. Other streams pay nothing for it.
    """
    joined = JoinedRecords(records)
    if by_uuid:
        # A stream's key of an entity and the uuid that a GET shows may differ.
        joined = join_baseline(connection, dialect, stream, position, records)
        records = joined.records
    if stream.change_only or not all_whole(records):
        # A partial update says nothing about the entity alone: it is merged into what is stored.
        composed = compose_records(connection, dialect, stream, position, records)
        records = composed.records
        if composed.unresolved:
            quarantine.keep(
                connection,
                dialect,
                stream.no,
                composed.unresolved,
                options=options,
                now_us=now_us,
            )
    # Before anything is written: a change is what differs from what is stored now.
    if options.journal is not Journal.OFF:
        journal.append_changes(
            connection,
            dialect,
            stream,
            position.lineage,
            records,
            mode=options.journal,
            now_us=now_us,
        )
    no, lineage, attempt = stream.no, position.lineage, position.attempt
    if stream.kept.statements:
        kept = stream.kept.statements
        apply_records(connection, dialect, no, kept, records, position, stream.info, now_us)
    written = deleted = 0
    for upserts, ends in write_rounds(records, no, lineage, composed=stream.change_only):
        deleted += dialect.end_entities(connection, ends)
        written += dialect.upsert_entities(
            connection, (no, lineage, attempt), upserts, keys_are_uuids=stream.keys_are_uuids
        )
    if joined.shown:
        # Also where a newer record keeps its content (A3): the GET has shown that it exists.
        mark_proven(connection, dialect, no, attempt, joined.shown)
    return Written(written, deleted, joined.unresolved_keys)
