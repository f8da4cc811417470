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
_WINDOW: Final = 64 * 1024
"""Even: a window of nothing but backslashes ends between two escapes."""
_OPENING: Final = b"[{"
_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_json(raw: bytes) -> None:
    """Check the depth and the number of values, in one pass. Raises `MessageRefusedError`.

    What is no JSON passes, and the decoder refuses it.
    """
    if len(raw) <= MOST_VALUES and 0x5B not in raw and _has_few_objects(raw):
        return
    # Nearly every other message has fewer of these signs in all than would be too much.
    # To find none is far faster than to count none.
    opening = raw.count(b"{") + (raw.count(b"[") if 0x5B in raw else 0)
    if opening <= MOST_LEVELS and (
        len(raw) <= MOST_VALUES or raw.count(b",") + opening <= MOST_VALUES
    ):
        return
    bare = _bare(raw)
    if bare is None:
        raise MessageRefusedError(
            Reason.UNREADABLE, f"its JSON has more than {MOST_VALUES:,} values"
        )
    if bare.count(b"{") + bare.count(b"[") <= MOST_LEVELS:
        return
    steps = (1 if sign in _OPENING else -1 for sign in bare.translate(None, _NO_BRACKET))
    if any(level > MOST_LEVELS for level in accumulate(steps)):
        raise MessageRefusedError(
            Reason.UNREADABLE, f"its JSON is nested more than {MOST_LEVELS} levels deep"
        )


def _has_few_objects(raw: bytes) -> bool:
    """Whether there are no more than `MOST_LEVELS` objects. To find a few is faster than to count
    them.
    """
    at = -1
    for _ in range(MOST_LEVELS + 1):
        at = raw.find(b"{", at + 1)
        if at < 0:
            return True
    return False


def _bare(raw: bytes) -> bytes | None:
    """What is in no text; None: there are too many values."""
    parts: list[bytes] = []
    quotes = values = begin = 0
    while begin < len(raw):
        # In windows: while one call looks at all of it, no other thread runs.
        window = raw[begin : begin + _WINDOW]
        window = window.rstrip(b"\\") or window  # does not end within an escape
        begin += len(window)
        window = window.replace(rb"\\", b"").replace(rb"\"", b"")
        part = b"".join(window.split(b'"')[quotes % 2 :: 2])
        quotes += window.count(b'"')
        # Each value but the first follows one of these signs.
        values += part.count(b",") + part.count(b"{") + part.count(b"[")
        if quotes > _MOST_QUOTES or values > MOST_VALUES:
            return None
        parts.append(part)
    return b"".join(parts)
