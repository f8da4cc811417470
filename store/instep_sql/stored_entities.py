"""Reads rows of `instep_entity`: page by page, and many at a time by key or by uuid."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, text

from instep.model.entities import StoredEntity
from instep.model.records import Record, RecordType
from instep_sql.engine.dialect import Dialect, json_array

__all__ = [
    "StoredRecord",
    "find_headers",
    "find_records",
    "rows_of_classes",
    "stored_entity",
    "stored_record",
]

_PAGE_RECORDS: Final = 1_000
_PLACE: Final = 'key, class, token, partition, "offset", appended_at_us, lineage, uuid, envelope'


def rows_of_classes(connection: Connection, classes: Collection[str]) -> Iterator[Row[Any]]:
    """The rows of all entities of these classes, with consumer and stream, read page by page."""
    names = ", ".join(f"'{name}'" for name in sorted(classes))
    query = text(f"""
        SELECT e.*, s.consumer, s.stream FROM instep_entity AS e
        JOIN instep_stream AS s ON s.id = e.stream_no
        WHERE e.class IN ({names}) AND e.id > :after ORDER BY e.id LIMIT :size
    """)
    after = -1
    while True:
        rows = connection.execute(query, {"after": after, "size": _PAGE_RECORDS}).all()
        yield from rows
        if len(rows) < _PAGE_RECORDS:
            return
        after = rows[-1].id


def stored_entity(row: Row[Any]) -> StoredEntity:
    """An entity of a row of `instep_entity`, with its consumer and stream, and with its proof where
    the columns of `proof_sql` are in the row.
    """
    reason = getattr(row, "unproven_reason", "" if row.proven else "no-resource")
    return StoredEntity(
        stream=row.stream,
        key=row.key,
        entity_class=row._mapping["class"],  # noqa: SLF001 — SQLAlchemy's public name for it
        token=row.token,
        appended_at_us=row.appended_at_us,
        attempt=row.attempt,
        body=row.body,
        envelope=row.envelope,
        uuid=row.uuid,
        proven=not reason,
        unproven=(reason or "").strip(),
        proven_at_us=getattr(row, "proven_at_us", None) or 0,
        proven_by=getattr(row, "proven_by", None) or "",
        consumer=row.consumer,
    )


def stored_record(row: Row[Any]) -> Record:
    """The last statement of a stored entity; `row` has its columns and the name of its stream."""
    return Record(
        row.stream,
        row.key,
        RecordType.CREATE_UPDATE,
        row.token,
        row.appended_at_us,
        row.partition,
        row._mapping["offset"],  # noqa: SLF001 — SQLAlchemy's public name for it
        row._mapping["class"],  # noqa: SLF001
        row.body,
        row.envelope,
        uuid=row.uuid,
    )


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A stored entity, and the lineage of the log that it was read from."""

    record: Record
    lineage: int


def find_records(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> list[StoredRecord]:
    """The stored entities of these keys, with their bodies."""
    query = (
        f"SELECT {_PLACE}, body FROM instep_entity "
        f"WHERE stream_no = :no AND key IN {dialect.members('keys')}"
    )
    rows = dialect.execute(connection, query, {"no": no, "keys": json_array(keys)})
    return [_found_record(*row) for row in rows]


def find_headers(
    connection: Connection, dialect: Dialect, no: int, names: Collection[str]
) -> list[StoredRecord]:
    """The stored entities whose key or uuid is one of these, without their bodies."""
    members = dialect.members("names")
    query = (
        f"SELECT {_PLACE} FROM instep_entity WHERE stream_no = :no AND key IN {members} "
        f"UNION SELECT {_PLACE} FROM instep_entity "
        f"WHERE stream_no = :no AND uuid <> '' AND uuid IN {members}"
    )
    rows = dialect.execute(connection, query, {"no": no, "names": json_array(names)})
    return [_found_record(*row) for row in rows]


def _found_record(  # noqa: PLR0913, PLR0917 - the columns of `_PLACE`, and the body
    key: str,
    entity_class: str,
    token: str,
    partition: str,
    offset: int,
    appended_at_us: int,
    lineage: int,
    uuid: str,
    envelope: bytes,
    body: bytes = b"",
) -> StoredRecord:
    record = Record(
        "",
        key,
        RecordType.CREATE_UPDATE,
        token,
        appended_at_us,
        partition,
        offset,
        entity_class,
        body,
        bytes(envelope),
        uuid=uuid,
    )
    return StoredRecord(record, lineage)
