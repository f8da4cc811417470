"""Reads stored entities back as records, many at a time: by key, or by the uuid they carry."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.records import Kind, Record
from instep_sql.dialect import Dialect

__all__ = ["Stored", "as_json", "stored_places", "stored_records"]

_PLACE: Final = 'key, class, token, partition, "offset", appended_at_us, lineage, uuid'


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A stored entity, and the lineage of the log that it was read from."""

    record: Record
    lineage: int


def stored_records(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> list[Stored]:
    """The stored entities of these keys, with their bodies."""
    query = text(
        f"SELECT {_PLACE}, body FROM instep_entity "  # noqa: S608 — constants only
        f"WHERE stream_no = :no AND key IN {dialect.members('keys')}"
    )
    rows = connection.execute(query, {"no": no, "keys": as_json(keys)})
    return [_stored(row, row.body) for row in rows]


def stored_places(
    connection: Connection, dialect: Dialect, no: int, names: Collection[str]
) -> list[Stored]:
    """The stored entities whose key or uuid is one of these, without their bodies."""
    members = dialect.members("names")
    query = text(
        f"SELECT {_PLACE} FROM instep_entity WHERE stream_no = :no AND key IN {members} "  # noqa: S608
        f"UNION SELECT {_PLACE} FROM instep_entity "
        f"WHERE stream_no = :no AND uuid <> '' AND uuid IN {members}"
    )
    rows = connection.execute(query, {"no": no, "names": as_json(names)})
    return [_stored(row, b"") for row in rows]


def as_json(values: Collection[str]) -> str:
    """The JSON array that `Dialect.members` reads."""
    return msgspec.json.encode(sorted(values)).decode()


def _stored(row: Any, body: bytes) -> Stored:
    record = Record(
        "",
        row.key,
        Kind.CREATE_UPDATE,
        row.token,
        row.appended_at_us,
        row.partition,
        row.offset,
        row[1],
        body,
        uuid=row.uuid,
    )
    return Stored(record, row.lineage)
