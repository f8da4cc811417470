"""The rows of `instep_sequence_request`: what operators want done about sequences."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from instep.model.storable import storable_text
from instep.ports.message_store import MessageGroup, OperatorAction, OperatorRequest
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import Dialect

__all__ = ["add", "forget", "load"]

_AT_ONCE: Final = 100
_REQUESTS: Final = StoredTable("instep_sequence_request", {"id": int}, key=("id",))
_ADD: Final = text("""
    INSERT INTO instep_sequence_request (sequence_no, action, number)
    SELECT q.id, :action, :number
    FROM instep_sequence AS q JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE r.consumer = :consumer AND q.scope = :scope AND q.state <> ''
""")
_LOAD: Final = text("""
    SELECT o.id, q.scope, o.action, o.number FROM instep_sequence_request AS o
    JOIN instep_sequence AS q ON q.id = o.sequence_no
    WHERE q.receiver_no = :no ORDER BY o.id LIMIT :limit
""")


def add(
    connection: Connection, consumer: str, scope: str, action: OperatorAction, number: int | None
) -> bool:
    """Keep a request; False where there is no such sequence."""
    values = {"consumer": consumer, "scope": storable_text(scope)}
    done = connection.execute(_ADD, {**values, "action": action.value, "number": number})
    return bool(done.rowcount)


def load(connection: Connection, no: int) -> list[OperatorRequest]:
    """The oldest requests of a receiver."""
    rows = connection.execute(_LOAD, {"no": no, "limit": _AT_ONCE})
    return [
        OperatorRequest(row.id, row.scope, OperatorAction(row.action), row.number) for row in rows
    ]


def forget(connection: Connection, dialect: Dialect, group: MessageGroup) -> None:
    """Remove the requests that a group has carried out or refused."""
    dialect.delete_rows(connection, _REQUESTS, [(id,) for id in group.done])
