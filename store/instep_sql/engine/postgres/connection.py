"""The connection parameters and settings for PostgreSQL, from the options: encryption, limits and
schema.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from psycopg import pq
from sqlalchemy import URL

from instep_sql.options import SqlOptions

__all__ = ["connect_arguments", "own_settings", "place", "schema_name", "settings"]

_CONNECT_TIMEOUT_S: Final = 10
_IDLE_IN_TRANSACTION_S: Final = 30
"""Seconds after which the server ends a transaction whose client is stopped, so that its locks, or
its lease, become free.
"""
_TEMP_BUFFERS: Final = "32MB"
"""Memory for the temporary table through which a large batch is written."""

# Both sides detect a lost peer within half a minute.
_DEAD_PEER: Final[dict[str, Any]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_LIBPQ_SYSTEM_ROOTS: Final = 160_000
"""From this version on, libpq knows the authorities of the system."""
_OURS: Final = frozenset({"schema", "ssl"})


def place(options: SqlOptions) -> URL:
    """The URL for SQLAlchemy's psycopg dialect: any other driver is replaced, and only libpq's
    options are kept.
    """
    query = {key: value for key, value in options.place.query.items() if key not in _OURS}
    return options.place.set(drivername="postgresql+psycopg", query=query)


def schema_name(options: SqlOptions) -> str | None:
    """The schema that the option or the URL names; None for the user's default."""
    return options.schema or _last(options.place, "schema")


def connect_arguments(options: SqlOptions) -> dict[str, Any]:
    """The parameters of libpq beside the URL. A parameter in the URL wins."""
    url = options.place
    given: dict[str, Any] = {
        "application_name": "instep",
        "client_encoding": "utf8",
        "connect_timeout": _CONNECT_TIMEOUT_S,
        **_DEAD_PEER,
        **_tls_parameters(url),
    }
    return {key: value for key, value in given.items() if key not in url.query}


def settings(options: SqlOptions, *, read_only: bool) -> dict[str, str]:
    """The settings of the server that each transaction needs."""
    idle_s = min(_IDLE_IN_TRANSACTION_S, options.lease_s or _IDLE_IN_TRANSACTION_S)
    needed = {
        "statement_timeout": str(int(options.statement_timeout_s * 1_000)),
        "idle_in_transaction_session_timeout": str(int(idle_s * 1_000)),
    }
    if options.synchronous == "normal" and not read_only:
        needed["synchronous_commit"] = "off"
    if schema := schema_name(options):
        needed["search_path"] = f'"{schema}"'
    return needed


def own_settings() -> dict[str, str]:
    """Settings that are good for a session without a pooler, and that no transaction needs."""
    keepalives = [key for key in _DEAD_PEER if key.startswith("keepalives")]
    return {
        "temp_buffers": _TEMP_BUFFERS,
        **{f"tcp_{key}": str(_DEAD_PEER[key]) for key in keepalives},
    }


def _hosts(url: URL) -> list[str]:
    named = url.query.get("host", url.host or os.environ.get("PGHOST") or "/")
    return [named] if isinstance(named, str) else list(named)


def _last(url: URL, key: str) -> str | None:
    value = url.query.get(key)
    return value if value is None or isinstance(value, str) else value[-1]


def _tls_parameters(url: URL) -> dict[str, str]:
    """The parameters of libpq: verified TLS to another machine, unless the URL or the environment
    names another mode.
    """
    mode = _last(url, "sslmode") or _last(url, "ssl") or os.environ.get("PGSSLMODE")
    if mode is None and all(_is_local(host) for entry in _hosts(url) for host in entry.split(",")):
        return {}
    chosen = {"sslmode": {"true": "verify-full"}.get(mode or "", mode or "verify-full")}
    roots = (
        _last(url, "sslrootcert")
        or os.environ.get("PGSSLROOTCERT")
        or (Path.home() / ".postgresql" / "root.crt").exists()
    )
    if chosen["sslmode"] == "verify-full" and not roots and pq.version() >= _LIBPQ_SYSTEM_ROOTS:
        chosen["sslrootcert"] = "system"
    return chosen


def _is_local(host: str) -> bool:
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.startswith(("localhost:", "127.0.0.1:", "[::1]:"))
