"""The tests of the schema begin with a database in which nothing has been made."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database that several processes can use."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres_database")
    return url
