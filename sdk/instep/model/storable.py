"""What any database can keep of the text of a peer: for pure code, which knows no database."""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_UUID_CHARS", "storable_text", "without_nul"]

_NUL: Final = "\x00"

LONGEST_UUID_CHARS: Final = 600
"""Of what is indexed, in all columns together: an index of PostgreSQL holds at most 2,704 bytes a
row, and a character takes up to four. What is longer is no uuid, and left out."""


def without_nul(value: str) -> str:
    """A provider's text without NUL characters, as any database can store it: for display, not for
    comparison.
    """
    return value.replace(_NUL, "\N{REPLACEMENT CHARACTER}")


def storable_text(value: str) -> str:
    """A peer's text as any database can store it. Texts that differ only in a replaced character
    become equal.
    """
    if value.isascii() and _NUL not in value:
        return value
    return without_nul(value).encode(errors="replace").decode()
