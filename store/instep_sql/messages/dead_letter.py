"""The dead letter: rows of `instep_inbox` that were accepted and cannot be delivered (S13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, text

from instep.errors import StoreUnavailableError
from instep.model.ranges import Ranges
from instep.ports.message_store import MessageGroup
from instep.sequencing.ends import (
    UNDELIVERED,
    EndedNumbers,
    NumberEnd,
    RecordedEnd,
    resolve_ends,
)
from instep.sequencing.state import decode_state
from instep_sql.engine.dialect import Dialect
from instep_sql.messages.number_ends import end_of

__all__ = [
    "DEAD",
    "ReplayCheck",
    "bury",
    "bury_forgotten",
    "dead_values",
    "find_replay",
    "replay",
    "trim_discarded",
    "usage",
]

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
    SELECT q.peer, count(*) AS messages, sum({SIZE}) AS size_bytes, min(dead_at_us) AS since_us
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.stage = {DEAD} AND i.discarded = 0 AND q.receiver_no = :no GROUP BY q.peer
""")
_DISCARDED: Final = text(f"""
    SELECT i.id, {SIZE} AS size_bytes
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.stage = {DEAD} AND i.discarded = 1 AND q.receiver_no = :no ORDER BY i.id DESC
""")
# Of a count that was forgotten: its numbers may be in use again, and it comes before them.
_REPLAY: Final = f"""
    UPDATE instep_inbox SET stage = 1, epoch = CASE WHEN ? = 1 THEN -id ELSE epoch END
    WHERE id = ? AND stage = {DEAD}
"""
_REPLAYED: Final = text("""
    SELECT i.id, i.epoch, i.number, i.ending, i.dead_at_us, i.sequence_no, q.scope, q.state, (
        SELECT min(e.forgotten_at_us) FROM instep_number_end AS e
        WHERE e.receiver_no = q.receiver_no AND e.scope = q.scope
          AND e.forgotten_at_us >= i.dead_at_us) AS forgotten_at_us
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.id = :id AND i.stage = :dead AND q.receiver_no = :no
""")
# Of a count that went on, or of one that was forgotten: the name may have come back since.
_RECORD: Final = text("""
    SELECT * FROM instep_number_end
    WHERE receiver_no = :no AND scope = :scope AND epoch = :epoch
      AND (forgotten_at_us = :forgotten OR (:forgotten = 0 AND forgotten_at_us IS NULL))
    ORDER BY id
""")
_LIVES: Final = text(f"""
    SELECT 1 FROM instep_inbox
    WHERE sequence_no = :sequence AND epoch = :epoch AND number = :number AND stage < {DEAD}
""")
_RECORD_REPLAY: Final = text("""
    INSERT INTO instep_number_end (receiver_no, scope, epoch, low, high, ending, reason, decided_by,
        told, decided_at_us, forgotten_at_us)
    VALUES (:no, :scope, :epoch, :number, :number, 'delivered', :reason, 'operator', '', :now_us,
        :forgotten_at_us)
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
            *dead_values(one, group.now_us),
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


class ReplayCheck(NamedTuple):
    """Whether a message that an operator wants to deliver may be delivered."""

    refused: str
    """Why it stays in the dead letter; empty: it may be delivered."""
    number: int | None = None
    """The number of the message, where it has one …"""
    counted: bool = False
    """… and whether it is of the present count of its sequence."""


def find_replay(connection: Connection, no: int, id: int) -> ReplayCheck:
    """Whether a message of the dead letter may be delivered: one of each number (S1, S13)."""
    row = connection.execute(_REPLAYED, {"id": id, "dead": DEAD, "no": no}).one_or_none()
    if row is None:
        return ReplayCheck("it is not in the dead letter any more")
    if row.number < 0:
        return ReplayCheck("")
    number = {"sequence": row.sequence_no, "epoch": row.epoch, "number": row.number}
    if row.forgotten_at_us is None and connection.execute(_LIVES, number).first() is not None:
        return ReplayCheck("another message waits under its number")
    state = decode_state(row.state) if row.state and row.forgotten_at_us is None else None
    state = None if state is None or state.epoch != row.epoch else state
    ends = resolve_ends(state, Ranges(), _record(connection, no, row))
    for one in ends:
        if one.low <= row.number <= one.high and one.end is NumberEnd.DELIVERED:
            return ReplayCheck("a message was delivered under its number")
    return ReplayCheck("", row.number, state is not None)


def replay(connection: Connection, dialect: Dialect, no: int, id: int, now_us: int) -> int:
    """Release a message to be delivered; returns the row of its sequence. Raises `SinkError` where
    it is gone meanwhile.
    """
    row = connection.execute(_REPLAYED, {"id": id, "dead": DEAD, "no": no}).one_or_none()
    if row is None:
        # Dropped since it was looked at: the group is decided again without it.
        raise StoreUnavailableError("what was to be replayed is gone", where="messages dead replay")
    if row.number >= 0:
        why = REPLAYED_BY_OPERATOR
        record = _record(connection, no, row)
        if any(one.told and one.low <= row.number <= one.high for one in record):
            why += f", although its sender was told: {row.ending}"
        values = {"no": no, "scope": row.scope, "epoch": row.epoch, "number": row.number}
        values |= {"reason": why, "now_us": now_us, "forgotten_at_us": row.forgotten_at_us}
        connection.execute(_RECORD_REPLAY, values)
    forgotten = int(row.forgotten_at_us is not None)
    dialect.execute_many(connection, _REPLAY, [(forgotten, id)])
    dialect.execute_many(connection, _GO_ON, [(now_us, row.sequence_no)])
    no_of_sequence: int = row.sequence_no
    return no_of_sequence


def _record(connection: Connection, no: int, row: Row[Any]) -> list[RecordedEnd]:
    """The record of the count that a dead message belongs to."""
    of = {"no": no, "scope": row.scope, "epoch": row.epoch, "forgotten": row.forgotten_at_us or 0}
    return [end_of(one) for one in connection.execute(_RECORD, of)]


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


def usage(connection: Connection, no: int) -> dict[str, tuple[int, int, int]]:
    """Peer → its messages in the dead letter that are not discarded, their bytes, and since when
    the oldest is there.
    """
    rows = connection.execute(_USAGE, {"no": no})
    return {row.peer: (row.messages, int(row.size_bytes), row.since_us) for row in rows}


def dead_values(end: EndedNumbers, now_us: int) -> tuple[Any, ...]:
    """The columns of the dead letter, in the order of `_BURY`."""
    return (end.end.value, end.reason, end.by.value, now_us, int(end.discarded))
