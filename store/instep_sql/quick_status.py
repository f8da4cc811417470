"""A short cut for `instep status`: what `SqlReader` says of a store, without SQLAlchemy, which
takes longer to import than all else that the command does.

The plain twin is `SqlReader`; both have their SQL from `status_rows`. What is not plain is left to
the twin: a URL with further parameters, a database of another version, one that cannot be read,
numbered sequences.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qsl

from instep.ports.status import StoreStatus
from instep_sql.status_rows import (
    HEAD,
    LEASES,
    SEQUENCE,
    STORED_VERSION,
    STREAMS,
    lease_state,
    stream_status,
)

__all__ = ["quick_status"]

_FILE: Final = re.compile(r"sqlite:///([^?%]+)\Z")
_OF_TLS: Final = r"(?:sslmode|sslrootcert|sslcert|sslkey)=[^&%]+"
_SERVER: Final = re.compile(
    r"postgresql(?:\+psycopg)?(://(?:[^@/?%]*@)?([\w.-]+)(?::\d+)?/[\w.-]+"
    rf"(?:\?({_OF_TLS}(?:&{_OF_TLS})*))?)\Z"
)
"""One server, and of parameters only those of TLS."""

_CONNECT_TIMEOUT_S: Final = 10
_STATEMENT_TIMEOUT_S: Final = 60


def quick_status(url: str) -> StoreStatus | None:
    """The streams and leases of a store; None: the twin is to be asked."""
    if found := _FILE.match(url):
        return _in_file(Path(found[1]))
    if found := _SERVER.match(url):
        parameters = parse_qsl(found[3] or "")
        if len(by_name := dict(parameters)) == len(parameters):
            return _on_server(f"postgresql{found[1]}", found[2], by_name)
    return None


def _in_file(file: Path) -> StoreStatus | None:
    if not file.exists():
        return None
    try:
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
            connection.row_factory = _named
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            return _status(connection)
    except sqlite3.Error:
        return None


def _named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> SimpleNamespace:
    names = (column[0] for column in cursor.description)
    return SimpleNamespace(**dict(zip(names, row, strict=True)))


def _on_server(url: str, host: str, parameters: dict[str, str]) -> StoreStatus | None:
    try:
        import psycopg  # noqa: PLC0415 — its driver is an extra
        from psycopg.rows import namedtuple_row  # noqa: PLC0415

        from instep_sql.engine.postgres.answer_timeout import TimedConnection  # noqa: PLC0415
        from instep_sql.engine.postgres.tls import tls_parameters  # noqa: PLC0415
    except ImportError:
        return None
    tls: dict[str, Any] = tls_parameters([host], parameters.get)
    try:
        with TimedConnection.connect(
            url,
            row_factory=namedtuple_row,
            connect_timeout=_CONNECT_TIMEOUT_S,
            prepare_threshold=None,
            **{name: of for name, of in tls.items() if name not in parameters},
        ) as connection:
            # In the transaction, so that a pooler leaves it to nobody else.
            connection.statement_timeout_s = _STATEMENT_TIMEOUT_S
            connection.read_only = True
            limit_ms = int(_STATEMENT_TIMEOUT_S * 1_000)
            connection.execute(f"SET LOCAL statement_timeout = {limit_ms}".encode())
            return _status(connection)
    except psycopg.Error:
        return None


def _status(connection: Any) -> StoreStatus | None:
    """`connection` is one of the driver, whose rows have their columns as attributes."""
    version = connection.execute(STORED_VERSION).fetchone()
    if version is None or version.version_num != HEAD:
        return None
    if connection.execute(SEQUENCE).fetchone() is not None:
        return None
    return StoreStatus(
        [stream_status(row) for row in connection.execute(STREAMS)],
        {row.consumer: lease_state(row) for row in connection.execute(LEASES)},
    )
