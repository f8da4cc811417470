"""The databases that the tests of the store run on: the same tests for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.instep_sql.store_kit import Stages
from tests.instep_sql.store_kit import stage as made_stage
from tests.postgres_kit import Missing, Server, serving


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server for all tests; they do not stop it."""
    try:
        with serving() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def postgres_database(postgres: Server) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database that several processes can use."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
def stage(database: str) -> Stages:
    """`made.stage` on the database of the test."""
    return partial(made_stage, database)
