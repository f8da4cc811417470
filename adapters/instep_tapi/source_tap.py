"""Records what a provider sends, for its conformance to be judged: connections, messages, answers.

No header that we send is recorded, and no query of an address: they may hold a login.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import TypeVar

from yarl import URL

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    MessageReceived,
    MessagesSkipped,
    ResponseReceived,
)
from instep.model.streams import Start
from instep_tapi.feeds.buffered_feed import BufferedFeed
from instep_tapi.restconf.client import Response, RestconfClient

__all__ = ["SourceTap"]

_F = TypeVar("_F", bound=BufferedFeed)


def now_us() -> int:
    """Microseconds since 1970, by our clock."""
    return time.time_ns() // 1_000


class SourceTap:
    """Gives each event of one source to a recorder, which must be fast: it is called between the
    socket and the decoder.
    """

    def __init__(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        self._recorder = recorder
        self._room = room
        self._connections = 0

    def answered(self, rest: RestconfClient, response: Response) -> None:
        """A GET was answered."""
        path = URL(response.url, encoded=True).raw_path
        ahead_us = rest.clock_offset_us
        self._recorder(ResponseReceived(now_us(), path, response.status, response.body, ahead_us))

    @asynccontextmanager
    async def tapped(
        self, opening: AbstractAsyncContextManager[_F], stream: str, start: str | Start
    ) -> AsyncIterator[_F]:
        """The connection, recorded from its opening to its end."""
        async with opening as feed:
            self._connections += 1
            connection = self._connections
            asked = "" if start is Start.OLDEST else str(start)
            self._recorder(ConnectionOpened(now_us(), connection, stream, asked))

            def take(messages: list[bytes]) -> None:
                at_us = now_us()
                room = inf if self._room is None else self._room()
                for number, content in enumerate(messages):
                    if room <= 0:
                        skipped = len(messages) - number
                        self._recorder(MessagesSkipped(at_us, connection, skipped))
                        break
                    room -= len(content)
                    self._recorder(MessageReceived(at_us, connection, content))

            feed.tap = take
            try:
                yield feed
            finally:
                reason = feed.ended_by
                self._recorder(ConnectionClosed(now_us(), connection, reason, by_us=not reason))
