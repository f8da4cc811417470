"""Reads rows of `instep_change`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from instep.model.entities import Change, ChangeKind
from instep.model.records import RecordType

__all__ = ["stored_change"]


def stored_change(row: Row[Any], epoch: str) -> Change:
    """The change of a row, with the names of its consumer and its stream."""
    return Change(
        cursor=row.cursor,
        stream=row.stream,
        key=row.key,
        entity_class=row._mapping["class"],  # noqa: SLF001 — SQLAlchemy's public name for it
        change=ChangeKind(row.change),
        kind=None if row.kind is None else RecordType(row.kind),
        token=row.token,
        appended_at_us=row.appended_at_us,
        committed_at_us=row.committed_at_us,
        body=row.body,
        previous=row.previous,
        envelope=row.envelope or b"",
        consumer=row.consumer,
        epoch=epoch,
    )
