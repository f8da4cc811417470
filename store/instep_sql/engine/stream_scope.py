"""Where rows of a stream are written: what derives them needs to know no more of a commit."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection

from instep_sql.engine.dialect import Dialect

__all__ = ["StreamScope"]


class StreamScope(msgspec.Struct, frozen=True):
    """One stream in a transaction."""

    connection: Connection
    dialect: Dialect
    no: int
    """The id of its row in `instep_stream`."""
    now_us: int
    """The time of the transaction."""
