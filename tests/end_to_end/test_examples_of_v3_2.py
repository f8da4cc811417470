"""The examples that TR-548 v3.2 prints, read to the value that their text states, by clause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from instep_sql import SqlStore
from instep_tapi.derivations.alarms import AlarmEpisode, alarms
from tests.end_to_end.test_change_records import committed
from tests.instep_tapi.small_provider_kit import SmallProvider, running, stated

pytestmark = pytest.mark.asyncio

HEADER = {
    "token": "Rfm8:1666904039108_0:-1379579382:AAAAAQAAgnk=",
    "log-append-time-stamp": "2022-10-27T20:46:35.359Z",
    "entity-key": "-1542773359860369954",
    "record-type": "RECORD_TYPE_CREATE_UPDATE",
    "full-log-record-offset-id": [
        {"value-name": "partition", "value": "0"},
        {"value-name": "offset", "value": "377"},
    ],
}
ALARM = {
    "condition-native-name": "Loss Of Signal",
    "measured-entity-uuid": "113f57a4-74a5-36a4-7a4b-5f4ffa38159a",
    "measured-entity-native-id": "fac-63782-1uag",
    "measured-entity-device-native-name": "LON_76728A",
    "condition-normalized-name": "LOS",
    "measured-entity-class": "CONNECTIVITY_OBJECT_TYPE_CONNECTION_END_POINT",
    "detector-uuid": "10d490f2-3e3d-38d9-9346-4c923fa38195",
    "detector-native-id": "-1542773359860369954",
    "condition-detector-type": " CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
    "tapi-fm:detected-condition": {
        "detected-condition-name": "ALARM_NAME_LOS",
        "detected-condition-native-name": "Loss Of Signal",
        "detected-condition-native-info": "56",
        "detector-info": {
            "perceived-severity": "CRITICAL",
            "service-affecting": "SERVICE_AFFECTING",
            "is-acknowledged": False,
            "detector-category": "DETECTOR_CATEGORY_CONNECTIVITY",
        },
        "simple-detector": {"simple-detector-state": "SIMPLE_DETECTOR_STATE_ACTIVE"},
    },
    "tapi-vendor-detector-info:detector-info": {
        "node-type": "Plant",
        "self-clearing": True,
        "number-of-occurrences": "10",
    },
}
COMPACT = {
    "measured-entity-native-id": "fac-63782-1uag",
    "measured-entity-device-native-name": "LON_76728A",
    "detector-native-id": "-1542773359860369954",
    "condition-detector-type": " CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
    "tapi-fm:detected-condition": {
        "detected-condition-name": "ALARM_NAME_LOS",
        "detected-condition-native-name": "Loss Of Signal",
        "simple-detector": {"simple-detector-state": "SIMPLE_DETECTOR_STATE_ACTIVE"},
    },
}


def record(detector: Any, **time: str) -> bytes:
    """A record of the appendix; its time is nested, as there."""
    stamp = {"primary-time-stamp": "2022-04-01T07:04:36.101Z", **time}
    stamp["source-precision"] = "SOURCE_PRECISION_SYNCHRONIZED"
    body = {
        "event-time-stamp": {"approx-date-and-time": stamp},
        "record-content": "CONDITION_DETECTOR",
        "condition-detector": detector,
    }
    return json.dumps({"log-record-header": HEADER, "log-record-body": body}).encode()


async def alarm_of(frame: bytes, tmp_path: Path) -> AlarmEpisode:
    """The alarm that a store has after this record."""
    provider = SmallProvider("CONDITION_DETECTOR", log=[frame], storage="COMPACTED")
    store = SqlStore(f"sqlite:///{tmp_path / 's.db'}", alarms=True)
    async with running(provider, store):
        await committed(store, frame)
        (found,) = [one async for one in alarms(store.reader)]
        return found


async def test_v3_2_8_appendix_the_alarm(tmp_path: Path) -> None:
    one = await alarm_of(record(ALARM, spread="SPREAD_AT"), tmp_path)
    assert (one.key, one.state, one.ended_by) == ("-1542773359860369954", "ACTIVE", None)
    assert (one.condition, one.condition_normalized) == ("Loss Of Signal", "LOS")
    assert (one.severity, one.service_affect) == ("CRITICAL", "SERVICE_AFFECTING")
    assert one.acknowledged is False
    assert one.measured_class == "CONNECTION_END_POINT"
    assert one.measured_uuid == "113f57a4-74a5-36a4-7a4b-5f4ffa38159a"
    assert one.measured_native_id == "fac-63782-1uag"


async def test_v3_2_8_appendix_the_more_compact_alarm(tmp_path: Path) -> None:
    one = await alarm_of(record(COMPACT), tmp_path)
    assert (one.key, one.state, one.ended_by) == ("-1542773359860369954", "ACTIVE", None)
    assert (one.condition, one.condition_normalized) == ("Loss Of Signal", "ALARM_NAME_LOS")
    assert (one.severity, one.acknowledged) == (None, None)


T, N = "4e537278-79f8-39ad-804b-f0b553cb2ffb", "7f65a8c1-4e0d-3296-b06a-460b2367ca76"


@pytest.mark.parametrize(
    ("entity_class", "entity", "parent"),
    [
        (
            "CONNECTION_END_POINT",
            {"uuid": "c"},
            [
                f"topology-uuid:{T}",
                f"node-uuid:{N}",
                "node-edge-point-uuid:e35a31b2-1096-38f9-8e3e-dca010e2f191",
            ],
        ),
        (
            "RULE",
            {"local-id": "7"},
            [
                f"topology-uuid:{T}",
                f"node-uuid:{N}",
                "node-rule-group-uuid:a35e32c2-1256-3a89-203e-dca111e2f191",
                "rule-local-id:7",
            ],
        ),
        (
            "RESILIENCE_ROUTE",
            {"local-id": "1"},
            [
                "connection-uuid:e35a31b2-79f8-39ad-804b-f0b553cb2ffb",
                "route-local-id:4",
                "resilience-route-local-id:1",
            ],
        ),
    ],
)
async def test_v3_2_3_10_3_a_parent_address_is_stored_as_it_is_printed(
    entity_class: str, entity: Any, parent: list[str], tmp_path: Path
) -> None:
    frame = stated(1, "k", entity_class, entity, "CREATE_UPDATE", parent)
    provider = SmallProvider(entity_class, log=[frame], storage="COMPACTED")
    store = SqlStore(f"sqlite:///{tmp_path / 's.db'}")
    async with running(provider, store):
        await committed(store, frame)
        (one,) = [each async for each in store.reader.entities()]
        assert json.loads(one.envelope)["parent-address"] == parent
        (stream,) = await store.reader.streams()
        assert not any(kind.startswith("parent-address") for kind in stream.deviations)


CEP = "c57d1b6e-1a3c-3a4e-9d5b-2c1f0e9b7a61"


async def test_v3_2_3_10_3_a_delete_names_its_entity_by_uuid_alone(tmp_path: Path) -> None:
    parent = [f"topology-uuid:{T}", f"node-uuid:{N}", "node-edge-point-uuid:e"]
    whole = stated(1, CEP, "CONNECTION_END_POINT", {"uuid": CEP}, "CREATE", parent)
    provider = SmallProvider("CONNECTION_END_POINT", log=[whole], storage="COMPACTED")
    store = SqlStore(f"sqlite:///{tmp_path / 's.db'}")
    async with running(provider, store):
        await committed(store, whole)
        provider.say(stated(2, CEP, kind="DELETE"), stated(3, CEP, kind="TOMBSTONE"))
        await committed(store, provider.log[-1])
        assert [each async for each in store.reader.entities()] == []
        (stream,) = await store.reader.streams()
        assert stream.deviations == {}


LISTED = {"uuid": "n1", "name": [{"value-name": "a", "value": "1"}], "layers": ["ODU", "DSR"]}
NESTED = {"capacity": {"total": {"value": 10}, "free": {"value": 4}}}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"layers": ["ODU", "OTSI", "DSR"]}, id="an item is inserted"),
        pytest.param({"layers": ["DSR"]}, id="an item is removed"),
        pytest.param({"layers": []}, id="the last item is removed"),
        pytest.param({"layers": ["DSR", "ODU"]}, id="items are rearranged"),
        pytest.param({"name": [{"value-name": "b", "value": "2"}]}, id="a keyed item is replaced"),
        pytest.param({"name": []}, id="the last keyed item is removed"),
        pytest.param(
            {"capacity": {"total": {"value": 10}, "free": {"value": 0}}},
            id="a whole structure is sent for one property",
        ),
    ],
)
@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
async def test_v3_2_5_3_a_change_sends_a_whole_subtree(
    changed: Any, storage: str, tmp_path: Path
) -> None:
    before = LISTED | NESTED
    whole = stated(1, "n1", "NODE", before, "CREATE", [])
    change = stated(2, "n1", "NODE", {"uuid": "n1", **changed}, "CHANGE", [])
    compacted = storage == "COMPACTED"
    log = [whole] if compacted else []
    provider = SmallProvider("NODE", log=log, storage=storage, records="CHANGE_ONLY")
    provider.shows("n1")
    provider.context = provider.context.replace(b'{"uuid": "n1"}', json.dumps(before).encode())
    store = SqlStore(f"sqlite:///{tmp_path / 's.db'}")
    async with running(provider, store):
        provider.say(change)
        await committed(store, change)
        (one,) = [each async for each in store.reader.entities()]
        assert json.loads(one.body) == before | changed


PRINTED = "/tapi/data/context/stream-context/available-stream=e35a31b2-1096-38f9-8e3e-dca010e2f191"


@pytest.mark.parametrize(("storage", "first"), [("COMPACTED", "oldest"), ("TRUNCATED", "latest")])
async def test_v3_2_7_11_1_a_stream_is_opened_at_the_address_that_is_printed(
    storage: str, first: str, tmp_path: Path
) -> None:
    provider = SmallProvider("NODE", log=[], storage=storage)
    provider.path = PRINTED
    store = SqlStore(f"sqlite:///{tmp_path / 's.db'}")
    async with running(provider, store):
        provider.say(stated(1, "n1", "NODE", {"uuid": "n1"}, "CREATE", []))
        await committed(store, provider.log[-1])
        provider.cut()
        provider.say(stated(2, "n2", "NODE", {"uuid": "n2"}, "CREATE", []))
        await committed(store, provider.log[-1])
        assert provider.opened_at[:2] == [first, "t1"]
