"""Keeps entities and positions in a SQL database: SQLite, in a file or in memory."""

from instep_sql.options import Journal, SqlOptions
from instep_sql.reader import SqlReader
from instep_sql.store import SqlStore

__all__ = ["Journal", "SqlOptions", "SqlReader", "SqlStore"]
