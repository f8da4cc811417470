"""The audit of a stream (TR-548 ST-2.3; A12): what it proves, and when. Pure.

Theory. Beside the main stream, which goes on committing, a second connection reads the log from
its oldest record. What it states last of each entity is its *mark*; marks are kept in the store and
compared there. An entity is

- right: stored with the class and body of its mark;
- missing: marked as existing, and not stored;
- stale: stored otherwise than marked;
- bogus: stored, and never marked, or marked as ended.

A difference alone proves nothing, because the two readers are at different places. So it is judged
in two steps. At a moment *s*, in one transaction, the store's position M is read, and what differs
becomes suspect, together with the version (token) of the stored row; a mark beyond M is left for
later, because the main stream has not read so far. Then the audit reads on until it has *arrived*:
until it has passed M, and the moment *s*, in each partition (or the partition is silent). Now a
suspect is proven wrong when its mark was not renewed and its row is as it was:

- The audit has read every record up to M, so the mark is the last statement up to M. The main
  stream had committed all of them. So at *s* the row should have been as marked, and it was not.
- A record that compaction took away before the audit came to its place was superseded by one
  appended before that moment, so before *s*. The audit has passed *s*: it has met the successor.
- The row has not changed since, so it is still wrong. In a repair that is asked again, in the
  transaction that repairs.

Where the log cannot give current state (`Mode.BASELINE`), a GET does, and the log states what the
GET may have missed: the second connection begins after the store's position M0, then current state
is read and marked, and every record that comes overrules it. So where a mark of the GET is left, no
record about the entity came between M0 and the arrival: the entity did not change after M0, and the
main stream had committed everything up to M0. A change that the GET shows before the log states it
must not be judged too early, so the moment to be passed lies a silence later than *s*. An end under
a key that neither the store nor the marks know may be about any entity: then no entity is called
missing. An entity of a class that no GET shows is judged only if a record about it came.

Where the log states changes, they are composed to whole entities as the store composes its own, and
the mark has the place of the change that came last.

What changed meanwhile is suspect anew in the next round; what is still open after the last round is
reported as undecided, and left alone. A record that the audit cannot read might be about any
entity: then none is called bogus. An attempt that begins meanwhile proves more than an audit can,
and voids it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from instep.errors import AuditError
from instep.model.position import Phase, Position
from instep.model.records import RecordHeader
from instep.model.streams import Mode, StreamInfo

__all__ = [
    "AuditReport",
    "CatchUpDetector",
    "Counts",
    "Finding",
    "Verdict",
    "check_auditable",
    "check_standing",
]


_US = 1_000_000


class Verdict(StrEnum):
    """What is wrong with an entity."""

    STALE = "stale"
    BOGUS = "bogus"
    MISSING = "missing"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One entity that is proven wrong."""

    stream: str
    key: str
    entity_class: str
    verdict: Verdict
    token: str
    """Token of the record that states how it should be; of the stored row where no record does."""
    repaired: bool = False


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many entities the audit found right, wrong, repaired or undecided."""

    right: int = 0
    stale: int = 0
    bogus: int = 0
    missing: int = 0
    repaired: int = 0
    undecided: int = 0
    """They changed in every round, or the main stream has not read so far."""
    unproven: int = 0
    """No GET shows their class, and the log has not stated them since."""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of one stream."""

    stream: str
    counts: Counts
    records: int
    """How many records the second connection read."""
    unreadable: int
    """How many of them could not be read or assigned; above 0, nothing was called bogus."""
    rounds: int

    @property
    def clean(self) -> bool:
        """Whether nothing was found wrong that is not repaired."""
        counts = self.counts
        return counts.stale + counts.bogus + counts.missing == counts.repaired


class CatchUpDetector:
    """Decides when the second connection has arrived: beyond a position, and beyond a moment.

    Times are the provider's, in microseconds.
    """

    def __init__(
        self, quiet_s: float, unreached_quiet_s: float, now_us: int, begin: Position | None = None
    ) -> None:
        """`begin`: the position after which the reading begins, where not at the oldest record."""
        begin = begin or Position()
        self._quiet_us = int(quiet_s * _US)
        self._unreached_quiet_us = int(unreached_quiet_s * _US)
        self._offsets = dict(begin.offsets)
        self._appended_us = dict(begin.appended_us)
        self._heard_us: dict[str, int] = {}
        self.aim(Position(), now_us)

    def aim(self, position: Position, moment_us: int) -> None:
        """Set what must be passed from now on: this position, and this moment."""
        self._position = position
        self._moment_us = self._silent_from_us = moment_us

    def heard(self, records: Sequence[RecordHeader], now_us: int) -> None:
        """Note records that the second connection delivered at `now_us`."""
        for record in records:
            partition = record.partition
            self._offsets[partition] = max(record.offset, self._offsets.get(partition, -1))
            self._appended_us[partition] = record.appended_at_us
            self._heard_us[partition] = now_us

    def silence_from(self, now_us: int) -> None:
        """The provider has explained its silence: count silence from now on only."""
        self._silent_from_us = max(now_us, self._silent_from_us)

    def arrived(self, now_us: int) -> bool:
        """Whether nothing can come any more that the position or the moment covers (A12).

        `now_us`: the last sign of life of the feed.
        """
        partitions = self._position.offsets.keys() | self._appended_us.keys()
        if not partitions:
            return now_us - self._silent_from_us >= self._quiet_us
        return all(self._passed(partition, now_us) for partition in partitions)

    def _passed(self, partition: str, now_us: int) -> bool:
        """The same of one partition: without it a difference proves nothing (A12)."""
        silent_us = now_us - max(self._silent_from_us, self._heard_us.get(partition, 0))
        reached = self._offsets.get(partition, -1) >= self._position.offsets.get(partition, -1)
        if not reached:
            # The record of that place may be compacted away, or the provider is merely slow.
            return silent_us >= self._unreached_quiet_us
        later = self._appended_us.get(partition, 0) > self._moment_us
        return later or silent_us >= self._quiet_us


def check_auditable(stream: StreamInfo) -> None:
    """Raise `AuditError` for a stream of which nothing shows what should be stored."""
    if stream.mode is Mode.BASELINE and not stream.readable:
        raise AuditError(
            "the stream cannot be audited: its log alone does not give current state, and no GET"
            " shows any of its classes",
            where=stream.id,
            hint="a realignment reads all of its log that is left",
        )
    if not stream.resumable:
        raise AuditError(
            "the stream cannot be audited: a second session tells nothing of the first",
            where=stream.id,
            hint="a realignment compares all of it with current state",
        )


def check_standing(stream: StreamInfo, position: Position, before: Position | None) -> None:
    """Raise `AuditError` where the store is not in a state that can be audited."""
    why = ""
    if position.phase not in (Phase.ALIGNED, Phase.SWEEP_HELD):
        why = f"the stream is {position.phase}"
    elif position.origin != stream.origin:
        why = "the store was aligned with another log"
    elif before is not None and before.attempt != position.attempt:
        why = "an alignment began meanwhile"
    if why:
        raise AuditError(
            f"the audit proves nothing: {why}",
            where=stream.id,
            hint="wait until the stream is aligned, and audit again",
            retriable=True,
        )
