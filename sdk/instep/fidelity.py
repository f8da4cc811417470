"""How much the consumer's lag costs it: the read delay against the log's two retention points
(A8).

TR-548 3.17.3: behind by less than the compaction delay loses nothing; between it and the tombstone
retention some changes were compacted away; beyond the tombstone retention deletes may be missing.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Zone", "zone"]

AT_RISK_SHARE = 0.75
"""From this share of the tombstone retention on, a consumer that does not catch up will be lost."""


class Zone(StrEnum):
    """From losing nothing to having lost eventual consistency."""

    FULL = "full fidelity"
    REDUCED = "reduced fidelity"
    AT_RISK = "at risk"
    LOST = "lost"


def zone(
    read_delay_s: float, compaction_delay_s: float | None, tombstone_retention_s: float | None
) -> Zone:
    """The zone of a consumer that reads records `read_delay_s` after they were appended.

    A retention the provider does not declare (None) sets no limit.
    """
    if tombstone_retention_s is not None:
        if read_delay_s > tombstone_retention_s:
            return Zone.LOST
        # Under emulated compaction both points are one (TR-548 3.19.3): only the share tells.
        if read_delay_s > tombstone_retention_s * AT_RISK_SHARE:
            return Zone.AT_RISK
    if compaction_delay_s is not None and read_delay_s > compaction_delay_s:
        return Zone.REDUCED
    return Zone.FULL
