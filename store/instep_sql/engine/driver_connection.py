"""A short cut past SQLAlchemy, for the few statements of which most commits consist. The plain way
is `Connection.exec_driver_sql`, which takes 25 µs for a statement, about as long as SQLite for one
row. tests/instep_sql/engine/test_sqlite.py holds both equal.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection

__all__ = ["unwatched"]


def unwatched(connection: Connection) -> sqlite3.Connection | None:
    """The driver's own connection; None where it is not SQLite's, or where somebody listens to
    statements, so that SQLAlchemy must execute them.

    An error is not wrapped then: `Sqlite.errors` has those of the driver, too.
    """
    # Of the engine: nobody else has the connection.
    listeners = connection.engine.dispatch
    if listeners.before_cursor_execute or listeners.after_cursor_execute:
        return None
    raw = connection.connection.driver_connection
    return raw if isinstance(raw, sqlite3.Connection) else None
