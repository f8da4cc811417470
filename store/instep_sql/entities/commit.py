"""The transaction of a commit: its steps and their order (TR-548 ST-2.2; A1, A3 to A7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from instep.alignment.change_only import stated_uuid
from instep.alignment.unknown_entities import QUARANTINE_REASON, changes_met, quarantine_entry
from instep.model.batches import Batch, CommitResult
from instep.model.columns import all_whole
from instep.model.position import Phase, Position
from instep.model.records import Record
from instep_sql import fencing
from instep_sql.derived.entities import derive_entities
from instep_sql.derived.statements import apply_records, trim_tables
from instep_sql.entities import journal, quarantine, shared_keys, unproven
from instep_sql.entities.change_only import compose_records
from instep_sql.entities.entity_rows import write_rounds
from instep_sql.entities.key_reconciliation import ReconciledRecords, join_baseline, mark_proven
from instep_sql.entities.lookups import apply_proofs
from instep_sql.entities.shared_keys import KEY_SHARED, SharedKeyError
from instep_sql.entities.streams import StreamTransaction
from instep_sql.entities.sweep import SweepResult, sweep
from instep_sql.entities.tombstones import find_tombstones, remember_ends
from instep_sql.projections.projected_rows import project
from instep_sql.projections.projection import Projection

__all__ = ["Written", "commit", "derive_changed", "write_records"]


class Written(msgspec.Struct, frozen=True):
    """The result of writing the records of a batch, as counts of entities."""

    written: int = 0
    deleted: int = 0
    unresolved_keys: tuple[str, ...] = ()
    deviations: dict[str, int] = {}
    """Of the provider, as only what is stored shows them (A10)."""
    unknown: dict[str, str] = {}
    """See `CommitResult.unknown_entities`."""
    proven: int = 0
    """Of an aligned stream: entities that were unproven, and are not any more."""

    @property
    def changes_position(self) -> bool:
        """Whether something is stored in the row of the stream."""
        return bool(self.unknown or self.unresolved_keys or self.deviations)


def commit(
    tx: StreamTransaction,
    batch: Batch,
    projections: Sequence[Projection],
    handle: Callable[[], None] | None,
    *,
    separate: bool,
) -> CommitResult:
    """Write all of a batch in the caller's transaction. See `write_records` for `separate`.

    1. The position is advanced (A1), and departures from the specification are counted;
       `FencedError` if another process has advanced it.
    2. Records are written by rule A3, and their changes appended to the journal. What is derived
       from statements follows each of them. An entity whose last record cannot be read is marked
       by its key, and unproven (A17). What requests for single entities have proven is applied.
    3. The step of the sweep follows: the entities of the batch are marked by then.
    4. What only the commit could find out is stored with the position.
    5. What is derived from entities follows those that have changed, and so do projections.
    6. Unreadable records go to quarantine.
    7. `handle` gives the user's handlers the changes.
    8. The journal and what is derived are trimmed to their retention.
    """
    stream, position, records = tx.stream, batch.position, batch.records
    proven = fencing.advance_stream(tx.connection, tx.dialect, stream.no, batch, tx.now_us)
    written, swept, gave_way = Written(), SweepResult(), 0
    if records:
        stated_in = replace(position, lineage=batch.lineage)
        written = write_records(tx, stated_in, records, by_uuid=batch.by_uuid, separate=separate)
    kept = -written.proven - proven
    if batch.unreadable or stream.singled_out:
        kept += unproven.follow(tx, batch)
    if batch.proofs:
        kept -= apply_proofs(tx, batch, partial(write_records, tx, position, by_uuid=batch.by_uuid))
    if batch.sweep is not None:
        swept = sweep(tx, batch.sweep, position.attempt_started_at_us)
        kept += swept.kept
    if swept.done:
        kept = unproven.count(tx) - position.unproven
    if kept or written.changes_position or stream.unknown:
        _complete_position(tx, position, written, kept)
    # After the sweep: what it has removed counts as changed, too.
    derive_changed(tx, projections)
    if batch.unreadable:
        gave_way = quarantine.keep(tx, batch.unreadable)
    if batch.samples:
        quarantine.keep_samples(tx.connection, stream.no, batch.samples, tx.now_us)
    if handle is not None:
        handle()
    trim_tables(tx, stream.kept.statements, tx.options, len(records))
    journal.trim(tx, len(records) + len(swept.keys))
    return CommitResult(
        written=written.written,
        deleted=written.deleted,
        swept=len(swept.keys),
        kept=kept,
        unresolved_keys=written.unresolved_keys,
        unknown_entities=written.unknown,
        sweep_cursor=swept.cursor,
        sweep_done=swept.done,
        gave_way=gave_way,
    )


def _complete_position(
    tx: StreamTransaction, position: Position, written: Written, kept: int
) -> None:
    """Store with the position what only the commit could find out."""
    if settled := tx.stream.unknown - position.unknown.keys():
        # What they change is stated now, or has ended.
        quarantine.drop_keys(tx, settled, QUARANTINE_REASON)
    found = changes_met(position, written.unknown)
    if written.unresolved_keys:
        # An end under an unknown key may be about an entity that only a GET has shown.
        found = replace(found, baseline_pending=True)
    if kept:
        found = replace(found, unproven=max(0, found.unproven + kept))
    if found is not position:
        fencing.set_position(tx.connection, tx.no, found)
    if written.deviations:
        no, deviations = tx.no, written.deviations
        fencing.count_deviations(tx.connection, tx.dialect, "instep_stream", no, deviations)


def derive_changed(tx: StreamTransaction, projections: Sequence[Projection]) -> None:
    """Derive what the entities of a stream state that have changed, whatever changed them."""
    for derivation in tx.stream.kept.entities:
        derive_entities(tx, derivation)
    project(tx, projections)


def write_records(
    tx: StreamTransaction,
    position: Position,
    records: Sequence[Record],
    *,
    by_uuid: bool,
    separate: bool = True,
) -> Written:
    """Write, mark or end the entities of the records, under the position's lineage and attempt.

    If the stream needs it, the records are first given the keys of the stored entities and composed
    into whole records. Other streams pay nothing for it.

    With `separate`, it is looked for entities of two classes under one key first (A13). Without, it
    raises `SharedKeyError` where it meets some, and the transaction must be rolled back.
    """
    stream, connection, given = tx.stream, tx.connection, records
    unknown, moved = dict[str, str](), 0
    whole = not stream.change_only and all_whole(records)
    apart = not (stream.mixed and whole)
    if not apart and (separated := shared_keys.separate(tx, records, first=separate)):
        apart, (records, moved) = True, separated
    joined = ReconciledRecords(records)
    if by_uuid:
        # A stream's key of an entity and the uuid that a GET shows may differ.
        joined = join_baseline(tx, position, records)
        records = joined.records
    if not whole:
        # A partial update says nothing about the entity alone: it is merged into what is stored.
        records, unknown = _compose(tx, position, records, by_uuid=by_uuid)
    # Before anything is written: a change is what differs from what is stored now.
    journal.append_changes(tx, position.lineage, records)
    apply_records(tx, stream.kept.statements, records, position, stream.info)
    counts = position.phase is Phase.ALIGNED and position.unproven > 0
    keys = {one.key for one in records}.union(joined.shown) if counts else set()
    before = unproven.count_among(tx, keys) if counts else 0
    written = deleted = stated = 0
    rounds = write_rounds(records, stream.no, position.lineage, composed=stream.change_only)
    for upserts, ends in rounds:
        if ends:
            deleted += tx.dialect.end_entities(connection, ends)
        stated += len(upserts)
        written += tx.dialect.upsert_entities(
            connection,
            (stream.no, position.lineage, position.attempt),
            upserts,
            keys_are_uuids=stream.keys_are_uuids,
            of_class=stream.mixed and not stream.change_only,
        )
    if not apart and written < stated and shared_keys.are_met(tx, given):
        raise SharedKeyError
    if joined.shown:
        # Also where a newer record keeps its content (A3): the GET has shown that it exists.
        mark_proven(tx, position.attempt, joined.shown)
    after = unproven.count_among(tx, keys) if counts else 0
    deviations = {**joined.deviations, **({KEY_SHARED: moved} if moved else {})}
    proven = before - after + joined.proven
    return Written(written, deleted, joined.unresolved_keys, deviations, unknown, proven)


def _compose(
    tx: StreamTransaction, position: Position, records: Sequence[Record], *, by_uuid: bool
) -> tuple[Sequence[Record], dict[str, str]]:
    """The whole records that changes lead to, and the entities that they name and nothing has
    stated.
    """
    composed = compose_records(tx, position, records)
    if not by_uuid:
        remember_ends(tx, position, records)
    changes = _of_unknown(tx, composed.unknown)
    if refused := [*composed.unresolved, *map(quarantine_entry, changes)]:
        quarantine.keep(tx, refused)
    return composed.records, {one.key: stated_uuid(one) for one in changes}


def _of_unknown(tx: StreamTransaction, changes: Collection[Record]) -> list[Record]:
    """Those of the CHANGEs whose entities have not ended: behind its end, a CHANGE is nothing."""
    if not changes:
        return []
    names = {name for one in changes for name in (one.key, stated_uuid(one))} - {""}
    ended = find_tombstones(tx.connection, tx.dialect, tx.no, names)
    gone = {name for one in ended for name in (one.key, one.uuid)} - {""}
    return [one for one in changes if gone.isdisjoint((one.key, stated_uuid(one)))]
