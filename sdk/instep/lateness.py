"""How late a stream is read, up to when it is known, and whether that is too late (A8)."""

from __future__ import annotations

from instep.fidelity import Zone, zone
from instep.opening import retention_s
from instep.ports import Mode, StreamInfo
from instep.position import Phase, Position
from instep.settings import AlignmentSettings

__all__ = ["Lateness"]

_US = 1_000_000


class Lateness:
    """Follows one stream through all its connections."""

    def __init__(self, stream: StreamInfo, known_to_us: int, settings: AlignmentSettings) -> None:
        self.read_delay_s = 0.0
        """Provider's now minus append time of the record last read; 0 when silent at the head."""
        self.known_to_us = known_to_us
        """Provider time up to which nothing can be missing."""
        self._stream = stream
        self._settings = settings
        self._attended_us = 0
        self._realigns = 0

    @property
    def zone(self) -> Zone:
        """The fidelity zone of what was last read."""
        stream = self._stream
        return zone(self.read_delay_s, stream.compaction_delay_s, stream.tombstone_retention_s)

    def heartbeat_due(self, position: Position) -> bool:
        """Whether `known_to_us` is so old in the store that it is worth a commit of its own."""
        keeps_s = retention_s(self._stream)
        longest_s = min(
            self._settings.heartbeat_s, float("inf") if keeps_s is None else keeps_s / 4
        )
        return self.known_to_us - position.known_to_us > longest_s * _US

    def opened(self, now_us: int) -> None:
        """The stream is open: from now on it is attended to."""
        self._attended_us = now_us

    def known(self, to_us: int) -> None:
        """Nothing can be missing up to this time of the provider."""
        self.known_to_us = max(self.known_to_us, to_us)

    def read(self, appended_at_us: int, now_us: int) -> None:
        """A record appended then was the last to be read."""
        self.read_delay_s = max(0.0, (now_us - appended_at_us) / _US)
        if self.zone is not Zone.LOST:
            self._realigns = 0

    def silent(self, quiet_s: float, until_us: int) -> None:
        """The stream has been silent at its head for that long, until then."""
        self.known(until_us - int(quiet_s * _US))
        self.read_delay_s = 0.0

    def lost(self, position: Position, oldest_us: int, now_us: int) -> str:
        """Why eventual consistency is lost, empty when it is not (TR-548 3.17.3).

        What came is too old, or nobody looked for too long: then what went meanwhile left no trace.
        Given only so often in a row: more would be a wrong clock, not a lag.
        """
        oldest_us = min(oldest_us, self._attended_us)
        self._attended_us = now_us
        keeps_s = self._stream.tombstone_retention_s
        if self._stream.mode is Mode.BASELINE or keeps_s is None:
            return ""
        delay_s = (now_us - oldest_us) / _US
        attempt_s = (now_us - position.attempt_started_at_us) / _US
        # An attempt reads old records by right, while it is itself younger than the retention.
        replaying = position.phase is Phase.ALIGNING and attempt_s <= keeps_s
        if delay_s <= keeps_s or replaying or self._realigns >= self._settings.lost_realigns:
            return ""
        self._realigns += 1
        self.read_delay_s = delay_s
        return f"read {delay_s:,.0f} s late, past the tombstone retention ({keeps_s:,.0f} s)"
