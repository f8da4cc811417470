"""Keeps entities and positions in a SQL database: SQLite, in a file or in memory."""

from instep_sql.options import Journal, SqlOptions
from instep_sql.projections.projection import Field, ProjectedEntity, Projection
from instep_sql.reader import ProjectionError, SqlReader
from instep_sql.store import SqlStore

__all__ = [
    "Field",
    "Journal",
    "ProjectedEntity",
    "Projection",
    "ProjectionError",
    "SqlOptions",
    "SqlReader",
    "SqlStore",
]
