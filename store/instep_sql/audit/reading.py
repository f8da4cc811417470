"""Turns the records that an audit reads into marks: finds the entity of each record and its state.

Where each record is whole and under the entity's own key, the record is the mark. Other streams:

- joined with a baseline: an entity is identified by its uuid, whatever key the log gives it;
- partial updates (CHANGE_ONLY): entities are composed as the store composes its own, from parts
  that are kept under a stream number of the audit's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection, text

from instep.model.entities import folded_uuid, is_uuid
from instep.model.json_merge import prefixes
from instep.model.ordering import rounds_per_key
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities import change_only, streams
from instep_sql.entities.streams import StreamKind, StreamRow
from instep_sql.entities.tombstones import find_tombstones
from instep_sql.entities.uuid_case import other_spellings
from instep_sql.options import Journal
from instep_sql.stored_entities import StoredRecord, find_headers

__all__ = ["Mark", "MarksByChange", "MarksByKey", "MarksByUuid"]

Mark = tuple[str, Record]
"""The key of the mark and its record. A record that is not `whole` shows only that the entity has
changed: nothing is compared with it.
"""

_ONE_READING: Final = Position(attempt=1, lineage=1)
_SHADOW: Final = "{} audited at {}"
_ABANDONED: Final = text("""
    SELECT id FROM instep_stream
    WHERE kind = 'audit' AND consumer = :consumer AND substr(stream, 1, length(:prefix)) = :prefix
      AND updated_at_us < :before_us
""")
_REMOVALS: Final = [
    text(f"DELETE FROM {table} WHERE {column} = :shadow")
    for table, column in (
        ("instep_part", "stream_no"),
        ("instep_tombstone", "stream_no"),
        ("instep_stream", "id"),
    )
]


class MarksByKey:
    """Marks for whole records under the entities' own keys."""

    unplaced_ends = 0
    """The number of ends (DELETE, TOMBSTONE) that could not be assigned to an entity."""

    def __init__(self, dialect: Dialect, row: StreamRow, audit: int) -> None:
        self._dialect, self._row, self._audit = dialect, row, audit
        self._no = row.no

    def open(
        self, connection: Connection, consumer: str, stream: str, journal: Journal, before_us: int
    ) -> None:
        """Prepare, and remove what audits that began before `before_us` have left behind."""

    def close(self, connection: Connection) -> None:
        """Remove what was stored besides the marks."""

    def repaired(self, connection: Connection, position: Position, keys: Collection[str]) -> None:
        """Follow a repair: the entities of these keys were written as their marks state."""

    def marks(self, connection: Connection, records: Sequence[Record]) -> Iterable[Mark]:  # noqa: ARG002 — of others
        """The marks of these records, to be written in this order; nearly always one per key."""
        return _effective([(record.key, record) for record in records])


class MarksByUuid(MarksByKey):
    """Marks of records and baseline rows, joined by uuid.

    Of a uuid that a baseline states differently in several places, only that it exists is marked:
    the uuid alone does not tell which row a mark belongs to.
    """

    def __init__(self, dialect: Dialect, row: StreamRow, audit: int) -> None:
        super().__init__(dialect, row, audit)
        self._ambiguous = set[str]()

    def marks(self, connection: Connection, records: Sequence[Record]) -> Iterable[Mark]:
        records = self._as_stored(connection, records)
        # The key of such a row of a baseline is its address.
        self._ambiguous.update(
            one.uuid for one in records if one.uuid and not one.token and one.key != one.uuid
        )
        records = [
            replace(one, whole=False) if one.uuid in self._ambiguous and not one.ends else one
            for one in records
        ]
        names = {record.key for record in records if not (record.whole and record.uuid)}
        names.update(*(prefixes(record.key) for record in records if not record.whole))
        known = self._known(connection, names) if names else {}
        marks: list[Mark] = []
        for record in records:
            mark = self._mark(record, known) if record.whole else self._part(record, known)
            if record.ends and mark[0] in self._ambiguous:
                # It ends one of several rows: the others say nothing about it.
                mark = (record.key, mark[1])
            if record.body and (record.whole or mark[0] == record.key):
                known[record.key] = mark[0]
            marks.append(mark)
        return _effective(marks)

    def _as_stored(self, connection: Connection, records: Sequence[Record]) -> Sequence[Record]:
        """The records with each uuid spelled as the store has it."""
        names = {name for one in records for name in (one.key, one.uuid) if is_uuid(name)}
        others = other_spellings(connection, self._dialect, self._row, names)
        if not others:
            return records
        known = {folded_uuid(name): folded_uuid(name) for name in names}
        for one in find_headers(connection, self._dialect, self._no, others):
            for name in (one.record.key, one.record.uuid):
                known[folded_uuid(name)] = name
        return [
            replace(
                one,
                key=known.get(folded_uuid(one.key), one.key),
                uuid=known.get(folded_uuid(one.uuid), one.uuid),
            )
            for one in records
        ]

    def _known(self, connection: Connection, names: Collection[str]) -> dict[str, str]:
        """Map each of these names (keys or uuids) to the key of its entity's mark."""
        marked = text(f"""
            SELECT key FROM instep_audit_mark
            WHERE audit = :audit AND key IN {self._dialect.members("names")}
        """)
        values = {"audit": self._audit, "names": json_array(names)}
        known = {key: key for key in connection.execute(marked, values).scalars()}
        over = find_tombstones(connection, self._dialect, self._no, names)
        known |= {one.key: one.uuid for one in over if one.uuid}
        stored = find_headers(connection, self._dialect, self._no, names)
        return known | {one.record.key: one.record.uuid or one.record.key for one in stored}

    def _mark(self, record: Record, known: dict[str, str]) -> Mark:
        key = record.uuid or known.get(record.key)
        # An alarm that is CLEAR is complete in itself: without a uuid, no GET shows it.
        cleared = not record.kind.ends_entity
        self.unplaced_ends += key is None and record.ends and not cleared
        return key or record.key, record

    def _part(self, record: Record, known: dict[str, str]) -> Mark:
        """The mark of a partial update: its entity has changed, or has ended."""
        cleared = not record.kind.ends_entity
        if record.ends and (cleared or record.key in known):
            return record.uuid or known.get(record.key, record.key), replace(record, whole=True)
        entity = next((known[name] for name in prefixes(record.key) if name in known), None)
        key = record.uuid or known.get(record.key) or entity
        self.unplaced_ends += key is None and record.ends
        return key or record.key, replace(record, kind=RecordType.CREATE_UPDATE, ends=False)


class MarksByChange(MarksByKey):
    """Marks of partial updates (TR-548 3.8.2.2), composed into whole entities as they are read."""

    _shadow = 0

    def open(
        self, connection: Connection, consumer: str, stream: str, journal: Journal, before_us: int
    ) -> None:
        prefix = _SHADOW.format(stream, "")
        abandoned = {"consumer": consumer, "prefix": prefix, "before_us": before_us}
        for shadow in connection.execute(_ABANDONED, abandoned).scalars().all():
            _remove(connection, shadow)
        name = prefix + str(self._audit)
        row = streams.insert(
            connection, consumer, name, "{}", journal, self._audit, kind=StreamKind.AUDIT
        )
        self._shadow = row.no

    def close(self, connection: Connection) -> None:
        _remove(connection, self._shadow)

    def marks(self, connection: Connection, records: Sequence[Record]) -> Iterable[Mark]:
        composed = change_only.compose(
            connection, self._dialect, self._shadow, _ONE_READING, records, self._lookup
        )
        marks: dict[str, Mark] = {}
        for whole, by in zip(composed.records, composed.stated_by, strict=True):
            # The mark has the place of the record that changed it: the place of the whole entity
            # goes back when its newest part ends.
            marks[whole.key] = (
                whole.key,
                replace(
                    whole,
                    token=by.token,
                    partition=by.partition,
                    offset=by.offset,
                    appended_at_us=by.appended_at_us,
                    whole=True,
                ),
            )
        for change in composed.unknown:
            # It shows that the entity exists, and that it has changed.
            marks[change.key] = change.key, replace(change, kind=RecordType.CREATE_UPDATE)
        return marks.values()

    def repaired(self, connection: Connection, position: Position, keys: Collection[str]) -> None:
        # The next partial updates change these parts.
        source, target = self._shadow, self._no
        change_only.move_parts(
            connection, self._dialect, position, keys, source=source, target=target
        )

    def _lookup(
        self, connection: Connection, dialect: Dialect, no: int, names: Collection[str]
    ) -> list[StoredRecord]:
        assert no == self._shadow
        members = dialect.members("names")
        query = text(f"""
            SELECT key, uuid, class FROM instep_audit_mark
            WHERE audit = :audit AND ends = 0 AND key IN {members}
            UNION SELECT key, uuid, class FROM instep_audit_mark
            WHERE audit = :audit AND ends = 0 AND uuid <> '' AND uuid IN {members}
        """)
        rows = connection.execute(query, {"audit": self._audit, "names": json_array(names)})
        return [
            StoredRecord(
                Record("", key, RecordType.CREATE_UPDATE, "", 0, entity_class=class_, uuid=uuid), 1
            )
            for key, uuid, class_ in rows
        ]


def _remove(connection: Connection, shadow: int) -> None:
    for removal in _REMOVALS:
        connection.execute(removal, {"shadow": shadow})


def _effective(marks: Sequence[Mark]) -> Iterable[Mark]:
    """The marks that the table needs in the end or for its comparison (A3), in order."""
    records = [record for _, record in marks]
    rounds = rounds_per_key(records, [key for key, _ in marks])
    return [mark for marked in rounds for mark in marked.items()]
