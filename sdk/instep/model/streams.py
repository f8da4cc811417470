"""A stream as its provider declares it, its state, and what a sweep of it would remove."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Mode", "Start", "StreamInfo", "StreamState", "SweepEstimate"]


class Mode(StrEnum):
    """How a stream gives current state."""

    LOG = "log"
    """The log alone gives it, from the oldest record: COMPACTED, emulated compaction,
    FULL_HISTORY.
    """
    BASELINE = "baseline"
    """It is read by GET, the stream gives what changes meanwhile and after: TRUNCATED and all
    else.
    """


class Start(StrEnum):
    """Where to open a stream when not after a token (TR-548 5.10.1 `start_from`)."""

    OLDEST = "oldest"
    LATEST = "latest"


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One log that can be followed, as its provider declares it (TR-548 3.7)."""

    id: str
    """The stream's name in the store: its `stream-id` where that is unique, else its uuid."""
    origin: str
    """What identifies the log itself: another origin is another lineage."""
    kind: str
    """The source plug-in that reads it, so that its quarantined bytes can be read again."""
    uuid: str = ""
    """The provider's own uuid of the stream; another instance may give it another."""
    endpoint: str = ""
    """The instance of the provider that serves it, where there may be several."""
    mode: Mode = Mode.LOG
    classes: tuple[str, ...] = ()
    """`record-content`, short names."""
    storage_strategy: str = "COMPACTED"
    record_strategy: str = "WHOLE_ENTITY_ON_CHANGE"
    compaction_delay_s: float | None = None
    tombstone_retention_s: float | None = None
    """None: not declared; inf: FOREVER."""
    record_retention_s: float | None = None
    resumable: bool = True
    """False where each opening is a session of its own, with places that say nothing of another's
    (a subscription, say): every opening is then an attempt of its own, read from a baseline.
    """
    readable: frozenset[str] = frozenset()
    """Classes whose current state a GET can show (BASELINE only)."""
    clock_offset_us: int = 0
    """The provider's clock minus ours, as seen at discovery; 0 where unknown."""
    details: dict[str, Any] = {}
    """What the adapter wants to keep with it (addresses and so on); no secrets."""


class SweepEstimate(msgspec.Struct, frozen=True):
    """Entities of a stream before a sweep (A6)."""

    total: int
    unmarked: int
    """Not marked by the attempt: what the sweep would remove."""


class StreamState(StrEnum):
    """`stream-state` of an available stream (TR-548 3.7.2, 5.3)."""

    ALIGNING = "ALIGNING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    UNKNOWN = "UNKNOWN"
