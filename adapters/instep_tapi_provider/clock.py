"""The provider's one clock: wall-clock stamps, and periods that can be made to pass faster."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from instep.errors import ConfigurationError


@dataclass(slots=True)
class ScaledClock:
    """Real time for stamps; configured periods are divided by `time_scale`.

    With `time_scale=3600` a tombstone retention of an hour passes in a second, while append time
    stamps stay what a wall clock shows. What a stream declares about itself is the period as it
    really passes.

    `time_scale`: how many configured seconds pass in one real second.
    `now`: seconds since the epoch; injected by tests.
    """

    time_scale: float = 1.0
    now: Callable[[], float] = field(default=time.time)

    def __post_init__(self) -> None:
        if not self.time_scale > 0:
            raise ConfigurationError(f"time_scale must be above 0, not {self.time_scale}")

    def real_s(self, configured_s: float) -> float:
        """How many real seconds a configured period takes."""
        return configured_s / self.time_scale


@lru_cache(maxsize=64)
def _second(epoch_s: int) -> tuple[str, str]:
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S"), moment.strftime("%Y%m%d%H%M%S")


def rfc3339(epoch_s: float) -> str:
    """A time stamp as the TR's examples print it, in milliseconds: ``2021-04-28T14:14:28.780Z``."""
    total_ms = int(epoch_s * 1000)
    return f"{_second(total_ms // 1000)[0]}.{total_ms % 1000:03d}Z"


def yang_time(epoch_s: float) -> str:
    """A time stamp as the YANG describes it, ``yyyyMMddhhmmss.s``: ``20210428141428.780Z``."""
    total_ms = int(epoch_s * 1000)
    return f"{_second(total_ms // 1000)[1]}.{total_ms % 1000:03d}Z"
