"""Everything outside the consumer, in one place: time, provider, network, the trace."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from instep_tapi_provider.log import LogRecord
from tests.simulation.alignment.options import SKEWS_S, FaultOptions, LogOptions
from tests.simulation.alignment.provider import Provider
from tests.simulation.alignment.tree import TreeProvider
from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.alignment.checks import Checks
    from tests.simulation.alignment.network import SimFeed

__all__ = ["T0_S", "World"]

T0_S: Final = 1_700_000_000.0
_LINES_KEPT: Final = 60


class World:
    """`faults` is replaced when all is healed; every part asks it anew."""

    checks: Checks

    def __init__(
        self,
        seed: int,
        loop: VirtualLoop,
        log_options: LogOptions,
        faults: FaultOptions,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.rng = random.Random(f"world {seed}")
        self.loop = loop
        self.log_options = log_options
        self.faults = self.first_faults = faults
        self.broken: asyncio.Future[None] | None = None
        self._exception: BaseException | None = None
        self._report = report
        self._digest = blake2b(digest_size=8)
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.events = 0
        self.counts: Counter[str] = Counter()
        """How often each fault of the wider world has happened."""
        # The consumer's clock is wrong by this much; the connection shows it.
        self.skew_s = self.rng.choice((0.0, 0.0, -7200.0, 31.5))
        if faults.skew >= 0:
            self.skew_s = SKEWS_S[min(int(faults.skew), len(SKEWS_S) - 1)]
        self.provider_step_s = 0.0
        """How far the provider's clock was set since the beginning …"""
        self.provider_set_s = -math.inf
        """… and when it was set last, by the time of the loop."""
        self.reachable = True
        self.store_down = False
        self.store_slow_until_s = 0.0
        self.feeds: list[SimFeed] = []
        self.unreliable: dict[str, None] = {}
        """Keys of which the consumer missed a statement by the provider's own fault."""
        self.must_realign = False
        """Whether something is wrong that no consumer can know of."""
        self.reliable_again = False
        """Whether the next attempt reads what was missed."""
        rng = random.Random(f"provider {seed}")
        pair = faults.fail_over_every_s > 0
        make = TreeProvider if log_options.tree else Provider
        self.provider = make(log_options, self.now, rng, pair=pair)

    def now(self) -> float:
        """The provider's clock, in seconds since 1970."""
        return T0_S + self.loop.time() + self.provider_step_s

    def consumer_now(self) -> float:
        return T0_S + self.loop.time() + self.skew_s

    def clock_offset_us(self, ours_s: float) -> int:
        """The provider's clock minus ours, as a source finds it."""
        offset_s = self.now() - ours_s
        if self.first_faults.skew >= 0:
            # By a Date, which states whole seconds.
            offset_s = math.floor(self.now()) + 0.5 - ours_s
            offset_s = offset_s if abs(offset_s) > 1 else 0.0
        return round(offset_s * 1_000_000)

    def set_latency(self, latency_s: float) -> None:
        self.faults = replace(self.faults, latency_s=latency_s)

    def store_stall_s(self) -> float:
        """How much longer a transaction takes, in a store that is stuck."""
        return max(0.0, self.store_slow_until_s - self.loop.time())

    def missed(self, record: LogRecord, why: str) -> None:
        self.unreliable[record.key] = None
        self.must_realign = True
        self.trace(f"{why} {record.key}@{record.partition}/{record.offset}")

    def note_exception(self, _loop: object, context: dict[str, Any]) -> None:
        """What is raised where nobody listens, such as a broken promise inside a transaction."""
        self._break(context.get("exception") or AssertionError(context["message"]))

    def task_ended(self, task: asyncio.Task[None]) -> None:
        """A task that should not fail has ended."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        self._exception = self._exception or error
        if self.broken is not None and not self.broken.done():
            self.broken.set_result(None)

    def raise_broken(self) -> None:
        if self._exception is not None:
            raise self._exception

    def count(self, kind: str) -> None:
        """A fault of the wider world has happened."""
        self.counts[kind] += 1
        self.trace(kind)

    def trace(self, line: str) -> None:
        """One line an event; the same seed gives the same lines."""
        self.events += 1
        text = f"{self.loop.time():10.3f} {line}"
        self._digest.update(text.encode())
        self.lines.append(text)
        if self._report is not None:
            self._report(text)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
