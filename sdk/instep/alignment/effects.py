"""What the alignment asks its driver to do. Plain data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from instep.model.records import RecordHeader

__all__ = [
    "Effect",
    "EstimateSweep",
    "Notice",
    "NoticeKind",
    "ProbeOlderEntity",
    "ReadBaseline",
    "Reopen",
]


class Reopen(msgspec.Struct, frozen=True):
    """Close the connection and open again where `Alignment.start` says."""

    reason: str


class ProbeOlderEntity(msgspec.Struct, frozen=True):
    """Ask the sink whether it stores an entity from before this record, then call
    `Alignment.probe_answered`.
    """

    record: RecordHeader
    partition: str


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


Effect = Reopen | ProbeOlderEntity | EstimateSweep | ReadBaseline | Notice
