"""Bounds what is posted to each origin (scheme, host and port), and leaves aside those that do not
answer. Decisions only, without I/O or clock.

A stranger chooses the endpoint in its DID document, and can have any number of DIDs with one
endpoint. So what strangers can cause is bounded by origin and in all, and an endpoint that has
accepted nothing yet gets little.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

__all__ = ["OriginLimits"]

_MOST_ORIGINS: Final = 10_000
_FIRST_WAIT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 60.0
_STRANGERS_AT_ONCE: Final = 24
"""Posts under way to origins that have accepted nothing yet; the slots of the others stay free."""
_AT_ONCE_PER_ORIGIN: Final = 2
_REPLIES_KNOWN: Final = 300.0
_REPLIES_UNKNOWN: Final = 5.0
"""Replies at once and in a minute to an origin that has accepted one, and to another."""
_MINUTE_S: Final = 60.0


class _Origin(msgspec.Struct):
    accepted: bool = False
    under_way: int = 0
    strangers: int = 0
    """Those of them that began while it had accepted nothing."""
    away_until_s: float = 0.0
    wait_s: float = 0.0
    replies: float = 0.0
    """Replies of the last minute: each counts for one and fades evenly."""
    replies_at_s: float = 0.0


class OriginLimits:
    """What may be posted to which origin now."""

    def __init__(self) -> None:
        self._origins: OrderedDict[str, _Origin] = OrderedDict()
        self._strangers = 0

    def __repr__(self) -> str:
        return f"<OriginLimits {len(self._origins)} origins, {self._strangers} strangers>"

    def begin(self, origin: str, now_s: float, *, chosen_by_peer: bool) -> str:
        """Begin a post, which `end` ends. Returns why it must not be made; empty: it may.

        Args:
            origin: Scheme, host and port.
            now_s: A monotonic time in seconds.
            chosen_by_peer: Whether the peer chose that something is sent, and where to.
        """
        at = self._origins.get(origin)
        if at is None:
            at = self._origins[origin] = _Origin()
            self._forget_idle()
        self._origins.move_to_end(origin)
        if at.away_until_s > now_s:
            return "it did not answer, and is left aside for a while"
        if chosen_by_peer:
            reason = self._refusal(at, now_s)
            if reason:
                return reason
            at.replies += 1
        if at.wait_s:
            # One attempt shows whether it is back; the others wait for its result.
            at.away_until_s = now_s + at.wait_s
        stranger = chosen_by_peer and not at.accepted
        at.under_way += 1
        at.strangers += stranger
        self._strangers += stranger
        return ""

    def end(self, origin: str, now_s: float, *, answered: bool, accepted: bool) -> None:
        """End a post: whether the origin answered, or failed at once, and whether it accepted."""
        at = self._origins[origin]
        at.under_way -= 1
        # Which of them ends does not matter for the sum.
        if at.strangers > at.under_way:
            at.strangers -= 1
            self._strangers -= 1
        at.accepted = at.accepted or accepted
        if answered:
            at.away_until_s = at.wait_s = 0.0
        else:
            at.wait_s = min(_LONGEST_WAIT_S, at.wait_s * 2 or _FIRST_WAIT_S)
            at.away_until_s = now_s + at.wait_s

    def _refusal(self, at: _Origin, now_s: float) -> str:
        if at.under_way >= _AT_ONCE_PER_ORIGIN:
            return "too much is under way to it"
        if not at.accepted and self._strangers >= _STRANGERS_AT_ONCE:
            return "too much is under way to endpoints that have accepted nothing yet"
        most = _REPLIES_KNOWN if at.accepted else _REPLIES_UNKNOWN
        faded = (now_s - at.replies_at_s) * most / _MINUTE_S
        at.replies, at.replies_at_s = max(0.0, at.replies - faded), now_s
        if at.replies + 1 > most:
            return "too much was sent to it in the last minute"
        return ""

    def _forget_idle(self) -> None:
        if len(self._origins) > _MOST_ORIGINS:
            idle = next((name for name, at in self._origins.items() if not at.under_way), None)
            if idle is not None:
                del self._origins[idle]
