"""The transaction of a commit: its steps and their order (TR-548 ST-2.2; A1, A3 to A7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from operator import not_
from typing import Final

import msgspec
from sqlalchemy import Connection

from instep.alignment.change_only import stated_uuid
from instep.alignment.unknown_entities import QUARANTINE_REASON, changes_met, quarantine_entry
from instep.model.batches import Batch, CommitResult
from instep.model.columns import RecordColumns, all_whole
from instep.model.ordering import rounds_per_key
from instep.model.position import Phase, Position
from instep.model.records import Record
from instep.model.storable import LONGEST_UUID_CHARS
from instep_sql import fencing
from instep_sql.derived.entities import derive_entities
from instep_sql.derived.statements import apply_records, end_swept, trim_tables
from instep_sql.engine.dialect import ColumnRows, Dialect, EndRow, EntityRow
from instep_sql.entities import journal, quarantine, shared_keys, unproven
from instep_sql.entities.change_only import compose_records
from instep_sql.entities.journal_epochs import begin_epoch
from instep_sql.entities.key_reconciliation import (
    KEY_SHARED,
    ReconciledRecords,
    SharedKeyError,
    find_tombstones,
    join_baseline,
    mark_proven,
    remember_ends,
)
from instep_sql.entities.lookups import apply_proofs
from instep_sql.entities.streams import StreamRow
from instep_sql.entities.sweep import sweep
from instep_sql.options import Journal, SqlOptions
from instep_sql.projections import maintenance as projected
from instep_sql.projections.projection import Projection

__all__ = ["Written", "commit", "derive_changed", "write_records", "write_rounds"]

WriteRound = tuple[Sequence[EntityRow], list[EndRow]]
"""Rows of entities to write, and rows of keys that end. No key is in a round twice."""


class Written(msgspec.Struct, frozen=True):
    """The result of writing the records of a batch, as counts of entities."""

    written: int = 0
    deleted: int = 0
    unresolved_keys: tuple[str, ...] = ()
    whole: bool = True
    """Whether each entity that was stated was written."""
    deviations: dict[str, int] = {}
    """Of the provider, as only what is stored shows them (A10)."""
    unknown: dict[str, str] = {}
    """See `CommitResult.unknown_entities`."""
    proven: int = 0
    """Of an aligned stream: entities that were unproven, and are not any more."""


def commit(  # noqa: PLR0913 - all that one transaction writes
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    stream: StreamRow,
    batch: Batch,
    now_us: int,
    projections: Sequence[Projection] = (),
    *,
    separate: bool = True,
    handle: Callable[[], None] = lambda: None,
) -> CommitResult:
    """Write all of a batch in the caller's transaction. See `write_records` for `separate`.

    1. The position is advanced (A1), and departures from the specification are counted;
       `FencedError` if another process has advanced it.
    2. Records are written by rule A3, and their changes appended to the journal. What is derived
       from statements follows each of them. An entity whose last record cannot be read is marked
       by its key, and unproven (A17). What requests for single entities have proven is applied.
    3. The step of the sweep follows: the entities of the batch are marked by then.
    4. What is derived from entities follows those that have changed, and so do projections.
    5. Unreadable records go to quarantine.
    6. `handle` gives the user's handlers the changes.
    7. The journal and what is derived are trimmed to their retention.
    """
    elsewhere = _proven_elsewhere(connection, stream, batch.position)
    fencing.advance_stream(connection, dialect, stream.no, batch, now_us)
    if options.journal is not Journal.OFF:
        begin_epoch(connection, dialect, now_us)
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
            separate=separate,
        )
    position = _follow_unknown(connection, dialect, stream, batch.position, written)
    more = _note_unproven(connection, dialect, options, stream, batch, now_us)
    more -= written.proven + elsewhere
    result = CommitResult(
        written=written.written,
        deleted=written.deleted,
        kept=more,
        unresolved_keys=written.unresolved_keys,
        unknown_entities=written.unknown,
    )
    if batch.sweep is not None:
        swept = sweep(connection, dialect, stream, batch.sweep, mode=options.journal, now_us=now_us)
        result = msgspec.structs.replace(
            result,
            swept=len(swept.keys),
            kept=more + swept.kept,
            sweep_cursor=swept.cursor,
            sweep_done=swept.done,
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
    if result.sweep_done:
        counted = unproven.count(connection, stream.no)
        result = msgspec.structs.replace(result, kept=counted - position.unproven)
    _complete_position(connection, stream, batch.position, position, result.kept)
    # After the sweep: what it has removed counts as changed, too.
    derive_changed(connection, dialect, stream, projections, now_us)
    if batch.unreadable:
        gone = quarantine.keep(
            connection,
            dialect,
            stream.no,
            batch.unreadable,
            options=options,
            now_us=now_us,
        )
        result = msgspec.structs.replace(result, gave_way=gone)
    if batch.samples:
        quarantine.keep_samples(connection, stream.no, batch.samples, now_us)
    if written.deviations:
        fencing.count_deviations(
            connection, dialect, "instep_stream", stream.no, written.deviations
        )
    handle()
    if options.journal is not Journal.OFF:
        journal.trim(connection, dialect, options, len(batch.records) + result.swept, now_us)
    if stream.kept.statements:
        trim_tables(connection, dialect, stream.kept.statements, options, len(batch.records))
    return result


def _follow_unknown(
    connection: Connection, dialect: Dialect, stream: StreamRow, before: Position, written: Written
) -> Position:
    """The position, with what the records name and nothing has stated."""
    if settled := stream.unknown - before.unknown.keys():
        # What they change is stated now, or has ended.
        quarantine.drop_keys(connection, dialect, stream.no, settled, QUARANTINE_REASON)
    position = changes_met(before, written.unknown)
    if written.unresolved_keys:
        # An end under an unknown key may be about an entity that only a GET has shown.
        position = msgspec.structs.replace(position, baseline_pending=True)
    return position


def _proven_elsewhere(connection: Connection, stream: StreamRow, before: Position) -> int:
    """How many entities an audit or a replay has proven since the consumer's last commit."""
    if not before.unproven:
        return 0
    return before.unproven - fencing.stored_unproven(connection, stream.no)


def _complete_position(
    connection: Connection, stream: StreamRow, given: Position, found: Position, kept: int
) -> None:
    """Store with the position what only the commit could find out."""
    if kept:
        found = msgspec.structs.replace(found, unproven=max(0, found.unproven + kept))
    if found is not given:
        fencing.set_position(connection, stream.no, found)


def _note_unproven(
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    stream: StreamRow,
    batch: Batch,
    now_us: int,
) -> int:
    """What a batch singles out (A17), and what requests for single entities have proven. Returns
    how many entities more are unproven.
    """
    more = 0
    if batch.unreadable or stream.singled_out:
        more = unproven.follow(
            connection, dialect, stream, batch, mode=options.journal, now_us=now_us
        )
    if batch.proofs:
        more -= apply_proofs(
            connection,
            dialect,
            stream,
            batch,
            lambda records: write_records(
                connection,
                dialect,
                options,
                stream,
                batch.position,
                records,
                by_uuid=batch.by_uuid,
                now_us=now_us,
            ),
            mode=options.journal,
            now_us=now_us,
        )
    return more


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


def write_records(  # noqa: PLR0913 - three callers, one way to write
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    stream: StreamRow,
    position: Position,
    records: Sequence[Record],
    *,
    by_uuid: bool,
    now_us: int,
    separate: bool = True,
) -> Written:
    """Write, mark or end the entities of the records, under the position's lineage and attempt.

    If the stream needs it, the records are first given the keys of the stored entities and composed
    into whole records. Other streams pay nothing for it.

    With `separate`, it is looked for entities of two classes under one key first (A13). Without, it
    raises `SharedKeyError` where it meets some, and the transaction must be rolled back.
    """

    def write(stated: Sequence[Record]) -> Written:
        return _write_records(
            connection, dialect, options, stream, position, stated, by_uuid=by_uuid, now_us=now_us
        )

    if not stream.mixed or stream.change_only or not all_whole(records):
        return write(records)
    if not (
        separate
        or stream.shared_classes
        or shared_keys.are_within(records)
        or shared_keys.end_another(connection, dialect, stream.no, records)
    ):
        written = write(records)
        if not written.whole and shared_keys.are_met(connection, dialect, stream.no, records):
            raise SharedKeyError
        return written
    separated, moved = shared_keys.separate(connection, dialect, stream, records)
    written = write(separated)
    if moved:
        shared = {**written.deviations, KEY_SHARED: moved}
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
    joined = ReconciledRecords(records)
    unknown: dict[str, str] = {}
    if by_uuid:
        # A stream's key of an entity and the uuid that a GET shows may differ.
        joined = join_baseline(connection, dialect, stream, position, records)
        records = joined.records
    if stream.change_only or not all_whole(records):
        # A partial update says nothing about the entity alone: it is merged into what is stored.
        composed = compose_records(connection, dialect, stream, position, records)
        if not by_uuid:
            remember_ends(connection, dialect, stream.no, position, records)
        records = composed.records
        changes = _of_unknown(connection, dialect, stream, composed.unknown)
        unknown = {one.key: stated_uuid(one) for one in changes}
        if refused := [*composed.unresolved, *map(quarantine_entry, changes)]:
            quarantine.keep(connection, dialect, stream.no, refused, options=options, now_us=now_us)
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
    counts = position.phase is Phase.ALIGNED and position.unproven > 0
    keys = {one.key for one in records}.union(joined.shown) if counts else set()
    before = unproven.count_among(connection, dialect, no, keys) if counts else 0
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
    if joined.shown:
        # Also where a newer record keeps its content (A3): the GET has shown that it exists.
        mark_proven(connection, dialect, no, attempt, joined.shown)
    after = unproven.count_among(connection, dialect, no, keys) if counts else 0
    return Written(
        written,
        deleted,
        joined.unresolved_keys,
        written == stated,
        joined.deviations,
        unknown,
        before - after + joined.proven,
    )


def _of_unknown(
    connection: Connection, dialect: Dialect, stream: StreamRow, changes: Sequence[Record]
) -> list[Record]:
    """Those of the CHANGEs whose entities have not ended: behind its end, a CHANGE is nothing."""
    if not changes:
        return []
    names = {name for one in changes for name in (one.key, stated_uuid(one))} - {""}
    ended = find_tombstones(connection, dialect, stream.no, names)
    gone = {name for one in ended for name in (one.key, one.uuid)} - {""}
    return [one for one in changes if gone.isdisjoint((one.key, stated_uuid(one)))]


def write_rounds(
    records: Sequence[Record], no: int, lineage: int, *, composed: bool
) -> list[WriteRound]:
    """The rows that a commit writes, in rounds, so that each record is applied by rule A3.

    `composed`: rule A3 was already applied part by part (CHANGE_ONLY), and the last record of each
    entity counts.
    """
    if isinstance(records, RecordColumns):
        return [_of_columns(records, no, lineage)]
    rounds = [{record.key: record for record in records}] if composed else rounds_per_key(records)
    return [_of_records(written.values(), no, lineage, composed=composed) for written in rounds]


def stated_uuids(
    classes: Sequence[str], bodies: Sequence[bytes | bytearray], uuids: Sequence[str]
) -> Sequence[str]:
    """The uuid that each body states, where the source has not read it.

    Entities of one class have a uuid or have none, so only the first body of each class is looked
    into: alarms, which have none, cost nothing.
    """
    if any(uuids):
        return uuids
    named = {name for name in set(classes) if _uuid_of(_first_body(name, classes, bodies))}
    if not named:
        return uuids
    return [
        _uuid_of(body) if name in named else "" for name, body in zip(classes, bodies, strict=True)
    ]


def _first_body(
    name: str, classes: Sequence[str], bodies: Sequence[bytes | bytearray]
) -> bytes | bytearray:
    stated = (body for of, body in zip(classes, bodies, strict=True) if of == name and body)
    return next(stated, b"")


def _uuid_of(body: bytes | bytearray) -> str:
    found = _AT_THE_BEGINNING(body)
    if found is not None:
        return found[1].decode()
    try:
        uuid = _stated(body).uuid
    except msgspec.MsgspecError:
        return ""
    return "" if "\0" in uuid or len(uuid) > LONGEST_UUID_CHARS else uuid


class _Stated(msgspec.Struct):
    uuid: str = ""


_stated: Final = msgspec.json.Decoder(_Stated).decode
_AT_THE_BEGINNING: Final = re.compile(rb'\{"uuid":"([\w-]{1,255})"', re.ASCII).match


def _of_records(
    records: Collection[Record], no: int, lineage: int, *, composed: bool
) -> WriteRound:
    living = [r for r in records if not r.ends]
    uuids: Sequence[str] = [r.uuid for r in living]
    # Where there are some, all have been read; and so they are where parts were composed.
    if not (composed or any(uuids)):
        uuids = stated_uuids([r.entity_class for r in living], [r.body for r in living], uuids)
    upserts: list[EntityRow] = [
        (
            r.key,
            r.entity_class,
            r.token,
            r.partition,
            r.offset,
            r.appended_at_us,
            uuid,
            r.envelope,
            r.body,
        )
        for r, uuid in zip(living, uuids, strict=True)
    ]
    return upserts, [_end(r, no, lineage) for r in records if r.ends]


def _of_columns(records: RecordColumns, no: int, lineage: int) -> WriteRound:
    """The rows of columns, without a loop over single records where no entity ends (the usual
    case).
    """
    last = records.latest_records()
    rows: Sequence[EntityRow] = ColumnRows(
        last.keys,
        last.classes,
        last.tokens,
        [last.partition] * len(last.keys),
        last.offsets,
        last.appended_at_us,
        stated_uuids(last.classes, last.bodies, last.uuids),
        last.envelopes,
        last.bodies,
    )
    if True not in last.ends:
        return rows, []
    ended = last.picked([index for index, ends in enumerate(last.ends) if ends])
    return list(compress(rows, map(not_, last.ends))), [_end(r, no, lineage) for r in ended]


def _end(r: Record, no: int, lineage: int) -> EndRow:
    return no, r.key, lineage, r.offset, r.partition, r.offset, r.appended_at_us
