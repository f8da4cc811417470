"""Alarms of TAPI 2.4 and later, from their frames to their episodes (TR-548 v3.2 4.5.2)."""

from __future__ import annotations

import json
from typing import cast

import pytest

from instep.model.records import Record
from instep_tapi.derivations.alarms import AlarmEpisode
from instep_tapi.wire.decoder import FrameDecoder
from tests.instep_sql.alarms.alarms_kit import alarms_stage, episodes
from tests.instep_sql.store_kit import STREAM, Stage

pytestmark = pytest.mark.asyncio


def statements(*states: str, key: str = "d1", detector: str = "ALARM_DETECTOR") -> list[Record]:
    """Records of one detector, a second apart, as a provider of 2.6 sends them."""
    frames = []
    for at, state in enumerate(states, 1):
        header = {
            "token": f"t{at}",
            "log-append-time-stamp": f"2026-11-27T10:00:{at:02}Z",
            "entity-key": key,
            "record-type": "tapi-streaming:RECORD_TYPE_CREATE_UPDATE",
            "full-log-record-offset-id": [
                {"value-name": "partition", "value": "0"},
                {"value-name": "offset", "value": str(at)},
            ],
        }
        condition = {
            "detected-condition-name": "tapi-fm:ALARM_NAME_NATIVE",
            "detected-condition-native-name": "Loss Of Signal",
            "detector-info": {"perceived-severity": "MAJOR", "is-acknowledge": False},
            "simple-detector": {"simple-detector-state": f"tapi-fm:SIMPLE_DETECTOR_STATE_{state}"},
        }
        body = {
            "event-time-stamp": {"primary-time-stamp": f"2026-11-27T10:00:{at:02}Z"},
            "record-content": "tapi-streaming:STREAMING_OBJECT_TYPE_CONDITION_DETECTOR",
            "condition-detector": {
                "detector-native-id": key,
                "condition-detector-type": f"tapi-streaming:CONDITION_DETECTOR_TYPE_{detector}",
                "tapi-fm:detected-condition": condition,
            },
        }
        record = {
            "tapi-streaming:log-record-header": header,
            "tapi-streaming:log-record-body": body,
        }
        frames.append(json.dumps(record).encode())
    decoder = FrameDecoder(STREAM)
    chunk = decoder.scan(frames).decoded()
    assert not chunk.unreadable
    return cast("list[Record]", list(chunk.records))


async def shown(at: Stage) -> list[tuple[str, str | None, str | None]]:
    """Of each episode and event: state, end and condition."""
    found: list[AlarmEpisode] = [*await episodes(at), *await episodes(at, events=True)]
    return [(one.state, one.ended_by, one.condition) for one in found]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("ACTIVE",), [("ACTIVE", None)]),
        (("ACTIVE", "CLEAR"), [("CLEAR", "CLEAR")]),
        (("INTERMITTENT",), [("INTERMITTENT", None)]),
        (("FLEETING",), [("FLEETING", "EVENT")]),
        (("ACTIVE_NO_EXPLICIT_CLEAR",), [("ACTIVE_NO_EXPLICIT_CLEAR", "EVENT")]),
        # Two have happened.
        (("FLEETING", "FLEETING"), [("FLEETING", "EVENT"), ("FLEETING", "EVENT")]),
        # What stood is over.
        (("ACTIVE", "FLEETING"), [("CLEAR", "CLEAR")]),
        (("FLEETING", "ACTIVE"), [("ACTIVE", None), ("FLEETING", "EVENT")]),
        (("FLEETING", "CLEAR"), [("FLEETING", "EVENT")]),
    ],
    ids=str,
)
async def test_each_state_of_a_detector(
    database: str,
    states: tuple[str, ...],
    expected: list[tuple[str, str | None]],
    *,
    together: bool,
) -> None:
    async with alarms_stage(database) as at:
        records = statements(*states)
        for some in [records] if together else [[one] for one in records]:
            await at.commit(*some)
        assert await shown(at) == [(*one, "Loss Of Signal") for one in expected]
        standing = [state for state, end in expected if end is None]
        # An event leaves no entity that would stand.
        assert len(await at.entities()) == len(standing)


async def test_a_threshold_without_an_explicit_clear_is_an_event(database: str) -> None:
    async with alarms_stage(database) as at:
        records = statements("ACTIVE_NO_EXPLICIT_CLEAR", detector="PM_THRESHOLD_DETECTOR")
        await at.commit(*records)
        # Delivered again, and in a new attempt: it has happened once.
        await at.commit(*records)
        at.attempt += 1
        await at.commit(*records)
        (event,) = await episodes(at, events=True)
        assert (event.state, event.statements) == ("ACTIVE_NO_EXPLICIT_CLEAR", 1)
