"""The rows of `instep_obligation`: effects that the peers of a receiver must still receive."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.storable import storable_text
from instep.ports.message_store import MessageGroup, Obligation
from instep.sequencing.effects import OwedEffect
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import Dialect

__all__ = ["load", "write"]

_OBLIGATIONS: Final = StoredTable(
    "instep_obligation",
    {"receiver_no": int, "number": int, "scope": str, "peer": str, "effect": str},
    key=("receiver_no", "number"),
)
_ALL: Final = text("""
    SELECT number, scope, peer, effect FROM instep_obligation
    WHERE receiver_no = :no ORDER BY number
""")


_effect: Final = msgspec.json.Decoder(OwedEffect).decode


def write(connection: Connection, dialect: Dialect, no: int, group: MessageGroup) -> None:
    """Delete the obligations that a group has carried out or given up, and insert its new ones."""
    if group.settled:
        dialect.delete_rows(connection, _OBLIGATIONS, [(no, number) for number in group.settled])
    if group.owed:
        rows = [
            (
                no,
                one.number,
                storable_text(one.scope),
                storable_text(one.peer),
                storable_text(msgspec.json.encode(one.effect).decode()),
            )
            for one in group.owed
        ]
        dialect.insert_rows(connection, _OBLIGATIONS, rows)


def load(connection: Connection, no: int) -> list[Obligation]:
    """The stored obligations, the oldest first."""
    return [
        Obligation(row.number, row.scope, row.peer, _effect(row.effect))
        for row in connection.execute(_ALL, {"no": no})
    ]
