"""The journal: every committed change, in order, for subscribers that read it with a cursor of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.fold import newer
from instep.reading import ChangeKind
from instep.records import Record
from instep_sql.dialect import ChangeRow, Dialect
from instep_sql.options import Journal, SqlOptions
from instep_sql.stored import stored_records

__all__ = ["Told", "tell", "tell_recomposed", "tell_swept", "trim"]

_TRIM_RECORDS: Final = 1_000
_TRIM: Final = """
    DELETE FROM instep_change WHERE cursor IN (
        SELECT cursor FROM instep_change WHERE {expired} ORDER BY cursor LIMIT :limit {unlocked})
"""
_OVER_COUNT: Final = "cursor <= (SELECT max(cursor) FROM instep_change) - :keep"
_OVER_AGE: Final = """
    cursor < (SELECT min(cursor) FROM instep_change) + :limit AND committed_at_us < :before_us
"""


class Told(msgspec.Struct):
    """What is known of a key while a batch is told: the last record that counted, and whether it
    lives.
    """

    record: Record
    lineage: int
    alive: bool


def tell(
    connection: Connection,
    dialect: Dialect,
    no: int,
    lineage: int,
    records: Sequence[Record],
    *,
    mode: Journal,
    decided: bool,
    now_us: int,
) -> None:
    """Write a row for each change that the records make, also for those that folding takes away.

    Follows rule 3 record by record from what is stored before the batch, unless that was decided
    before (CHANGE_ONLY): an older record is no change, neither is the end of what is not there, nor
    a statement of the same body.
    """
    known = {
        row.record.key: Told(row.record, row.lineage, alive=True)
        for row in stored_records(connection, dialect, no, {record.key for record in records})
    }
    rows: list[ChangeRow] = []
    for record in records:
        told = known.get(record.key)
        if (
            not decided
            and told is not None
            and told.lineage == lineage
            and newer(told.record, record)
        ):
            continue
        before = told.record if told is not None and told.alive else None
        known[record.key] = Told(record, lineage, alive=not record.ends)
        change = _change(before, record)
        if change is None:
            continue
        previous = before.body if before is not None and mode is Journal.PREVIOUS else None
        entity_class = record.entity_class
        if before is not None and (record.ends or not entity_class):
            # An end may name no class, or ANY_CLASS.
            entity_class = before.entity_class
        rows.append(
            (
                no,
                record.key,
                entity_class,
                change.value,
                record.kind.value,
                record.token,
                record.appended_at_us,
                now_us,
                b"" if mode is Journal.CHANGES else record.body,
                previous,
            )
        )
    dialect.add_changes(connection, rows)


def _change(before: Record | None, record: Record) -> ChangeKind | None:
    if record.ends:
        return None if before is None else ChangeKind.DELETED
    if before is None:
        return ChangeKind.CREATED
    return None if before.body == record.body else ChangeKind.UPDATED


def tell_swept(
    connection: Connection, doomed: str, values: dict[str, Any], mode: Journal, now_us: int
) -> None:
    """Write a row for each entity that is about to be swept; `doomed` is the condition that names
    them.
    """
    previous = "body" if mode is Journal.PREVIOUS else "NULL"
    connection.execute(
        text(f"""
            INSERT INTO instep_change (stream_no, key, class, change, kind, token, appended_at_us,
                                       committed_at_us, body, previous)
            SELECT stream_no, key, class, '{ChangeKind.SWEPT.value}', NULL, token, appended_at_us,
                   :now_us, :nothing, {previous}
            FROM instep_entity WHERE {doomed} ORDER BY id
        """),  # noqa: S608 — constants only
        {**values, "now_us": now_us, "nothing": b""},
    )


def tell_recomposed(
    connection: Connection, bodies: dict[int, bytes], mode: Journal, now_us: int
) -> None:
    """Write a row for each entity that is about to lose a piece of its body to a sweep."""
    body = "NULL" if mode is Journal.CHANGES else ":body"
    previous = "body" if mode is Journal.PREVIOUS else "NULL"
    statement = text(f"""
        INSERT INTO instep_change (stream_no, key, class, change, kind, token, appended_at_us,
                                   committed_at_us, body, previous)
        SELECT stream_no, key, class, '{ChangeKind.UPDATED.value}', NULL, token, appended_at_us,
               :now_us, coalesce({body}, :nothing), {previous}
        FROM instep_entity WHERE id = :id AND body <> :body
    """)  # noqa: S608 — constants only
    values = [
        {"id": entity, "body": composed, "now_us": now_us, "nothing": b""}
        for entity, composed in bodies.items()
    ]
    if values:
        connection.execute(statement, values)


def trim(
    connection: Connection, dialect: Dialect, options: SqlOptions, told: int, now_us: int
) -> None:
    """Remove what is over the retention, a bounded piece a commit, yet faster than it grows."""

    def remove(expired: str, **values: int) -> None:
        statement = text(_TRIM.format(expired=expired, unlocked=dialect.unlocked))
        connection.execute(statement, {"limit": 2 * told + _TRIM_RECORDS, **values})

    remove(_OVER_COUNT, keep=options.journal_retention_records)
    if options.journal_retention_s is not None:
        remove(_OVER_AGE, before_us=now_us - int(options.journal_retention_s * 1_000_000))
