"""Where the reading of a stream stands between now, the compaction delay and the tombstone
retention, as a share of a bar. Pure: the page and the monitor draw the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import Any, Final

import msgspec

__all__ = ["ReadingBar", "reading_bar"]

_LAST_MARK_AT: Final = 0.8
"""The share of the last mark: what is later is still to be seen."""


class ReadingBar(msgspec.Struct, frozen=True):
    """Shares of a bar that begins now, at 0, and ends in the past, at 1."""

    behind: float
    """Where the reading stands: all changes before that are known."""
    compaction: float | None
    """From here on intermediate states may be lost; None: the log does not compact."""
    retention: float | None
    """From here on ends may be lost; None: they never are, or nothing is declared."""


def reading_bar(stream: Mapping[str, Any]) -> ReadingBar | None:
    """The bar of a stream of `/status.json`; None: its place is not known, or nothing is declared
    that it could be compared with.
    """
    behind_s, limits = stream.get("behind_s"), stream.get("limit_s") or {}
    compaction_s, retention_s = limits.get("compaction"), limits.get("retention")
    retention_s = None if retention_s == inf else retention_s
    marks = sorted({limit for limit in (compaction_s, retention_s) if limit})
    if behind_s is None or not marks:
        return None
    # The retention is days, the delay minutes: on one scale the delay would not be seen.
    scale = [
        (0.0, 0.0),
        *((limit, _LAST_MARK_AT * n / len(marks)) for n, limit in enumerate(marks, 1)),
        (2 * marks[-1], 1.0),
    ]

    def share(at_s: float) -> float:
        for (from_s, low), (to_s, high) in pairwise(scale):
            if at_s <= to_s:
                return float(low + (high - low) * (at_s - from_s) / (to_s - from_s))
        return 1.0

    return ReadingBar(
        share(behind_s),
        share(compaction_s) if compaction_s else None,
        share(retention_s) if retention_s else None,
    )
