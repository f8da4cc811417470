"""What readers of a store need: an index for questions about a class, and the right to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, inspect, text

from instep.errors import ConfigurationError

__all__ = ["CLASS_INDEX", "PUBLIC_VIEWS", "grant", "keep_class_index"]

CLASS_INDEX: Final = "instep_entity_class"
PUBLIC_VIEWS: Final = (
    "instep_entities",
    "instep_changes",
    "instep_streams",
    "instep_messages",
)
"""The views whose columns are public. Those of what is derived come to them."""
_ROLE: Final = text("SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = :role)")
_MAY_ENTER: Final = text("SELECT has_schema_privilege(:role, current_schema(), 'USAGE')")
_MAY_READ: Final = text("SELECT has_table_privilege(:role, CAST(:name AS regclass), 'SELECT')")


def keep_class_index(connection: Connection, *, wanted: bool) -> None:
    """Create the index, or drop it; nothing where it is as wanted."""
    names = {one["name"] for one in inspect(connection).get_indexes("instep_entity")}
    if wanted and CLASS_INDEX not in names:
        connection.exec_driver_sql(
            f"CREATE INDEX {CLASS_INDEX} ON instep_entity (stream_no, class)"
        )
    elif not wanted and CLASS_INDEX in names:
        connection.exec_driver_sql(f"DROP INDEX {CLASS_INDEX}")


def grant(
    connection: Connection, readers: Sequence[str], tables: Sequence[str], where: str
) -> None:
    """PostgreSQL: let these roles read these tables and views; what they may already is not granted
    again. Raises `ConfigurationError` for a role that does not exist.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    for role in readers:
        if not connection.execute(_ROLE, {"role": role}).scalar_one():
            raise ConfigurationError(
                f"there is no role {role!r}",
                where=where,
                hint=f"create it first: CREATE ROLE {quote(role)} LOGIN",
                key="readers",
            )
        if not connection.execute(_MAY_ENTER, {"role": role}).scalar_one():
            schema = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
            connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {quote(schema)} TO {quote(role)}")
        for name in tables:
            named = {"role": role, "name": quote(name)}
            if not connection.execute(_MAY_READ, named).scalar_one():
                connection.exec_driver_sql(f"GRANT SELECT ON {quote(name)} TO {quote(role)}")
