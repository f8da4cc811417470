"""What the alignment asks its driver to do. Plain data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = [
    "Effect",
    "EstimateSweep",
    "Notice",
    "NoticeKind",
    "ProbeOldest",
    "ReadBaseline",
    "Reopen",
]


class Reopen(msgspec.Struct, frozen=True):
    """Close the connection and open again where `Alignment.start` says."""

    reason: str


class ProbeOldest(msgspec.Struct, frozen=True):
    """Open the stream once more at its oldest record, over a second connection, read until a record
    of the partition has come, and close it; then call `Alignment.probed` (A2).
    """

    partition: str | None
    """None: a record of any partition."""


class EstimateSweep(msgspec.Struct, frozen=True):
    """Count what the sweep would remove, then call `Alignment.sweep_estimated`."""

    attempt: int


class ReadBaseline(msgspec.Struct, frozen=True):
    """Hold the stream, read current state and commit it as `baseline_page`s, then call
    `baseline_read`.
    """


class NoticeKind(StrEnum):
    """What a notice is about."""

    ATTEMPT = "attempt"
    REDELIVERED = "redelivered"
    CONFIRMING = "confirming"
    CONTINUED = "continued"
    LOST = "lost"
    SWEEP_HELD = "sweep-held"
    ALIGNED = "aligned"
    CAUGHT_UP = "caught-up"
    UNPROVEN = "unproven"
    UNREADABLE = "unreadable"


class Notice(msgspec.Struct, frozen=True):
    """Something to report; there is nothing to do."""

    kind: NoticeKind
    text: str


Effect = Reopen | ProbeOldest | EstimateSweep | ReadBaseline | Notice
