"""What the first record after a reconnect shows (A2), and a record that comes again on a connection
(A21): pure decisions over the durable position.

Three things can have happened, and the provider announces none of them (TR-548 5.2.9 step 4 leaves
it to the client to see it "in the first record received", ST-2.2 step 4):

- **continued**: the stream goes on behind the last committed record;
- **redelivered**: it goes on, and some committed records come again first (at-least-once);
- **restarted**: it began at the oldest record of its log, or of another log.

*Continued* is a proof, not the default. The first record of a partition proves it where it is our
last record again, or has the offset right behind ours. The second is no proof by itself where
something suggests that the provider was restarted meanwhile: a rebuilt log may stand there, too. A
snapshot (TR-548 3.19.2) may begin with our own last record: it proves nothing there.

Anything else is a *doubt*: a rebuilt log may begin at any place, and so may a log whose tail was
compacted. One look settles it, a **probe**: the oldest record of the log, read over a second
connection. If it lies at or before our position in its partition, the log still holds what we have
read, and the stream did not begin at its oldest record. The doubtful record itself, a later one, or
none at all is a restart. A log that still holds an old record is not one that was rebuilt.

Two things need no probe. A **new log** shows itself: a record that was appended after everything
committed lies at or before the last committed offset of its partition. And in a log without gaps an
offset that is left out is a record that was missed (**gap**, A18).

A stream that stays silent is probed as well where the log is compacted. The record of that probe is
kept: if it comes later on the stream, the stream had been restarted.

Each partition is checked by itself when its first record comes. A probe is about the whole stream:
a provider restarts no partition alone. In an attempt that was interrupted, a partition of which
nothing was read has nothing to go on from: its record proves nothing, and where no other partition
has proven it, that is a doubt, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from instep.model.columns import Columns
from instep.model.position import UNREACHABLE_OFFSET, Position, SweepBarrier
from instep.model.records import RecordHeader

__all__ = [
    "Continuity",
    "ContinuityCheck",
    "ContinuityFinding",
    "at_place_of_another",
    "classify",
    "ends_before",
    "is_gap",
    "is_new_log",
    "partition_of",
    "proves_continued",
    "same_record",
]


class Continuity(StrEnum):
    """What a record shows. The module explains each."""

    CONTINUED = "continued"
    REDELIVERED = "redelivered"
    DOUBTFUL = "nothing shows that the stream goes on where it was left"
    RESTARTED = "restarted"
    NEW_LOG = "another log"
    GAP = "records are missing"


class ContinuityFinding(NamedTuple):
    """What was found at a record."""

    continuity: Continuity
    record: RecordHeader


def partition_of(record: RecordHeader) -> str:
    """The partition of a record; a log without offsets counts as one nameless partition."""
    return record.partition if record.offset >= 0 else ""


def same_record(one: RecordHeader, other: RecordHeader) -> bool:
    """Whether two records are one record of the log."""
    if one.offset >= 0 and other.offset >= 0:
        return one.offset == other.offset and one.partition == other.partition
    return one.token == other.token


def classify(
    first: RecordHeader, position: Position, *, suggests_restart: bool = False
) -> Continuity:
    """Classify the first record of a partition after the stream was opened with a token (A2).

    `suggests_restart`: something between the two connections suggests that the provider was
    restarted.
    """
    if first.token == position.token and _is_unchanged(first, position):
        return Continuity.CONTINUED
    if is_new_log(first, position):
        return Continuity.NEW_LOG
    if first.offset >= 0 and position.offsets:
        known = _last_offset(first.partition, position)
        if first.partition not in position.offsets and position.unaligned_attempts:
            return Continuity.CONTINUED
        if first.offset == known + 1 and not suggests_restart:
            return Continuity.CONTINUED
    return Continuity.DOUBTFUL


def _is_unchanged(again: RecordHeader, position: Position) -> bool:
    """Whether the record with our token is the one that we know: a rebuilt log may give the token
    of a place to what stands there now. A TOMBSTONE may have the token of its DELETE.
    """
    known_us = position.appended_us.get(again.partition, again.appended_at_us)
    return again.appended_at_us == known_us or again.kind.ends_entity


def is_new_log(first: RecordHeader, position: Position) -> bool:
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
    ends = first.kind.ends_entity
    shared = ends and first.offset == committed and position.recently(first.token)
    return first.offset <= committed and not shared


def at_place_of_another(
    records: Sequence[RecordHeader], barrier: SweepBarrier
) -> RecordHeader | None:
    """A record at the very place where an attempt found the last one before it, and another one:
    then the log is another one, whatever its times. A TOMBSTONE may share the place of its DELETE.
    """
    if barrier.token is None or not records:
        return None
    first, last, goals = records[0], records[-1], barrier.offsets
    if isinstance(records, Columns):
        goal = goals.get(first.partition, -1)
        if not first.offset <= goal <= last.offset:
            return None
    for record in records:
        partition, at_us = record.partition, record.appended_at_us
        if record.offset < 0 or record.offset != goals.get(partition) or record.kind.ends_entity:
            continue
        other_token = len(goals) == 1 and record.token != barrier.token
        if other_token or at_us != barrier.appended_us.get(partition, at_us):
            return record
    return None


def ends_before(position: Position, barrier: SweepBarrier) -> bool:
    """Whether what an attempt has read ends before what was committed before it, in a partition;
    False where nothing is known of that.
    """
    if barrier.token is None:
        return False
    if not barrier.offsets:
        return position.appended_at_us < barrier.appended_at_us
    return any(
        position.offsets.get(partition, -1) < offset < UNREACHABLE_OFFSET
        for partition, offset in barrier.offsets.items()
    )


def _last_offset(partition: str, position: Position) -> int:
    """The offset of the last record of a partition that we know of; -1: it had none."""
    known = position.offsets.get(partition)
    if known is None and position.barrier.token is not None:
        known = position.barrier.offsets.get(partition)
    return -1 if known is None or known == UNREACHABLE_OFFSET else known


def is_gap(first: RecordHeader, position: Position, unreadable: int = 0) -> bool:
    """Whether a gapless log may have lost a record between the last known one and this one. So many
    unreadable texts that came between them have an offset each.
    """
    return first.offset > _last_offset(first.partition, position) + 1 + unreadable


def proves_continued(
    oldest: RecordHeader | None, doubtful: RecordHeader | None, position: Position
) -> bool:
    """Whether the oldest record of the log, as a probe has read it, proves that the stream was
    continued (A2): it lies at or before our position. `doubtful`: the record that the stream went
    on with, None: nothing came.
    """
    if oldest is None or (doubtful is not None and same_record(oldest, doubtful)):
        return False
    if oldest.token == position.token:
        return _is_unchanged(oldest, position)
    known_us = position.appended_us.get(oldest.partition, position.appended_at_us)
    if oldest.appended_at_us > known_us:
        return False
    if oldest.offset < 0 and not position.offsets:
        return True
    return 0 <= oldest.offset < position.offsets.get(oldest.partition, -1)


def _known_partitions(position: Position) -> set[str]:
    """The partitions of all that may be stored; also "", of records without one."""
    barrier = position.barrier
    known = (position.offsets, position.appended_us, barrier.offsets, barrier.appended_us)
    return {partition for each in known for partition in each} if position.offsets else set()


def _committed(record: RecordHeader, position: Position) -> bool:
    """Whether the record lies before the last committed one, as far as it shows. The last one
    itself does not: its place may be shared by a TOMBSTONE that was not seen yet.
    """
    if record.offset >= 0 and record.partition in position.offsets:
        return record.offset < position.offsets[record.partition]
    return record.token != position.token and position.recently(record.token)


class ContinuityCheck:
    """Classifies the first record of each partition after an opening, drops redelivered records,
    and finds what comes again on the connection.
    """

    def __init__(self) -> None:
        self._unseen: set[str] = set()
        """Partitions whose first record is still to come."""
        self._redelivering: set[str] = set()
        """Partitions of which committed records come again after the opening …"""
        self._returning: set[str] = set()
        """… or later on the connection."""
        self._proven = False
        """Whether a probe has shown that the stream was continued …"""
        self._shown = False
        """… or the first record of a partition that we know."""
        self._suspect: RecordHeader | None = None
        """The record of that probe, while nothing has come on the stream."""
        self._resumed = self._suggests_restart = self._gapless = self._snapshot = False
        self.heard = False
        """Whether a record came since the opening."""
        self._known: set[str] = set()
        """The partitions of all that may be stored."""

    def opened(
        self,
        position: Position,
        *,
        resumed: bool,
        gapless: bool = False,
        snapshot: bool = False,
        suggests_restart: bool = False,
    ) -> None:
        """The stream is open: after our token (`resumed`), or from its start, where only a new log
        is looked for. `gapless`: the log has no gap behind our position. `snapshot`: it may begin
        with a snapshot of current state, which shows no end.
        """
        self._resumed = resumed
        self._snapshot = snapshot and resumed
        self._gapless = gapless and resumed
        self._suggests_restart = suggests_restart
        self._redelivering.clear()
        self._returning.clear()
        self._proven, self._suspect, self.heard = not resumed, None, False
        self._shown = False
        self._known = _known_partitions(position)
        self._unseen = set(position.offsets)
        if position.barrier.token is not None:
            self._unseen.update(position.barrier.offsets)
        if resumed and not position.offsets:
            # A log without offsets has one nameless partition to watch.
            self._unseen.add("")

    @property
    def settled(self) -> bool:
        """Whether a record of every partition came and nothing is being delivered again."""
        return not self._unseen and not self._redelivering

    @property
    def unproven(self) -> bool:
        """Whether nothing has come yet that could show whether the stream was continued."""
        return not self._proven and not self.heard

    def begins_all(self, record: RecordHeader) -> bool:
        """Whether this record stands in the only partition of all that may be stored: a stream that
        begins at its oldest record there begins there as a whole.
        """
        return self._known <= {record.partition}

    def prove(self, oldest: RecordHeader, doubtful: RecordHeader | None) -> None:
        """A probe has shown that the stream was continued before `doubtful`; None: it is silent."""
        self._proven = True
        if doubtful is None:
            self._suspect = oldest
        elif self.settled:
            self._returning.add(partition_of(doubtful))

    def has_gap(
        self,
        records: Sequence[RecordHeader],
        position: Position,
        offsets: dict[str, int],
        unreadable: int = 0,
    ) -> bool:
        """Whether a gap may lie before the first of these records in a partition that had none in
        this attempt. `offsets`: the last offset of each partition after these records;
        `unreadable`: see `sift`.
        """
        if not self._gapless or len(offsets) == len(position.offsets):
            return False
        first: dict[str, RecordHeader] = {}
        for record in records:
            first.setdefault(record.partition, record)
        return any(
            is_gap(first[partition], position, unreadable)
            for partition in offsets.keys() - position.offsets.keys()
        )

    def sift(
        self,
        records: Sequence[RecordHeader],
        position: Position,
        *,
        young_us: int | None,
        unreadable: int = 0,
    ) -> tuple[list[RecordHeader], ContinuityFinding | None]:
        """Split off what was committed before. `young_us`: a position of before it shows no gap
        behind it; None: every position does. `unreadable`: so many texts came since the opening
        that may stand before these records.

        Returns the records to go on with, and the finding at the first record of a partition when
        it is anything but `CONTINUED`. Only with `REDELIVERED` are there records to be used.
        """
        kept: list[RecordHeader] = []
        found: ContinuityFinding | None = None
        for record in records:
            partition = partition_of(record)
            if partition in self._unseen:
                continuity = self._first(record, position, young_us, unreadable)
                if continuity not in (Continuity.CONTINUED, Continuity.REDELIVERED):
                    return [], ContinuityFinding(continuity, record)
                self._unseen.discard(partition)
                self._shown |= partition in position.offsets or not position.offsets
                if continuity is Continuity.REDELIVERED:
                    self._redelivering.add(partition)
                    found = ContinuityFinding(continuity, record)
            if partition in self._redelivering:
                if _committed(record, position):
                    continue
                self._redelivering.discard(partition)
            kept.append(record)
        # In a log without gaps `has_gap` looks at a partition of which nothing was read.
        gap = self._gapless and kept and is_gap(kept[0], position, unreadable)
        if kept and not (self._proven or self._shown or gap):
            return [], ContinuityFinding(Continuity.DOUBTFUL, kept[0])
        self.heard = True
        self._suspect = None
        return kept, found

    def _first(
        self, record: RecordHeader, position: Position, young_us: int | None, unreadable: int
    ) -> Continuity:
        if self._suspect is not None and same_record(record, self._suspect):
            return Continuity.RESTARTED
        found = classify(record, position, suggests_restart=self._suggests_restart)
        begins = not record.kind.ends_entity and record.token == position.token
        if self._snapshot and found is Continuity.CONTINUED and begins:
            return Continuity.DOUBTFUL
        known_us = position.appended_us.get(record.partition, 0)
        gapless = self._gapless or (young_us is not None and known_us > young_us and self._resumed)
        if gapless and found is not Continuity.NEW_LOG and is_gap(record, position, unreadable):
            return Continuity.GAP
        if found is Continuity.DOUBTFUL and self._proven:
            again = _committed(record, position)
            return Continuity.REDELIVERED if again else Continuity.CONTINUED
        return found

    def came_again(
        self, records: Sequence[RecordHeader], position: Position
    ) -> RecordHeader | None:
        """The first of these records that says itself that it was there before: by its offset, or
        by its token (A21).
        """
        offsets, returning = position.offsets, self._returning
        new: tuple[str, int] | None = None
        # Offsets grow in columns.
        for record in records[:1] if isinstance(records, Columns) else records:
            partition, offset = record.partition, record.offset
            if (partition, offset) == new:
                # Of the same message.
                continue
            if offset > offsets.get(partition, -1):
                if returning:
                    returning.discard(partition)
                new = partition, offset
                continue
            if offset >= 0 and offset == offsets[partition]:
                # Sent twice; or a TOMBSTONE that has the place of its DELETE.
                again = not record.kind.ends_entity and not position.recently(record.token)
            elif offset >= 0:
                again = True
            else:
                again = _committed(record, position)
            partition = partition_of(record)
            if again and partition not in returning:
                return record
            if not again and offset < 0:
                returning.discard(partition)
        return None
