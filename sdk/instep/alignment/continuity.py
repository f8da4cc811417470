"""What the first record after a reconnect tells (A2): a pure decision over what is
durable.

Three things can have happened, and the provider announces none of them (TR-548 5.2.9 step 4 leaves
it to the client to see it "in the first record received", ST-2.2 step 4):

- **continued**: the record lies after the last committed one of its partition;
- **rewound**: it is one of those committed a moment ago (at-least-once redelivery), and it cannot
  be the
  oldest record of the log, because an entity is stored whose record lies before it;
- **restarted**: anything else that is not after the last committed one.

In a log that is cut off at its old end, and never compacted between, an offset that is left out is
one that we missed (**hole**): each partition is looked at by itself, whenever its first record
comes. Where none of its records is known, only offset 0 shows that none is left out: no other
partition can tell it, nor that this one has ended entities whose records are gone.

Another is seen on the way: **another log**, where a record lies at or before the last committed
offset of its partition and yet was appended after everything committed. No log can state that of
itself: it was lost and rebuilt, and its append times say nothing about ours (A3). This is
looked for on a stream opened from its start too: whatever called for that attempt, the log may have
been lost meanwhile. A rebuilt log that has passed our last offset is not seen, and need not be: all
of it is newer than what is stored, by offset as by time.

Being wrong is not symmetric. "Restarted" costs a reading of the log; "rewound" taken for a restart
that was none would sweep live entities away. So a restart is only a reason to open the stream
*from the oldest record*: an attempt is never based on this guess, only on a stream opened without
a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from instep.model.position import Position, SweepBarrier
from instep.model.records import RecordHeader

__all__ = ["Continuity", "ContinuityCheck", "classify", "is_gap", "partition_of"]


class Continuity(StrEnum):
    """What the first record of a partition tells."""

    CONTINUED = "continued"
    REDELIVERED = "rewound"
    RESTARTED = "restarted"
    NEW_LOG = "another log"
    GAP = "records have left the log"
    """It goes on behind records that a gapless log may have lost before we came to them."""
    UNDECIDED = "undecided"
    """Rewound or restarted: it depends on whether an entity is stored from before this record."""


def classify(
    first: RecordHeader, position: Position, *, has_older_entity: bool | None = None
) -> Continuity:
    """Classify the first record of a partition after the stream was opened with a token.

    `has_older_entity` answers whether an entity of this lineage is stored whose record lies before
    `first` in its partition; it is only needed (and worth a look into the store) when the answer
    without it is `UNDECIDED`.
    """
    if first.token == position.token:
        return Continuity.CONTINUED
    if _of_new_log(first, position):
        return Continuity.NEW_LOG
    committed = position.offsets.get(first.partition)
    if committed is not None and first.offset >= 0:
        # Equal counts as after: a DELETE and its TOMBSTONE may share one token and offset.
        if first.offset >= committed:
            return Continuity.CONTINUED
    elif committed is None and position.offsets and first.offset >= 0:
        # A partition that had nothing yet: had the stream restarted, another partition will tell.
        return Continuity.CONTINUED
    elif first.appended_at_us >= position.appended_at_us and not position.recently(first.token):
        return Continuity.CONTINUED
    if not position.recently(first.token):
        return Continuity.RESTARTED
    if has_older_entity is None:
        return Continuity.UNDECIDED
    return Continuity.REDELIVERED if has_older_entity else Continuity.RESTARTED


def _of_new_log(first: RecordHeader, position: Position) -> bool:
    partition = first.partition
    before: Position | SweepBarrier = position
    if partition not in position.offsets and position.barrier.token is not None:
        # Not yet heard in this attempt: it is compared with what was committed before it.
        before = position.barrier
    committed = before.offsets.get(partition)
    # Other partitions say nothing: one of the new log may have been committed already.
    newest_us = before.appended_us.get(partition, before.appended_at_us)
    if committed is None or first.offset < 0 or first.appended_at_us <= newest_us:
        return False
    shared = first.offset == committed and position.recently(first.token)
    return first.offset <= committed and not shared


def partition_of(record: RecordHeader) -> str:
    """The partition that a record tells of: where there are no offsets, all are one."""
    return record.partition if record.offset >= 0 else ""


def is_gap(first: RecordHeader, position: Position) -> bool:
    """Whether a gapless log may have lost something between what we know and this record."""
    known = position.offsets.get(first.partition)
    if known is None and position.barrier.token is not None:
        known = position.barrier.offsets.get(first.partition)
    return first.offset > (-1 if known is None else known) + 1


class ContinuityCheck:
    """Watches for the first record of each partition after an opening, and drops what is delivered
    again.
    """

    def __init__(self) -> None:
        self._unseen: set[str] = set()
        """Partitions whose first record is still to come."""
        self._redelivering: set[str] = set()
        self._probe_answers: dict[str, bool] = {}
        self._gapless = False

    def opened(self, position: Position, *, resumed: bool, gapless: bool) -> None:
        """The stream is open: after our token (`resumed`), or from its start, where only another
        log is to be told.
        """
        self._gapless = gapless and resumed
        self._probe_answers.clear()
        self._redelivering.clear()
        self._unseen = set(position.offsets)
        if position.barrier.token is not None:
            self._unseen.update(position.barrier.offsets)
        if resumed and not position.offsets:
            # A log without offsets has one nameless partition to watch.
            self._unseen.add("")

    def probe_answered(self, partition: str, *, has_older_entity: bool) -> None:
        """Whether the store holds an entity from before the first record of this partition."""
        self._probe_answers[partition] = has_older_entity

    @property
    def settled(self) -> bool:
        """Whether every partition was heard and nothing is being delivered again."""
        return not self._unseen and not self._redelivering

    def has_gap(
        self, records: Sequence[RecordHeader], position: Position, offsets: dict[str, int]
    ) -> bool:
        """Whether a hole may lie before the first of these in a partition that was not heard in
        this attempt. `offsets`: where the partitions stand after these records.
        """
        if not self._gapless or len(offsets) == len(position.offsets):
            return False
        first: dict[str, RecordHeader] = {}
        for record in records:
            first.setdefault(record.partition, record)
        return any(
            is_gap(first[partition], position)
            for partition in offsets.keys() - position.offsets.keys()
        )

    def sift(
        self, records: Sequence[RecordHeader], position: Position
    ) -> tuple[list[RecordHeader], tuple[Continuity, RecordHeader] | None]:
        """Split off what was committed before.

        Returns the records to go on with, and what was found at the first record of a partition
        when it is anything but `CONTINUED`. Only with `REDELIVERED` are there records to be used.
        """
        kept: list[RecordHeader] = []
        found: tuple[Continuity, RecordHeader] | None = None
        for record in records:
            partition = partition_of(record)
            if partition in self._unseen:
                continuity = classify(
                    record, position, has_older_entity=self._probe_answers.get(partition)
                )
                if self._gapless and is_gap(record, position):
                    continuity = Continuity.GAP
                if continuity not in (Continuity.CONTINUED, Continuity.REDELIVERED):
                    return [], (continuity, record)
                self._unseen.discard(partition)
                if continuity is Continuity.REDELIVERED:
                    self._redelivering.add(partition)
                    found = (continuity, record)
            if partition in self._redelivering:
                if self._committed(record, position):
                    continue
                self._redelivering.discard(partition)
            kept.append(record)
        return kept, found

    @staticmethod
    def _committed(record: RecordHeader, position: Position) -> bool:
        if record.offset >= 0 and record.partition in position.offsets:
            # The last one itself is let through: its offset may be shared by a TOMBSTONE not yet
            # seen.
            return record.offset < position.offsets[record.partition]
        return record.token != position.token and position.recently(record.token)
