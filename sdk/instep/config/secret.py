"""A password or token that cannot reach a log, a repr or an error by accident."""

from __future__ import annotations

import logging
import stat
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path

__all__ = ["Secret", "warn_if_readable"]

_log = logging.getLogger("instep.config")


class Secret:
    """Holds a secret text; only `reveal()` gives it out, at the place that sends it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself: for the wire, never for a message."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


def warn_if_readable(path: str, where: str) -> None:
    """Log a warning if every user of the machine can read this file of secrets; `where` is the
    place of its path in the configuration.
    """
    # A file that is not there is an error of whoever reads it.
    with suppress(OSError):
        if Path(path).stat().st_mode & stat.S_IROTH:
            _log.warning("%s: every user of this machine can read %s (chmod o-r)", where, path)
