"""Joins a stream with its baseline: one entity is one row, whatever key each of them uses.

A stream's entity-key may differ from the uuid that a GET shows. The stream's key becomes the row's
key as soon as it is known, because a TOMBSTONE may carry nothing else.

Where a provider states one uuid in several places, a key may be the whole address: the elements of
the parent-address and its own, joined by "+". Such a key belongs to its place alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import text

from instep.model.alike import agrees, completed
from instep.model.columns import all_whole
from instep.model.entities import folded_uuid
from instep.model.json_merge import prefixes
from instep.model.ordering import is_later, supersedes
from instep.model.position import Phase, Position
from instep.model.records import Record
from instep_sql.derived.statements import rename_key
from instep_sql.engine.dialect import json_array
from instep_sql.entities import change_only, unproven
from instep_sql.entities.shared_keys import KEY_SHARED, SharedKeyError, shared_key
from instep_sql.entities.streams import StreamRow, StreamTransaction
from instep_sql.entities.tombstones import Tombstone, add_tombstones, find_tombstones
from instep_sql.entities.uuid_case import other_spellings
from instep_sql.stored_entities import StoredRecord, find_headers, find_records

__all__ = [
    "ReconciledRecords",
    "join_baseline",
    "mark_proven",
]

UUID_CASE: Final = "uuid-case"
_token: Final = attrgetter("token")
_ends: Final = attrgetter("ends")
_RENAME: Final = text("UPDATE instep_entity SET key = :new WHERE stream_no = :no AND key = :old")
_REMOVE: Final = text("DELETE FROM instep_entity WHERE stream_no = :no AND key = :key")
_UNCLAIMED: Final = text("""
    SELECT sum(CASE WHEN token = '' THEN 1 ELSE 0 END) AS unclaimed,
           sum(CASE WHEN token <> '' AND uuid = key THEN 1 ELSE 0 END) AS by_uuid,
           sum(CASE WHEN token <> '' AND uuid <> key THEN 1 ELSE 0 END) AS by_key
    FROM instep_entity WHERE stream_no = :no AND uuid <> ''
""")


class ReconciledRecords(msgspec.Struct, frozen=True):
    """The records, under the keys of their rows."""

    records: Sequence[Record]
    unresolved_keys: tuple[str, ...] = ()
    """Of ends that met no row."""
    shown: AbstractSet[str] = frozenset()
    """The keys of what the baseline shows: `mark_proven`, once the records are written."""
    deviations: dict[str, int] = {}
    """Of the provider."""
    proven: int = 0
    """Of an aligned stream: unproven entities whose rows others have taken over."""


class _Row:
    """The row of one entity, stored or to be written by the batch; its key may change."""

    __slots__ = ("claimed", "entity_class", "key", "parents", "places", "stored", "uuid")

    def __init__(self, record: Record, stored: StoredRecord | None) -> None:
        self.key = record.key
        self.entity_class = record.entity_class
        self.uuid = record.uuid
        self.parents = _parents_of(record)
        self.places = self.parents.places
        by_uuid = record.key == record.uuid or record.key.endswith(f":{record.uuid}")
        self.claimed = bool(record.token) or not by_uuid
        """Whether a record of the stream has named it, so that its key is that of the stream."""
        self.stored = stored

    def is_newer(self, record: Record, lineage: int) -> bool:
        """Whether what is stored was stated after this record (A3)."""
        stored = self.stored
        return (
            stored is not None and stored.lineage == lineage and supersedes(stored.record, record)
        )

    def is_respelled(self, record: Record) -> bool:
        """Whether the record spells the uuid of this row in another case."""
        stated = record.uuid or record.key
        return stated != self.uuid and folded_uuid(stated) == folded_uuid(self.uuid)

    def is_named(self, record: Record) -> bool:
        """Whether the record tells the key of this row, and not only its uuid."""
        return bool(record.uuid) or self.parents.begin(record.key)


class _Rows:
    """The rows of the entities of a batch; updated as the batch is read."""

    def __init__(self, stored: Iterable[StoredRecord], *, counts: bool) -> None:
        self.counts = counts
        """Whether it matters how many rows are unproven."""
        self.proven = 0
        """Of those that were removed."""
        self.by_key: dict[str, _Row] = {}
        self.by_uuid: dict[str, list[_Row]] = {}
        for one in stored:
            self.add(_Row(one.record, one))

    def add(self, row: _Row) -> _Row:
        self.by_key[row.key] = row
        if row.uuid:
            self.by_uuid.setdefault(folded_uuid(row.uuid), []).append(row)
        return row

    def remove(self, row: _Row) -> None:
        if self.by_key.get(row.key) is row:
            del self.by_key[row.key]
        if row.uuid:
            self.by_uuid[folded_uuid(row.uuid)].remove(row)

    def of(self, record: Record) -> list[_Row]:
        """The rows of the entity that this record is about.

        Joined by class and uuid. Where there are several, or the one has a key and a place of its
        own, the place decides: a provider may state one uuid in two places (A13). A statement of
        a baseline may count for several places.
        """
        if not record.uuid:
            row = self.by_key.get(record.key)
            if self.is_of_another_class(record):
                return self._of_its_class(record)[:1]
            # A header-only end may name the entity by its uuid, or by its address.
            return [row] if row else (self._named(record.key, record) or self._at(record))[:1]
        rows = self._named(record.uuid, record)
        if not (record.ends or record.entity_class):
            rows = [row for row in rows if not row.entity_class]
        named = [row for row in rows if row.key == record.key]
        parents = _parents_of(record)
        if named and (record.token or len(rows) == 1 or parents.begin(record.key)):
            return named
        places = parents.places
        here = [row for row in rows if not (places and row.places) or places & row.places]
        # The only statement of the only row: it has moved, where no key names a place.
        moved = [] if here or len(rows) > 1 else [r for r in rows if not r.parents.begin(r.key)]
        if not record.token:
            return here or named or (moved if record.key == record.uuid else [])
        here.sort(key=attrgetter("claimed"))
        if not here and not parents.begin(record.key):
            here = [row for row in moved if not row.claimed]
        return here[:1]

    def is_of_another_class(self, record: Record) -> bool:
        """Whether a header that ends an entity of a class has the key of no row of that class."""
        row = self.by_key.get(record.key)
        if record.uuid or not (record.ends and record.entity_class):
            return False
        if row is None:
            return record.key.endswith(shared_key("", record.entity_class))
        return row.entity_class != record.entity_class

    def _of_its_class(self, record: Record) -> list[_Row]:
        """The rows of its class with such a key as their uuid; only those of its place, if any."""
        rows = [
            row
            for row in self.by_uuid.get(folded_uuid(_unshared(record)), ())
            if row.entity_class == record.entity_class
        ]
        places = _parents_of(record).places
        return [row for row in rows if places & row.places] or rows

    def ended_key(self, record: Record, row: _Row | None) -> str:
        """The key that ends with this record, which is about this row."""
        if row is not None:
            return row.key
        if self.is_of_another_class(record):
            # The entity of another class that has this key lives on.
            return shared_key(_unshared(record), record.entity_class)
        return record.key

    def _named(self, uuid: str, record: Record) -> list[_Row]:
        """The rows of this uuid, of the class that the record states. One that shares its key is
        not meant by the key alone.
        """
        rows = self.by_uuid.get(folded_uuid(uuid), ())
        if record.entity_class:
            return [row for row in rows if row.entity_class == record.entity_class]
        return [row for row in rows if row.key != shared_key(record.key, row.entity_class)]

    def shares_key(self, record: Record) -> bool:
        """Whether the stream names this entity by a uuid that one of another class has, too."""
        if record.key != record.uuid:
            return False
        rows = self.by_uuid[folded_uuid(record.uuid)]
        return len(rows) > 1 and any(row.entity_class != record.entity_class for row in rows)

    def _at(self, record: Record) -> list[_Row]:
        """The rows at the place of a key that is a whole address."""
        rows = self._named(_uuid_in(record.key), record)
        return [row for row in rows if row.parents.begin(record.key)]


class _Parents(msgspec.Struct, rename="kebab"):
    parent_address: list[str] = []
    further_parent_addresses: list[list[str]] = []

    @property
    def places(self) -> frozenset[str]:
        """The direct parents; empty where none is named."""
        addresses = [self.parent_address, *self.further_parent_addresses]
        return frozenset(_folded(address[-1]) for address in addresses if address)

    def begin(self, key: str) -> bool:
        """Whether a key is the whole address of an entity below these parents."""
        above = "+".join(self.parent_address)
        return bool(above) and key.rpartition("+")[0] == above


def _folded(element: str) -> str:
    """An element of an address, with its uuid as uuids compare."""
    name, colon, uuid = element.partition(":")
    return f"{name}{colon}{folded_uuid(uuid)}"


_parents: Final = msgspec.json.Decoder(_Parents).decode
_UNNAMED: Final = _Parents()


def _parents_of(record: Record) -> _Parents:
    """The parents that a statement names (TR-548 3.10)."""
    try:
        return _parents(record.envelope)
    except msgspec.MsgspecError:
        return _UNNAMED


def _uuid_in(key: str) -> str:
    """The uuid at the end of a key that is a whole address; empty for any other key."""
    above, _, own = key.rpartition("+")
    return own.rpartition(":")[2] if above else ""


def _unshared(record: Record) -> str:
    """The key of a record as the stream has stated it."""
    return record.key.removesuffix(shared_key("", record.entity_class))


def join_baseline(
    tx: StreamTransaction,
    position: Position,
    records: Sequence[Record],
) -> ReconciledRecords:
    """Give the records and the rows they belong to one key, and complete what a baseline states in
    less words than the store has. Raises `SharedKeyError` where they meet an entity of another
    class.

    Baseline rows of entities that have ended since are left out. Header-only ends without a row are
    not written; their keys are returned as unresolved, each once, where a baseline may help.
    """
    # Each record has the key of its row, and none ends an entity or may be overtaken by the end of
    # one: nothing is to be joined.
    if (
        tx.stream.keys_are_uuids
        and all(map(_token, records))
        and all_whole(records)
        and not any(map(_ends, records))
    ):
        return ReconciledRecords(records)
    joined = _reconcile_keys(tx, position, records)
    shown = {record.key for record in joined.records if not record.token and not record.ends}
    if not shown:
        return joined
    completed = _complete(tx, joined.records, shown)
    _allow_overwrite(tx, position.lineage, shown)
    return replace(joined, records=completed, shown=shown)


def _reconcile_keys(  # noqa: C901 - one step after the other
    tx: StreamTransaction,
    position: Position,
    records: Sequence[Record],
) -> ReconciledRecords:
    """Rename rows to the keys the stream uses, and records to the rows they belong to."""
    names = {r.key for r in records} | {r.uuid or _uuid_in(r.key) for r in records} - {""}
    names.update(_unshared(record) for record in records if record.ends)
    names.update(*(prefixes(record.key) for record in records if not record.whole))
    names |= other_spellings(tx.connection, tx.dialect, tx.stream, names)
    counts = position.phase is Phase.ALIGNED and position.unproven > 0
    here = tx.connection, tx.dialect, tx.no
    rows = _Rows(find_headers(*here, names), counts=counts)
    ended = _by_name(find_tombstones(*here, names))
    known_keys = rows.by_key.keys() | {record.key for record in records}
    ends: dict[str, Tombstone] = {}
    joined: list[tuple[Record, _Row | None]] = []
    unresolved: dict[str, None] = {}
    respelled = shared = 0
    for record in records:
        if _is_change(record, known_keys):
            joined.append((record, None))
            continue
        found = rows.of(record)
        if not record.token and not record.ends:
            if not _overtaken(record, ended, position.lineage):
                found = found or [rows.add(_Row(record, None))]
                joined += [(record, row) for row in found]
            continue
        row = found[0] if found else None
        if row is not None:
            respelled += row.is_respelled(record)
            if record.ends and row.is_newer(record, position.lineage):
                # It is about an entity of before, which had this key or this uuid (A3).
                continue
            if (old := _take_key(tx, rows, row, record)) is not None:
                # The provider gave the entity another key: the end of the old key means nothing.
                ends[old] = Tombstone(old, "", position.lineage, position.attempt, 0)
        if record.ends:
            key = rows.ended_key(record, row)
            known = row is not None or folded_uuid(key) in ended or key in ends
            if not known and _may_be_of_a_baseline(record, tx.stream):
                unresolved[record.key] = None
            uuid = record.uuid or (row.uuid if row else _uuid_in(key))
            ends[key] = Tombstone(
                key, uuid, position.lineage, position.attempt, record.appended_at_us
            )
            if row is not None:
                rows.remove(row)
            joined.append((replace(record, key=key), None))
            continue
        if row is None:
            row = rows.add(_Row(record, None))
        row.claimed = True
        shared += rows.shares_key(record)
        joined.append((record, row))
    add_tombstones(tx, ends.values())
    if unresolved and not (position.baseline_pending or _owes_baseline(tx)):
        unresolved = {}
    return ReconciledRecords(
        [
            record if row is None or row.key == record.key else replace(record, key=row.key)
            for record, row in joined
        ],
        tuple(unresolved),
        deviations={
            kind: times for kind, times in ((UUID_CASE, respelled), (KEY_SHARED, shared)) if times
        },
        proven=rows.proven,
    )


def _take_key(
    tx: StreamTransaction,
    rows: _Rows,
    row: _Row,
    record: Record,
) -> str | None:
    """Let the row have the key that the record states. Returns the key that the stream has used
    before, if it used another. Raises `SharedKeyError` where an entity of another class has the
    key.
    """
    if row.key == record.key or not row.is_named(record):
        return None
    there = rows.by_key.get(record.key)
    if there is not None and there.entity_class != row.entity_class:
        raise SharedKeyError
    old = row.key
    _rename(tx, rows, row, record.key)
    return old if folded_uuid(old) != folded_uuid(row.uuid) else None


def _may_be_of_a_baseline(record: Record, stream: StreamRow) -> bool:
    """Whether an end without a row may be about an entity that only a GET has shown.

    An alarm that is CLEAR is complete in itself, and so is what has a uuid.
    """
    header_only = record.kind.ends_entity and not record.uuid
    return header_only and record.entity_class not in stream.unprovable


def _owes_baseline(tx: StreamTransaction) -> bool:
    """Whether an end under an unknown key may be about a stored entity.

    A row that only a baseline has stated has its uuid for a key. Where the stream is seen to use
    uuids as its keys, an unknown key is about nothing that is stored.
    """
    found = tx.connection.execute(_UNCLAIMED, {"no": tx.no}).one()
    return bool(found.unclaimed) and not (found.by_uuid and not found.by_key)


def _is_change(record: Record, known_keys: Collection[str]) -> bool:
    """Whether a CHANGE_ONLY record changes a part: its key lies below the key of its entity.

    No row has such a key; `instep_part` leads to the entity.
    """
    return not record.whole and any(
        prefix in known_keys or prefix == record.uuid for prefix in prefixes(record.key)
    )


def _by_name(ends: Iterable[Tombstone]) -> dict[str, list[Tombstone]]:
    """Ends by key and by uuid; the uuid of some is not known."""
    found: dict[str, list[Tombstone]] = {}
    for end in ends:
        for name in {folded_uuid(end.key), folded_uuid(end.uuid)} - {""}:
            found.setdefault(name, []).append(end)
    return found


def _overtaken(record: Record, ended: Mapping[str, list[Tombstone]], lineage: int) -> bool:
    """Whether an end newer than the baseline was received: the GET showed an entity that ended
    afterwards. The end of one place says nothing about another one.
    """
    names = {folded_uuid(record.key), folded_uuid(record.uuid)}
    ends = [end for name in names for end in ended.get(name, ())]
    parents = _parents_of(record) if ends else _UNNAMED
    return any(
        end.lineage == lineage
        and end.appended_at_us > record.appended_at_us
        and (
            end.key == record.key
            or _uuid_in(end.key) != record.uuid
            or (len(parents.places) == 1 and parents.begin(end.key))
        )
        for end in ends
    )


def _rename(tx: StreamTransaction, rows: _Rows, row: _Row, new: str) -> None:
    """Give a row another key. If two stored rows meet, only the newer one stays."""
    connection, stream = tx.connection, tx.stream
    old, there = row.key, rows.by_key.get(new)
    rows.remove(row)
    obsolete = None
    if there is not None:
        rows.remove(there)
        if row.stored and there.stored:
            obsolete = new if is_later(row.stored, there.stored) else old
        row.stored = row.stored if obsolete != old else None
    moves = row.stored is not None and obsolete != old
    row.key = new
    rows.add(row)
    if there is not None and not moves:
        row.stored = there.stored
    if obsolete is not None:
        if rows.counts:
            rows.proven += unproven.count_among(tx, [obsolete])
        connection.execute(_REMOVE, {"no": stream.no, "key": obsolete})
        if stream.change_only:
            change_only.forget_parts(connection, tx.dialect, stream.no, [obsolete])
    if moves:
        connection.execute(_RENAME, {"no": stream.no, "old": old, "new": new})
        if stream.singled_out:
            unproven.rename(tx, old, new)
        rename_key(tx, stream.kept.statements, old, new)
        if stream.change_only:
            change_only.rename_parts(connection, stream.no, old, new)


def _complete(
    tx: StreamTransaction,
    records: Sequence[Record],
    keys: AbstractSet[str],
) -> Sequence[Record]:
    """The records with what is stored where a statement without token says less than the stored
    one, and the stored one itself where both say the same (A12, A13).
    """
    found = find_records(tx.connection, tx.dialect, tx.no, keys)
    stored = {one.record.key: one.record for one in found}
    return [
        _completed(record, stored[record.key], tx.stream.contained)
        if record.key in stored and record.key in keys and not record.token
        else record
        for record in records
    ]


def _completed(record: Record, stored: Record, contained: AbstractSet[str]) -> Record:
    if record.entity_class == stored.entity_class:
        if agrees(record.body, stored.body, contained):
            return replace(record, body=stored.body, envelope=stored.envelope)
        return replace(record, body=completed(record.body, stored.body, contained))
    return record


def _allow_overwrite(tx: StreamTransaction, lineage: int, keys: Collection[str]) -> None:
    """Let the rows of a baseline overwrite what an earlier one has stated, whatever our clock said
    then; where they compare with no log (lineage 0), also what the stream has stated before (A14).
    """
    statement = (
        "UPDATE instep_entity SET lineage = -1 "
        "WHERE stream_no = :no AND (token = '' OR :lineage = 0) "
        f"AND key IN {tx.dialect.members('keys')}"
    )
    values = {"no": tx.no, "lineage": lineage, "keys": json_array(keys)}
    tx.dialect.execute(tx.connection, statement, values)


def mark_proven(tx: StreamTransaction, attempt: int, keys: Collection[str]) -> None:
    """Mark the entities that the baseline shows, also where a newer record keeps its content."""
    statement = (
        "UPDATE instep_entity SET attempt = :attempt, proven = 1 "
        "WHERE stream_no = :no AND (attempt < :attempt OR proven = 0) "
        f"AND key IN {tx.dialect.members('keys')}"
    )
    values = {"no": tx.no, "attempt": attempt, "keys": json_array(keys)}
    tx.dialect.execute(tx.connection, statement, values)
