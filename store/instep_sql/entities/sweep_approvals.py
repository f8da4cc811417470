"""Approvals of held sweeps: one process approves, the process that consumes goes on (A6).

The table is created by the first approval, and has one row per stream at most.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect, text

from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import Dialect

__all__ = ["approve", "is_approved"]

_TABLE: Final = Table(
    "instep_release",
    MetaData(),
    Column("stream_no", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
)
_APPROVALS: Final = StoredTable(_TABLE.name, {"stream_no": int, "attempt": int}, key=("stream_no",))
_IS_RELEASED: Final = text("""
    SELECT count(*) FROM instep_release WHERE stream_no = :no AND attempt = :attempt
""")


def approve(connection: Connection, dialect: Dialect, no: int, attempt: int) -> None:
    """Approve the sweep of this attempt, and of no other."""
    _TABLE.create(connection, checkfirst=True)
    dialect.upsert_rows(connection, _APPROVALS, [(no, attempt)])


def is_approved(connection: Connection, no: int, attempt: int) -> bool:
    """Whether the sweep of this attempt was approved."""
    if not inspect(connection).has_table(_TABLE.name):
        return False
    return bool(connection.execute(_IS_RELEASED, {"no": no, "attempt": attempt}).scalar_one())
