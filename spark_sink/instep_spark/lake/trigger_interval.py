"""When the next micro-batch begins. Decisions only; `Lake` waits."""

from __future__ import annotations

from typing import Final

__all__ = ["next_interval_s"]

_BUSY_SHARE: Final = 2 / 3
_LONGEST_S: Final = 60.0
_FEW_RECORDS: Final = 20_000


def next_interval_s(interval_s: float, took_s: float, rows: int) -> float:
    """Seconds from the beginning of a micro-batch to that of the next one. `interval_s`: what is
    asked for; the last one took `took_s` and had so many rows.

    Few rows cost nearly the same, however few they are. So where they take longer than the
    interval, the run waits for more of them, up to a minute, and leaves a third of its time to
    others. Behind many rows there may be more: they are read at once.
    """
    if took_s <= interval_s or rows > _FEW_RECORDS:
        return interval_s
    return max(interval_s, min(took_s / _BUSY_SHARE, _LONGEST_S))
