"""When a commit begins and what it takes along: few large commits under load, small ones at once
when it is quiet. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from instep.records import Batch
from instep_spark.options import DeltaOptions

__all__ = ["size_bytes", "taken", "wait_s"]


def size_bytes(batch: Batch) -> int:
    """The bytes of the bodies and envelopes of a batch."""
    return sum(len(record.body) + len(record.envelope) for record in batch.records)


def wait_s(options: DeltaOptions, waiting: Sequence[Batch], since_last_s: float) -> float:
    """How long the next commit still waits for more; 0: it begins now.

    Meanwhile the sources of these batches read on, within their own bounds: that is what the next
    batches grow by. One that is large enough, and one that moves an alignment on, does not wait.
    """
    remaining_s = options.interval_s - since_last_s
    if remaining_s <= 0:
        return 0.0
    if any(batch.sweep is not None or not batch.records for batch in waiting):
        return 0.0
    if sum(len(batch.records) for batch in waiting) >= options.commit_records:
        return 0.0
    if sum(map(size_bytes, waiting)) >= options.commit_bytes:
        return 0.0
    return remaining_s


def taken(options: DeltaOptions, waiting: Sequence[Batch], *, groups: bool) -> int:
    """How many of the waiting batches the next commit takes: at least one, one of each stream."""
    if not groups:
        return 1
    streams: set[str] = set()
    records = 0
    for count, batch in enumerate(waiting):
        records += len(batch.records)
        if batch.stream in streams or (count and records > options.group_records):
            return count
        streams.add(batch.stream)
    return len(waiting)
