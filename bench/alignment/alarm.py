"""Builds the records that are sent: the alarm of TR-548 6.3, padded to 1.3 KB, in WebSocket
frames.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["RECORD_BYTES", "SHAPES", "chunks", "offset_of"]

RECORD_BYTES: Final = 1_300
_CHUNK_BYTES: Final = 1 << 16
_FIRST_KEY: Final = 3_669_276_387_587_255_710
_KEY_STEP: Final = 0x1E37_79B9_7F4A_7C15
"""Odd, so that no key comes twice; large, so that keys come in no order."""
SHAPES: Final = ("", "list", "object", "prefixed", "vendor", "no-offsets")
"""Spellings of the same record beside that of TR-548 6.3: wrapped as `{"log-record":[r]}`, or as
`{"log-record":r}`; all members of record and header with their module; a vendor's member in the
header; no full-log-record-offset-id."""
_MODULE: Final = "tapi-streaming:"
_TEXT, _LONG, _LONGER = 0x81, 126, 127


def chunks(first: int, count: int, keys: int, per_frame: int, shape: str = "") -> Iterator[bytes]:
    """Build the records at `count` offsets from `first` on, in frames, many frames to a chunk.

    They cycle through `keys` keys: each key is stated once before any is stated again. `shape` is
    one of `SHAPES`; other ones than the first have one record a frame.
    """
    template = _template(shape)
    if shape:
        per_frame = 1
    frames: list[bytes] = []
    size_bytes = 0
    for start in range(first, first + count, per_frame):
        records = [
            template % {b"offset": offset, b"key": key}
            for offset in range(start, min(start + per_frame, first + count))
            for key in [(_FIRST_KEY + offset % keys * _KEY_STEP) % 2**62]
        ]
        frame = _frame(records[0] if per_frame == 1 else b"[%b]" % b",".join(records))
        frames.append(frame)
        size_bytes += len(frame)
        if size_bytes >= _CHUNK_BYTES:
            yield b"".join(frames)
            frames.clear()
            size_bytes = 0
    yield b"".join(frames)


def offset_of(token: str) -> int:
    """Return the offset of the record that has this token."""
    return int(token.split(":")[1])


def _template(shape: str) -> bytes:
    """A record with places for its offset and key; appended just now."""
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record: dict[str, Any] = {
        "log-record-header": {
            "token": "62234255_0:%(offset)019d:AAAAQAAhw4=",
            "log-append-time-stamp": stamp,
            "entity-key": "%(key)019d",
            "record-type": "RECORD_TYPE_CREATE_UPDATE",
            "full-log-record-offset-id": [
                {"value-name": "partition", "value": "0"},
                {"value-name": "offset", "value": "%(offset)d"},
            ],
        },
        "log-record-body": {
            "event-time-stamp": {
                "approx-date-and-time": {
                    "primary-time-stamp": stamp,
                    "spread": "SPREAD_AT",
                    "source-precision": "SOURCE_PRECISION_SYNCHRONIZED",
                }
            },
            "record-content": "CONDITION_DETECTOR",
            "condition-detector": {
                "detector-uuid": "b650df3b-7081-3447-91b3-166a59101122",
                "detector-native-id": "%(key)019d",
                "alarm-condition-detector-detail": {
                    "alarm-detector-state": "ACTIVE",
                    "legacy-properties": {
                        "perceived-severity": "CRITICAL",
                        "is-acknowledged": False,
                        "service-affect": "SERVICE_AFFECTING",
                        "additional-alarm-info": ["CTP Loss of Frame, LOF"],
                    },
                },
                "condition-native-name": "ODU LOF",
                "measured-entity-uuid": "6317c7ed-9f38-30bd-8f3b-4f6c64f74837",
                "measured-entity-native-id": "SiteA54:ODUCTP-1-A-15-2-4P1-2EP78",
                "condition-detector-type": "ALARM_DETECTOR",
            },
        },
    }
    missing = RECORD_BYTES - len(_dump(record) % {b"offset": 0, b"key": 0}) - len(',""')
    information = record["log-record-body"]["condition-detector"]
    information = information["alarm-condition-detector-detail"]["legacy-properties"]
    information["additional-alarm-info"].append(("Loss of frame on the span. " * 99)[:missing])
    return _dump(_shaped(record, shape))


def _shaped(record: dict[str, Any], shape: str) -> dict[str, Any]:
    header = record["log-record-header"]
    match shape:
        case "list":
            return {"log-record": [record]}
        case "object":
            return {"log-record": record}
        case "prefixed":
            record["log-record-header"] = _prefixed(header)
            return _prefixed(record)
        case "vendor":
            record["log-record-header"] = {"x-vendor": 1, **header}
        case "no-offsets":
            del header["full-log-record-offset-id"]
    return record


def _prefixed(members: dict[str, Any]) -> dict[str, Any]:
    return {_MODULE + name: value for name, value in members.items()}


def _dump(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _frame(payload: bytes) -> bytes:
    """A text frame of a server: final and not masked (RFC 6455 5.2)."""
    size = len(payload)
    if size < _LONG:
        head = bytes([_TEXT, size])
    elif size < 1 << 16:
        head = bytes([_TEXT, _LONG]) + size.to_bytes(2, "big")
    else:
        head = bytes([_TEXT, _LONGER]) + size.to_bytes(8, "big")
    return head + payload
