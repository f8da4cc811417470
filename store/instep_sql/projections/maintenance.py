"""Creates the tables of projections, and keeps them in step with the entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, func, inspect, select, text
from sqlalchemy.exc import CompileError, IdentifierError, SQLAlchemyError

from instep.errors import ConfigurationError
from instep_sql.derived.followers import Follower, mark_all_changed, set_followers, streams_behind
from instep_sql.engine.definitions import define, definition_of, definitions
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.stream_scope import StreamScope
from instep_sql.names import check_name
from instep_sql.projections import foreign_keys, own_tables
from instep_sql.projections.projected_rows import project
from instep_sql.projections.projection import Projection

__all__ = ["keep", "rebuild"]

_PREFIX: Final = "table:"
_MIGRATED: Final = "migrated:"
"""Begins the definition of a table that the user's migrations have made: it is never altered."""
_FORGET_ERRORS: Final = text("DELETE FROM instep_projection_error WHERE name = :name")


def keep(
    connection: Connection, dialect: Dialect, projections: Sequence[Projection], now_us: int
) -> None:
    """Create or build again what the declared projections need, and project what a process without
    them has left. Projections that are not declared here stay as they are.

    Raises `ConfigurationError` if a table exists that has rows of someone else, or that is not what
    the projection needs.
    """
    if not projections:
        return
    wanted: dict[str, str] = {}
    for one in projections:
        # PostgreSQL would cut it off, and say nothing.
        for name in (one.name, *one.table.columns.keys()):
            limit_bytes = connection.dialect.max_identifier_length
            check_name(name, "a table or column", dialect.where, "projections", limit_bytes)
        with _understood(dialect, one):
            wanted[one.name] = one.definition(connection.dialect)
    if _changed(connection, dialect, projections, wanted):
        dialect.lock_for_migration(connection)
        changed = _changed(connection, dialect, projections, wanted)
        # The triggers of before delete from the tables that are replaced.
        set_followers(connection, dialect, (), [one.name for one in changed])
        # No table goes before those that refer to it.
        kept = {one for one in reversed(changed) if _make_room(connection, dialect, one)}
        for one in changed:
            _define(connection, dialect, one, wanted[one.name], migrated=one in kept)
        set_followers(connection, dialect, list(map(_follower_of, changed)), ())
    known = definitions(connection)
    tables = [name.removeprefix(_PREFIX) for name in known if name.startswith(_PREFIX)]
    foreign_keys.check(connection, dialect, projections, tables)
    _follow_behind(connection, dialect, projections, now_us)


def _follow_behind(
    connection: Connection, dialect: Dialect, projections: Sequence[Projection], now_us: int
) -> None:
    for no in sorted({no for one in projections for no in streams_behind(connection, one.name)}):
        project(StreamScope(connection, dialect, no, now_us), projections)


def _changed(
    connection: Connection,
    dialect: Dialect,
    projections: Sequence[Projection],
    wanted: Mapping[str, str],
) -> list[Projection]:
    """Those whose rows do not come from this definition, or that refer to one of these."""
    kept = definitions(connection)
    changed: list[Projection] = []
    for one in projections:
        current = kept.get(_PREFIX + one.name, "")
        same = current.removeprefix(_MIGRATED) == wanted[one.name]
        if current.startswith(_MIGRATED):
            own_tables.check(connection, dialect, one)
            # An empty table may have been made anew.
            same = same and own_tables.has_rows(connection, one)
        if not same or any(before.name in one.parents for before in changed):
            changed.append(one)
    return changed


def _follower_of(projection: Projection) -> Follower:
    name = str(projection.name)  # SQLAlchemy has a type of its own for it
    return Follower(name, tuple(sorted(projection.classes)), (name,))


def rebuild(
    connection: Connection, dialect: Dialect, projections: Sequence[Projection], now_us: int
) -> dict[str, int]:
    """Fill the tables again from the stored entities. Returns the number of rows of each."""
    for one in reversed(projections):
        connection.execute(one.table.delete())
        connection.execute(_FORGET_ERRORS, {"name": one.name})
        mark_all_changed(connection, _follower_of(one))
    _follow_behind(connection, dialect, projections, now_us)
    return {
        str(one.name): connection.execute(select(func.count()).select_from(one.table)).scalar_one()
        for one in projections
    }


@contextmanager
def _understood(dialect: Dialect, projection: Projection) -> Iterator[None]:
    """Raise `ConfigurationError` where the database refuses such a table: names that are too long
    or taken by itself, too many columns, a type that it lacks.
    """
    try:
        yield
    except SQLAlchemyError as error:
        if not isinstance(error, CompileError | IdentifierError) and not dialect.cannot_mean(error):
            raise
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"the database refuses such a table: {reason}",
            where=f"{dialect.where}: the projection {projection.name!r}",
            hint="name its table and its columns otherwise, and look at their types",
            key="projections",
        ) from error


def _make_room(connection: Connection, dialect: Dialect, projection: Projection) -> bool:
    """Remove what is there of it. Returns whether its table is one of the user's migrations."""
    current = definition_of(connection, _PREFIX + projection.name)
    migrated = (current or "").startswith(_MIGRATED)
    if current is None and inspect(connection).has_table(projection.name):
        own_tables.check(connection, dialect, projection)
        if own_tables.has_rows(connection, projection):
            raise ConfigurationError(
                f"the table {projection.name!r} has rows that no projection has written",
                where=dialect.where,
                hint="name the projection otherwise, or empty the table",
            )
        migrated = True
    if migrated:
        connection.execute(projection.table.delete())
    else:
        with _understood(dialect, projection):
            projection.table.drop(connection, checkfirst=True)
    return migrated


def _define(
    connection: Connection,
    dialect: Dialect,
    projection: Projection,
    definition: str,
    *,
    migrated: bool,
) -> None:
    if not migrated:
        with _understood(dialect, projection):
            projection.table.create(connection)
    define(connection, _PREFIX + projection.name, (_MIGRATED if migrated else "") + definition)
