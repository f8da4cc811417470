"""Turns the series of measurements on and off, and keeps them in step with what is committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, text

from instep.model.columns import RecordColumns
from instep.model.position import Position
from instep.model.records import Record
from instep_sql.engine.bulk_writes import StoredTable, typed
from instep_sql.engine.definitions import MEASUREMENTS, define, is_kept
from instep_sql.engine.dialect import Dialect
from instep_sql.measurements.periods import MEASURING, Period, periods_of
from instep_sql.options import SqlOptions
from instep_sql.stored_entities import rows_of_classes, stored_record

__all__ = ["follow", "keep", "trim"]

_VERSION: Final = "1"
_REMOVE: Final = text("DELETE FROM instep_measurement")
_TRIM_PERIODS: Final = 1_000
_MOST_PERIODS: Final = 100
"""Of one statement, mostly: a pm-current-data contains those of four hours."""
# What was measured in the middle of a period never takes the place of what was measured at its end;
# otherwise the later statement counts (A3).
_PERIODS: Final = StoredTable(
    "instep_measurement",
    {
        **typed(int, "stream_no"),
        **typed(str, "series"),
        **typed(int, "length_us", "end_us"),
        **typed(str, "key", "class"),
        **typed(int, "complete", "suspect", "lineage", "appended_at_us"),
        **typed(bytes, "body"),
    },
    key=("stream_no", "series", "length_us", "end_us"),
    updated_if="""
        excluded.complete >= instep_measurement.complete
        AND (excluded.complete > instep_measurement.complete
             OR excluded.lineage <> instep_measurement.lineage
             OR excluded.appended_at_us >= instep_measurement.appended_at_us)
    """,
)
_TRIM: Final = """
    DELETE FROM instep_measurement WHERE id IN (
        SELECT id FROM instep_measurement
        WHERE id <= (SELECT max(id) FROM instep_measurement) - :keep
        ORDER BY id LIMIT :limit {unlocked})
"""


def keep(connection: Connection, dialect: Dialect, *, wanted: bool) -> None:
    """Keep series from now on, or no longer; does nothing if that is so already.

    When they are turned on, the periods that stored entities state are their beginning.
    """
    if is_kept(connection, MEASUREMENTS) is wanted:
        return
    dialect.lock_for_migration(connection)
    if is_kept(connection, MEASUREMENTS) is wanted:
        return
    connection.execute(_REMOVE)
    define(connection, MEASUREMENTS, _VERSION if wanted else None)
    if not wanted:
        return
    for row in rows_of_classes(connection, MEASURING):
        _write(connection, dialect, row.stream_no, row.lineage, [stored_record(row)])


def follow(
    connection: Connection,
    dialect: Dialect,
    no: int,
    records: Sequence[Record],
    position: Position,
) -> None:
    """Keep the periods that these records of a stream state, read under the lineage of `position`.
    What ends an entity ends no series: history-data that a provider has dropped stays here.
    """
    if isinstance(records, RecordColumns):
        if MEASURING.isdisjoint(records.classes):
            return
        stating = (at for at, name in enumerate(records.classes) if name in MEASURING)
        concerned = [records.at(at) for at in stating if not records.ends[at]]
    else:
        concerned = [one for one in records if one.entity_class in MEASURING and not one.ends]
    if concerned:
        _write(connection, dialect, no, position.lineage, concerned)


def trim(connection: Connection, dialect: Dialect, options: SqlOptions, appended: int) -> None:
    """Remove the oldest periods that exceed the retention: a bounded number, but more than a commit
    appends.
    """
    statement = text(_TRIM.format(unlocked=dialect.skip_locked))
    limit = _MOST_PERIODS * appended + _TRIM_PERIODS
    connection.execute(statement, {"keep": options.measurement_retention_records, "limit": limit})


def _write(
    connection: Connection, dialect: Dialect, no: int, lineage: int, records: Iterable[Record]
) -> None:
    # A statement of SQL must not write one row twice.
    latest: dict[tuple[str, int, int], tuple[Period, Record]] = {}
    for record in records:
        for one in periods_of(record):
            key = (one.series, one.length_us, one.end_us)
            known = latest.get(key)
            if known is None or _replaces(one, record, *known):
                latest[key] = one, record
    rows = [
        (
            *(no, one.series, one.length_us, one.end_us, record.key, record.entity_class),
            *(int(one.complete), None if one.suspect is None else int(one.suspect)),
            *(lineage, record.appended_at_us, one.body),
        )
        for one, record in latest.values()
    ]
    dialect.upsert_rows(connection, _PERIODS, rows)


def _replaces(one: Period, record: Record, known: Period, by: Record) -> bool:
    """As `_PERIODS` within one lineage."""
    if one.complete is not known.complete:
        return one.complete
    return record.appended_at_us >= by.appended_at_us
