"""The life of what is derived: it is enabled, rebuilt and disabled when a store is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, inspect

from instep.config.derivations import Derived, table_derivations
from instep.ports.derivation import EntityDerivation, StatementDerivation
from instep_sql.derived.entities import derive_entities, follower_of, forget_stated, make_stated
from instep_sql.derived.followers import (
    has_all_triggers,
    set_followers,
    streams_behind,
)
from instep_sql.derived.statements import ConfiguredDerivation, derive_stored
from instep_sql.derived.tables import create_tables, create_views, drop_views, layout_of
from instep_sql.engine.bulk_writes import quoted
from instep_sql.engine.definitions import define, definition_of, definitions
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.stream_scope import StreamScope
from instep_sql.options import SqlOptions

__all__ = ["EnabledDerivations", "enabled_derivations", "keep_derivations", "public_views"]

_LAYOUT: Final = "layout:"
_OPTIONS: Final = "options:"


class EnabledDerivations(NamedTuple):
    """What a store derives."""

    statements: Sequence[ConfiguredDerivation] = ()
    entities: Sequence[EntityDerivation] = ()


def enabled_derivations(connection: Connection, consumer: str) -> EnabledDerivations:
    """What the store keeps, with the options that this consumer gives."""
    found = definitions(connection)
    kept = [one for one in table_derivations() if one.name in found]
    return EnabledDerivations(
        [
            ConfiguredDerivation(one, _stored_options(found, one, consumer))
            for one in kept
            if isinstance(one, StatementDerivation)
        ],
        [one for one in kept if isinstance(one, EntityDerivation)],
    )


def public_views(connection: Connection) -> list[str]:
    """The views of all that is kept."""
    found = definitions(connection)
    return [view.name for one in table_derivations() if one.name in found for view in one.views]


def keep_derivations(
    connection: Connection, dialect: Dialect, options: SqlOptions, consumer: str, now_us: int
) -> None:
    """Keep what the options ask for from now on, and no longer what they turn off; what they do not
    name stays as it is, in the version of this process.
    """
    if not has_all_triggers(connection):
        dialect.lock_for_migration(connection)
        set_followers(connection, dialect, (), ())
    for one in table_derivations():
        _keep_options(connection, one, options, consumer)
        wanted: bool | None = getattr(options, one.name)
        current = definition_of(connection, one.name)
        if wanted is None:
            wanted = current is not None
        if _is_kept(connection, dialect, one, current, wanted=wanted):
            continue
        dialect.lock_for_migration(connection)
        current = definition_of(connection, one.name)
        if _is_kept(connection, dialect, one, current, wanted=wanted):
            continue
        if wanted:
            _enable(connection, dialect, one, options, now_us, rebuilt=current is not None)
        else:
            _disable(connection, dialect, one)


def _is_kept(
    connection: Connection,
    dialect: Dialect,
    one: Derived,
    current: str | None,
    *,
    wanted: bool,
) -> bool:
    if not wanted:
        return current is None
    laid_out = definition_of(connection, _LAYOUT + one.name)
    return current == one.version and laid_out == layout_of(connection, dialect, one)


def _enable(
    connection: Connection,
    dialect: Dialect,
    one: Derived,
    options: SqlOptions,
    now_us: int,
    *,
    rebuilt: bool,
) -> None:
    """Make the tables, and derive what the stored entities say.

    What statements have told stays with a new version, in the columns that both have: no log has it
    any more.
    """
    layout = layout_of(connection, dialect, one)
    carried = rebuilt and isinstance(one, StatementDerivation)
    if definition_of(connection, _LAYOUT + one.name) != layout:
        _lay_out(connection, dialect, one, carried=carried)
        define(connection, _LAYOUT + one.name, layout)
    elif not carried:
        _empty(connection, one)
    define(connection, one.name, one.version)
    if isinstance(one, EntityDerivation):
        make_stated(connection)
        forget_stated(connection, one.name)
        set_followers(connection, dialect, [follower_of(one)], ())
        for no in streams_behind(connection, one.name):
            derive_entities(StreamScope(connection, dialect, no, now_us), one)
    elif not carried:
        derive_stored(connection, dialect, one, _own_options(one, options), now_us)


def _disable(connection: Connection, dialect: Dialect, one: Derived) -> None:
    # Empty tables stay: a process that runs since before may still write into them.
    if isinstance(one, EntityDerivation):
        set_followers(connection, dialect, (), [one.name])
    define(connection, one.name, None)
    _empty(connection, one)


def _empty(connection: Connection, one: Derived) -> None:
    existing = set(inspect(connection).get_table_names())
    for table in one.tables:
        if table.name in existing:
            connection.exec_driver_sql(f"DELETE FROM {quoted(table.name)}")


def _lay_out(connection: Connection, dialect: Dialect, one: Derived, *, carried: bool) -> None:
    """Make the tables and views anew; with `carried`, with the rows that were there."""
    drop_views(connection, [view.name for view in one.views])
    existing = set(inspect(connection).get_table_names())
    if isinstance(one, EntityDerivation):
        # The triggers of before delete from the tables that are replaced.
        set_followers(connection, dialect, (), [one.name])
    for table in one.tables:
        if table.name not in existing:
            continue
        old = f"{table.name}_old"
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted(old)}")
        for index in inspect(connection).get_indexes(table.name):
            if not index.get("duplicates_constraint"):
                connection.exec_driver_sql(f"DROP INDEX {quoted(str(index['name']))}")
        if carried:
            connection.exec_driver_sql(f"ALTER TABLE {quoted(table.name)} RENAME TO {quoted(old)}")
        else:
            connection.exec_driver_sql(f"DROP TABLE {quoted(table.name)}")
    create_tables(connection, one)
    for table in one.tables if carried else ():
        old = f"{table.name}_old"
        if old in inspect(connection).get_table_names():
            both = _common_columns(connection, table.name, old)
            connection.exec_driver_sql(
                f"INSERT INTO {quoted(table.name)} ({both}) SELECT {both} FROM {quoted(old)}"
            )
            connection.exec_driver_sql(f"DROP TABLE {quoted(old)}")
    create_views(connection, dialect, one)


def _common_columns(connection: Connection, *tables: str) -> str:
    new, old = ({one["name"] for one in inspect(connection).get_columns(t)} for t in tables)
    return ", ".join(quoted(name) for name in sorted(new & old))


def _keep_options(connection: Connection, one: Derived, options: SqlOptions, consumer: str) -> None:
    """Keep the options that this consumer gives: a replay from quarantine has only the store."""
    own = msgspec.json.encode(_own_options(one, options), order="sorted").decode()
    name = f"{_OPTIONS}{one.name}:{consumer}"
    default = msgspec.json.encode(one.options(), order="sorted").decode()
    kept = None if own == default else own
    if definition_of(connection, name) != kept:
        define(connection, name, kept)


def _own_options(one: Derived, options: SqlOptions) -> Any:
    names = one.options.__struct_fields__
    return one.options(**{name: getattr(options, name) for name in names})


def _stored_options(found: dict[str, str], one: Derived, consumer: str) -> Any:
    stored = found.get(f"{_OPTIONS}{one.name}:{consumer}", "{}")
    return one.options(**msgspec.json.decode(stored))
