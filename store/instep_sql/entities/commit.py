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
from instep_sql.alarms import maintenance as alarms
from instep_sql.deviations import count_deviations
from instep_sql.engine.dialect import Dialect
from instep_sql.entities import (
    change_only,
    journal,
    key_reconciliation,
    quarantine,
    shared_keys,
    streams,
)
from instep_sql.entities.entity_rows import write_rounds
from instep_sql.entities.streams import StreamRow
from instep_sql.entities.sweep import sweep
from instep_sql.measurements import maintenance as measurements
from instep_sql.options import Journal, SqlOptions
from instep_sql.projections import maintenance as projected
from instep_sql.projections.projection import Projection
from instep_sql.references import maintenance as references

__all__ = ["Written", "commit", "write_records"]


class Written(msgspec.Struct, frozen=True):
    """The result of writing the records of a batch, as counts of entities."""

    written: int = 0
    deleted: int = 0
    unresolved_keys: tuple[str, ...] = ()
    whole: bool = True
    """Whether each entity that was stated was written."""
    deviations: dict[str, int] = {}
    """Of the provider, as only what is stored shows them (A10)."""


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
    2. Records are written by rule A3, and their changes appended to the journal. Where they are
       kept, episodes of alarms and series of measurements follow each statement.
    3. The step of the sweep follows: the entities of the batch are marked by then.
    4. Where they are kept, places, references and projections follow the changed entities.
    5. Unreadable records go to quarantine, and departures from the specification are counted.
    6. The journal, the episodes and the series are trimmed to their retention.
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
        streams.set_baseline_pending(connection, stream.no, batch.position)
    result = CommitResult(
        written=written.written, deleted=written.deleted, unresolved_keys=written.unresolved_keys
    )
    if batch.sweep is not None:
        swept = sweep(connection, dialect, stream, batch.sweep, mode=options.journal, now_us=now_us)
        result = msgspec.structs.replace(
            result, swept=len(swept.keys), sweep_cursor=swept.cursor, sweep_done=swept.done
        )
        if stream.alarms:
            began_us = batch.position.attempt_started_at_us
            alarms.swept(connection, dialect, stream.no, swept.keys, began_us, done=swept.done)
    if stream.references:
        references.follow(connection, dialect, stream.no, now_us)
    projected.follow(connection, dialect, stream.no, projections, now_us)
    if batch.unreadable:
        quarantine.keep(
            connection,
            dialect,
            stream.no,
            batch.unreadable,
            options=options,
            now_us=now_us,
        )
    if deviations := {**batch.deviations, **written.deviations}:
        count_deviations(connection, "instep_stream", stream.no, deviations)
    if options.journal is not Journal.OFF:
        journal.trim(connection, dialect, options, len(batch.records) + result.swept, now_us)
    if stream.alarms:
        alarms.trim(connection, dialect, options, len(batch.records))
    if stream.measurements:
        measurements.trim(connection, dialect, options, len(batch.records))
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
    """Write, mark or end the entities of the records, under the position's lineage and attempt.

    If the stream needs it, the records are first given the keys of the stored entities and composed
    into whole records. Other streams pay nothing for it.
    """

    def write(stated: Sequence[Record]) -> Written:
        return _write_records(
            connection, dialect, options, stream, position, stated, by_uuid=by_uuid, now_us=now_us
        )

    if not stream.mixed or stream.change_only or not all_whole(records):
        return write(records)
    if not (stream.shared_classes or shared_keys.are_within(records)):
        connection.exec_driver_sql("SAVEPOINT instep_shared")
        try:
            written = write(records)
            met = not written.whole and shared_keys.are_met(connection, dialect, stream.no, records)
        except shared_keys.SharedKey:
            met = True
        if met:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT instep_shared")
        connection.exec_driver_sql("RELEASE SAVEPOINT instep_shared")
        if not met:
            return written
    separated, moved = shared_keys.separate(connection, dialect, stream, records)
    written = write(separated)
    if moved:
        shared = {**written.deviations, shared_keys.DEVIATION: moved}
        written = msgspec.structs.replace(written, deviations=shared)
    return written


def _write_records(
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
    unresolved: tuple[str, ...] = ()
    deviations: dict[str, int] = {}
    shown: set[str] = set()
    if by_uuid and not key_reconciliation.is_settled(stream, records):
        joined = key_reconciliation.reconcile_keys(connection, dialect, stream, position, records)
        records, unresolved = joined.records, joined.unresolved_keys
        deviations = joined.deviations
        records = key_reconciliation.complete(connection, dialect, stream, records)
        shown = {record.key for record in records if not record.token and not record.ends}
        key_reconciliation.give_way(connection, dialect, stream.no, position.lineage, shown)
    if stream.change_only or not all_whole(records):
        composed = change_only.compose(
            connection, dialect, stream.no, position, records, knows_all=stream.baseline
        )
        stream.change_only = True
        records = composed.records
        change_only.allow_overwrite(connection, dialect, stream.no, records)
        if composed.unresolved:
            quarantine.keep(
                connection,
                dialect,
                stream.no,
                composed.unresolved,
                options=options,
                now_us=now_us,
            )
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
    if stream.alarms:
        alarms.follow(
            connection,
            dialect,
            no,
            records,
            info=stream.info,
            names=stream.alarm_names,
            position=position,
            now_us=now_us,
        )
    if stream.measurements:
        measurements.follow(connection, dialect, no, records, position)
    written = deleted = stated = 0
    for upserts, ends in write_rounds(records, no, lineage, composed=stream.change_only):
        deleted += dialect.end_entities(connection, ends)
        stated += len(upserts)
        written += dialect.upsert_entities(
            connection,
            (no, lineage, attempt),
            upserts,
            keys_are_uuids=stream.keys_are_uuids,
            of_class=stream.mixed and not stream.change_only,
        )
    if shown:
        key_reconciliation.mark_proven(connection, dialect, no, attempt, shown)
    return Written(written, deleted, unresolved, written == stated, deviations)
