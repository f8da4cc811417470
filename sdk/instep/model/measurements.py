"""What a store shows of measurements: periods of series (TR-548 3.9.2.6, 3.9.2.7)."""

from __future__ import annotations

import msgspec

__all__ = ["Measurement"]


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured in one period, as it was stated last.

    Times are in microseconds since 1970.
    """

    consumer: str
    stream: str
    series: str
    """What the period is one of: the ids of the pm-current-data from the nearest uuid down, such as
    `{uuid of the oam-job}/{local-id}`; the own ids of a pm-history-data that has no parent-address.
    """
    key: str
    """The entity-key of the statement."""
    entity_class: str
    """PM_HISTORY_DATA, PM_CURRENT_DATA or OAM_JOB: the class of the statement."""
    end_us: int
    """`period-end-time`, or `timestamp` and `granularity-period` of a pm-current-data."""
    length_us: int
    """`granularity-period`; 0 where it is not stated, or is of months or years."""
    complete: bool
    """Whether the period was over when this was measured."""
    suspect: bool | None
    """`suspect-interval-flag`; None: not stated."""
    stated_at_us: int
    """Append time of the statement."""
    body: bytes
    """The pm-history-data or pm-current-data as JSON, without the periods that it contains."""

    @property
    def begin_us(self) -> int:
        """When the period began; its end where its length is not known."""
        return self.end_us - self.length_us
