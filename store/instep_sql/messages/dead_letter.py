"""The dead letter: rows of `instep_inbox` that were accepted and cannot be delivered (S13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from instep.ports.message_store import MessageGroup
from instep.sequencing.ends import UNDELIVERED, EndedNumbers
from instep_sql.engine.dialect import Dialect

__all__ = ["DEAD", "bury", "bury_forgotten", "trim_discarded", "usage"]

DEAD: Final = 3
"""The stage of a message in the dead letter."""
SIZE: Final = "length(body) + coalesce(length(attachments), 0)"
_BURY: Final = f"""
    UPDATE instep_inbox
    SET stage = {DEAD}, ending = ?, reason = ?, decided_by = ?, dead_at_us = ?, discarded = ?
    WHERE sequence_no = ? AND stage = 0 AND epoch = ? AND number BETWEEN ? AND ?
"""
_BURY_ALL: Final = f"""
    UPDATE instep_inbox
    SET stage = {DEAD}, ending = 'failed', reason = ?, decided_by = 'receiver', dead_at_us = ?,
        discarded = 0
    WHERE sequence_no = ? AND stage = 0
"""
_USAGE: Final = text(f"""
    SELECT q.peer, count(*) AS messages, sum({SIZE}) AS size_bytes
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.stage = {DEAD} AND i.discarded = 0 AND q.receiver_no = :no GROUP BY q.peer
""")
_DISCARDED: Final = text(f"""
    SELECT i.id, {SIZE} AS size_bytes
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.stage = {DEAD} AND i.discarded = 1 AND q.receiver_no = :no ORDER BY i.id DESC
""")
_REPLAY: Final = f"UPDATE instep_inbox SET stage = 1 WHERE id = ? AND stage = {DEAD}"
_REPLAYED: Final = text("""
    SELECT i.id, i.epoch, i.number, i.ending, i.dead_at_us, i.sequence_no, q.scope, EXISTS (
        SELECT 1 FROM instep_number_end AS e
        WHERE e.receiver_no = q.receiver_no AND e.scope = q.scope AND e.epoch = i.epoch
          AND i.number BETWEEN e.low AND e.high AND e.told <> '') AS told
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.id = :id AND i.stage = :dead AND q.receiver_no = :no AND NOT EXISTS (
        SELECT 1 FROM instep_inbox AS o
        WHERE o.sequence_no = i.sequence_no AND o.epoch = i.epoch AND o.number = i.number
          AND o.stage < :dead AND o.number >= 0)
""")
# A name may have come back since: the number is of the sequence that was forgotten.
_RECORD_REPLAY: Final = text("""
    INSERT INTO instep_number_end (receiver_no, scope, epoch, low, high, ending, reason, decided_by,
        told, decided_at_us, forgotten_at_us)
    SELECT :no, :scope, :epoch, :number, :number, 'delivered', :reason, 'operator', '', :now_us, (
        SELECT min(forgotten_at_us) FROM instep_number_end
        WHERE receiver_no = :no AND scope = :scope AND forgotten_at_us >= :dead_at_us)
""")
_GO_ON: Final = """
    UPDATE instep_sequence SET deliver_at_us = CASE WHEN blocked = 1 THEN NULL ELSE ? END
    WHERE id = ?
"""
REPLAYED_BY_OPERATOR: Final = "replayed from the dead letter"


def bury(
    connection: Connection, dialect: Dialect, group: MessageGroup, row_ids: dict[str, int]
) -> None:
    """Move the buffered messages that a group has ended (S13); `row_ids`: scope → row."""
    rows = [
        (
            one.end.value,
            one.reason,
            one.by.value,
            group.now_us,
            int(one.discarded),
            row_ids[change.scope],
            one.epoch,
            one.low,
            one.high,
        )
        for change in group.changes
        for one, _ in change.ended
        if one.end in UNDELIVERED
    ]
    dialect.execute_many(connection, _BURY, rows)


def bury_forgotten(
    connection: Connection, dialect: Dialect, reasons: Sequence[tuple[str, int]], now_us: int
) -> None:
    """Move all that sequences have buffered which are forgotten now; reason and row of each."""
    dialect.execute_many(connection, _BURY_ALL, [(why, now_us, id) for why, id in reasons])


def replay(
    connection: Connection, dialect: Dialect, no: int, ids: Sequence[int], now_us: int
) -> list[int]:
    """Release messages to be delivered, as an operator wants it; returns the rows of their
    sequences.
    """
    sequences: list[int] = []
    for id in ids:
        given = {"id": id, "dead": DEAD, "no": no}
        row = connection.execute(_REPLAYED, given).one_or_none()
        if row is None:
            continue
        dialect.execute_many(connection, _REPLAY, [(id,)])
        dialect.execute_many(connection, _GO_ON, [(now_us, row.sequence_no)])
        sequences.append(row.sequence_no)
        if row.number >= 0:
            why = REPLAYED_BY_OPERATOR
            why += f", although its sender was told: {row.ending}" if row.told else ""
            of = {"no": no, "scope": row.scope, "epoch": row.epoch, "number": row.number}
            of |= {"reason": why, "now_us": now_us, "dead_at_us": row.dead_at_us}
            connection.execute(_RECORD_REPLAY, of)
    return sequences


def trim_discarded(connection: Connection, no: int, kept: tuple[int, int]) -> None:
    """Remove the oldest of those that may be discarded, above so many messages and bytes."""
    messages, size_bytes = kept
    gone = []
    for row in connection.execute(_DISCARDED, {"no": no}):
        messages, size_bytes = messages - 1, size_bytes - row.size_bytes
        if messages < 0 or size_bytes < 0:
            gone.append({"id": row.id})
    if gone:
        connection.execute(text("DELETE FROM instep_inbox WHERE id = :id"), gone)


def usage(connection: Connection, no: int) -> dict[str, tuple[int, int]]:
    """Peer → its messages in the dead letter that are not discarded, and their bytes."""
    rows = connection.execute(_USAGE, {"no": no})
    return {row.peer: (int(row.messages), int(row.size_bytes)) for row in rows}


def dead_values(end: EndedNumbers, now_us: int) -> tuple[Any, ...]:
    """The columns of the dead letter, for a row that is inserted."""
    return (end.end.value, end.reason, end.by.value, now_us, int(end.discarded))
