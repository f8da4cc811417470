"""Records what a provider sends, for its conformance to be judged: connections, messages, answers.

No header that we send is recorded, and no query of an address: they may hold a login.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from yarl import URL

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    ConnectionRefused,
    Event,
    MeteredRecorder,
    ResponseReceived,
)
from instep.errors import SourceError
from instep.model.streams import Start
from instep_tapi.feeds.buffered_feed import BufferedFeed
from instep_tapi.feeds.feed_tap import FeedTap, now_us
from instep_tapi.restconf.client import Response, RestconfClient

__all__ = ["SourceTap"]

_F = TypeVar("_F", bound=BufferedFeed)


class SourceTap:
    """Gives each event of one source to a recorder, which must be fast: it is called between the
    socket and the decoder.
    """

    def __init__(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        self._recorder = MeteredRecorder(recorder, room, now_us)
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
        asked = "" if start is Start.OLDEST else str(start)
        asked_us = now_us()
        async with AsyncExitStack() as stack:
            try:
                feed = await stack.enter_async_context(opening)
            except SourceError as error:
                if isinstance(status := error.data.get("status"), int):
                    self._recorder(ConnectionRefused(now_us(), stream, asked, status))
                raise
            self._connections += 1
            connection = self._connections
            self._recorder(ConnectionOpened(now_us(), connection, stream, asked, asked_us))

            feed.tap = FeedTap(connection, self._recorder)
            try:
                yield feed
            finally:
                by_us = not feed.closed_by_peer
                self._recorder(ConnectionClosed(now_us(), connection, feed.ended_by, by_us=by_us))
