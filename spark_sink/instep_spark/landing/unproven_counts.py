"""How many entities of each stream are unproven, as far as they have landed (A17, A22).

The count is a query of current state, which takes longer the more has landed. So it is asked for
after a sweep that has left something, and then, while entities are unproven, not more often than
once a minute, and in a twentieth of the time at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from instep.errors import SinkError
from instep.model.batches import Batch
from instep.model.position import Phase
from instep_spark.landing import live_view
from instep_spark.landing.writers.base import Writer

__all__ = ["UnprovenCounts"]

_AGAIN_S: Final = 60.0
_SHARE: Final = 20


class UnprovenCounts:
    """The counts of one consumer."""

    def __init__(self, writer: Writer, consumer: str, now_s: Callable[[], float]) -> None:
        self._writer, self._consumer, self._now_s = writer, consumer, now_s
        self._due_s: dict[str, float] = {}

    def landed(self, batch: Batch) -> int:
        """The batch has landed. Returns how many entities more are unproven than its position says,
        where they were counted.
        """
        before = batch.position.unproven
        if batch.sweep is not None:
            if batch.sweep.readable is None and not batch.sweep.holds:
                return -before
        elif not before or batch.position.phase is not Phase.ALIGNED or not self._is_due(batch):
            return 0
        began_s = self._now_s()
        try:
            count = live_view.count_unproven(self._writer, self._consumer, batch.stream)
        except SinkError:
            # What was landed stays landed: the next commit counts.
            return 0
        now_s = self._now_s()
        self._due_s[batch.stream] = now_s + max(_AGAIN_S, _SHARE * (now_s - began_s))
        return count - before

    def _is_due(self, batch: Batch) -> bool:
        return self._now_s() >= self._due_s.get(batch.stream, float("-inf"))
