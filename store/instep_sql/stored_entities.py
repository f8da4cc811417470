"""What a row of `instep_entity` says."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from instep.model.entities import StoredEntity
from instep.model.records import Record, RecordType

__all__ = ["stored_entity", "stored_record"]


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
        proven=bool(row.proven),
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
    )
