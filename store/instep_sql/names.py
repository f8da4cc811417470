"""Names that a user gives, held against what every database can keep."""

from __future__ import annotations

from typing import Final

from instep.errors import ConfigurationError

__all__ = ["LONGEST_CONSUMER_BYTES", "LONGEST_STREAM_BYTES", "check_name"]

# Together in one row of an index, of which PostgreSQL takes 2,704 bytes at most.
LONGEST_CONSUMER_BYTES: Final = 1_000
LONGEST_STREAM_BYTES: Final = 1_600
_SHOWN_CHARACTERS: Final = 60


def check_name(name: str, what: str, where: str, key: str, limit_bytes: int | None = None) -> None:
    """Raise `ConfigurationError` for a name that a database refuses. `what` it names, and `key`:
    the option that it is from.
    """
    reason = _refusal(name, limit_bytes)
    if reason:
        shown = ascii(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…")
        raise ConfigurationError(
            f"a database cannot keep {shown} as the name of {what}: {reason}",
            where=where,
            hint=f"choose another one in the option {key!r}",
            key=key,
        )


def _refusal(name: str, limit_bytes: int | None) -> str:
    if "\0" in name:
        return "it has a NUL character"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it has half of a character (a lone surrogate)"
    if limit_bytes is not None and size > limit_bytes:
        return f"it has {size:,} bytes, and {limit_bytes:,} is the most"
    return ""
