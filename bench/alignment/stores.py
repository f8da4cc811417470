"""The databases that a scenario is measured on: SQLite files, or databases of one PostgreSQL
server, which is started for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from bench.scenarios import Scenario
from tests.postgres_kit import Server, serving

__all__ = ["Stores", "stores"]

_POSTGRESQL: Final = ("fsync=on", "shared_buffers=256MB", "max_wal_size=4GB")


class Stores(Protocol):
    """Makes and removes stores; each is named by its URL."""

    def named(self, name: str) -> str:
        """Return the URL of a store that does not exist yet."""
        ...

    def copy(self, filled: str, store: str) -> None: ...

    def remove(self, store: str) -> None: ...


class _Files:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def named(self, name: str) -> str:
        return f"sqlite:///{self._folder / name}.db"

    def copy(self, filled: str, store: str) -> None:
        shutil.copyfile(_path(filled), _path(store))

    def remove(self, store: str) -> None:
        _path(store).unlink()


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


class _Databases:
    def __init__(self, server: Server) -> None:
        self._server = server

    def named(self, name: str) -> str:
        self._server.execute(f'CREATE DATABASE "{name}"')
        return self._server.url(name)

    def copy(self, filled: str, store: str) -> None:
        self.remove(store)
        names = (url.rpartition("/")[2] for url in (store, filled))
        self._server.execute('CREATE DATABASE "{}" TEMPLATE "{}"'.format(*names))

    def remove(self, store: str) -> None:
        self._server.drop(store)


@contextmanager
def stores(scenario: Scenario, folder: Path) -> Iterator[Stores]:
    """The stores of the kind that the scenario names. Raises `tests.postgres_kit.Missing`."""
    if not scenario.postgresql:
        yield _Files(folder)
        return
    with serving(*_POSTGRESQL, in_memory=False) as server:
        yield _Databases(server)
