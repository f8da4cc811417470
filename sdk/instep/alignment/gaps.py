"""Gaps between the offsets of a partition: records that we have missed (A18). Pure.

Where a log is never compacted between its ends, its offsets have no gaps. Nor have those of a
compacted log above its compaction delay: what lies behind a record that is younger than the delay
is still there. So an offset that is left out between two records that we have read is a loss.

A record without offset may have had any of them: nothing is told across it. Each text that could
not be read may have been one record, and explains one offset, once. A DELETE and its TOMBSTONE may
share an offset.

Some providers leave offsets out although nothing is lost. Gaps do not say so; what an attempt finds
does. Where two attempts that a gap has called for have found nothing gone, the offsets are
**sparse**: from then on gaps cost few attempts, and the fewer, the more of them there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instep.model.columns import Columns
from instep.model.position import ContinuityState, Phase, Position
from instep.model.records import RecordHeader

__all__ = ["GapDetector", "gap_due", "is_sparse"]

_US: Final = 1_000_000
_FRUITLESS: Final = 2
"""Attempts in a row that a gap called for, and that found nothing gone, until offsets are taken for
sparse.
"""
_KEPT: Final = 1_000
"""Most texts that could not be read and may explain an offset later."""
_LONGEST_S: Final = 3_600.0
"""Longest time between attempts that are called for by the gaps of sparse offsets."""


def is_sparse(state: ContinuityState) -> bool:
    """Whether offsets are left out where nothing is lost, as far as was learned."""
    return state.fruitless_gaps >= _FRUITLESS


def gap_due(position: Position, least_s: float, now_us: int) -> bool:
    """Whether an attempt begins now because of gaps (A18). Sparse offsets call for one at most
    every `least_s`, twice as seldom with each gap since the last one, up to an hour.
    """
    state = position.continuity
    if not state.gaps or position.phase is not Phase.ALIGNED:
        return False
    if not is_sparse(state):
        return True
    wait_s = min(least_s * 2.0 ** min(state.gaps, 30), _LONGEST_S)
    return now_us - position.attempt_started_at_us >= wait_s * _US


class GapDetector:
    """Finds gaps in what is read of one stream, over all its connections."""

    def __init__(self) -> None:
        self._offsetless = 0
        """How many records came without offset …"""
        self._unreadable = 0
        """… and how many texts that could not be read, both since the beginning …"""
        self._seen: dict[str, tuple[int, int]] = {}
        """… and until the last record of each partition."""
        self._unexplained: list[int] = []
        """The texts that could not be read and explain no offset so far, by their number."""

    @property
    def adjoins(self) -> bool:
        """Whether no record without offset came behind the last record of each partition."""
        return all(offsetless == self._offsetless for offsetless, _ in self._seen.values())

    def add_unreadable(self, unreadable: int) -> None:
        """So many texts came that could not be read."""
        if unreadable:
            self._unreadable += unreadable
            begin = self._unreadable - min(unreadable, _KEPT)
            self._unexplained += range(begin + 1, self._unreadable + 1)
            del self._unexplained[:-_KEPT]

    def missing(
        self,
        records: Sequence[RecordHeader],
        unreadable: int,
        position: Position,
        *,
        young_us: int | None,
    ) -> str:
        """What is missing before or between these records; empty: nothing.

        `position` covers what was read before them. `young_us`: a record appended before it shows
        no gap behind it; None: every record does. `unreadable`: how many texts came with them.
        """
        self.add_unreadable(unreadable)
        last = records[-1]
        single = len(position.offsets) <= 1
        # A log that is being read from its oldest record: all of it is old.
        old = young_us is not None and last.appended_at_us <= young_us
        # The usual cases, without a loop.
        if last.offset >= 0 and (old or (single and _are_next(records, position))):
            if single:
                self._note(last.partition, unreadable)
            return ""
        return self._between(records, unreadable, position, young_us)

    def _note(self, partition: str, unreadable: int) -> None:
        """A record of the partition was read. What came with it may have stood behind it."""
        self._seen[partition] = self._offsetless, self._unreadable - unreadable

    def _between(
        self,
        records: Sequence[RecordHeader],
        unreadable: int,
        position: Position,
        young_us: int | None,
    ) -> str:
        """The same, record by record (A18)."""
        offsets, appended_us = dict(position.offsets), position.appended_us
        last_us: dict[str, int] = {}
        missing = ""
        for record in records:
            partition, offset = record.partition, record.offset
            if offset < 0:
                self._offsetless += 1
                continue
            known = offsets.get(partition)
            if known is not None and offset > known + 1 and not missing:
                before_us = last_us.get(partition, appended_us.get(partition, 0))
                young = young_us is None or before_us > young_us
                if young and not self._excused(partition, offset - known - 1, position):
                    missing = _text(partition, known, offset)
            if known is None or offset > known:
                offsets[partition] = offset
                last_us[partition] = record.appended_at_us
            self._note(partition, unreadable)
        return missing

    def _excused(self, partition: str, missing: int, position: Position) -> bool:
        """Whether what came since the last record of the partition may be all that is missing.
        What explains it now explains nothing else.
        """
        # What another process has read is not known: its records without offset are shown.
        unknown = -1 if "" in position.appended_us and partition else 0
        offsetless, unreadable = self._seen.get(partition, (unknown, 0))
        if offsetless != self._offsetless:
            return True
        found = [number for number in self._unexplained if number > unreadable][:missing]
        if len(found) < missing:
            return False
        for number in found:
            self._unexplained.remove(number)
        return True


def _are_next(records: Sequence[RecordHeader], position: Position) -> bool:
    """Whether the records of the only partition are those right behind the position, if any."""
    last, offsets = records[-1], position.offsets
    known = offsets.get(last.partition) if offsets else records[0].offset - 1
    if known is None or last.offset - known != len(records):
        return False
    # Of columns, every offset is here once.
    return isinstance(records, Columns) or len(records) == 1


def _text(partition: str, known: int, offset: int) -> str:
    missing = offset - known - 1
    what = "1 record is" if missing == 1 else f"{missing:,} records are"
    of = f" of partition {partition}" if partition else ""
    return f"{what} missing before offset {offset:,}{of}: the last one was {known:,}"
