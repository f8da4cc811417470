"""Records what one connection brings, and what we do with it, for the provider to be judged."""

from __future__ import annotations

import time

from instep.conformance import (
    MessageReceived,
    MeteredRecorder,
    PongSent,
    PongsWithheld,
    ReadingPaused,
    ReadingResumed,
)

__all__ = ["FeedTap", "now_us"]


def now_us() -> int:
    """Microseconds since 1970, by our clock."""
    return time.time_ns() // 1_000


class FeedTap:
    """Gives the events of connection number `connection` to a recorder; see `SourceTap`."""

    def __init__(self, connection: int, recorder: MeteredRecorder) -> None:
        self._connection = connection
        self._recorder = recorder

    def messages_taken(self, messages: list[bytes]) -> None:
        """These messages came; those that there is no room for are skipped."""
        room = self._recorder.room()
        at_us = now_us() if room else 0
        for number, content in enumerate(messages):
            if room <= 0:
                self._recorder.skip(len(messages) - number)
                break
            room -= len(content)
            self._recorder(MessageReceived(at_us, self._connection, content))

    def pong_sent(self) -> None:
        """We sent a Pong that nobody had asked for."""
        self._recorder(PongSent(now_us(), self._connection))

    def pongs_withheld(self) -> None:
        """We send no Pong any more."""
        self._recorder(PongsWithheld(now_us(), self._connection))

    def reading_paused(self) -> None:
        """We read nothing from now on."""
        self._recorder(ReadingPaused(now_us(), self._connection))

    def reading_resumed(self, *, backed_up: bool) -> None:
        """We read again; see `ReadingResumed`."""
        self._recorder(ReadingResumed(now_us(), self._connection, backed_up))
