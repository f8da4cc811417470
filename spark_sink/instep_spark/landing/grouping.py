"""When a commit begins and what it takes along: few large commits under load, small ones at once
when it is quiet. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from instep_spark.options import DeltaOptions

__all__ = ["WaitingBatch", "group_size", "wait_s"]


class WaitingBatch(NamedTuple):
    """A batch that waits, by what is known without opening it."""

    stream: str
    records: int
    """Of the log; 0 for a page of a baseline, a step of a sweep, and a position alone."""


def wait_s(options: DeltaOptions, waiting: Sequence[WaitingBatch], since_last_s: float) -> float:
    """How long the next commit still waits for more; 0: it begins now.

    Meanwhile the sources of these batches read on, within their own bounds of records and bytes:
    that is what the next batches grow by. A batch that is large enough does not wait, nor does one
    that moves an alignment on.
    """
    remaining_s = options.interval_s - since_last_s
    if remaining_s <= 0 or not all(one.records for one in waiting):
        return 0.0
    enough = sum(one.records for one in waiting) >= options.commit_records
    return 0.0 if enough else remaining_s


def group_size(options: DeltaOptions, waiting: Sequence[WaitingBatch], *, groups: bool) -> int:
    """How many of the waiting batches the next commit takes: at least one, one of each stream."""
    if not groups:
        return 1
    streams: set[str] = set()
    records = 0
    for count, one in enumerate(waiting):
        records += one.records
        if one.stream in streams or (count and records > options.group_records):
            return count
        streams.add(one.stream)
    return len(waiting)
