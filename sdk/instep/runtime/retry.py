"""Decides whether and when to retry; the only place that decides this.

Three failures that look alike are handled differently. An expired bearer token is renewed inside
the source and never reaches this module. A refused login is fatal, because retries lock accounts.
An unreachable peer is retried.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import tenacity

from instep.errors import InstepError
from instep.runtime.clock import SteadyClock, steady_now
from instep.runtime.settings import ConsumerSettings

__all__ = [
    "Environment",
    "ProcessError",
    "ReconnectPacing",
    "backoff_s",
    "is_retried_late",
    "late_wait_s",
    "process_error",
    "retrying",
]

ProcessError = Callable[[Exception], Exception | None]


def process_error(error: Exception) -> Exception | None:
    """Decide about an error: None means try again, an exception is fatal and is raised.

    Pass a function of this type in `Environment` to decide differently. An error that is not an
    `InstepError` is a mistake in a program and never retried.
    """
    return None if isinstance(error, InstepError) and error.retriable else error


@dataclass(frozen=True)
class Environment:
    """What a consumer takes from its environment; a simulation replaces it."""

    now: Callable[[], float] = time.time
    """The wall clock, in seconds since 1970 UTC. It only stamps, but for the time at which a
    consumer is made.
    """
    rng: random.Random = field(default_factory=random.Random)
    """Randomness for the jitter of the back-off."""
    process_error: ProcessError = process_error
    measure_lag_s: float = 0.5
    """How often the lag of the event loop is measured, in seconds; 0: never."""
    reports_receiving: bool = True
    """Whether a receiver tells its store from time to time that it lives."""
    monotonic: Callable[[], float] = time.monotonic
    """The clock that measures, in seconds since any time."""

    def steady(self) -> SteadyClock:
        """The clock of a consumer that is made now."""
        if self.now is time.time and self.monotonic is time.monotonic:
            return steady_now
        return SteadyClock(self.now, self.monotonic)


def backoff_s(settings: ConsumerSettings, environment: Environment, failures: int) -> float:
    """The wait in seconds after this many failures in a row (at least one): exponential, with
    jitter, so that many clients do not return at once.
    """
    longest = settings.reconnect_initial_s * 2.0 ** min(failures - 1, 30)
    return min(settings.reconnect_max_s, longest) * environment.rng.uniform(0.5, 1.0)


def is_retried_late(error: BaseException | None) -> bool:
    """Whether this error is retried only because something worked before, after `late_wait_s`."""
    return isinstance(error, InstepError) and error.retried_late


def late_wait_s(settings: ConsumerSettings, environment: Environment) -> float:
    """The wait in seconds after an error that only the provider or a new configuration can end."""
    return settings.reconnect_late_s * environment.rng.uniform(0.5, 1.0)


def retrying(settings: ConsumerSettings, environment: Environment) -> tenacity.AsyncRetrying:
    """Attempts with the waits of `backoff_s` between them, and longer ones after an error that is
    retried late (`InstepError.retry_late`), or whose data has `retry_after_s`: the least wait that
    the other side asks for, in seconds.
    """

    def wait_s(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if is_retried_late(error):
            return late_wait_s(settings, environment)
        least_s = error.data.get("retry_after_s", 0.0) if isinstance(error, InstepError) else 0.0
        return max(backoff_s(settings, environment, state.attempt_number), least_s)

    def retriable(error: BaseException) -> bool:
        return isinstance(error, Exception) and environment.process_error(error) is None

    attempts = settings.reconnect_attempts
    return tenacity.AsyncRetrying(
        wait=wait_s,
        retry=tenacity.retry_if_exception(retriable),
        stop=tenacity.stop_after_attempt(attempts) if attempts else tenacity.stop_never,
        reraise=True,
    )


class ReconnectPacing:
    """How long a stream waits before its next connection (A16).

    The back-off begins anew only after a connection that was healthy *and* either made progress or
    left the stream aligned. A connection that ended because the stream must be opened again costs
    no wait, unless the one before ended so, too. Where several came no further, the waits grow no
    more: when the provider mends, the stream is aligned within seconds.
    """

    def __init__(self, settings: ConsumerSettings, environment: Environment) -> None:
        self.settings = settings
        self._environment = environment
        self.failures = 0
        """Connections in a row that failed."""
        self.reopenings = 0
        """Connections in a row that ended because the stream must be opened again."""

    def wait_s(self, *, fruitful: bool, reopens: bool, stalled: bool, late: bool = False) -> float:
        """The wait in seconds after a connection (A16).

        Args:
            fruitful: It was healthy, and made progress or left the stream aligned.
            reopens: It ended because the stream must be opened again.
            stalled: Several in a row came no further (`ReadingProgress.stalled`).
            late: It ended with an error that is retried late (`is_retried_late`).
        """
        if fruitful:
            self.failures = self.reopenings = 0
            if not reopens and not late:
                return 0.0
        self.reopenings = self.reopenings + 1 if reopens else self.reopenings
        if self.reopenings == 1 and reopens and not stalled:
            return 0.0
        self.failures += 1
        if late:
            return late_wait_s(self.settings, self._environment)
        if stalled:
            return self.settings.reconnect_max_s / 2 * self._environment.rng.uniform(0.8, 1.0)
        return backoff_s(self.settings, self._environment, self.failures)

    @property
    def exhausted(self) -> bool:
        """Whether the consumer gives up."""
        return 0 < self.settings.reconnect_attempts <= self.failures
