"""The tests of the schema begin with a database in which nothing has been made."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep_sql.engine import schema
from tests.new_store_kit import MIGRATE


@pytest.fixture(autouse=True)
def migrated_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "migrate", MIGRATE)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database that several processes can use."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres_database")
    return url
