"""Decides when to send a Pong or a Ping and when a peer is dead (TR-548 ST-0.4). Pure.

Unsolicited Pongs keep the provider from dropping us, whatever we receive. Silence alone proves
nothing: a stream that is ALIGNING or PAUSED, or a quiet network, sends nothing for hours. So after
`dead_peer_s` of silence a Ping is sent, and only a peer that does not answer it for as long again
(at most `ANSWER_S`) is dead.
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["ANSWER_S", "Due", "KeepAlive", "SignsOfLife"]

ANSWER_S = 15.0


class Due(Enum):
    """The actions that are due now."""

    PONG = auto()
    PING = auto()
    DEAD = auto()


class SignsOfLife:
    """When the peer last gave a sign of life, and when it was last known to have nothing under way.

    A Pong between the fragments of a message shows that the peer is there. It proves no silence:
    the rest of the message is still to come (A5). Times are seconds of one monotonic clock.
    """

    def __init__(self, now_s: float) -> None:
        self.last_s = self.idle_s = now_s

    def note(self, at_s: float, *, under_way: bool) -> None:
        """A frame of any kind came at this time. `under_way`: a message is unfinished, or was not
        taken yet.
        """
        self.last_s = at_s
        if not under_way:
            self.idle_s = at_s


class KeepAlive:
    """Watches one connection. All times are seconds of one monotonic clock."""

    def __init__(self, pong_interval_s: float, dead_peer_s: float, now_s: float) -> None:
        self._pong_interval_s = pong_interval_s
        self._dead_peer_s = dead_peer_s
        self._answer_s = min(dead_peer_s, ANSWER_S)
        self._next_pong_s = now_s + pong_interval_s
        self._last_activity_s = now_s
        self._pinged_at_s: float | None = None

    def note_activity(self, at_s: float) -> None:
        """A frame of any kind came at this time; or we did not read until then, so silence starts
        anew.
        """
        if at_s > self._last_activity_s:
            self._last_activity_s = at_s
            self._pinged_at_s = None

    def due(self, now_s: float) -> list[Due]:
        """The actions due now; they count as done."""
        actions: list[Due] = []
        if now_s >= self._next_pong_s:
            self._next_pong_s = now_s + self._pong_interval_s
            actions.append(Due.PONG)
        if self._pinged_at_s is None:
            if now_s - self._last_activity_s >= self._dead_peer_s:
                self._pinged_at_s = now_s
                actions.append(Due.PING)
        elif now_s - self._pinged_at_s >= self._answer_s:
            actions.append(Due.DEAD)
        return actions

    def next_s(self) -> float:
        """The time at which an action may be due next."""
        if self._pinged_at_s is None:
            return min(self._next_pong_s, self._last_activity_s + self._dead_peer_s)
        return min(self._next_pong_s, self._pinged_at_s + self._answer_s)
