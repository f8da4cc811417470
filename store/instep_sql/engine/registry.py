"""Finds the dialect for the URL of a store."""

from __future__ import annotations

from instep.errors import ConfigurationError
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.sqlite import Sqlite
from instep_sql.options import SqlOptions

__all__ = ["dialect_of"]


def dialect_of(options: SqlOptions, where: str = "SqlStore") -> Dialect:
    """The dialect for these options. Raises `ConfigurationError` if its driver is not installed."""
    if options.place.get_backend_name() == "sqlite":
        return Sqlite(options)
    try:
        from instep_sql.engine.postgres.dialect import Postgres  # noqa: PLC0415 — its driver is an extra
    except ImportError as error:
        raise ConfigurationError(
            f"PostgreSQL needs the package psycopg: {error}",
            where=where,
            hint='pip install "instep[postgres]"',
            key="url",
        ) from None
    return Postgres(options)
