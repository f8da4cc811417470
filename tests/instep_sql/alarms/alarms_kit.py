"""Statements of condition-detectors, and a store that keeps their episodes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from instep.model.records import Record, RecordType
from instep.model.streams import StreamInfo
from instep_sql import SqlStore
from instep_tapi.derivations.alarms import AlarmEpisode, alarms
from tests.instep_sql.store_kit import STREAM, Stage, stream_info

S = 1_000_000
ALARM = {
    "condition-native-name": "Loss Of Signal",
    "measured-entity-uuid": "port-1",
    "measured-entity-class": "NODE_EDGE_POINT",
    "condition-detector-type": "CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
}


def statement(
    at_s: int,
    state: str | None = "ACTIVE",
    severity: str | None = None,
    key: str = "d1",
    **changes: Any,
) -> Record:
    """A statement appended at `at_s`, about what happened then."""
    body: dict[str, Any] = {**ALARM, **changes}
    if state is not None:
        detail: dict[str, Any] = {"alarm-detector-state": f"ALARM_DETECTOR_STATE_{state}"}
        if severity is not None:
            detail["legacy-properties"] = {"perceived-severity": severity}
        body["alarm-condition-detector-detail"] = detail
    return Record(
        STREAM,
        key,
        RecordType.CREATE_UPDATE,
        f"t{at_s}",
        at_s * S,
        "0",
        at_s,
        "CONDITION_DETECTOR",
        json.dumps(body).encode(),
        envelope(at_s),
        ends=state == "CLEAR",
    )


def envelope(event_s: int) -> bytes:
    moment = f"1970-01-01T{event_s // 3600:02}:{event_s // 60 % 60:02}:{event_s % 60:02}.000Z"
    stamp = {
        "primary-time-stamp": moment,
        "spread": "SPREAD_AT",
        "source-precision": "tapi-streaming:SOURCE_PRECISION_SYNCHRONIZED",
    }
    return json.dumps({"event-time-stamp": stamp, "parent-address": ["node-uuid:n1"]}).encode()


def header_end(at_s: int, kind: RecordType, key: str = "d1") -> Record:
    return Record(
        STREAM, key, kind, f"t{at_s}{kind.name}", at_s * S, "0", at_s, envelope=b"{}", ends=True
    )


@asynccontextmanager
async def alarms_stage(
    database: str, info: StreamInfo | None = None, now_s: int = 0, **options: Any
) -> AsyncIterator[Stage]:
    store = SqlStore(database, clock_us=lambda: now_s * S, **{"alarms": True, **options})
    async with store:
        await store.open("c")
        yield Stage(store, await store.position(info or stream_info()))


async def episodes(at: Stage, **chosen: Any) -> list[AlarmEpisode]:
    return [one async for one in alarms(at.store.reader, **chosen)]
