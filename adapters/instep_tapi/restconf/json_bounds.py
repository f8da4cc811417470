"""Decodes RESTCONF answers within bounds: a short answer must not take much memory."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

__all__ = ["MAX_VALUES", "decode_bounded", "decode_document"]

MAX_VALUES: Final = 16_000_000
"""Most JSON values in one document. Real contexts have some forty bytes for each, ``[],[],[]``
three.
"""


async def decode_document(body: bytes) -> Any:
    """The JSON of an answer. Raises `ValueError` saying what is wrong with it.

    Decoded in a thread: a context of 100 MB must not keep Pongs waiting.
    """
    return await asyncio.to_thread(decode_bounded, body)


def decode_bounded(body: bytes) -> Any:
    """The same without a thread, for small answers."""
    # Each value but the first follows a comma, a bracket or a brace; texts may hold more of them.
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} JSON values")
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
