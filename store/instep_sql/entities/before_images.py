"""What is stored of the entities of a batch before it is written, as the journal needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, text

from instep.model.columns import RecordColumns
from instep.model.ordering import supersedes
from instep.model.records import Record, RecordHeader, RecordType
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities.streams import StreamRow

__all__ = ["BeforeImage", "BeforeImages", "compared_images", "loaded_images", "mostly_new"]

_STORED: Final = """
    SELECT key, class, body, lineage, token, appended_at_us, partition, "offset", {envelope}
    FROM instep_entity WHERE stream_no = :no AND key IN {members}
"""
_KEYS: Final = "SELECT key FROM instep_entity WHERE stream_no = :no AND key IN {members}"
_SAMPLE_KEYS: Final = 64

BeforeImage = tuple[bytes | bytearray | None, str, str, bytes | bytearray | None]
"""Body, class, token and, of a stream with events, the envelope of an entity. None where it is only
known to differ from what is stated next.
"""

BeforeImages = tuple[dict[str, BeforeImage | None], dict[str, RecordHeader]]
"""The image of each stored entity, by key, and the headers of those that rule A3 has to compare."""


def loaded_images(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    lineage: int,
    records: Sequence[Record],
) -> BeforeImages:
    """Load what is stored of the entities of these records."""
    return _loaded(connection, dialect, stream, lineage, set(_keys(records)))


def _loaded(
    connection: Connection, dialect: Dialect, stream: StreamRow, lineage: int, keys: set[str]
) -> BeforeImages:
    envelope = "envelope" if stream.event_classes else "NULL"
    query = text(_STORED.format(members=dialect.members("keys"), envelope=envelope))
    rows = connection.execute(query, {"no": stream.no, "keys": json_array(keys)})
    living: dict[str, BeforeImage | None] = {}
    comparable: dict[str, RecordHeader] = {}
    for key, entity_class, body, of, token, at_us, partition, offset, envelope in rows:
        living[key] = (body, entity_class, token, envelope)
        if of == lineage:
            comparable[key] = RecordHeader(
                "", key, RecordType.CREATE_UPDATE, token, at_us, partition, offset
            )
    return living, comparable


def compared_images(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    lineage: int,
    records: Sequence[Record],
) -> BeforeImages:
    """The same without what a journal of previous bodies needs, loading (nearly) no body.

    The database compares what is stored with the first statement of each key. What follows in the
    batch is compared with that statement. Loaded are only the bodies for which this is not enough:
    of entities whose first statement does not count, and of rows of a baseline, which are compared
    by meaning.
    """
    columns = records if isinstance(records, RecordColumns) else None
    keys = _keys(records)
    first = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
    bodies, envelopes = (
        (columns.bodies, columns.envelopes)
        if columns
        else ([record.body for record in records], [record.envelope for record in records])
    )
    events = bool(stream.event_classes)
    living: dict[str, BeforeImage | None] = {}
    comparable: dict[str, RecordHeader] = {}
    unknown: set[str] = set()
    for row in dialect.compare(
        connection,
        stream.no,
        [
            (key, envelopes[first[key]] if events else b"", bodies[first[key]])
            for key in _comparable_keys(connection, dialect, stream.no, list(first))
        ],
    ):
        key, at = row.key, first[row.key]
        if not (row.token or row.same_body) or (
            row.lineage == lineage and supersedes(row, _header(records, at))
        ):
            unknown.add(key)
            continue
        living[key] = (
            bodies[at] if row.same_body else None,
            row.entity_class,
            row.token,
            envelopes[at] if row.same_envelope else None,
        )
        if row.lineage == lineage and not columns:
            comparable[key] = row
    if unknown:
        loaded, before = _loaded(connection, dialect, stream, lineage, unknown)
        living |= loaded
        comparable |= before
    return living, comparable


def mostly_new(connection: Connection, dialect: Dialect, no: int, keys: Sequence[str]) -> bool:
    """Whether a sample says that most of these keys, of which none is there twice, are not stored.
    Then it is quicker to ask for the keys than to state each new body to the database in vain.
    """
    if len(keys) <= _SAMPLE_KEYS:
        return False
    sample = keys[:: len(keys) // _SAMPLE_KEYS]
    return 2 * len(_stored_keys(connection, dialect, no, sample)) < len(sample)


def _comparable_keys(
    connection: Connection, dialect: Dialect, no: int, keys: list[str]
) -> Sequence[str]:
    """All keys that are stored; with them the others, unless most are new."""
    if mostly_new(connection, dialect, no, keys):
        return _stored_keys(connection, dialect, no, keys)
    return keys


def _stored_keys(
    connection: Connection, dialect: Dialect, no: int, keys: Sequence[str]
) -> Sequence[str]:
    query = text(_KEYS.format(members=dialect.members("keys")))
    return connection.execute(query, {"no": no, "keys": json_array(keys)}).scalars().all()


def _header(records: Sequence[Record], at: int) -> RecordHeader:
    if not isinstance(records, RecordColumns):
        return records[at]
    of = records.headers
    return RecordHeader(
        of.stream,
        of.keys[at],
        of.kinds[at],
        of.tokens[at],
        of.appended_at_us[at],
        of.partition,
        of.offsets[at],
    )


def _keys(records: Sequence[Record]) -> Sequence[str]:
    if isinstance(records, RecordColumns):
        return records.keys
    return [record.key for record in records]
