"""When a stream was heard, read and committed last. Ages are computed when they are asked for: one
that the last record sets stays at its best value while nothing comes any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from instep.alignment.machine import AlignmentStatus
from instep.model.position import Phase
from instep.ports.source import Feed
from instep.runtime.health import StreamHealth
from instep.runtime.streams.read_ahead import ReadAhead

__all__ = ["StreamAges"]

_UNSETTLED: Final = frozenset({Phase.ALIGNING, Phase.BASELINING, Phase.CONFIRMING, Phase.LOST})
"""Phases in which nothing later is known than what the attempt was opened with (A8): the delay is
that of the records.
"""
_SAID_EVERY_S: Final = 30.0
"""How often a quiet stream tells the store up to when it is known."""


class StreamAges:
    """The ages of one stream, over all its connections. Times are seconds of one clock, which is
    monotonic.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._feed: Feed | None = None
        self._read_ahead: ReadAhead | None = None
        self._heard_s: float | None = None
        self._heard_within_s: float | None = None
        self._record_s: float | None = None
        self._committed_s: float | None = None
        self._commit_began_s: float | None = None
        self._audited_s: float | None = None
        self._known_s = 0.0
        """Up to when nothing was missing, as a silence has shown last; 0: none has."""
        self._phase = Phase.UNALIGNED
        self._phase_since_s = now()

    def connected(self, feed: Feed, read_ahead: ReadAhead) -> None:
        """The stream is read over this connection from now on."""
        self._feed, self._read_ahead = feed, read_ahead
        # It outlives the connection: whoever hangs is given up, and is silent still.
        self._heard_within_s = feed.heard_within_s

    def disconnected(self, status: AlignmentStatus) -> None:
        """The connection is over: nothing is heard until the next one. What its silence has proven
        stays known.
        """
        if self._silent_at_end(status) and self._feed is not None:
            self._known_s = self._now() - self._feed.unheard_s
        self._heard_s, self._record_s = self._last_heard_s(), self._last_record_s()
        self._feed = self._read_ahead = None

    def audited(self) -> None:
        """An audit of the stream has ended."""
        self._audited_s = self._now()

    def committing(self) -> StreamAges:
        """A commit is under way in this context; it is durable where nothing is raised."""
        return self

    def __enter__(self) -> None:
        self._commit_began_s = self._now()

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        self._commit_began_s = None
        if raised is None:
            self._committed_s = self._now()

    def add_to(self, health: StreamHealth, status: AlignmentStatus, known_s: float) -> StreamHealth:
        """The health with all ages of now.

        `known_s` is the time up to which nothing is missing, as far as the alignment has noted it
        (A8); 0: nothing is known.
        """
        now_s = self._now()
        if status.phase is not self._phase:
            self._phase, self._phase_since_s = status.phase, now_s
        known_s = max(known_s, self._known_s)
        if known_s and self._silent_at_end(status):
            assert self._feed is not None
            self._known_s = max(self._known_s, now_s - self._feed.unheard_s)
            known_s = max(known_s, self._known_s)
        behind_s = _age_s(known_s or None, now_s)
        if behind_s is not None and status.phase not in _UNSETTLED:
            health = health.delayed(behind_s)
        return msgspec.structs.replace(
            health,
            heard_age_s=_age_s(self._last_heard_s(), now_s),
            heard_within_s=self._heard_within_s,
            record_age_s=_age_s(self._last_record_s(), now_s),
            commit_age_s=_age_s(self._committed_s, now_s),
            committing_s=_age_s(self._commit_began_s, now_s) or 0.0,
            behind_s=behind_s,
            known_at_us=int(self._known_s // _SAID_EVERY_S * _SAID_EVERY_S * 1_000_000),
            phase_age_s=now_s - self._phase_since_s,
            audited_age_s=_age_s(self._audited_s, now_s),
        )

    def _silent_at_end(self, status: AlignmentStatus) -> bool:
        """Whether all that came is committed, and nothing comes: then all is known up to the last
        sign of life.
        """
        feed, read_ahead = self._feed, self._read_ahead
        if feed is None or feed.heard_within_s is None or read_ahead is None or read_ahead.holds:
            return False
        silent = status.caught_up and not status.read_delay_s
        return silent and status.phase is Phase.ALIGNED and self._commit_began_s is None

    def _last_heard_s(self) -> float | None:
        feed = self._feed
        if feed is None or feed.heard_within_s is None:
            return self._heard_s
        return self._now() - feed.silent_s

    def _last_record_s(self) -> float | None:
        read_ahead = self._read_ahead
        return self._record_s if read_ahead is None else read_ahead.record_s or self._record_s


def _age_s(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else max(0.0, now_s - at_s)
