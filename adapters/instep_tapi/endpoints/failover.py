"""Which of a provider's instances is used, when another one replaces it, and when it is used again
(TR-548 ST-4.2). Pure.

An instance is left when nothing works there: no stream is open, and none was open within the last
`leave_after_s`. Until then it stays in use, because each move costs a reading of another log from
its oldest record. All streams move together, because the streams of one instance show one network.

With the policy `priority` the instances preferred to the one in use are probed. When one has
answered every probe for `fail_back_after_s`, it is used again. If it is left again within that
time, it has to be healthy twice as long the next time, up to sixteen times: so an unstable instance
causes fewer and fewer moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from instep_tapi.options import FailOver

__all__ = ["EndpointFailover"]

_MOST_PATIENCE = 16


class EndpointFailover:
    """The instances of one provider by their endpoints. `now_s` is a monotonic clock."""

    def __init__(self, endpoints: Sequence[str], settings: FailOver) -> None:
        self.endpoints = tuple(dict.fromkeys(endpoints))
        self.current: str | None = None
        """Where discovery last succeeded."""
        self.failing_back_to: str | None = None
        """The preferred instance that the next discovery returns to; None: it stays."""
        self._settings = settings
        self._open: Counter[str] = Counter()
        self._down_since_s: float | None = None
        self._refused_until_s: dict[str, float] = {}
        self._healthy_since_s: dict[str, float] = {}
        self._returned_at_s: dict[str, float] = {}
        self._patience: dict[str, int] = {}

    def next(self, tried: Collection[str], now_s: float) -> str | None:
        """Where to try discovery next, after it failed at `tried`; None: nowhere for now."""
        return next((one for one in self._order(now_s) if one not in tried), None)

    def selected(self, endpoint: str, now_s: float) -> str | None:
        """Discovery succeeded here. Returns the endpoint that is left by it, if one is."""
        left, back = self.current, endpoint == self.failing_back_to
        self.failing_back_to = None
        if endpoint == left:
            return None
        self.current = endpoint
        self._down_since_s = None
        self._refused_until_s.pop(endpoint, None)
        self._healthy_since_s.clear()
        if back:
            self._returned_at_s[endpoint] = now_s
        if left is not None and not back:
            held_s = now_s - self._returned_at_s.pop(left, float("-inf"))
            self._patience[left] = (
                min(2 * self._patience.get(left, 1), _MOST_PATIENCE)
                if held_s < self._settings.fail_back_after_s
                else 1
            )
        return left

    # -- events of an instance -------------------------------------------------------------------

    def opened(self, endpoint: str) -> None:
        """A stream is open."""
        self._open[endpoint] += 1

    def closed(self, endpoint: str, opened_s: float, now_s: float) -> None:
        """An open stream was closed."""
        self._open[endpoint] -= 1
        if endpoint == self.current and now_s - opened_s >= self._settings.leave_after_s:
            self._down_since_s = now_s
        self.failed(endpoint, now_s)

    def failed(self, endpoint: str, now_s: float) -> None:
        """A request or an opening failed at this instance."""
        if endpoint == self.current and self._down_since_s is None:
            self._down_since_s = now_s

    def refused(self, endpoint: str, now_s: float) -> bool:
        """Our login is refused there: it is tried again late, so that no account is locked.

        Returns whether another instance can be tried meanwhile. An instance with open streams stays
        in use when it refuses the login for another stream.
        """
        if self._open[endpoint] > 0:
            return False
        self._refused_until_s[endpoint] = now_s + self._settings.refused_retry_s
        return any(not self._is_refused(one, now_s) for one in self.endpoints)

    # -- fail-back -------------------------------------------------------------------------------

    @property
    def preferred(self) -> tuple[str, ...]:
        """The instances that are preferred to the one in use."""
        if self._settings.policy != "priority" or self.current is None:
            return ()
        return self.endpoints[: self.endpoints.index(self.current)]

    def to_probe(self, now_s: float) -> list[str]:
        """The instances to be probed now, the most preferred first."""
        return [one for one in self.preferred if not self._is_refused(one, now_s)]

    def probed(self, endpoint: str, now_s: float, *, healthy: bool) -> bool:
        """Note the result of a probe. Returns whether the next discovery goes to that instance."""
        if not healthy:
            self._healthy_since_s.pop(endpoint, None)
            return False
        since_s = self._healthy_since_s.setdefault(endpoint, now_s)
        wanted_s = self._settings.fail_back_after_s * self._patience.get(endpoint, 1)
        if now_s - since_s >= wanted_s:
            self.failing_back_to = endpoint
        return self.failing_back_to == endpoint

    # -- inner parts -----------------------------------------------------------------------------

    def _order(self, now_s: float) -> list[str]:
        current = self.current
        usable = [one for one in self.endpoints if not self._is_refused(one, now_s)]
        # Where all refuse our login there is nothing to wait for: the caller raises the error.
        usable = usable or list(self.endpoints)
        if current is None:
            return usable
        if self.failing_back_to is not None:
            return [self.failing_back_to, current]
        if current in usable and not self._leaving(now_s):
            return [current]
        others = self.endpoints
        if self._settings.policy == "round-robin":
            at = others.index(current)
            others = others[at + 1 :] + others[:at]
        order = [one for one in others if one in usable and one != current]
        return [*order, current] if current in usable else order

    def _leaving(self, now_s: float) -> bool:
        if self._open[self.current or ""] > 0 or self._down_since_s is None:
            return False
        return now_s - self._down_since_s >= self._settings.leave_after_s

    def _is_refused(self, endpoint: str, now_s: float) -> bool:
        return now_s < self._refused_until_s.get(endpoint, float("-inf"))
