"""Sessions of PostgreSQL, with the settings that instep needs.

On a connection of our own they hold for the session. Behind a pooler the next transaction may run
in another session, and nothing that is left in one may reach its next client: there the settings
are made in each transaction, and no statement is prepared, no temporary table made and no channel
listened to. So one way fits pools of sessions and pools of transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event

from instep.errors import SinkError
from instep_sql.engine.postgres.answer_timeout import TimedConnection

__all__ = ["is_pooled", "session_engine"]

_EACH_TRANSACTION: Final = "instep_each_transaction"
"""In the `info` of a connection behind a pooler: the statement that begins each transaction."""


def session_engine(
    url: URL,
    arguments: Mapping[str, Any],
    *,
    settings: Mapping[str, str],
    own_settings: Mapping[str, str],
    statement_timeout_s: float,
    own_table: str = "",
    read_only: bool = False,
    where: str = "",
) -> Engine:
    """An engine of one connection. `settings` hold in each transaction. `own_settings`, and a
    temporary table, are for a connection that no pooler is in the way of. `statement_timeout_s` is
    the one that the settings name.
    """
    engine = create_engine(
        url,
        # One thread uses the connection; a lost one is replaced.
        poolclass=StaticPool,
        isolation_level="READ COMMITTED",
        connect_args=dict(arguments),
        hide_parameters=True,
    )

    def connect(_dialect: Any, record: Any, positional: Any, named: Any) -> psycopg.Connection[Any]:
        raw = TimedConnection.connect(*positional, **named)
        raw.statement_timeout_s = statement_timeout_s
        record.info.pop(_EACH_TRANSACTION, None)
        try:
            raw.autocommit = True
            if _pooler_is_between(raw):
                _refuse_startup_options(raw, where)
                raw.prepare_threshold = None
                record.info[_EACH_TRANSACTION] = _set_config(settings, local=True)
            else:
                raw.execute(_set_config({**settings, **own_settings}, local=False).encode())
                if own_table:
                    raw.execute(own_table.encode())
            raw.autocommit = False
            # In each BEGIN: a setting of the session could be left to another client.
            raw.read_only = read_only or None
        except BaseException:
            raw.close()
            raise
        return raw

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "begin", _begin)
    return engine


def is_pooled(info: Mapping[str, Any]) -> bool:
    """Whether a connection with this `info` of SQLAlchemy's reaches its server by a pooler."""
    return _EACH_TRANSACTION in info


def _begin(connection: Connection) -> None:
    if statement := connection.info.get(_EACH_TRANSACTION):
        connection.exec_driver_sql(statement)


def _pooler_is_between(raw: psycopg.Connection[Any]) -> bool:
    """A server names its process when a connection begins. A pooler, which may lead each
    transaction to another process, names something of its own.
    """
    found = raw.execute("SELECT pg_backend_pid()").fetchone()
    return found is None or found[0] != raw.info.backend_pid


def _refuse_startup_options(raw: psycopg.Connection[Any], where: str) -> None:
    # The server's other sessions have been started without them.
    if raw.info.options:
        raise SinkError(
            "a pooler does not pass on the options in the URL or in PGOPTIONS",
            where=where,
            hint="leave them out, and set them for the role: ALTER ROLE … SET …",
        )


def _set_config(settings: Mapping[str, str], *, local: bool) -> str:
    calls = [
        f"set_config({psycopg.sql.quote(name)}, {psycopg.sql.quote(of)}, {local})"
        for name, of in settings.items()
    ]
    return f"SELECT {', '.join(calls)}"
