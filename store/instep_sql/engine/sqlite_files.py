"""The file of a SQLite database, and what is beside it."""

from __future__ import annotations

import logging
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["finished_file", "in_wal_mode", "make_private", "wal_of"]

_log: Final = logging.getLogger("instep.sql")
_CREATING: Final = threading.Lock()
_REPORTED: Final[set[str]] = set()
"""Files of which it was told that others can read them: once in the life of a process."""
_WAL_MODE: Final = b"\x02\x02"
_WAL_MODE_AT: Final = slice(18, 20)
"""Of the header of a file: the versions of its format, for writing and for reading."""


def wal_of(file: str) -> Path:
    """The write-ahead log of a database."""
    return Path(f"{file}-wal")


def finished_file(file: str) -> tuple[int, int, int] | None:
    """How a file is that has no writer, in a folder that this user may not write in; None: there
    may be a writer, or SQLite can find out.
    """
    if wal_of(file).exists() or os.access(Path(file).absolute().parent, os.W_OK):
        return None
    found = Path(file).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def make_private(file: str) -> None:
    """Make the file, for this user alone, if it does not exist; SQLite gives the same rights to the
    files beside it.
    """
    # Closing a file gives up all locks that this process has on it: a file that SQLite may have
    # open is never opened here. What cannot be made is reported by SQLite, with its own reason.
    with _CREATING, suppress(OSError):
        if not Path(file).exists():
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        elif file not in _REPORTED and Path(file).stat().st_mode & stat.S_IROTH:
            # Each connection passes here.
            _REPORTED.add(file)
            _log.warning("every user of this machine can read the store %s (chmod o-r)", file)


def in_wal_mode(file: str) -> bool:
    """Whether its header says that it has a write-ahead log."""
    with Path(file).open("rb") as opened:
        return opened.read(_WAL_MODE_AT.stop)[_WAL_MODE_AT] == _WAL_MODE
