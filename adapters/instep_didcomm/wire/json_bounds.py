"""Refuses JSON that is nested too deeply or has too many values, before it is decoded: a decoder
recurses, and builds an object for each value while nothing else runs.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from instep_didcomm.problems import MessageRefusedError, Reason

__all__ = ["MOST_LEVELS", "MOST_VALUES", "check_json"]

MOST_LEVELS: Final = 64
"""Most objects and lists within each other."""
MOST_VALUES: Final = 100_000
"""Most JSON values; decoding them takes some 40 ms at worst."""

_MOST_QUOTES: Final = 4 * MOST_VALUES
"""A value has at most a name and a text."""
_OPENING: Final = b"[{"
_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_json(raw: bytes) -> None:
    """Check the depth and the number of values, in one pass. Raises `MessageRefusedError`.

    What is no JSON passes, and the decoder refuses it.
    """
    # Nearly every message has fewer of these signs in all than would be too much.
    opening = raw.count(b"{") + raw.count(b"[")
    if opening <= MOST_LEVELS and raw.count(b",") + opening <= MOST_VALUES:
        return
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    many = bare.count(b'"') > _MOST_QUOTES
    bare = b"" if many else b"".join(bare.split(b'"')[::2])  # what is in no text
    opening = bare.count(b"{") + bare.count(b"[")
    # Each value but the first follows one of these signs.
    if many or bare.count(b",") + opening > MOST_VALUES:
        raise MessageRefusedError(
            Reason.UNREADABLE, f"its JSON has more than {MOST_VALUES:,} values"
        )
    if opening <= MOST_LEVELS:
        return
    steps = (1 if sign in _OPENING else -1 for sign in bare.translate(None, _NO_BRACKET))
    if any(level > MOST_LEVELS for level in accumulate(steps)):
        raise MessageRefusedError(
            Reason.UNREADABLE, f"its JSON is nested more than {MOST_LEVELS} levels deep"
        )
