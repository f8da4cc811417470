"""What an error of SQLite means, and what an operator can do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final

from instep.errors import SinkError, StoreUnavailableError

__all__ = ["ConcurrentWriteError", "sink_error"]

_UNAVAILABLE: Final[dict[int, tuple[str, str]]] = {
    sqlite3.SQLITE_BUSY: (
        "the database is locked by another process",
        "end the other writer, or raise busy_timeout_s",
    ),
    sqlite3.SQLITE_LOCKED: (
        "the database is locked by another connection",
        "end the other writer, or raise busy_timeout_s",
    ),
    sqlite3.SQLITE_FULL: (
        "the disk is full",
        "make room; nothing of the batch was committed and it can be tried again",
    ),
    sqlite3.SQLITE_IOERR: (
        "the disk could not be read or written",
        "look at the disk and the system's log; the batch can be tried again",
    ),
}
_UNUSABLE: Final[dict[int, tuple[str, str]]] = {
    sqlite3.SQLITE_READONLY: (
        "the database cannot be written",
        "give this user write access to the file and to its directory",
    ),
    sqlite3.SQLITE_PERM: (
        "the database cannot be accessed",
        "give this user write access to the file and to its directory",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the database cannot be opened",
        "the directory has to exist, and this user has to be allowed to write in it",
    ),
    sqlite3.SQLITE_NOTADB: ("the file is not a SQLite database", "name another file"),
    sqlite3.SQLITE_CORRUPT: (
        "the database is damaged",
        "restore it, or move it away: a new one is aligned from the provider; copy by VACUUM INTO",
    ),
    sqlite3.SQLITE_TOOBIG: (
        "a record is larger than SQLite can keep",
        "bound the size of a frame in the source's options",
    ),
}


class ConcurrentWriteError(sqlite3.OperationalError):
    """A file was written that nobody was to write: what was read of it may be wrong."""


def sink_error(error: BaseException, where: str, has_wal: Callable[[], bool]) -> SinkError:
    """The error as it is reported; `has_wal`: whether there is a -wal beside the database."""
    orig = getattr(error, "orig", None) or error
    extended = getattr(orig, "sqlite_errorcode", None)
    facts: dict[str, Any] = {"sqlite": getattr(orig, "sqlite_errorname", type(orig).__name__)}
    code = -1 if extended is None else extended & 0xFF
    if isinstance(orig, ConcurrentWriteError):
        hint = "try again; if that does not help, read it as a user who may write in its folder"
        return StoreUnavailableError(str(orig), where=where, hint=hint)
    if code == sqlite3.SQLITE_CANTOPEN and has_wal():
        return SinkError(
            "the database cannot be opened: its -wal needs a -shm file beside it",
            where=where,
            hint="copy the file and its -wal to a folder that this user may write in",
            **facts,
        )
    if code in _UNAVAILABLE:
        message, hint = _UNAVAILABLE[code]
        return StoreUnavailableError(message, where=where, hint=hint, **facts)
    if code in _UNUSABLE:
        message, hint = _UNUSABLE[code]
        return SinkError(message, where=where, hint=hint, **facts)
    return SinkError(f"the database refused: {orig}", where=where, **facts)
