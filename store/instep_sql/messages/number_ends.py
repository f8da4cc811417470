"""The rows of `instep_number_end`: how numbers ended otherwise than by delivery (S13)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from instep.model.ranges import Ranges
from instep.model.storable import storable_text
from instep.ports.message_store import MessageGroup
from instep.sequencing.ends import DecidedBy, EndedNumbers, NumberEnd, RecordedEnd
from instep_sql.engine.bulk_writes import StoredTable, typed
from instep_sql.engine.dialect import Dialect
from instep_sql.options import SqlOptions

__all__ = ["EndTrimmer", "add", "end_of", "forget", "settle", "totals", "write"]

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
_TRIM_RANGES: Final = 256
"""After so many ranges that a sequence has added, it is looked at."""
_LOOKED: Final = 10_000
"""Of so many sequences it is known when they were looked at."""
_TRIMMED: Final = "longer ago than ends are kept one by one"
_KNOWN: Final = text("""
    SELECT id, epoch, low, high, ending, told, decided_at_us FROM instep_number_end
    WHERE receiver_no = :no AND scope = :scope AND forgotten_at_us IS NULL ORDER BY id
""")
_DEAD: Final = text("""
    SELECT i.epoch, i.number FROM instep_inbox AS i
    JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE q.receiver_no = :no AND q.scope = :scope AND i.stage = 3
""")
_REMOVE: Final = "DELETE FROM instep_number_end WHERE id = ?"


class EndTrimmer:
    """Trims what known sequences ended long ago, or above their limit. A record grows only where
    numbers end, so only there it is looked at: after so many ranges, or a tenth of the retention.
    """

    def __init__(self, dialect: Dialect, options: SqlOptions) -> None:
        self._dialect = dialect
        self._keep = options.numbers_retention_ranges
        self._retention_us = int(options.numbers_retention_s * 1_000_000)
        self._looked: dict[str, tuple[int, int]] = {}
        """Scope → when it was looked at, and how many ranges it has added since."""

    def trim(self, connection: Connection, no: int, group: MessageGroup) -> None:
        """Trim what the sequences of a group have too much, after the group was written."""
        for change in group.changes:
            if not change.ended:
                continue
            if len(self._looked) >= _LOOKED:
                self._looked.clear()
            at_us, ranges = self._looked.get(change.scope, (0, 0))
            ranges += len(change.ended)
            if ranges < _TRIM_RANGES and group.now_us - at_us < self._retention_us // 10:
                self._looked[change.scope] = at_us, ranges
                continue
            self._looked[change.scope] = group.now_us, 0
            before_us = group.now_us - self._retention_us
            self._trim(connection, no, storable_text(change.scope), before_us, group.now_us)

    def _trim(
        self, connection: Connection, no: int, scope: str, before_us: int, now_us: int
    ) -> None:
        """Join what is too old, or above the limit, to one range of each count: all that is still
        told of it. The totals have counted it.
        """
        of = {"no": no, "scope": scope}
        rows = connection.execute(_KNOWN, of).all()
        # The record of a dead message says what its sender was told: it stays as long as that.
        stays: dict[int, Ranges] = {}
        for epoch, number in connection.execute(_DEAD, of):
            stays.setdefault(epoch, Ranges()).add(number)
        gone: dict[int, list[Row[Any]]] = {}
        for place, row in enumerate(rows):
            if len(rows) - place <= self._keep and row.decided_at_us >= before_us:
                break
            of_count = stays.setdefault(row.epoch, Ranges())
            if row.told == "owed" or of_count.next_member(row.low) in range(row.low, row.high + 1):
                # The last about a number counts: what comes after a row that stays, stays too.
                of_count.add_range(row.low, row.high)
            else:
                gone.setdefault(row.epoch, []).append(row)
        end, by = NumberEnd.TRIMMED.value, DecidedBy.RECEIVER.value
        joined = [
            (
                *(no, scope, epoch, min(row.low for row in of_count)),
                *(max(row.high for row in of_count), end, _TRIMMED, by, "", None, now_us),
            )
            for epoch, of_count in gone.items()
            if [row.ending for row in of_count] != [end]
        ]
        again = {epoch for _, _, epoch, *_ in joined}
        ids = [(row.id,) for epoch in again for row in gone[epoch]]
        self._dialect.execute_many(connection, _REMOVE, ids)
        self._dialect.insert_rows(connection, _ENDS, joined)


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
