"""What the floor writes beside the entities where the product keeps references, a projection or the
episodes of alarms: the same columns, of the last record of each key, without any comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["SCHEMA", "WRITE", "kept_rows"]

_ALARM: Final = "key, condition, measured_uuid, measured, state, severity, acknowledged, raised_at"
SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS reference (
    key TEXT, role TEXT, name TEXT, uuid TEXT, PRIMARY KEY (key, role, name, uuid)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reference_uuid ON reference (uuid);
CREATE TABLE IF NOT EXISTS alarm ({_ALARM}, PRIMARY KEY (key));
CREATE INDEX IF NOT EXISTS alarm_uuid ON alarm (measured_uuid);
"""
_WRITE_ALARM: Final = f"INSERT OR REPLACE INTO alarm ({_ALARM}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
WRITE: Final = {
    "references": "INSERT OR REPLACE INTO reference VALUES (?, ?, ?, ?)",
    "projection": _WRITE_ALARM,
    "alarms": _WRITE_ALARM,
}


class _Legacy(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    perceived_severity: str = ""
    is_acknowledged: bool = False


class _Detail(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    alarm_detector_state: str = ""
    legacy_properties: _Legacy = _Legacy()


class _Detector(msgspec.Struct, rename="kebab", gc=False):
    condition_native_name: str = ""
    measured_entity_uuid: str = ""
    measured_entity_native_id: str = ""
    alarm_condition_detector_detail: _Detail = _Detail()


class _Body(msgspec.Struct, rename="kebab", gc=False):
    event_time_stamp: msgspec.Raw
    condition_detector: _Detector


_body = msgspec.json.Decoder(_Body).decode
_any = msgspec.json.Decoder().decode


def _references(key: str, body: bytes) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    left: list[tuple[str, Any]] = [("", _any(body))]
    while left:
        role, value = left.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, (dict, list)):
                    left.append((name, inner))
                elif isinstance(inner, str) and name.endswith("-uuid"):
                    found.append((key, role, name, inner))
        else:
            left += [(role, inner) for inner in value if isinstance(inner, (dict, list))]
    return found


def _alarm(key: str, body: bytes) -> list[tuple[Any, ...]]:
    read = _body(body)
    detector = read.condition_detector
    detail = detector.alarm_condition_detector_detail
    return [
        (
            key,
            detector.condition_native_name,
            detector.measured_entity_uuid,
            detector.measured_entity_native_id,
            detail.alarm_detector_state,
            detail.legacy_properties.perceived_severity,
            detail.legacy_properties.is_acknowledged,
            bytes(read.event_time_stamp),
        )
    ]


_ROWS: Final[Mapping[str, Callable[[str, bytes], list[tuple[Any, ...]]]]] = {
    "references": _references,
    "projection": _alarm,
    "alarms": _alarm,
}


def kept_rows(kept: str, bodies: Mapping[str, bytes]) -> list[tuple[Any, ...]]:
    """The rows for these keys; none where nothing is kept."""
    rows = _ROWS.get(kept)
    if rows is None:
        return []
    return [row for key, body in bodies.items() for row in rows(key, body)]
