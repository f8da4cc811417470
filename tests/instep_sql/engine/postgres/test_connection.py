"""What libpq is asked for, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep_sql import SqlStore
from instep_sql.engine.postgres.connection import (
    connect_arguments,
    place,
    schema_name,
    settings,
)
from instep_sql.options import SqlOptions


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGHOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def asked(url: str, **options: Any) -> dict[str, Any]:
    return connect_arguments(SqlOptions(url=url, **options))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://localhost/x",
        "postgresql://127.0.0.1:5433/x",
        "postgresql://[::1]/x",
        "postgresql:///x",
        "postgresql:///x?host=/run/postgresql",
        "postgresql://db.example/x?sslmode=disable",
    ],
)
def test_on_this_machine_or_where_the_url_says_so_tls_is_not_asked_for(url: str) -> None:
    assert asked(url).get("sslmode", "disable") == "disable" or "sslmode" in url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example/x",
        "postgresql+asyncpg://u:p@10.0.0.5/x",
        "postgresql:///x?host=localhost&host=db.example",
        "postgresql:///x?host=localhost:1,db.example:2",
        "postgresql://localhost.evil.example/x",
    ],
)
def test_to_another_machine_tls_is_verified_unless_turned_off_by_name(url: str) -> None:
    given = asked(url)
    assert (given["sslmode"], given["sslrootcert"]) == ("verify-full", "system")


def test_the_users_own_authority_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "sslrootcert" not in asked("postgresql://db.example/x?sslrootcert=ca.pem")
    monkeypatch.setenv("PGSSLMODE", "require")
    assert asked("postgresql://db.example/x")["sslmode"] == "require"
    monkeypatch.delenv("PGSSLMODE")
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert "sslrootcert" not in asked("postgresql://db.example/x")


def test_the_word_of_asyncpg_for_tls_is_understood() -> None:
    url = "postgresql+asyncpg://db.example/x?ssl=require"
    assert asked(url)["sslmode"] == "require"
    shown = place(SqlOptions(url=url))
    assert (shown.drivername, dict(shown.query)) == ("postgresql+psycopg", {})


def test_limits_and_schema_are_settings_of_each_transaction() -> None:
    options = SqlOptions(url="postgresql:///x", schema="Mine", lease_s=6.0)
    given = settings(options, read_only=False)
    assert given["search_path"] == '"Mine"'
    assert given["statement_timeout"] == "60000"
    assert given["idle_in_transaction_session_timeout"] == "6000"
    assert "synchronous_commit" not in given
    lazy = SqlOptions(url="postgresql:///x", synchronous="normal")
    assert settings(lazy, read_only=False)["synchronous_commit"] == "off"
    assert "synchronous_commit" not in settings(lazy, read_only=True)


def test_what_the_url_says_wins() -> None:
    given = asked("postgresql:///x?options=-c%20geqo%3Doff&connect_timeout=3")
    assert "connect_timeout" not in given
    assert given["keepalives_idle"] > 0
    # A pooler lets no startup option pass: instep has none of its own.
    assert "options" not in given


def test_the_schema_may_stand_in_the_url() -> None:
    assert schema_name(SqlOptions(url="postgresql:///x?schema=mine")) == "mine"
    assert schema_name(SqlOptions(url="postgresql:///x?schema=mine", schema="other")) == "other"
    assert "schema" not in place(SqlOptions(url="postgresql:///x?schema=mine")).query


def test_a_password_is_shown_nowhere() -> None:
    url = "postgresql://user:geheim@db.example/x?password=geheim&sslpassword=geheim"
    store = SqlStore(url)
    assert repr(store) == "<SqlStore postgresql://user@db.example/x consumer=None>"
    assert "geheim" not in repr(store.options)
