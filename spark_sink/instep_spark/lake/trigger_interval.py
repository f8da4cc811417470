"""When the next micro-batch begins, and what is in it. Decisions only; `Lake` waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

__all__ = ["next_interval_s", "shared_out"]

_BUSY_SHARE: Final = 2 / 3
_LONGEST_S: Final = 60.0
_FEW_RECORDS: Final = 20_000

K = TypeVar("K")


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


def shared_out(rows: Mapping[K, int], most: int) -> dict[K, int]:
    """How many of these rows, by stream, are taken, together at most `most`: small numbers whole,
    of the others the same number each. Streams of which none is taken are left out.
    """
    taken: dict[K, int] = {}
    left = most
    for at, key in enumerate(sorted(rows, key=lambda one: rows[one])):
        taken[key] = min(rows[key], left // (len(rows) - at) or min(left, 1))
        left -= taken[key]
    return {key: number for key, number in taken.items() if number}
