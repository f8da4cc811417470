"""When a sweep is due (A5): where the partitions of a stream stand, and whether an attempt has
seen enough. Pure.

A log that emulates compaction begins with a snapshot of current state (TR-548 3.19.2), read page by
page while it changes: an entity that has changed comes with its new time before older entities that
have not, and looks like the head of the log. Nothing marks the end of the snapshot. Three things
show that the end has passed:

- an end that was appended since the opening: current state holds none;
- the first record that was appended since the opening comes again: the log repeats what the
  snapshot has shown, and a snapshot shows an entity once;
- for long, all that came was appended a moment ago: since the opening, and not waiting to be read.

A silence shows it too, as it does in every log.

A provider may begin anew without closing the connection (TR-548 5.8), and a snapshot does not state
what has ended before it. Two things show that: what the snapshot has shown comes again, although it
was appended before the opening, so that the log behind it does not hold it; and, once the snapshot
is over, an offset that goes back, because a log is in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import le

from instep.alignment.plausibility import LastRecord, PlausibilityCheck
from instep.alignment.settings import AlignmentSettings
from instep.model.columns import Columns
from instep.model.position import UNREACHABLE_OFFSET, Phase, Position
from instep.model.records import RecordHeader
from instep.model.streams import Mode, StreamInfo

__all__ = ["PartitionProgress", "SnapshotEndDetector"]


_Identity = tuple[str, str, int, int]
_SHOWN_RECORDS = 1_000
"""Records of a snapshot that are remembered: one that begins anew states nearly all of them."""
_CLOCK_STEP_US = 1_000_000
"""Some providers date their records to the second."""


class SnapshotEndDetector:
    """Decides when the snapshot at the beginning of an emulated log has ended (TR-548 3.19.2).

    Times are in microseconds.
    """

    def __init__(self, opened_us: int, late_us: int, *, error_us: int = 0) -> None:
        """`opened_us` is not before the opening, and at most `error_us` behind it."""
        self._opened_us = opened_us
        self._before_us = opened_us - error_us - _CLOCK_STEP_US
        """What was appended before this was appended before the opening."""
        self._late_us = late_us
        self.old_us = opened_us
        """When a record last came that was appended before the opening, or came late."""
        self.ended = False
        """Whether a record has shown that the snapshot is over."""
        self._first: _Identity | None = None
        """The first record appended since the opening."""
        self._last: _Identity | None = None
        self.begins_anew = False
        """Whether the stream was begun anew on the connection."""
        self._shown: set[_Identity] = set()
        """The first records that were appended before the opening."""
        self._last_shown: _Identity | None = None
        """The last record, if it was."""
        self._offsets: dict[str, int] = {}
        """The last offset of each partition, since the snapshot is over."""

    def follow(
        self, records: Sequence[RecordHeader], now_us: int, *, is_over: bool = False
    ) -> None:
        """Note records that came at `now_us`. `is_over`: the snapshot is taken to have ended."""
        self.ended = self.ended or is_over
        if isinstance(records, Columns) and records[0].appended_at_us >= self._before_us:
            # Their times do not go back: none is old.
            self._last_shown = None
        else:
            self._look_for_old(records)
        if self.ended:
            self._look_for_order(records)
            return
        if isinstance(records, Columns) and records[-1].appended_at_us <= self._opened_us:
            # Their times do not go back: all are old, and only the last one is remembered.
            records = records[-1:]
        for record in records:
            identity = (record.key, record.partition, record.offset, record.appended_at_us)
            if record.appended_at_us <= self._opened_us or self._last is None:
                self.old_us = now_us
            else:
                # Twice in a row is no repetition, but a frame that was sent twice.
                repeats = identity == self._first and identity != self._last
                self.ended = self.ended or repeats or record.kind.ends_entity
            if record.appended_at_us < now_us - self._late_us:
                # The pages of a snapshot may come slowly. Then time says nothing of their end.
                self.old_us = now_us
            if record.appended_at_us > self._opened_us:
                self._first = self._first or identity
            self._last = identity

    def _look_for_old(self, records: Sequence[RecordHeader]) -> None:
        """Remember records of before the opening, and find one that was there before."""
        for record in records:
            if record.appended_at_us >= self._before_us:
                self._last_shown = None
                continue
            identity = (record.key, record.partition, record.offset, record.appended_at_us)
            if identity not in self._shown:
                if len(self._shown) < _SHOWN_RECORDS:
                    self._shown.add(identity)
            elif identity != self._last_shown:
                # Twice in a row is a frame that was sent twice.
                self.begins_anew = True
            self._last_shown = identity

    def _look_for_order(self, records: Sequence[RecordHeader]) -> None:
        """Find a record that stands before the last one of its partition."""
        for record in records[:1] + records[-1:] if isinstance(records, Columns) else records:
            if 0 <= record.offset < self._offsets.get(record.partition, -1):
                self.begins_anew = True
            self._offsets[record.partition] = record.offset


_US = 1_000_000


_FOR_EVER_US = 1 << 62


class PartitionProgress:
    """How far the stream was read since its opening, partition by partition.

    Partitions are fed in no particular order (TR-548 6.1.4): one that is at its head proves nothing
    about another that is still replaying, so each must have passed the barrier by itself.
    """

    def __init__(self, stream: StreamInfo, settings: AlignmentSettings) -> None:
        self.newest_us = 0
        self.oldest_us = 0
        """Append time of the oldest record that the last delivery brought for the first time."""
        self._settings = settings
        delay_s = stream.compaction_delay_s
        self._compaction_delay_us = int(
            (settings.assumed_compaction_delay_s if delay_s is None else delay_s) * _US
        )
        self.appended_us: dict[str, int] = {}
        """Append time of the last record, by partition, in this attempt."""
        self._heard_us: dict[str, int] = {}
        self._last_heard_us = 0
        self._opened_us = 0
        self._clock_error_us = 0
        self._may_start_with_snapshot = stream.may_start_with_snapshot
        self._is_log = stream.mode is Mode.LOG
        self._snapshot: SnapshotEndDetector | None = None
        """The snapshot that the log may begin with in this attempt."""
        self._listened_us = (0, _FOR_EVER_US)
        self._shown = False
        """Whether the baseline has shown every entity before the first record is read."""
        self.goes_back = False
        """Whether a record of the last delivery is older than what came before it: without
        offsets, the store would take it for outdated (A21).
        """
        self._plausible = PlausibilityCheck()
        self.attested = True
        """Whether a silence is known to be that of an ACTIVE stream; records attest it, too."""

    def silence_from(self, now_us: int) -> None:
        """Silence counts from now: the stream was opened, or its provider holds it back."""
        self._last_heard_us = now_us
        self._heard_us = dict.fromkeys(self._heard_us, now_us)

    def opened(self, position: Position, now_us: int, clock_error_us: int = 0) -> None:
        """The stream is open, after the position's token or for a new attempt. `now_us` may differ
        from the provider's clock by `clock_error_us`.
        """
        partitions = position.barrier.offsets.keys() | position.offsets.keys()
        self._heard_us = dict.fromkeys(partitions, now_us)
        self._shown = position.opened_at_newest
        self._clock_error_us = clock_error_us
        # What is newer was appended after the opening, whatever the error.
        self._opened_us = now_us + clock_error_us
        aligning = position.phase is Phase.ALIGNING
        watched = self._may_start_with_snapshot and aligning
        late_us = int(self._settings.quiet_s * _US)
        self._snapshot = (
            SnapshotEndDetector(self._opened_us, late_us, error_us=2 * clock_error_us)
            if watched
            else None
        )
        self.silence_from(now_us)

    @property
    def begins_anew(self) -> bool:
        """Whether the provider has begun a snapshot anew on the connection (TR-548 5.8)."""
        return self._snapshot is not None and self._snapshot.begins_anew

    def listened(self, since_us: int, until_us: int) -> None:
        """A silence counts only between these times."""
        self._listened_us = (since_us, until_us)

    def heard_until(self, now_us: int) -> int:
        """The time until which a silence counts: the provider was known to be there."""
        return min(now_us, self._listened_us[1])

    def silent_s(self, now_us: int) -> float:
        """For how long no record came, in seconds."""
        return self._silence_s(self._last_heard_us, now_us)

    def quiet(self, now_us: int) -> bool:
        """Whether the silence is long enough to mean that the head of the log is reached."""
        return self.silent_s(now_us) >= self._settings.quiet_s

    def _silence_s(self, heard_us: int, now_us: int) -> float:
        return (self.heard_until(now_us) - max(heard_us, self._listened_us[0])) / _US

    def follow(
        self,
        records: Sequence[RecordHeader],
        offsets: dict[str, int],
        position: Position,
        deviations: dict[str, int],
        now_us: int,
    ) -> Sequence[RecordHeader]:
        """Note the records as read; updates `offsets` and counts into `deviations`.

        Returns the records without those that were delivered a moment ago (at-least-once), or that
        go back behind the baseline (A14). Any other record that goes backwards is a deviation: it
        is counted and kept, and the store decides by rule A3 (A9).
        """
        self.goes_back = False
        if not records:
            return records
        self.attested = True
        self._last_heard_us = now_us
        stated = records
        first, last = records[0], records[-1]
        partition = first.partition
        ordered = _is_ordered(records, partition)
        if ordered:
            known = self._last_record(partition, offsets, position)
            believed = self._plausible.believes_ordered(first, last, known, now_us)
        else:
            believed = self._plausible.believes(
                records, self._last_records(records, offsets, position), now_us
            )
        if not believed:
            before = self._last_records(records, offsets, position)
            records = self._plausible.mended(records, before, now_us, deviations)
        if self._snapshot is not None:
            is_over = position.phase is not Phase.ALIGNING
            self._snapshot.follow(records, now_us, is_over=is_over)
        # The usual case under load is decided without a loop over the records.
        goes_on = first.offset > offsets.get(
            partition, -1
        ) and first.appended_at_us >= self.appended_us.get(partition, 0)
        if ordered and believed and goes_on:
            offsets[partition] = last.offset
            self.oldest_us = min(first.appended_at_us, now_us)
            self.appended_us[partition] = last.appended_at_us
            self._followed({partition}, now_us)
            return records
        return self._follow_each(records, stated, offsets, position, deviations, now_us)

    def _follow_each(
        self,
        records: Sequence[RecordHeader],
        stated: Sequence[RecordHeader],
        offsets: dict[str, int],
        position: Position,
        deviations: dict[str, int],
        now_us: int,
    ) -> Sequence[RecordHeader]:
        """The same, record by record. What goes backwards is counted and kept (A9), and what is
        older than others is noted (A21). `stated`: the records as they came.
        """
        appended_us = self.appended_us
        repeated: list[int] = []
        offsets_back = times_back = 0
        newest_us, goes_back = position.appended_at_us, False
        oldest_us = now_us
        heard = set()
        first_at: dict[str, int] = {}
        for index, record in enumerate(records):
            partition = record.partition
            offset = record.offset
            # As stated: what a log holds is compared with what it held before.
            at_us = stated[index].appended_at_us
            # A redelivered record breaks a silence as well: the stream is replaying up to here.
            heard.add(partition)
            if offset >= 0:
                last = offsets.get(partition, -1)
                if offset > last:
                    offsets[partition] = offset
                    oldest_us = min(oldest_us, record.appended_at_us)
                elif offset < last:
                    # Its entity may have ended since, and the store forgets ends.
                    first_at = first_at or _first_indices(records)
                    if (
                        first_at[record.token] < index
                        or position.recently(record.token)
                        or self._shown_before(record, position)
                    ):
                        repeated.append(index)
                        continue
                    offsets_back += 1
                    if self._is_log and not self._may_start_with_snapshot:
                        # The place is that of the token: what follows is used once more, after a
                        # loss of the connection, too. It may end what is stated anew.
                        offsets[partition] = offset
            elif record.token != position.token:
                oldest_us = min(oldest_us, record.appended_at_us)
            if at_us < newest_us:
                goes_back = goes_back or offset < 0
            else:
                newest_us = at_us
            if at_us < appended_us.get(partition, 0):
                times_back += 1
            appended_us[partition] = at_us
        self.oldest_us = oldest_us
        self.goes_back = goes_back and not offsets_back
        self._followed(heard, now_us)
        _count(deviations, "offset-backwards", offsets_back)
        _count(deviations, "append-time-backwards", times_back)
        if repeated:
            gone = set(repeated)
            return [record for index, record in enumerate(records) if index not in gone]
        return records

    def _shown_before(self, record: RecordHeader, position: Position) -> bool:
        """Whether the baseline has shown what became of this record: it is from before the opening
        at the newest record (A14).
        """
        opened_us = position.attempt_started_at_us - self._clock_error_us
        return self._shown and record.appended_at_us < opened_us

    def _last_record(
        self, partition: str, offsets: dict[str, int], position: Position
    ) -> LastRecord | None:
        """What came last in a partition; None where nothing is known."""
        at_us = self.appended_us.get(partition, position.appended_us.get(partition))
        return None if at_us is None else LastRecord(offsets.get(partition, -1), at_us)

    def _last_records(
        self, records: Sequence[RecordHeader], offsets: dict[str, int], position: Position
    ) -> dict[str, LastRecord]:
        found = {
            partition: self._last_record(partition, offsets, position)
            for partition in {record.partition for record in records}
        }
        return {partition: last for partition, last in found.items() if last is not None}

    def _followed(self, heard: set[str], now_us: int) -> None:
        """Note that records of these partitions came at `now_us`."""
        appended_us = self.appended_us
        newest_us = max(appended_us.values(), default=0)
        self.newest_us = max(
            self.newest_us, min(newest_us, now_us) if self._plausible.ahead else newest_us
        )
        self._heard_us |= dict.fromkeys(heard, now_us)
        if any(appended_us.get(partition, 0) <= self._opened_us for partition in heard):
            # One partition still replays: the silence of the others proves nothing meanwhile.
            self.silence_from(now_us)

    def caught_up(self, now_us: int) -> bool:
        """Whether all that was in the log when the stream was opened has been read."""
        quiet_s = self._settings.quiet_s
        if not self._heard_us:
            return self.quiet(now_us)
        return all(
            (self.appended_us.get(partition, 0) > self._opened_us and not self._ahead(partition))
            or self._silence_s(heard_us, now_us) >= quiet_s
            for partition, heard_us in self._heard_us.items()
        )

    def sweep_due(self, position: Position, now_us: int) -> bool:
        """TR-548 ST-2.2 step 7, for each partition; a quiet network comes to its sweep too (A5)."""
        if self._shown:
            return True
        if self._is_log and position.records and not position.attempt_records:
            # The log holds nothing where it held something once.
            settings = self._settings
            confirm_s = settings.empty_confirm_s if self.attested else settings.unreached_quiet_s
            return self.silent_s(now_us) >= max(confirm_s, settings.quiet_s)
        partitions = self._heard_us.keys() | self.appended_us.keys()
        if not partitions:
            # Where no record ever came there is nothing to reach, whatever the attempt.
            reached = (position.attempt == 1 or not position.records) and self.attested
            settings = self._settings
            quiet_s = settings.quiet_s if reached else settings.unreached_quiet_s
            return self.silent_s(now_us) >= quiet_s
        if self._in_snapshot(now_us):
            return False
        return all(self._passed(partition, position, now_us) for partition in partitions)

    def _in_snapshot(self, now_us: int) -> bool:
        snapshot, settings = self._snapshot, self._settings
        if snapshot is None or snapshot.ended or self.quiet(now_us):
            return False
        return self._silence_s(snapshot.old_us, now_us) < settings.unreached_quiet_s

    def _ahead(self, partition: str) -> bool:
        return partition in self._plausible.ahead

    def _passed(self, partition: str, position: Position, now_us: int) -> bool:
        """Whether what was read of a partition, or its silence, makes the sweep due (A5)."""
        barrier = position.barrier
        at_us = self.appended_us.get(partition, 0)
        # Newer than the barrier is what a safe sweep needs. Newer than the attempt itself is what
        # makes "aligned" true: all of a young log is younger than its compaction delay. Newer than
        # this opening, because a provider may have begun anew with it without showing it: a
        # snapshot (TR-548 3.19.2) leaves out what it states again further on.
        goal_us = max(barrier.appended_at_us, self._opened_us)
        age_us = now_us + self._clock_error_us - at_us
        young = age_us < self._compaction_delay_us and not self._ahead(partition)
        # Whatever a time says, the head is not before what was read of this log once: the clock of
        # the provider may have been ahead for a while.
        known_offset = barrier.offsets.get(partition, -1)
        before = position.offsets.get(partition, -1) < known_offset < UNREACHABLE_OFFSET
        if at_us > goal_us and young and not before:
            return True
        heard_us = self._heard_us.get(partition, self._last_heard_us)
        silent_s = self._silence_s(heard_us, now_us)
        settings = self._settings
        reached = position.attempt == 1 or (
            0 < barrier.appended_at_us <= at_us
            or position.offsets.get(partition, -1)
            >= barrier.offsets.get(partition, UNREACHABLE_OFFSET)
        )
        # A provider may be PAUSED where nobody could ask it: such a silence must be longer.
        short = reached and self.attested
        return silent_s >= (settings.quiet_s if short else settings.unreached_quiet_s)


def _is_ordered(records: Sequence[RecordHeader], partition: str) -> bool:
    """Whether these records are all of this partition, and none goes backwards. Those of one
    message have one place.
    """
    if isinstance(records, Columns):
        return True
    places = [record.offset for record in records]
    times_us = [record.appended_at_us for record in records]
    return (
        places[0] >= 0
        and all(map(le, places, islice(places, 1, None)))
        and all(map(le, times_us, islice(times_us, 1, None)))
        and {one.partition for one in records} == {partition}
    )


def _first_indices(records: Sequence[RecordHeader]) -> dict[str, int]:
    """The index of the first record with each token."""
    found: dict[str, int] = {}
    for index, record in enumerate(records):
        found.setdefault(record.token, index)
    return found


def _count(deviations: dict[str, int], kind: str, times: int) -> None:
    if times:
        deviations[kind] = deviations.get(kind, 0) + times
