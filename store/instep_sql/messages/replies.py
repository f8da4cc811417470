"""The rows of `instep_reply`: what the handler returned for messages of numbered sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from instep.model.storable import storable_text
from instep.ports.message_store import StoredReply
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import Dialect

__all__ = ["find", "keep"]

_REPLIES: Final = StoredTable(
    "instep_reply",
    {"sequence_no": int, "number": int, "replied_at_us": int, "body": bytes},
    key=("sequence_no", "number"),
)
_ONE: Final = text("""
    SELECT r.body FROM instep_reply AS r JOIN instep_sequence AS q ON q.id = r.sequence_no
    WHERE q.receiver_no = :no AND q.scope = :scope AND r.number = :number
""")
_PENDING: Final = text("""
    SELECT 1 FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE q.receiver_no = :no AND q.scope = :scope AND i.number = :number AND i.stage < 2 LIMIT 1
""")


def keep(connection: Connection, dialect: Dialect, rows: Sequence[tuple[Any, ...]]) -> None:
    """Keep replies, as (row of the sequence, number, microseconds since 1970, body)."""
    dialect.upsert_rows(connection, _REPLIES, rows)


def find(connection: Connection, no: int, scope: str, number: int) -> StoredReply:
    """The reply to a message, and whether the message still waits for its handler."""
    values = {"no": no, "scope": storable_text(scope), "number": number}
    body = connection.execute(_ONE, values).scalar()
    if body is not None:
        return StoredReply(bytes(body))
    return StoredReply(None, pending=connection.execute(_PENDING, values).scalar() is not None)
