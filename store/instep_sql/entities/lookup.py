"""Reads stored entities as records, many at a time, by key or by uuid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.records import Record, RecordType
from instep_sql.engine.dialect import Dialect, json_array

__all__ = ["StoredRecord", "find_headers", "find_records"]


_PLACE: Final = 'key, class, token, partition, "offset", appended_at_us, lineage, uuid, envelope'


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A stored entity, and the lineage of the log that it was read from."""

    record: Record
    lineage: int


def find_records(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> list[StoredRecord]:
    """The stored entities of these keys, with their bodies."""
    query = text(
        f"SELECT {_PLACE}, body FROM instep_entity "
        f"WHERE stream_no = :no AND key IN {dialect.members('keys')}"
    )
    rows = connection.execute(query, {"no": no, "keys": json_array(keys)})
    return [_stored_record(row, row.body) for row in rows]


def find_headers(
    connection: Connection, dialect: Dialect, no: int, names: Collection[str]
) -> list[StoredRecord]:
    """The stored entities whose key or uuid is one of these, without their bodies."""
    members = dialect.members("names")
    query = text(
        f"SELECT {_PLACE} FROM instep_entity WHERE stream_no = :no AND key IN {members} "
        f"UNION SELECT {_PLACE} FROM instep_entity "
        f"WHERE stream_no = :no AND uuid <> '' AND uuid IN {members}"
    )
    rows = connection.execute(query, {"no": no, "names": json_array(names)})
    return [_stored_record(row, b"") for row in rows]


def _stored_record(row: Any, body: bytes) -> StoredRecord:
    record = Record(
        "",
        row.key,
        RecordType.CREATE_UPDATE,
        row.token,
        row.appended_at_us,
        row.partition,
        row.offset,
        row[1],
        body,
        bytes(row.envelope),
        uuid=row.uuid,
    )
    return StoredRecord(record, row.lineage)
