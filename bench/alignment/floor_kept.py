"""What the floor writes beside the entities where the product keeps references, a projection or the
episodes of alarms: the same rows with the same columns and indexes, of the last record of each key,
without any comparison. The alarms that are sent stand at no place, in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

__all__ = ["KEPT", "SCHEMA", "Kept", "kept_rows"]

Kept = Mapping[str, list[tuple[Any, ...]]]
"""Rows by the statement that writes them, with a place for the marks of its values."""

_ALARM: Final = "key, condition, measured_uuid, measured, state, severity, acknowledged"
_STATED: Final = (
    *("stated_at_us", "event", "state", "last_state", "acknowledged", "reduced", "ended_by"),
    *("severity", "worst_severity", "cleared_at_us", "cleared_from_us", "cleared_spread"),
    *("cleared_precision", "lineage", "attempt", "partition", "offset_no", "appended_at"),
    *("digest", "service_affect", "info", "condition", "condition_normalized", "detector_type"),
    *("detector_native_id", "detector_uuid", "measured_class", "measured_uuid"),
    *("measured_native_id", "measured_local_id", "node_uuid"),
)
"""Of an episode: what each statement says anew."""
_BEGUN: Final = (
    *("key", "number", "statements", "first_raised_at_us", "raised_at_us", "raised_from_us"),
    *("raised_spread", "raised_precision", "severity_changes", "intermittent_count"),
    "flapping_count",
)
_EPISODE: Final = ", ".join((*_BEGUN, *_STATED))
SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS reference (
    key TEXT, role TEXT, name TEXT, uuid TEXT, since_us INTEGER,
    PRIMARY KEY (key, role, name, uuid)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reference_uuid ON reference (uuid);
CREATE TABLE IF NOT EXISTS alarm ({_ALARM}, PRIMARY KEY (key));
CREATE INDEX IF NOT EXISTS alarm_uuid ON alarm (measured_uuid);
CREATE TABLE IF NOT EXISTS episode (id INTEGER PRIMARY KEY, {_EPISODE}, UNIQUE (key, number));
CREATE INDEX IF NOT EXISTS episode_uuid ON episode (measured_uuid);
CREATE INDEX IF NOT EXISTS episode_standing ON episode (key) WHERE ended_by IS NULL;
"""
# A reference that is there stays as it is.
_REFERENCES: Final = "INSERT OR IGNORE INTO reference VALUES {}"
_ALARMS: Final = f"INSERT OR REPLACE INTO alarm ({_ALARM}) VALUES {{}}"
_EPISODES: Final = (
    f"INSERT INTO episode ({_EPISODE}) VALUES {{}} ON CONFLICT (key, number) DO UPDATE SET "
    "statements = statements + 1, " + ", ".join(f"{name} = excluded.{name}" for name in _STATED)
)


class _Legacy(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    perceived_severity: str = ""
    is_acknowledged: bool = False
    service_affect: str = ""
    additional_alarm_info: msgspec.Raw = msgspec.Raw()


class _Detail(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    alarm_detector_state: str = ""
    legacy_properties: _Legacy = _Legacy()


class _Detector(msgspec.Struct, rename="kebab", gc=False):
    condition_native_name: str = ""
    measured_entity_uuid: str = ""
    measured_entity_native_id: str = ""
    detector_uuid: str = ""
    detector_native_id: str = ""
    condition_detector_type: str = ""
    alarm_condition_detector_detail: _Detail = _Detail()


class _Time(msgspec.Struct, rename="kebab", gc=False):
    primary_time_stamp: datetime
    spread: str
    source_precision: str


class _Nested(msgspec.Struct, rename="kebab", gc=False):
    approx_date_and_time: _Time


class _Body(msgspec.Struct, rename="kebab", gc=False):
    condition_detector: _Detector


class _Timed(msgspec.Struct, rename="kebab", gc=False):
    event_time_stamp: _Nested
    condition_detector: _Detector


_body = msgspec.json.Decoder(_Body).decode
_timed = msgspec.json.Decoder(_Timed).decode
_any = msgspec.json.Decoder().decode


def _references(bodies: Mapping[str, bytes]) -> Kept:
    now_us = time.time_ns() // 1_000
    references: list[tuple[Any, ...]] = []
    for key, body in bodies.items():
        named = body.count(b'-uuid"')
        left: list[tuple[str, Any]] = [("", _any(body))]
        while left and named:
            role, value = left.pop()
            if type(value) is dict:
                for name, inner in value.items():
                    if name[-5:] == "-uuid":
                        named -= 1
                        references.append((key, role, name, inner, now_us))
                    elif type(inner) is dict or type(inner) is list:
                        left.append((name, inner))
            else:
                left += [(role, inner) for inner in value if type(inner) is not str]
    return {_REFERENCES: references}


def _projection(bodies: Mapping[str, bytes]) -> Kept:
    rows: list[tuple[Any, ...]] = []
    for key, body in bodies.items():
        detector = _body(body).condition_detector
        detail = detector.alarm_condition_detector_detail
        rows.append(
            (
                key,
                detector.condition_native_name,
                detector.measured_entity_uuid,
                detector.measured_entity_native_id,
                detail.alarm_detector_state,
                detail.legacy_properties.perceived_severity,
                detail.legacy_properties.is_acknowledged,
            )
        )
    return {_ALARMS: rows}


def _episodes(bodies: Mapping[str, bytes]) -> Kept:
    now_us = time.time_ns() // 1_000
    rows: list[tuple[Any, ...]] = []
    for key, body in bodies.items():
        read = _timed(body)
        at, detector = read.event_time_stamp.approx_date_and_time, read.condition_detector
        at_us = int(at.primary_time_stamp.timestamp() * 1e6)
        detail = detector.alarm_condition_detector_detail
        legacy = detail.legacy_properties
        state, severity = detail.alarm_detector_state, legacy.perceived_severity
        rows.append(
            (
                *(key, 1, 1, at_us, at_us, None, at.spread, at.source_precision, 0, 0, 0),
                *(at_us, 0, state, state, legacy.is_acknowledged, 0, None),
                *(severity, severity, None, None, None, None, 1, 1, "0", 0, now_us),
                *(hash(body), legacy.service_affect, bytes(legacy.additional_alarm_info)),
                *(detector.condition_native_name, None, detector.condition_detector_type),
                *(detector.detector_native_id, detector.detector_uuid, None),
                *(detector.measured_entity_uuid, detector.measured_entity_native_id, None, None),
            )
        )
    return {_EPISODES: rows}


KEPT: Final[Mapping[str, Callable[[Mapping[str, bytes]], Kept]]] = {
    "references": _references,
    "projection": _projection,
    "alarms": _episodes,
}


def kept_rows(kept: str, bodies: Mapping[str, bytes]) -> Kept:
    """The rows for these keys; none where nothing is kept."""
    rows = KEPT.get(kept)
    return {} if rows is None else rows(bodies)
