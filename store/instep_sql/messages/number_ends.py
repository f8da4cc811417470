"""The rows of `instep_number_end`: how numbers ended otherwise than by delivery (S13)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from instep.model.storable import storable_text
from instep.ports.message_store import MessageGroup
from instep.sequencing.ends import DecidedBy, EndedNumbers, NumberEnd, RecordedEnd
from instep_sql.engine.bulk_writes import StoredTable, typed
from instep_sql.engine.dialect import Dialect

__all__ = ["add", "end_of", "forget", "settle", "totals", "write"]

_ENDS: Final = StoredTable(
    "instep_number_end",
    {
        **typed(int, "receiver_no"),
        **typed(str, "scope"),
        **typed(int, "epoch", "low", "high"),
        **typed(str, "ending", "reason", "decided_by", "told"),
        **typed(int, "obligation", "decided_at_us"),
    },
)
_TOTALS: Final = StoredTable(
    "instep_number_total",
    {**typed(int, "receiver_no"), **typed(str, "ending"), **typed(int, "numbers")},
    key=("receiver_no", "ending"),
    updated={"numbers": "instep_number_total.numbers + excluded.numbers"},
)
# Only into the newest row of its sequence: the last about a number counts.
_JOIN: Final = text("""
    UPDATE instep_number_end
    SET low = CASE WHEN low = :high + 1 THEN :low ELSE low END,
        high = CASE WHEN high = :low - 1 THEN :high ELSE high END, decided_at_us = :now_us
    WHERE id = (SELECT max(id) FROM instep_number_end WHERE receiver_no = :no AND scope = :scope)
      AND forgotten_at_us IS NULL AND epoch = :epoch AND ending = :ending AND reason = :reason
      AND decided_by = :by AND told = '' AND (high = :low - 1 OR low = :high + 1)
""")
_SETTLE: Final = """
    UPDATE instep_number_end SET told = ?, obligation = NULL
    WHERE receiver_no = ? AND obligation = ?
"""
_FORGET: Final = """
    UPDATE instep_number_end SET forgotten_at_us = ?
    WHERE receiver_no = ? AND scope = ? AND forgotten_at_us IS NULL
"""
_TRIM_OLD: Final = text("DELETE FROM instep_number_end WHERE forgotten_at_us < :before_us")
_TRIM_MANY: Final = text("""
    DELETE FROM instep_number_end WHERE forgotten_at_us IS NOT NULL AND id <= (
        SELECT max(id) FROM instep_number_end WHERE forgotten_at_us IS NOT NULL) - :keep
""")
_NUMBERS_TOP: Final = 2**63 - 1


def write(connection: Connection, dialect: Dialect, no: int, group: MessageGroup) -> None:
    """Record what a group has ended, and whether the senders were told of what ended before."""
    ended = {change.scope: change.ended for change in group.changes if change.ended}
    if ended:
        add(connection, dialect, no, ended, group.now_us)
    if group.settled:
        settle(connection, dialect, no, group.settled)


def settle(connection: Connection, dialect: Dialect, no: int, settled: Mapping[int, bool]) -> None:
    """Record what became of obligations: number → whether it was sent."""
    rows = [("sent" if sent else "not-sent", no, number) for number, sent in settled.items()]
    dialect.execute_many(connection, _SETTLE, rows)


def add(
    connection: Connection,
    dialect: Dialect,
    no: int,
    ended: Mapping[str, Sequence[tuple[EndedNumbers, int]]],
    now_us: int,
) -> None:
    """Add to the record: scope → what has ended, with the obligation that tells its sender."""
    rows: list[tuple[Any, ...]] = []
    totals: dict[NumberEnd, int] = {}
    for scope, ends in ended.items():
        name = storable_text(scope)
        for place, (one, obligation) in enumerate(ends):
            totals[one.end] = totals.get(one.end, 0) + one.high - one.low + 1
            reason = storable_text(one.reason)
            if not place and not one.told:
                given = {"no": no, "scope": name, "epoch": one.epoch, "ending": one.end.value}
                given |= {"low": one.low, "high": one.high, "reason": reason, "by": one.by.value}
                if connection.execute(_JOIN, {**given, "now_us": now_us}).rowcount:
                    continue
            told = "owed" if obligation else ""
            numbers = one.epoch, one.low, one.high
            why = one.end.value, reason, one.by.value
            rows.append((no, name, *numbers, *why, told, obligation or None, now_us))
    dialect.insert_rows(connection, _ENDS, rows)
    counted = [(no, end.value, min(count, _NUMBERS_TOP)) for end, count in totals.items()]
    dialect.upsert_rows(connection, _TOTALS, counted)


def forget(
    connection: Connection,
    dialect: Dialect,
    no: int,
    scopes: Collection[str],
    *,
    now_us: int,
    retention_s: float,
    keep: int,
) -> None:
    """Note that sequences are forgotten, and remove the records of those that were long ago."""
    dialect.execute_many(
        connection, _FORGET, [(now_us, no, storable_text(scope)) for scope in scopes]
    )
    connection.execute(_TRIM_OLD, {"before_us": now_us - int(retention_s * 1_000_000)})
    connection.execute(_TRIM_MANY, {"keep": keep})


def totals(connection: Connection, no: int) -> dict[str, int]:
    """How many numbers of a receiver have ended so, ever."""
    query = text("SELECT ending, numbers FROM instep_number_total WHERE receiver_no = :no")
    return {row.ending: row.numbers for row in connection.execute(query, {"no": no})}


def end_of(row: Row[Any]) -> RecordedEnd:
    """A row of the table."""
    return RecordedEnd(
        low=row.low,
        high=row.high,
        end=NumberEnd(row.ending),
        reason=row.reason,
        by="" if row.decided_by == DecidedBy.RECEIVER and not row.reason else row.decided_by,
        told=row.told,
        at_us=row.decided_at_us,
        epoch=row.epoch,
    )
