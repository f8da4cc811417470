"""The databases that the tests of the store run on: the same tests for each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from instep_sql import SqlStore
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


@pytest.fixture(scope="session")
def new_database(postgres: Server) -> str:
    """A PostgreSQL database with the tables of a new store, to be copied."""

    async def make(url: str) -> str:
        async with SqlStore(url) as store:
            await store.open("east")
        return url

    return asyncio.run(make(postgres.create()))


@pytest.fixture
def postgres_store(postgres: Server, new_database: str) -> Iterator[str]:
    """The URL of a PostgreSQL database with the tables of a new store."""
    url = postgres.create(new_database)
    yield url
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that holds nothing."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that several processes can use, without entities: an empty file, or
    with the tables of a new store.
    """
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres_store")
    return url


@pytest.fixture
def stage(database: str) -> Stages:
    """`made.stage` on the database of the test."""
    return partial(made_stage, database)
