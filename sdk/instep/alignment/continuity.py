"""What the first record after a reconnect shows (A2): a pure decision over the durable position.

Three things can have happened, and the provider announces none of them (TR-548 5.2.9 step 4 leaves
it to the client to see it "in the first record received", ST-2.2 step 4):

- **continued**: the record lies after the last committed one of its partition;
- **redelivered**: the record was committed a moment ago (at-least-once), and it cannot be the
  oldest record of the log, because an entity is stored whose record lies before it;
- **restarted**: anything else that is not after the last committed one.

A TRUNCATED log is cut off at its old end and never compacted between. There, an offset that is left
out is a record that we missed (**gap**). Each partition is checked by itself when its first record
comes. Where none of its records is known, only offset 0 shows that nothing is missing.

A fourth case is found as well: a **new log**. A record lies at or before the last committed offset
of its partition, yet was appended after everything committed. No log can hold such a record: it was
lost and rebuilt, and its append times cannot be compared with ours (A3). This is checked on a
stream opened from its start too, because the log may have been lost whatever called for the
attempt. A rebuilt log that has passed our last offset is not found, and need not be: all of it is
newer than what is stored, by offset as by time.

The two mistakes do not cost the same. A needless "restarted" costs a reading of the log; a
redelivery taken for an attempt would sweep live entities away. So a restart is only a reason to
open the stream *from the oldest record*: an attempt is never based on this guess.

Where more than a guess is possible, no second connection is needed. If no entity is stored whose
record lies before the first record of the connection, then whatever the stream goes on with
contains the last record of each stored entity: for an attempt, it began **at its oldest record**.
Only a log of one partition can prove that, since another partition may have gone on after our
token; only by offsets, since an append time may be shared; and only of whole entities, since a
change may have others before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from instep.model.position import Position, SweepBarrier
from instep.model.records import RecordHeader, RecordType

__all__ = ["Continuity", "ContinuityCheck", "classify", "is_gap", "partition_of"]


class Continuity(StrEnum):
    """What the first record of a partition shows. The module explains each."""

    CONTINUED = "continued"
    REDELIVERED = "redelivered"
    RESTARTED = "restarted"
    RESTARTED_AT_OLDEST = "restarted at its oldest record"
    NEW_LOG = "another log"
    GAP = "records have left the log"
    """The partition goes on behind records that a gapless log may have lost before we read them."""
    UNDECIDED = "undecided"
    """Redelivered or restarted: it depends on whether an entity is stored from before this record.
    """


def classify(
    first: RecordHeader, position: Position, *, has_older_entity: bool | None = None
) -> Continuity:
    """Classify the first record of a partition after the stream was opened with a token (A2).

    `has_older_entity` answers whether an entity of this lineage is stored whose record lies before
    `first` in its partition; it is only needed (and worth a query of the store) when the answer
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
        # A partition that had nothing yet: had the stream restarted, another partition will show
        # it.
        return Continuity.CONTINUED
    elif first.appended_at_us >= position.appended_at_us and not position.recently(first.token):
        return Continuity.CONTINUED
    if not position.recently(first.token):
        return Continuity.RESTARTED
    if has_older_entity is None:
        return Continuity.UNDECIDED
    return Continuity.REDELIVERED if has_older_entity else Continuity.RESTARTED


def _of_new_log(first: RecordHeader, position: Position) -> bool:
    """Whether the provider has lost its log, in an upgrade for example, and began another one
    (ST-1.3): a record that was appended later stands no further than the last one committed.
    """
    partition = first.partition
    before: Position | SweepBarrier = position
    if partition not in position.offsets and position.barrier.token is not None:
        # No record of it came in this attempt: compare with what was committed before the attempt.
        before = position.barrier
    committed = before.offsets.get(partition)
    # Other partitions prove nothing: one of the new log may have been committed already.
    newest_us = before.appended_us.get(partition, before.appended_at_us)
    if committed is None or first.offset < 0 or first.appended_at_us <= newest_us:
        return False
    shared = first.offset == committed and position.recently(first.token)
    return first.offset <= committed and not shared


def partition_of(record: RecordHeader) -> str:
    """The partition of a record; a log without offsets counts as one nameless partition."""
    return record.partition if record.offset >= 0 else ""


def is_gap(first: RecordHeader, position: Position) -> bool:
    """Whether a gapless log may have lost a record between the last known one and this one."""
    known = position.offsets.get(first.partition)
    if known is None and position.barrier.token is not None:
        known = position.barrier.offsets.get(first.partition)
    return first.offset > (-1 if known is None else known) + 1


def _known_partitions(position: Position) -> set[str]:
    """The partitions of all that may be stored; also "", of records without one."""
    barrier = position.barrier
    known = (position.offsets, position.appended_us, barrier.offsets, barrier.appended_us)
    return {partition for each in known for partition in each} if position.offsets else set()


def _proven(has_older_entity: bool | None) -> Continuity:  # noqa: FBT001 - internal
    """Of a restarted stream: whether it began at its oldest record (A2)."""
    if has_older_entity is None:
        return Continuity.UNDECIDED
    return Continuity.RESTARTED if has_older_entity else Continuity.RESTARTED_AT_OLDEST


def _is_last(record: RecordHeader, position: Position) -> bool:
    """Whether this is the record that was committed last in its partition."""
    committed = position.offsets.get(record.partition)
    if committed is None or record.offset < 0:
        return record.token == position.token
    return record.offset == committed


def _leaves_out(before: RecordHeader, record: RecordHeader, position: Position) -> bool:
    """Whether two records that come again one after the other have others between them in the log.
    A redelivery repeats all of the log, a snapshot shows each entity once.
    """
    if record.token == before.token:
        return False
    if len(_known_partitions(position)) > 1:
        # Tokens of several partitions were committed in turn: only offsets tell neighbours.
        return record.offset > before.offset + 1
    return not position.recently(before.token, record.token)


def _may_begin_snapshot(first: RecordHeader, position: Position) -> bool:
    """Whether the first record is our last one again: it may as well be the oldest that a snapshot
    still holds. A snapshot shows no end.
    """
    return first.kind is RecordType.CREATE_UPDATE and _is_last(first, position)


class ContinuityCheck:
    """Classifies the first record of each partition after an opening, and drops redelivered
    records.
    """

    def __init__(self) -> None:
        self._unseen: set[str] = set()
        """Partitions whose first record is still to come."""
        self._redelivering: dict[str, RecordHeader] = {}
        """Partitions of which committed records come again, and the last one that came."""
        self._probe_answers: dict[str, bool] = {}
        self._gapless = False
        self._provable = False
        """Whether this connection has delivered nothing yet, and its log can prove where it begins.
        """
        self._snapshot = False

    def opened(
        self,
        position: Position,
        *,
        resumed: bool,
        gapless: bool,
        provable: bool = False,
        snapshot: bool = False,
    ) -> None:
        """The stream is open: after our token (`resumed`), or from its start, where only a new log
        is looked for. `gapless`: the log is never compacted between its ends. `provable`: it states
        whole entities, and keeps the last record of each. `snapshot`: it may begin with a snapshot
        of current state, which shows no end.
        """
        self._snapshot = snapshot
        self._gapless = gapless and resumed
        self._provable = provable and resumed and len(_known_partitions(position)) == 1
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
        """Whether a record of every partition came and nothing is being delivered again."""
        return not self._unseen and not self._redelivering

    def has_gap(
        self, records: Sequence[RecordHeader], position: Position, offsets: dict[str, int]
    ) -> bool:
        """Whether a gap may lie before the first of these records in a partition that had none in
        this attempt. `offsets`: the last offset of each partition after these records.
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

        Returns the records to go on with, and the finding at the first record of a partition when
        it is anything but `CONTINUED`. Only with `REDELIVERED` are there records to be used.
        """
        kept: list[RecordHeader] = []
        found: tuple[Continuity, RecordHeader] | None = None
        for index, record in enumerate(records):
            partition = partition_of(record)
            if partition in self._unseen:
                older = self._probe_answers.get(partition)
                continuity = classify(record, position, has_older_entity=older)
                if self._snapshot and _may_begin_snapshot(record, position):
                    continuity = Continuity.RESTARTED
                if self._gapless and is_gap(record, position):
                    continuity = Continuity.GAP
                elif continuity is Continuity.RESTARTED and self._provable and index == 0:
                    continuity = _proven(older)
                if continuity not in (Continuity.CONTINUED, Continuity.REDELIVERED):
                    return [], (continuity, record)
                self._unseen.discard(partition)
                if continuity is Continuity.REDELIVERED:
                    self._redelivering[partition] = record
                    found = (continuity, record)
            before = self._redelivering.get(partition)
            if before is not None:
                if self._snapshot and _leaves_out(before, record, position):
                    # This was the beginning of a snapshot, which leaves out what has ended while we
                    # were away, too.
                    return [], (Continuity.RESTARTED, record)
                self._redelivering[partition] = record
                if self._committed(record, position):
                    continue
                del self._redelivering[partition]
                if self._snapshot and not _is_last(record, position):
                    # So it was: our last record did not come again.
                    return [], (Continuity.RESTARTED, record)
            kept.append(record)
        self._provable = False
        return kept, found

    @staticmethod
    def _committed(record: RecordHeader, position: Position) -> bool:
        if record.offset >= 0 and record.partition in position.offsets:
            # The last one itself is let through: its offset may be shared by a TOMBSTONE not yet
            # seen.
            return record.offset < position.offsets[record.partition]
        return record.token != position.token and position.recently(record.token)
