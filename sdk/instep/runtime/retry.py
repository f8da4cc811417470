"""Whether to try again, and when: the one place where that is decided.

Three failures that look alike take three paths: an expired bearer token is renewed inside the
source and never comes here; a refused login is fatal (trying again locks accounts); a dead peer is
retried.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import tenacity

from instep.errors import InstepError
from instep.runtime.settings import ConsumerSettings

__all__ = ["Environment", "ProcessError", "backoff_s", "process_error", "retrying"]

ProcessError = Callable[[Exception], Exception | None]


def process_error(error: Exception) -> Exception | None:
    """Decide about an error: None means try again, an exception is fatal and is raised.

    Pass a function of this shape to `Consumer` to decide otherwise. What is no `InstepError` is a
    mistake in a program and never retried.
    """
    return None if isinstance(error, InstepError) and error.retriable else error


@dataclass(frozen=True)
class Environment:
    """What a consumer takes from outside itself, so that a simulation can give something else."""

    now: Callable[[], float] = time.time
    """The clock, in seconds since 1970 UTC."""
    rng: random.Random = field(default_factory=random.Random)
    """For the jitter of the back-off."""
    process_error: ProcessError = process_error


def backoff_s(settings: ConsumerSettings, environment: Environment, failures: int) -> float:
    """How long to wait after so many failures in a row, at least one, in seconds: exponential, with
    jitter, which keeps many clients from coming back at once.
    """
    longest = settings.reconnect_initial_s * 2.0 ** min(failures - 1, 30)
    return min(settings.reconnect_max_s, longest) * environment.rng.uniform(0.5, 1.0)


def retrying(settings: ConsumerSettings, environment: Environment) -> tenacity.AsyncRetrying:
    """Attempts with the waits of `backoff_s` between them."""

    def wait_s(state: tenacity.RetryCallState) -> float:
        return backoff_s(settings, environment, state.attempt_number)

    def retriable(error: BaseException) -> bool:
        return isinstance(error, Exception) and environment.process_error(error) is None

    attempts = settings.reconnect_attempts
    return tenacity.AsyncRetrying(
        wait=wait_s,
        retry=tenacity.retry_if_exception(retriable),
        stop=tenacity.stop_after_attempt(attempts) if attempts else tenacity.stop_never,
        reraise=True,
    )
