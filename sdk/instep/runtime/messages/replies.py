"""Senders that wait for the handler's reply to their message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["PendingReplies"]

_Key = tuple[str, int]


class PendingReplies:
    """The replies that are waited for, by scope and number. It holds nothing for a message that
    nobody waits for.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Key, list[asyncio.Future[bytes | None]]] = {}

    def __repr__(self) -> str:
        return f"<PendingReplies {len(self._waiting)} messages>"

    def wanted(self, scope: str, number: int) -> bool:
        """Whether somebody waits for this reply."""
        return bool(self._waiting) and (scope, number) in self._waiting

    @contextmanager
    def wait(self, scope: str, number: int) -> Iterator[asyncio.Future[bytes | None]]:
        """Wait for a reply: the future gets it once it is durable, None where there is none."""
        key = scope, number
        replied = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(replied)
        try:
            yield replied
        finally:
            left = self._waiting[key]
            left.remove(replied)
            if not left:
                del self._waiting[key]

    def resolve(self, replies: Mapping[_Key, bytes | None]) -> None:
        """Pass on replies that are durable."""
        for key, reply in replies.items():
            for replied in self._waiting.get(key, ()):
                if not replied.done():
                    replied.set_result(reply)
