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

from instep.position import Position, Reference
from instep.records import Statement

__all__ = ["Arrival", "Arrivals", "classify", "is_hole", "watched"]


class Arrival(StrEnum):
    """What the first record of a partition tells."""

    CONTINUED = "continued"
    REWOUND = "rewound"
    RESTARTED = "restarted"
    ANOTHER_LOG = "another log"
    HOLE = "records have left the log"
    """It goes on behind records that a gapless log may have lost before we came to them."""
    UNDECIDED = "undecided"
    """Rewound or restarted: it depends on whether an entity is stored from before this record."""


def classify(first: Statement, position: Position, *, holds_before: bool | None = None) -> Arrival:
    """Classify the first record of a partition after the stream was opened with a token.

    `holds_before` answers whether an entity of this lineage is stored whose record lies before
    `first` in its partition; it is only needed (and worth a look into the store) when the answer
    without it is `UNDECIDED`.
    """
    if first.token == position.token:
        return Arrival.CONTINUED
    if _of_another_log(first, position):
        return Arrival.ANOTHER_LOG
    committed = position.offsets.get(first.partition)
    if committed is not None and first.offset >= 0:
        # Equal counts as after: a DELETE and its TOMBSTONE may share one token and offset.
        if first.offset >= committed:
            return Arrival.CONTINUED
    elif committed is None and position.offsets and first.offset >= 0:
        # A partition that had nothing yet: had the stream restarted, another partition will tell.
        return Arrival.CONTINUED
    elif first.appended_at_us >= position.appended_at_us and not position.recently(first.token):
        return Arrival.CONTINUED
    if not position.recently(first.token):
        return Arrival.RESTARTED
    if holds_before is None:
        return Arrival.UNDECIDED
    return Arrival.REWOUND if holds_before else Arrival.RESTARTED


def _of_another_log(first: Statement, position: Position) -> bool:
    partition = first.partition
    before: Position | Reference = position
    if partition not in position.offsets and position.reference.token is not None:
        # Not yet heard in this attempt: it is compared with what was committed before it.
        before = position.reference
    committed = before.offsets.get(partition)
    # Other partitions say nothing: one of the new log may have been committed already.
    newest_us = before.appended_us.get(partition, before.appended_at_us)
    if committed is None or first.offset < 0 or first.appended_at_us <= newest_us:
        return False
    shared = first.offset == committed and position.recently(first.token)
    return first.offset <= committed and not shared


def watched(record: Statement) -> str:
    """The partition that a record tells of: where there are no offsets, all are one."""
    return record.partition if record.offset >= 0 else ""


def is_hole(first: Statement, position: Position) -> bool:
    """Whether a gapless log may have lost something between what we know and this record."""
    known = position.offsets.get(first.partition)
    if known is None and position.reference.token is not None:
        known = position.reference.offsets.get(first.partition)
    return first.offset > (-1 if known is None else known) + 1


class Arrivals:
    """Watches for the first record of each partition after an opening, and drops what is delivered
    again.
    """

    def __init__(self) -> None:
        self._unseen: set[str] = set()
        """Partitions whose first record is still to come."""
        self._rewound: set[str] = set()
        self._evidence: dict[str, bool] = {}
        self._gapless = False

    def opened(self, position: Position, *, resumed: bool, gapless: bool) -> None:
        """The stream is open: after our token (`resumed`), or from its start, where only another
        log is to be told.
        """
        self._gapless = gapless and resumed
        self._evidence.clear()
        self._rewound.clear()
        self._unseen = set(position.offsets)
        if position.reference.token is not None:
            self._unseen.update(position.reference.offsets)
        if resumed and not position.offsets:
            # A log without offsets has one nameless partition to watch.
            self._unseen.add("")

    def evidence(self, partition: str, *, holds_before: bool) -> None:
        """Whether the store holds an entity from before the first record of this partition."""
        self._evidence[partition] = holds_before

    @property
    def settled(self) -> bool:
        """Whether every partition was heard and nothing is being delivered again."""
        return not self._unseen and not self._rewound

    def hole(
        self, records: Sequence[Statement], position: Position, offsets: dict[str, int]
    ) -> bool:
        """Whether a hole may lie before the first of these in a partition that was not heard in
        this attempt. `offsets`: where the partitions stand after these records.
        """
        if not self._gapless or len(offsets) == len(position.offsets):
            return False
        first: dict[str, Statement] = {}
        for record in records:
            first.setdefault(record.partition, record)
        return any(
            is_hole(first[partition], position)
            for partition in offsets.keys() - position.offsets.keys()
        )

    def sift(
        self, records: Sequence[Statement], position: Position
    ) -> tuple[list[Statement], tuple[Arrival, Statement] | None]:
        """Split off what was committed before.

        Returns the records to go on with, and what was found at the first record of a partition
        when it is anything but `CONTINUED`. Only with `REWOUND` are there records to be used.
        """
        kept: list[Statement] = []
        found: tuple[Arrival, Statement] | None = None
        for record in records:
            partition = watched(record)
            if partition in self._unseen:
                arrival = classify(record, position, holds_before=self._evidence.get(partition))
                if self._gapless and is_hole(record, position):
                    arrival = Arrival.HOLE
                if arrival not in (Arrival.CONTINUED, Arrival.REWOUND):
                    return [], (arrival, record)
                self._unseen.discard(partition)
                if arrival is Arrival.REWOUND:
                    self._rewound.add(partition)
                    found = (arrival, record)
            if partition in self._rewound:
                if self._committed(record, position):
                    continue
                self._rewound.discard(partition)
            kept.append(record)
        return kept, found

    @staticmethod
    def _committed(record: Statement, position: Position) -> bool:
        if record.offset >= 0 and record.partition in position.offsets:
            # The last one itself is let through: its offset may be shared by a TOMBSTONE not yet
            # seen.
            return record.offset < position.offsets[record.partition]
        return record.token != position.token and position.recently(record.token)
