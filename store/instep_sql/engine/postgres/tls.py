"""TLS of a connection to PostgreSQL. Without SQLAlchemy, whose import `instep status` spares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from psycopg import pq

__all__ = ["tls_parameters"]

_LIBPQ_SYSTEM_ROOTS: Final = 160_000
"""From this version on, libpq knows the authorities of the system."""


def tls_parameters(hosts: Iterable[str], parameter: Callable[[str], str | None]) -> dict[str, str]:
    """The parameters of libpq: verified TLS to another machine, unless the URL or the environment
    names another mode. `parameter` returns what the URL says of a name, None where it says nothing.
    """
    mode = parameter("sslmode") or parameter("ssl") or os.environ.get("PGSSLMODE")
    if mode is None and all(_is_local(host) for entry in hosts for host in entry.split(",")):
        return {}
    chosen = {"sslmode": {"true": "verify-full"}.get(mode or "", mode or "verify-full")}
    roots = (
        parameter("sslrootcert")
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
