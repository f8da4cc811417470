"""Times and offsets from the far future (A9). Pure.

A record is compared with the stored one by offset or append time (A3). One that states a time or an
offset far ahead, by mistake, would keep every later statement of its entity out, and in the next
attempt the live entity would be swept. So such a record is taken without that offset, or with a
time that can be true.

A clock that is ahead of ours as a whole is no mistake: its records come at the time at which they
come. But then no record shows by its time that the head of the log is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from instep.model.records import RecordHeader

__all__ = ["LastRecord", "PlausibilityCheck"]

_US: Final = 1_000_000
_AHEAD_US: Final = 60 * _US
"""Nothing is appended later than this after the provider's present, whose estimate may be wrong."""
_RECORDS_PER_S: Final = 1_000_000
"""No partition of a log grows faster."""


class LastRecord(NamedTuple):
    """The place of the record that came last in a partition."""

    offset: int
    """-1: none was stated."""
    appended_at_us: int


class PlausibilityCheck:
    """Finds records whose time or offset cannot be true, and mends them; for one opening."""

    def __init__(self) -> None:
        self.ahead: set[str] = set()
        """Partitions whose last record stated a time far ahead."""
        self._doubted: dict[str, int] = {}
        """The last offset that was not believed, by partition."""

    def believes_ordered(
        self, first: RecordHeader, last: RecordHeader, known: LastRecord | None, now_us: int
    ) -> bool:
        """Whether records of one partition, in order, need no closer look: the last one is the
        furthest. `known`: what came before them in their partition.
        """
        before = known or LastRecord(first.offset, first.appended_at_us)
        return (
            not self.ahead
            and last.appended_at_us <= now_us + _AHEAD_US
            and not self._jumps(last, before)
        )

    def believes(
        self, records: Sequence[RecordHeader], known: Mapping[str, LastRecord], now_us: int
    ) -> bool:
        """The same of any records. `known`: what came before them, by partition."""
        offsets = [record.offset for record in records if record.offset >= 0]
        offsets += [last.offset for last in known.values() if last.offset >= 0]
        return (
            not self.ahead
            and max(record.appended_at_us for record in records) <= now_us + _AHEAD_US
            and not (offsets and max(offsets) - min(offsets) > _RECORDS_PER_S)
        )

    def mended(
        self,
        records: Sequence[RecordHeader],
        known: Mapping[str, LastRecord],
        now_us: int,
        deviations: dict[str, int],
    ) -> list[RecordHeader]:
        """The records as they can be true; what is mended is counted as a deviation."""
        last = dict(known)
        mended: list[RecordHeader] = []
        for stated in records:
            partition = stated.partition
            record = self._mended(stated, last.get(partition), now_us, deviations)
            before = last[partition].offset if partition in last else -1
            last[partition] = LastRecord(max(record.offset, before), record.appended_at_us)
            mended.append(record)
        return mended

    def _mended(
        self,
        record: RecordHeader,
        last: LastRecord | None,
        now_us: int,
        deviations: dict[str, int],
    ) -> RecordHeader:
        """The record without an offset, or with another time, where its own cannot be true (A9)."""
        partition = record.partition
        if record.appended_at_us > now_us + _AHEAD_US:
            # One alone is as late as the record before it. Where all are ahead, it is the clock.
            alone = last is not None and partition not in self.ahead
            at_us = min(now_us, last.appended_at_us) if alone and last else now_us
            record = msgspec.structs.replace(record, appended_at_us=at_us)
            self.ahead.add(partition)
            _count(deviations, "append-time-ahead")
        else:
            self.ahead.discard(partition)
        if last is not None and self._jumps(record, last):
            self._doubted[partition] = record.offset
            record = msgspec.structs.replace(record, offset=-1)
            _count(deviations, "offset-ahead")
        elif record.offset >= 0:
            self._doubted.pop(partition, None)
        return record

    def _jumps(self, record: RecordHeader, last: LastRecord) -> bool:
        if last.offset < 0 or record.offset < 0:
            return False
        doubted = self._doubted.get(record.partition)
        if doubted is not None and record.offset > doubted:
            # The log goes on from there: this is how it counts.
            return False
        passed_us = max(0, record.appended_at_us - last.appended_at_us)
        return record.offset - last.offset > _RECORDS_PER_S * (1 + passed_us // _US)


def _count(deviations: dict[str, int], kind: str) -> None:
    deviations[kind] = deviations.get(kind, 0) + 1
