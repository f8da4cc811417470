"""What a store shows of alarms: episodes and events of condition-detectors (TR-548 4)."""

from __future__ import annotations

import msgspec

__all__ = ["AlarmEpisode"]


class AlarmEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One alarm from its raise to its end, or one event, which is over as it happens.

    Times are in microseconds since 1970. None: not stated by the provider.
    """

    consumer: str
    stream: str
    key: str
    """The entity-key of the detector."""
    number: int
    """Counts the episodes (or events) of the detector, from 1."""
    event: bool
    """A threshold crossing or another event that never clears (3.9.2.5)."""
    state: str
    """ACTIVE or INTERMITTENT; CLEAR when it is over."""
    condition: str | None
    """`condition-native-name`."""
    condition_normalized: str | None
    """`condition-normalized-name`, else the one configured for the native name (4.9)."""
    severity: str | None
    """The last `perceived-severity`."""
    worst_severity: str | None
    service_affect: str | None
    acknowledged: bool | None
    """The last `is-acknowledged`."""
    info: tuple[str, ...]
    """`additional-alarm-info`."""
    raised_at_us: int
    """Event time of the raise, else its append time."""
    raised_from_us: int | None
    """Where `raised_spread` is BETWEEN: the beginning of the interval that `raised_at_us` ends."""
    raised_spread: str | None
    """AT, BEFORE, AFTER or BETWEEN (4.8)."""
    raised_precision: str | None
    """UNKNOWN, FREE_RUNNING or SYNCHRONIZED."""
    first_raised_at_us: int
    """When the first of the episodes was raised that flap, up to this one."""
    last_stated_at_us: int
    """Event time of the last statement before the end."""
    cleared_at_us: int | None
    """Event time of the end, else its append time; None while it lasts."""
    cleared_spread: str | None
    """As `raised_spread`. After a sweep BEFORE: it was gone by then."""
    cleared_precision: str | None
    ended_by: str | None
    """CLEAR, DELETE, TOMBSTONE, SWEEP or, of an event, EVENT; None while it lasts."""
    flapping_count: int
    """Raises of this detector before this one, each within 600 s of the end before it."""
    severity_changes: int
    intermittent_count: int
    """How often it became INTERMITTENT."""
    statements: int
    """Statements that it was made of, without repeated ones and the end."""
    reduced_fidelity: bool
    """Statements about it may have been missed: it may have begun earlier, have ended at another
    time, or be several (3.17.3).
    """
    measured_class: str | None
    measured_uuid: str | None
    measured_known: bool
    """Whether an entity with this uuid is stored, in any stream of the consumer."""
    measured_native_id: str | None
    measured_local_ids: tuple[str, ...]
    node_uuid: str | None
    """The node of the parent-address, or the measured node."""
    detector_type: str | None
    detector_native_id: str | None
    detector_uuid: str | None

    @property
    def standing(self) -> bool:
        """Whether the alarm has not ended yet."""
        return self.ended_by is None

    @property
    def duration_s(self) -> float | None:
        """From the raise to the end; None while it lasts."""
        if self.cleared_at_us is None:
            return None
        return (self.cleared_at_us - self.raised_at_us) / 1_000_000
