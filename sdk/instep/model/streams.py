"""A stream as its provider declares it, its state, and what a sweep of it would remove."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import msgspec

__all__ = ["Mode", "Start", "StreamInfo", "StreamState", "SweepEstimate", "upgraded_info"]


class Mode(StrEnum):
    """How a stream gives current state."""

    LOG = "log"
    """The log alone gives it, from its oldest record on."""
    BASELINE = "baseline"
    """It is read by a request beside the log, which gives what changes meanwhile and after."""


class Start(StrEnum):
    """Where to open a stream when not after a token."""

    OLDEST = "oldest"
    """At the oldest record that the log still has."""
    LATEST = "latest"
    """Behind the newest: only what is appended from now on."""


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One log that can be followed, as its source found it. A store keeps the last one found."""

    id: str
    """The stream's name in the store; unique in the source, and the same whenever it is met."""
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
    """What the log tells of, by the names that its records carry; empty: not declared."""
    partial_updates: bool = False
    """Whether a record may state a change alone, to be merged into what is stored."""
    may_start_with_snapshot: bool = True
    """Whether the log may begin with a snapshot of current state, which is made when it is opened
    (`Mode.LOG` only). Then the sweep waits until the snapshot is shown to be over; False where the
    log is known to have none.
    """
    variant: str = ""
    """How the provider keeps and states the log, in its own words: it tells apart two logs of the
    same classes, and is compared as a whole.
    """
    compaction_delay_s: float | None = None
    """How long a record stays after a newer one of its entity; None: not declared."""
    tombstone_retention_s: float | None = None
    """How long the end of an entity stays in the log. None: not declared; inf: for ever."""
    record_retention_s: float | None = None
    """How long any record stays, live entity or not; None: not declared."""
    resumable: bool = True
    """False where each opening is a session of its own, with places that say nothing of another's
    (a subscription, say): every opening is then an attempt of its own, read from a baseline.
    """
    readable: frozenset[str] = frozenset()
    """Classes whose current state `Source.baseline` can show (BASELINE only)."""
    clock_offset_us: int = 0
    """The provider's clock minus ours, as seen at discovery; 0 where unknown."""
    details: dict[str, Any] = {}
    """What the source wants to keep with it (addresses and so on), in plain data; no secrets."""

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """The stream that a store has kept as plain data, by this version or by 0.1.0.

        Raises `msgspec.ValidationError` for what no version has written.
        """
        return msgspec.convert(upgraded_info(stored), cls)


def upgraded_info(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The plain data of a stored `StreamInfo` in the spelling of this version.

    Version 0.1.0 kept two strategies of TAPI in the place of `partial_updates`,
    `may_start_with_snapshot` and `variant`.
    """
    info = dict(stored)
    if "storage_strategy" not in info:
        return info
    storage, record = info.pop("storage_strategy"), info.pop("record_strategy", "")
    one_time = info.get("compaction_delay_s") == info.get("tombstone_retention_s")
    compacted = info.get("mode") == Mode.LOG and storage == "COMPACTED"
    return {
        "partial_updates": record == "CHANGE_ONLY",
        "may_start_with_snapshot": compacted and one_time,
        "variant": f"{storage} {record}",
        **info,
    }


class SweepEstimate(msgspec.Struct, frozen=True):
    """Entities of a stream before a sweep (A6)."""

    total: int
    unmarked: int
    """Not marked by the attempt: what the sweep would remove."""


class StreamState(StrEnum):
    """What the provider says of a stream; asked while it is silent, to explain the silence."""

    ALIGNING = "aligning"
    """It is being filled: no records until it is active."""
    ACTIVE = "active"
    """It works: a silence means that there was nothing to state."""
    PAUSED = "paused"
    """It is held back: a silence says nothing about the end of the log."""
    TERMINATED = "terminated"
    """It is over: discover again."""
    UNKNOWN = "unknown"
    """The provider does not say: a silence alone proves less (A5)."""
