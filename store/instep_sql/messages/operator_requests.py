"""The rows of `instep_sequence_request`: what operators want done about sequences."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row, text

from instep.model.storable import storable_text
from instep.ports.message_store import MessageGroup, OperatorAction, OperatorRequest
from instep_sql.engine.dialect import Dialect
from instep_sql.messages.dead_letter import ReplayCheck, find_replay

__all__ = ["add", "finish", "load", "outcome"]

_AT_ONCE: Final = 100
_KEPT_US: Final = 86_400_000_000
"""How long it is kept what became of a request."""
_ADD: Final = text("""
    INSERT INTO instep_sequence_request (sequence_no, action, number)
    SELECT q.id, :action, :number
    FROM instep_sequence AS q JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE r.consumer = :consumer AND q.scope = :scope AND (q.state <> '' OR :any = 1)
    RETURNING id
""")
_LOAD: Final = text("""
    SELECT o.id, q.scope, o.action, o.number FROM instep_sequence_request AS o
    JOIN instep_sequence AS q ON q.id = o.sequence_no
    WHERE q.receiver_no = :no AND o.outcome IS NULL ORDER BY o.id LIMIT :limit
""")
_DONE: Final = "UPDATE instep_sequence_request SET outcome = ?, done_at_us = ? WHERE id = ?"
_OLD: Final = text("DELETE FROM instep_sequence_request WHERE done_at_us < :before_us")
_OUTCOME: Final = text("SELECT outcome FROM instep_sequence_request WHERE id = :id")


def add(
    connection: Connection, consumer: str, scope: str, action: OperatorAction, number: int | None
) -> int | None:
    """Keep a request; returns its id, None where there is no such sequence. What is about the dead
    letter may be about one that is forgotten.
    """
    values = {"consumer": consumer, "scope": storable_text(scope), "number": number}
    any_ = int(action in (OperatorAction.REPLAY, OperatorAction.RECOUNT))
    id: int | None = connection.execute(
        _ADD, {**values, "action": action.value, "any": any_}
    ).scalar()
    return id


def load(connection: Connection, no: int) -> list[OperatorRequest]:
    """The oldest requests of a receiver that nobody has done."""
    rows = connection.execute(_LOAD, {"no": no, "limit": _AT_ONCE})
    return [_request(connection, no, row) for row in rows.all()]


def _request(connection: Connection, no: int, row: Row[Any]) -> OperatorRequest:
    action, of_dead = OperatorAction(row.action), ReplayCheck("")
    if action is OperatorAction.REPLAY and row.number is not None:
        of_dead = find_replay(connection, no, row.number)
    return OperatorRequest(row.id, row.scope, action, row.number, *of_dead)


def finish(connection: Connection, dialect: Dialect, group: MessageGroup) -> None:
    """Keep what became of the requests that a group has carried out or refused."""
    if group.done:
        rows = [(text, group.now_us, id) for id, text in group.done.items()]
        dialect.execute_many(connection, _DONE, rows)
        connection.execute(_OLD, {"before_us": group.now_us - _KEPT_US})


def outcome(connection: Connection, id: int) -> str | None:
    """What became of a request; None: nobody has done it yet, or it is forgotten."""
    found: str | None = connection.execute(_OUTCOME, {"id": id}).scalar()
    return found
