"""How the statements of a detector become episodes: pure (TR-548 4.4, 4.7).

An episode lasts from ACTIVE or INTERMITTENT to the end: CLEAR, DELETE, TOMBSTONE, any of them in a
row, or a sweep. Only the first of several ends counts. The alarms of a lake have the same meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from instep.model.ordering import supersedes
from instep.model.records import Record, RecordHeader
from instep_tapi.facts.detector import SEVERITIES, Detector, read_detector, reread_detector
from instep_tapi.facts.event_times import ApproximateTime, event_time

__all__ = [
    "EVENT",
    "FLAPPING_WITHIN_S",
    "NO_LINEAGE",
    "SWEEP",
    "Episode",
    "LogReading",
    "follow_statement",
]

FLAPPING_WITHIN_S: Final = 600
"""A raise this soon after the end of the episode before counts as flapping: the compaction delay
that TR-548 4.3 proposes.
"""
EVENT: Final = "EVENT"
"""`ended_by` of an event: it is over as it happens."""
SWEEP: Final = "SWEEP"
NO_LINEAGE: Final = -1
"""The lineage of a place that compares with no record: a sweep has none."""
_US: Final = 1_000_000


class LogReading(msgspec.Struct, frozen=True):
    """How the log is read from which the statements come."""

    lineage: int
    attempt: int
    now_us: int
    """Our time plus the offset of the provider's clock."""
    compaction_delay_s: float | None = None
    """None: the log is not compacted."""
    normalized: Mapping[str, str] = {}


class Episode(msgspec.Struct):
    """One alarm from its raise to its end, or one event."""

    key: str
    number: int
    """Counts the episodes and events of a detector, from 1."""
    detector: Detector
    """As the last statement before the end has it."""
    raised: ApproximateTime
    first_raised_at_us: int
    """When the first of the episodes was raised that this one follows by flapping (4.8)."""
    stated_at_us: int
    place: RecordHeader
    """Of the last statement, the end included."""
    digest: int
    """Of the body of the last statement before the end."""
    lineage: int
    attempt: int
    worst_severity: str | None = None
    severity_changes: int = 0
    intermittent_count: int = 0
    statements: int = 1
    flapping_count: int = 0
    reduced: bool = False
    """Statements about it may have been missed: it may have begun earlier, or be several."""
    cleared: ApproximateTime | None = None
    ended_by: str | None = None
    id: int | None = None
    """Of its row; None before it has one."""


def follow_statement(last: Episode | None, record: Record, log: LogReading) -> Episode | None:
    """The episode that a statement opens or changes, given the last one of its detector; None where
    it changes nothing: an older or a repeated one, or the end of what has ended.
    """
    if last is not None and last.lineage == log.lineage and supersedes(last.place, record):
        return None
    ongoing = last is not None and last.ended_by is None
    if record.ends and last is not None and ongoing:
        return _ended(last, record, log)
    if record.ends and not _is_event(record):
        return None
    digest = _digest(record)
    if last is not None and last.digest == digest:
        detector = reread_detector(last.detector, record, log.normalized)
    else:
        detector = read_detector(record, log.normalized)
    if (
        last is not None
        and (ongoing or last.detector.event)
        and _repeats(last, record, digest, log)
    ):
        return _read_again(last, log)
    if last is None or not ongoing or detector.event:
        return _begun(last, detector, record, digest, log)
    before = last.detector
    last.severity_changes += detector.severity != before.severity
    last.intermittent_count += detector.state == "INTERMITTENT" != before.state
    last.worst_severity = _worst(last.worst_severity, detector.severity)
    last.statements += 1
    last.detector = detector
    last.stated_at_us, last.digest = event_time(record).at_us, digest
    return _placed(last, record, log)


def _is_event(record: Record) -> bool:
    """Whether a record after which nothing stands tells what has happened, and not of an end."""
    return not record.kind.ends_entity and read_detector(record, {}).event


def _begun(
    last: Episode | None, detector: Detector, record: Record, digest: int, log: LogReading
) -> Episode:
    raised = event_time(record)
    near = (
        last is not None
        and last.cleared is not None
        and not (detector.event or last.detector.event)
        and raised.at_us <= last.cleared.at_us + FLAPPING_WITHIN_S * _US
    )
    return Episode(
        key=record.key,
        number=1 if last is None else last.number + 1,
        detector=detector,
        raised=raised,
        first_raised_at_us=last.first_raised_at_us if last and near else raised.at_us,
        stated_at_us=raised.at_us,
        place=_place(record),
        digest=digest,
        lineage=log.lineage,
        attempt=log.attempt,
        worst_severity=_worst(None, detector.severity),
        intermittent_count=int(detector.state == "INTERMITTENT"),
        flapping_count=last.flapping_count + 1 if last and near else 0,
        reduced=_late(record, log),
        cleared=raised if detector.event else None,
        ended_by=EVENT if detector.event else None,
    )


def _ended(last: Episode, record: Record, log: LogReading) -> Episode:
    at = event_time(record)
    last.cleared = msgspec.structs.replace(at, at_us=max(at.at_us, last.raised.at_us))
    last.ended_by = record.kind.name if record.kind.ends_entity else "CLEAR"
    return _placed(last, record, log)


def _placed(last: Episode, record: Record, log: LogReading) -> Episode:
    # In a log that is not compacted, what it had between two attempts may have left it.
    missed = log.compaction_delay_s is None and last.attempt != log.attempt
    last.reduced = last.reduced or missed or _late(record, log)
    last.place, last.lineage, last.attempt = _place(record), log.lineage, log.attempt
    return last


def _read_again(last: Episode, log: LogReading) -> Episode | None:
    """The log still has the last statement: nothing can have been missed since."""
    if last.attempt == log.attempt:
        return None
    last.attempt = log.attempt
    return last


def _repeats(last: Episode, record: Record, digest: int, log: LogReading) -> bool:
    stated = last.digest == digest
    if not record.token and stated:
        return True  # of a baseline: it shows what a statement has said
    place = last.place
    return (
        last.lineage == log.lineage
        and place.partition == record.partition
        and place.offset == record.offset
        and place.appended_at_us == record.appended_at_us
        and (record.offset >= 0 or stated)
    )


def _late(record: Record, log: LogReading) -> bool:
    """Whether statements before this one may have been compacted away unread (3.17.3)."""
    if log.compaction_delay_s is None or not record.token:
        return False
    return log.now_us - record.appended_at_us > log.compaction_delay_s * _US


def _worst(one: str | None, other: str | None) -> str | None:
    return max(
        (severity for severity in (one, other) if severity in SEVERITIES),
        key=SEVERITIES.index,
        default=None,
    )


def _digest(record: Record) -> int:
    """64 bits, signed as databases have them."""
    digest = hashlib.blake2b(record.body, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _place(record: Record) -> RecordHeader:
    return RecordHeader(
        "",
        record.key,
        record.kind,
        "",
        record.appended_at_us,
        record.partition,
        record.offset,
    )
