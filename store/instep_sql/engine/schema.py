"""Migrates a store to the schema of this version. Refuses a store of a newer version, and one that
was made before 0.1.0.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from sqlalchemy import Connection, inspect, text

from instep.errors import NoStoreError, StoreVersionError, plain
from instep_sql.engine.dialect import Dialect
from instep_sql.status_rows import HEAD, STORED_VERSION, VERSION_TABLE

__all__ = ["HEAD", "VERSION_TABLE", "check_version", "migrate", "stored_version"]

_log = logging.getLogger("instep.sql")
_SCRIPTS: Final = "instep_sql:migrations"
_FIRST: Final = "0100"
"""The revision of 0.1.0. Those before it are not migrated."""
_NAMED_TABLES: Final = 3

_MIGRATING: Final = threading.Lock()
"""Alembic keeps what a migration works on in globals of its modules: one thread at a time."""


def stored_version(connection: Connection) -> str | None:
    """The revision of the store's schema; None for a database without a store."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = connection.execute(text(STORED_VERSION)).scalar()
    return None if version is None else str(version)


def migrate(connection: Connection, dialect: Dialect, *, beside_others: bool = False) -> None:
    """Create or upgrade the schema in the caller's transaction. `beside_others`: the store is made
    in the database of another program on purpose. Raises `StoreVersionError`.
    """
    if stored_version(connection) == HEAD:
        return
    dialect.lock_for_migration(connection)
    version = stored_version(connection)
    if version == HEAD:
        return
    _refuse_unknown(connection, version, dialect.where)
    if version is None and not beside_others:
        _tell_of_others(connection, dialect.where)
    with _MIGRATING:
        # Alembic takes a tenth of a second to import: a store that is up to date does not import
        # it. Its modules import each other in circles, which two threads may see half made.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415

        config = Config()
        config.set_main_option("script_location", _SCRIPTS)
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)


def check_version(connection: Connection, dialect: Dialect) -> None:
    """Raise `NoStoreError` or `StoreVersionError` unless the store can be read as it is; a reader
    never migrates.
    """
    version = stored_version(connection)
    if version == HEAD:
        return
    where = dialect.where
    _refuse_unknown(connection, version, where)
    if version is None:
        hint = dialect.no_store_hint(connection)
        raise NoStoreError("the database holds no store of instep", where=where, hint=hint)
    raise StoreVersionError(
        f"the store has schema version {version}, this instep reads {HEAD}",
        where=where,
        hint="`instep run CONFIG` upgrades it when it starts, also while no provider answers",
        found=version,
        known=HEAD,
    )


def _tell_of_others(connection: Connection, where: str) -> None:
    """Log the tables of another program, beside which a new store is made: it may be a mistake."""
    tables = sorted(inspect(connection).get_table_names())
    if tables:
        _log.warning(
            "%s: the database has tables of another program (%s%s); those of instep are added"
            " beside them, as instep_…",
            where,
            ", ".join(map(plain, tables[:_NAMED_TABLES])),
            ", …" if len(tables) > _NAMED_TABLES else "",
        )


def _refuse_unknown(connection: Connection, version: str | None, where: str) -> None:
    unnamed = version is None and inspect(connection).has_table("instep_stream")
    if unnamed or (version is not None and version < _FIRST):
        raise StoreVersionError(
            "the store was made before 0.1.0, and nothing is migrated from there",
            where=where,
            hint="make it anew: name another database, or an empty one",
            found=version,
            known=HEAD,
        )
    if version is not None and version > HEAD:
        raise StoreVersionError(
            f"the store has schema version {version}, this instep knows versions up to {HEAD}",
            where=where,
            hint="upgrade instep, or use another store",
            found=version,
            known=HEAD,
        )
