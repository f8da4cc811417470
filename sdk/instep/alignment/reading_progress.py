"""Whether the connections of a stream come further than those before them (A16). Pure."""

from __future__ import annotations

from typing import Final

from instep.model.position import Phase, Position

__all__ = ["NO_PROGRESS_AFTER", "ReadingProgress"]

NO_PROGRESS_AFTER: Final = 3
"""Connections, or attempts, in a row that came no further than those before: then it is told."""
_AT_REST: Final = (Phase.ALIGNED, Phase.SWEEP_HELD)


class ReadingProgress:
    """Compares where the connections of one stream have ended.

    A stream that is restarted from its oldest record at each connection reads much, and comes no
    further. So what counts is the furthest place that was ever committed in the present log: by
    offset in each partition, else by append time.
    """

    def __init__(self) -> None:
        self.fruitless = 0
        """Connections in a row that ended without alignment and came no further."""
        self._lineage: int | None = None
        self._furthest: dict[str, int] = {}

    @property
    def stalled(self) -> bool:
        """Whether there is no progress."""
        return self.fruitless >= NO_PROGRESS_AFTER

    def ended(self, position: Position) -> None:
        """Note that a connection ended at this position, which is durable. To read the same again
        is no progress (A16).
        """
        reached = dict(position.offsets)
        if not reached and position.appended_at_us:
            reached = {"": position.appended_at_us}
        # Another log is no progress by itself: it may be lost and built anew each time.
        same_log = self._lineage in (None, position.lineage)
        known = self._furthest if same_log else {}
        further = same_log and any(
            place > known.get(partition, -1) for partition, place in reached.items()
        )
        self._furthest = known | {
            partition: max(place, known.get(partition, -1)) for partition, place in reached.items()
        }
        self._lineage = position.lineage
        self.fruitless = 0 if further or position.phase in _AT_REST else self.fruitless + 1
