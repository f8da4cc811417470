"""Keeps entities and positions in a SQL database: SQLite or PostgreSQL."""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.ports.derivation import ProjectedEntity
    from instep_sql.handlers.failed_changes import FailedChange, HandlerStatus
    from instep_sql.handlers.handler import ChangeHandler
    from instep_sql.options import Journal, SqlOptions
    from instep_sql.projections.projection import Field, Projection
    from instep_sql.reader import ProjectionError, SqlReader
    from instep_sql.store import SqlStore

__all__ = [
    "ChangeHandler",
    "FailedChange",
    "Field",
    "HandlerStatus",
    "Journal",
    "ProjectedEntity",
    "Projection",
    "ProjectionError",
    "SqlOptions",
    "SqlReader",
    "SqlStore",
]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.ports.derivation": ("ProjectedEntity",),
            "instep_sql.handlers.failed_changes": (
                "FailedChange",
                "HandlerStatus",
            ),
            "instep_sql.handlers.handler": ("ChangeHandler",),
            "instep_sql.options": (
                "Journal",
                "SqlOptions",
            ),
            "instep_sql.projections.projection": (
                "Field",
                "Projection",
            ),
            "instep_sql.reader": (
                "ProjectionError",
                "SqlReader",
            ),
            "instep_sql.store": ("SqlStore",),
        },
    )
