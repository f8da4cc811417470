"""The SQL by which a database compares the statements of a batch with what is stored, and appends
those that are changes to the journal: what is stored never leaves it.
"""

from __future__ import annotations

from typing import Final

from instep.model.entities import ChangeKind
from instep.model.ordering import SQL_PLACE, Place, supersedes_sql
from instep.model.records import RecordType

__all__ = ["APPEND_COLUMNS", "append_sql"]

APPEND_COLUMNS: Final = {
    "key": "text",
    "class": "text",
    "token": "text",
    '"offset"': "int8",
    "appended_at_us": "int8",
    "envelope": "bytea",
    "body": "bytea",
}
"""The columns of a statement, with their types in PostgreSQL."""

_APPEND: Final = """
INSERT INTO instep_change (stream_no, committed_at_us, key, class, change, kind, token,
                           appended_at_us, envelope, body, previous)
SELECT {no:d}, {now_us}, stated.key,
       CASE WHEN stated.class = '' THEN coalesce(stored.class, '') ELSE stated.class END,
       CASE WHEN stored.id IS NULL THEN '{created}' ELSE '{updated}' END, {kind:d},
       stated.token, stated.appended_at_us, stated.envelope, {body}, {previous}
FROM {stated} LEFT JOIN instep_entity AS stored
  ON stored.stream_no = {no:d} AND stored.key = stated.key
WHERE stored.id IS NULL
   OR (stored.token <> '' AND NOT {superseded}
       AND (stored.body <> stated.body OR ({of_events} AND stored.envelope <> stated.envelope)))
"""


def append_sql(
    no: int,
    lineage: int,
    stated: str,
    *,
    now_us: str,
    of_events: str,
    body: str,
    previous: str,
) -> str:
    """The statement for updates of one lineage, of which no key has two. It passes over what a
    newer record supersedes (A3), what is stored already, and what a baseline has stated: that is
    compared by meaning (A13), which SQL cannot.

    Args:
        no: The stream, as a number.
        lineage: Of the statements.
        stated: A relation `stated` with `APPEND_COLUMNS` and `partition`, in order.
        now_us: An expression for the time of the commit.
        of_events: Whether the class of `stated` is one of events (see `StreamInfo.event_classes`).
        body: What is kept as the body after the change, of `stated` …
        previous: … and as the one before it, of the row `stored`.
    """
    place = Place.of("stated", SQL_PLACE)._replace(lineage=f"{lineage:d}")
    return _APPEND.format(
        no=no,
        now_us=now_us,
        created=ChangeKind.CREATED.value,
        updated=ChangeKind.UPDATED.value,
        kind=RecordType.CREATE_UPDATE.value,
        body=body,
        previous=previous,
        of_events=of_events,
        stated=stated,
        superseded=supersedes_sql(Place.of("stored", SQL_PLACE), place),
    )
