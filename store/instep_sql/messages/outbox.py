"""The rows of `instep_outbox` and `instep_sent`: our own messages until they are acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, text

from instep.model.storable import storable_text
from instep.sequencing.outbox import OutboxMessage, OutboxState
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import Dialect

__all__ = ["bodies", "load", "save", "scopes"]

_SCOPES: Final = text("""
    SELECT scope FROM instep_outbox AS o WHERE receiver_no = :no
      AND EXISTS (SELECT 1 FROM instep_sent AS s WHERE s.outbox_no = o.id) ORDER BY id
""")
_FIND: Final = text("""
    SELECT id, next_number, parties FROM instep_outbox WHERE receiver_no = :no AND scope = :scope
""")
_ENTRIES: Final = text("SELECT entry FROM instep_sent WHERE outbox_no = :outbox ORDER BY number")
_OUTBOXES: Final = StoredTable(
    "instep_outbox",
    {"receiver_no": int, "scope": str, "next_number": int, "parties": str},
    key=("receiver_no", "scope"),
)
_SENT: Final = StoredTable(
    "instep_sent",
    {"outbox_no": int, "number": int, "entry": str, "body": bytes},
    key=("outbox_no", "number"),
)
_CHANGE: Final = "UPDATE instep_sent SET entry = ? WHERE outbox_no = ? AND number = ?"
_BODIES: Final = text("""
    SELECT s.number, s.body FROM instep_sent AS s JOIN instep_outbox AS o ON o.id = s.outbox_no
    WHERE o.receiver_no = :no AND o.scope = :scope AND s.number IN :numbers
""").bindparams(bindparam("numbers", expanding=True))


_message: Final = msgspec.json.Decoder(OutboxMessage).decode
_parties: Final = msgspec.json.Decoder(dict[str, int]).decode


def scopes(connection: Connection, no: int) -> list[str]:
    """The scopes with unacknowledged messages, oldest first."""
    return list(connection.execute(_SCOPES, {"no": no}).scalars())


def load(connection: Connection, no: int, scope: str) -> OutboxState | None:
    """The state of an outbox; None where there is none."""
    found = connection.execute(_FIND, {"no": no, "scope": storable_text(scope)}).one_or_none()
    if found is None:
        return None
    entries = connection.execute(_ENTRIES, {"outbox": found.id}).scalars()
    sent = list(map(_message, entries))
    parties = _parties(found.parties)
    return OutboxState(found.next_number, sent, parties)


def save(
    connection: Connection,
    dialect: Dialect,
    no: int,
    scope: str,
    state: OutboxState,
    before: OutboxState,
    new: Mapping[int, bytes],
) -> None:
    """Write the difference between two states; `new`: number → body of a message not yet kept."""
    place = {"no": no, "scope": storable_text(scope)}
    parties = msgspec.json.encode(state.parties).decode()
    row = (no, place["scope"], state.next_number, parties)
    dialect.upsert_rows(connection, _OUTBOXES, [row])
    outbox = connection.execute(_FIND, place).one().id
    known = {sent.number: sent for sent in before.sent}
    left = {sent.number for sent in state.sent}
    gone = [(outbox, number) for number in known if number not in left]
    dialect.delete_rows(connection, _SENT, gone)
    changed = [
        (_dump(sent), outbox, sent.number)
        for sent in state.sent
        if sent.number not in new and known.get(sent.number) != sent
    ]
    dialect.execute_many(connection, _CHANGE, changed)
    dialect.insert_rows(
        connection,
        _SENT,
        [
            (outbox, sent.number, _dump(sent), new[sent.number])
            for sent in state.sent
            if sent.number in new
        ],
    )


def bodies(connection: Connection, no: int, scope: str, numbers: Sequence[int]) -> dict[int, bytes]:
    """The bodies that are kept under these numbers."""
    if not numbers:
        return {}
    values = {"no": no, "scope": storable_text(scope), "numbers": list(numbers)}
    return {row.number: bytes(row.body) for row in connection.execute(_BODIES, values)}


def _dump(sent: OutboxMessage) -> str:
    return msgspec.json.encode(sent).decode()
