"""The files of the simulated stores, in memory where the system has such a place."""

from __future__ import annotations

import atexit
import gc
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from instep_sql import SqlStore
from tests.memory_kit import memory_folder
from tests.simulation.loop import VirtualLoop

__all__ = ["CONSUMER", "database_folder", "new_database", "use_folder"]


CONSUMER = "simulation"


_root: Path | None = None


@contextmanager
def database_folder() -> Iterator[Path]:
    """A folder that goes when all is done; in memory where the system has such a place, because a
    seed writes its file many times.
    """
    with TemporaryDirectory(prefix="instep-simulation-", dir=memory_folder()) as folder:
        yield Path(folder)


def use_folder(folder: Path) -> None:
    """Keep this process's databases below a folder that somebody else removes. What is imported
    lives as long as the process does: to look at it again and again costs a tenth of each seed.
    """
    gc.freeze()
    gc.set_threshold(100_000)
    global _root  # noqa: PLW0603 - set once, when the process starts
    _root = folder


@cache
def _folder() -> Path:
    """This process's own folder, with an empty store to copy."""
    if _root is None:
        stack = ExitStack()
        atexit.register(stack.close)
        folder = stack.enter_context(database_folder())
    else:
        folder = Path(mkdtemp(dir=_root))
    template = folder / "template.db"
    loop = VirtualLoop()

    async def make() -> None:
        store = SqlStore(f"sqlite:///{template}")
        await store.open(CONSUMER)
        await store.close()

    try:
        loop.run_until_complete(make())
    finally:
        loop.close()
    return folder


def new_database() -> Path:
    """A store with an empty schema; the migrations run once a process, not once a seed."""
    remove_database()
    path = _folder() / "store.db"
    shutil.copy(_folder() / "template.db", path)
    return path


def remove_database() -> None:
    for file in _folder().glob("store.db*"):
        file.unlink()
