"""What a user is told of a foreign error: Spark and delta-rs add plans and traces to theirs."""

from __future__ import annotations

import re
from typing import Final

from instep.errors import StoreUnavailableError

__all__ = ["disk_full", "first_line", "is_conflict", "is_file_gone"]

_FULL: Final = ("No space left", "StorageFull", "Disk quota", "File too large")
_CONFLICT: Final = re.compile(
    r"DELTA_CONCURRENT|DELTA_(METADATA|PROTOCOL)_CHANGED|"
    r"(Concurrent\w+|MetadataChanged|ProtocolChanged)Exception"
)
_GONE: Final = (
    *("FILE_NOT_EXIST", "FileNotFoundException", "Object at location"),
    "No files in log segment",
)


def first_line(error: BaseException, limit_chars: int | None = 400) -> str:
    """The first line of the text of an error, or the name of its type."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:limit_chars]


def disk_full(
    error: BaseException, where: str, hint: str = "make room, and run it again: nothing is torn"
) -> StoreUnavailableError | None:
    """The error to raise where one of Python, delta-rs or Java tells that there is no room."""
    text = str(error)
    if not any(word in text for word in _FULL):
        return None
    return StoreUnavailableError("the disk is full", where=where, hint=hint)


def is_file_gone(error: BaseException) -> bool:
    """Whether delta-rs or Java tells that a file of a table is not there."""
    text = str(error)
    return any(word in text for word in _GONE)


def is_conflict(error: BaseException) -> bool:
    """Whether Delta has refused a commit because of another writer's."""
    return bool(_CONFLICT.search(str(error)))
