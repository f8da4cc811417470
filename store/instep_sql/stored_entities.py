"""What a row of `instep_entity` says."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from instep.model.entities import StoredEntity
from instep.model.position import Phase
from instep.model.records import Record, RecordType

__all__ = ["rows_of_classes", "stored_entity", "stored_record"]

_PAGE_RECORDS: Final = 1_000


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
    """An entity of a row of `instep_entity`, with its consumer and stream."""
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
        proven=bool(row.proven) and getattr(row, "phase", "") != Phase.NOT_OFFERED,
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
