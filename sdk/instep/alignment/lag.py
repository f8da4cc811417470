"""Consumer lag: how late a stream is read, up to which time nothing is missing (the watermark),
and what the lag costs (A8).

Eventual consistency and fidelity (TR-548 3.17): a consumer that is behind by less than the
compaction delay loses nothing. Between the compaction delay and the tombstone retention it misses
changes that were compacted away. Beyond the tombstone retention it may miss deletes.
"""

from __future__ import annotations

from enum import StrEnum

from instep.alignment.resume import retention_s
from instep.alignment.settings import AlignmentSettings
from instep.model.position import Phase, Position
from instep.model.streams import Mode, StreamInfo

__all__ = ["Fidelity", "LagMonitor", "fidelity"]


AT_RISK_SHARE = 0.75
"""From this share of the tombstone retention on, a consumer that does not catch up will be lost."""


class Fidelity(StrEnum):
    """From losing nothing to having lost eventual consistency."""

    FULL = "full fidelity"
    REDUCED = "reduced fidelity"
    AT_RISK = "at risk"
    LOST = "lost"


def fidelity(
    read_delay_s: float, compaction_delay_s: float | None, tombstone_retention_s: float | None
) -> Fidelity:
    """The zone of a consumer that reads records `read_delay_s` after they were appended.

    A retention the provider does not declare (None) sets no limit.
    """
    if tombstone_retention_s is not None:
        if read_delay_s > tombstone_retention_s:
            return Fidelity.LOST
        # Under emulated compaction both points are one (TR-548 3.19.3): only the share differs.
        if read_delay_s > tombstone_retention_s * AT_RISK_SHARE:
            return Fidelity.AT_RISK
    if compaction_delay_s is not None and read_delay_s > compaction_delay_s:
        return Fidelity.REDUCED
    return Fidelity.FULL


_US = 1_000_000
_UNPROVEN_HEARTBEAT_S = 60.0


class LagMonitor:
    """The read delay and the watermark of one stream, through all its connections.

    Times are the provider's, in microseconds.
    """

    def __init__(self, stream: StreamInfo, watermark_us: int, settings: AlignmentSettings) -> None:
        self.read_delay_s = 0.0
        """Provider's now minus append time of the record last read; 0 when silent at the head."""
        self.watermark_us = watermark_us
        """Provider time up to which nothing can be missing."""
        self._stream = stream
        self.settings = settings
        self._last_followed_us = 0
        self._realigns = 0
        """Realignments in a row because of the read delay."""
        self._lost_us = 0
        self._retry_s = 0.0
        """How long after `_lost_us` the stream realigns no more."""

    @property
    def fidelity(self) -> Fidelity:
        """The fidelity zone of what was last read."""
        stream = self._stream
        return fidelity(self.read_delay_s, stream.compaction_delay_s, stream.tombstone_retention_s)

    def heartbeat_due(self, position: Position) -> bool:
        """Whether the stored watermark is so old that it is worth a commit of its own. While
        entities are unproven, it is sooner: others may have proven some, which a commit takes over.
        """
        keeps_s = retention_s(self._stream)
        longest_s = min(self.settings.heartbeat_s, float("inf") if keeps_s is None else keeps_s / 4)
        if position.unproven:
            longest_s = min(longest_s, _UNPROVEN_HEARTBEAT_S)
        return self.watermark_us - position.watermark_us > longest_s * _US

    def opened(self, now_us: int) -> None:
        """The stream is open: from now on it is followed."""
        self._last_followed_us = now_us

    def raise_watermark(self, to_us: int) -> None:
        """Nothing can be missing up to this time of the provider."""
        self.watermark_us = max(self.watermark_us, to_us)

    def read(self, appended_at_us: int, now_us: int, phase: Phase) -> None:
        """The record read last was appended at `appended_at_us`."""
        self.read_delay_s = max(0.0, (now_us - appended_at_us) / _US)
        if phase is Phase.ALIGNED and self.fidelity is not Fidelity.LOST:
            self._realigns = 0

    def silent(self, until_us: int, phase: Phase) -> None:
        """The stream is silent at its head, and nothing is missing up to `until_us`, unless it was
        lost before.
        """
        if phase is not Phase.LOST:
            self.raise_watermark(until_us)
        self.read_delay_s = 0.0

    def lost(self, position: Position, oldest_us: int, now_us: int) -> str:
        """Why eventual consistency is lost, empty when it is not (A8; TR-548 3.17.3).

        The oldest record read is too old, or the stream was not followed for too long: then ends
        may have left the log unread, and, where a compacted log forgets (A15), other records, too.
        """
        oldest_us = min(oldest_us, self._last_followed_us)
        self._last_followed_us = now_us
        keeps_s, baseline = retention_s(self._stream), self._stream.mode is Mode.BASELINE
        if keeps_s is None or (baseline and not self._stream.compacts):
            # A gap in the offsets of a TRUNCATED log shows what it has lost.
            return ""
        if baseline:
            # Whatever was stated before it, it shows.
            oldest_us = max(oldest_us, position.attempt_started_at_us)
        delay_s = (now_us - oldest_us) / _US
        # An attempt has to read old records. Of what ended before its watermark it reads nothing.
        since_s = (now_us - position.watermark_us) / _US
        replaying = not baseline and position.phase is Phase.ALIGNING and since_s <= keeps_s
        if delay_s <= keeps_s or replaying:
            return ""
        self.read_delay_s = delay_s
        return f"read {delay_s:,.0f} s late, past the retention ({keeps_s:,.0f} s)"

    def may_realign(self, now_us: int) -> bool:
        """Whether a stream that was found lost realigns at once. Counts it."""
        further = self._realigns - self.settings.lost_realigns
        self._realigns += 1
        wait_s = self.settings.lost_retry_s * 2.0 ** min(max(further, 0), 30)
        self._lost_us, self._retry_s = now_us, min(wait_s, self.settings.lost_retry_max_s)
        return further < 0

    def recovered(self, now_us: int) -> bool:
        """Whether a lost stream is read in time again, and may realign."""
        waits = 0 <= now_us - self._lost_us < self._retry_s * _US
        return self.fidelity is not Fidelity.LOST and not waits
