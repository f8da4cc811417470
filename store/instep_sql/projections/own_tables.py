"""Checks a table that migrations of the user have made, and never alters it."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from sqlalchemy import Connection, inspect, select
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.types import BigInteger

from instep.errors import ConfigurationError
from instep_sql.engine.dialect import Dialect
from instep_sql.projections.projection import ENTITY_ID, Projection, python_type

__all__ = ["check", "has_rows"]

_ALIKE: Final[dict[type | None, type]] = {float: Decimal}
"""A Numeric takes what a Float does."""


def has_rows(connection: Connection, projection: Projection) -> bool:
    """Whether the table has any row."""
    return connection.execute(select(projection.table.c[ENTITY_ID]).limit(1)).first() is not None


def check(connection: Connection, dialect: Dialect, projection: Projection) -> None:
    """Raise `ConfigurationError` unless the table in the database has what the projection needs."""
    reasons = _reasons(connection, projection, short_integers=dialect.short_integers)
    if reasons:
        raise ConfigurationError(
            f"the table {projection.name!r} exists and does not fit: {'; '.join(reasons)}",
            where=dialect.where,
            hint="mend it by a migration of yours, or name the projection otherwise",
        )


def _reasons(connection: Connection, projection: Projection, *, short_integers: bool) -> list[str]:
    inspector = inspect(connection)
    if not inspector.has_table(projection.name):
        return ["it is gone (run your migrations again)"]
    found = {one["name"]: one for one in inspector.get_columns(projection.name)}
    declared = {column.name: column for column in projection.table.columns}
    reasons = [f"it has no column {name!r}" for name in declared if name not in found]
    for name, column in found.items():
        if name in declared:
            wanted, has = python_type(declared[name]), _python_type(column)
            if _ALIKE.get(wanted, wanted) != _ALIKE.get(has, has):
                reasons.append(
                    f"its column {name!r} is {column['type']!s}, not {declared[name].type!s}"
                )
        elif not (
            column["nullable"] or column.get("default") or column.get("autoincrement") is True
        ):
            reasons.append(
                f"nothing fills its column {name!r}, which is NOT NULL without a default"
            )
    if ENTITY_ID not in found:
        return reasons
    type_ = found[ENTITY_ID]["type"]
    if short_integers and not isinstance(type_, BigInteger):
        reasons.append(f"its column {ENTITY_ID!r} is {type_!s}, not BIGINT")
    primary_key = inspector.get_pk_constraint(projection.name)["constrained_columns"]
    indexed = [one["column_names"][:1] for one in inspector.get_indexes(projection.name)]
    if not projection.has_many_rows and primary_key != [ENTITY_ID]:
        reasons.append(f"its primary key is not {ENTITY_ID!r}")
    elif [ENTITY_ID] not in (primary_key[:1], *indexed):
        reasons.append(f"neither its primary key nor an index begins with {ENTITY_ID!r}")
    return reasons


def _python_type(column: ReflectedColumn) -> type | None:
    try:
        return column["type"].python_type
    except NotImplementedError:
        return None
