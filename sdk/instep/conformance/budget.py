"""How much processor time judging may take beside the work that it judges. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["JudgingBudget"]

_SHARE: Final = 0.0075
"""What is not counted, such as the longer way of an envelope that is judged, may cost twice as
much.
"""
_MOST_S: Final = 0.01
_PROCESSORS: Final = 4
"""More than a process of Python keeps busy."""


class JudgingBudget:
    """Seconds of processor time that may be spent on judging: 0.75 of a hundred that the process
    takes. All that is judged in a process shares one.

    Args:
        processor_s: The processor time that the process has taken.
        clock_s: A clock that measures.
        most_s: What is not spent adds up to so much.
    """

    def __init__(
        self,
        processor_s: Callable[[], float],
        clock_s: Callable[[], float],
        *,
        most_s: float = _MOST_S,
    ) -> None:
        self.processor_s, self.clock_s = processor_s, clock_s
        self.most_s = most_s
        self.spent_s = 0.0
        """All that was spent."""
        self._left_s = 0.0
        self._earned_s = 0.0

    def left_s(self) -> float:
        """What may be spent now; negative: more was spent than there was."""
        earned_s = self.processor_s() * _SHARE
        self._left_s = min(self.most_s, self._left_s + earned_s - self._earned_s)
        self._earned_s = earned_s
        return self._left_s

    def wait_s(self, wanted_s: float) -> float:
        """How long it takes at least until so much may be spent, by the clock."""
        return max(0.0, wanted_s - self._left_s) / (_SHARE * _PROCESSORS)

    def spend(self, seconds: float) -> None:
        """Take off what was spent, in seconds of the processor."""
        self._left_s -= seconds
        self.spent_s += seconds
