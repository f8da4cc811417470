"""Gives events to whoever judges as long as there is room for messages, and counts the others.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from instep.conformance.events import Event, MessagesSkipped

__all__ = ["MeteredRecorder"]

_UNTOLD: Final = 64
"""Of so many that were skipped, one may not have been told yet."""


class MeteredRecorder:
    """Gives events to a recorder. That messages are skipped is told at the first one, and how many
    came since at the next event, or when they are a part of all: most messages are skipped, and are
    to cost next to nothing.

    Args:
        recorder: Takes events; see `Recordable`.
        room: How many bytes of messages it takes now; None: all.
        now_us: Microseconds since 1970.
    """

    def __init__(
        self,
        recorder: Callable[[Event], None],
        room: Callable[[], int] | None,
        now_us: Callable[[], int],
    ) -> None:
        self._recorder, self._room, self._now_us = recorder, room, now_us
        self._skips = False
        """Whether the last message was skipped, and nothing came since."""
        self._untold = self._told = 0

    def room(self) -> float:
        """How many bytes of messages are taken now."""
        return float("inf") if self._room is None else self._room()

    def takes_next(self) -> bool:
        """Whether the next message is taken; else it counts as skipped."""
        if self._room is None or self._room():
            return True
        self.skip(1)
        return False

    def skip(self, messages: int) -> None:
        """So many messages came for which there is no room."""
        self._untold += messages
        if not self._skips or self._untold * _UNTOLD >= self._told:
            self._skips = True
            self._tell()

    def __call__(self, event: Event) -> None:
        """Give an event."""
        if self._untold:
            self._tell()
        self._skips = False
        self._recorder(event)

    def _tell(self) -> None:
        untold, self._untold = self._untold, 0
        self._told += untold
        self._recorder(MessagesSkipped(self._now_us(), 0, untold))
