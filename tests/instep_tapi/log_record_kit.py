"""A log-record to vary, and ways to read it."""

from __future__ import annotations

import json
from typing import Any

from instep.model.records import Record, RecordChunk
from instep_tapi.wire.decoder import FrameDecoder

APPENDED_US = 1_619_619_268_780_000
ALARM = {"condition-native-name": "ODU LOF", "detector-native-id": "-13"}
EVENT_TIME = {
    "primary-time-stamp": "2021-04-28T14:14:20.000Z",
    "spread": "SPREAD_AT",
    "source-precision": "SOURCE_PRECISION_SYNCHRONIZED",
}


def log_record(**changes: Any) -> dict[str, Any]:
    """A log-record as the published examples have it; None removes a header member."""
    header: dict[str, Any] = {
        "token": "62234255_0:-1379579382:AAAAAQAAhw4=",
        "log-append-time-stamp": "2021-04-28T14:14:28.780Z",
        "entity-key": "3669276387587255710",
        "record-type": "RECORD_TYPE_CREATE_UPDATE",
        "full-log-record-offset-id": [
            {"value-name": "partition", "value": "0"},
            {"value-name": "offset", "value": "910"},
        ],
    }
    body: dict[str, Any] | None = {
        "event-time-stamp": EVENT_TIME,
        "record-content": "CONDITION_DETECTOR",
        "condition-detector": ALARM,
    }
    body = changes.pop("body", body)
    header.update(changes)
    record: dict[str, Any] = {
        "log-record-header": {name: value for name, value in header.items() if value is not None}
    }
    return record if body is None else {**record, "log-record-body": body}


def read(*frames: Any, **options: Any) -> RecordChunk:
    return FrameDecoder("s", **options).read(
        [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
    )


def only(chunk: RecordChunk) -> Record:
    assert not chunk.unreadable
    [record] = chunk.decode().records
    return record


def refused(frame: Any) -> str:
    chunk = read(frame)
    assert chunk.records == []
    [unreadable] = chunk.unreadable
    return unreadable.reason
