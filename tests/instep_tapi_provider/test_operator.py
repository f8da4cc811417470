"""What happens in the network, as the streams state it: alarms, record strategies, storms."""

import asyncio
import json
import random
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_tapi.facts.names import AlarmDetectorState, LogRecordStrategy
from instep_tapi_provider import CONDITIONS, Faults, Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.alarms import MEASURED_CLASSES, conditions_of
from instep_tapi_provider.changes import GONE, differences, merge, skeleton
from instep_tapi_provider.storm import Storm, StormSettings
from tests.instep_tapi_provider.client_kit import (
    connected,
    held,
    key,
    kind,
    network,
    one_stream,
    truth,
    until,
)

ENTITIES = 11


def state(record: dict[str, Any]) -> str:
    detector = record["log-record-body"]["condition-detector"]
    return str(detector["alarm-condition-detector-detail"]["alarm-detector-state"])


def logged(provider: Provider, stream: str) -> list[dict[str, Any]]:
    return [json.loads(record.data) for record in provider.stream(stream).log]


@pytest.mark.asyncio
async def test_st_3_2_alarms_have_a_stream_of_their_own() -> None:
    async with Provider(network()) as provider, connected(provider, "alarms") as client:
        alarm = provider.raise_alarm("n0p0", "LOS")
        record = await client.frame()
        assert key(record) == alarm
        detector = record["log-record-body"]["condition-detector"]
        assert detector["detector-native-id"] == alarm
        assert detector["measured-entity-uuid"] == "n0p0"
        assert detector["measured-entity-class"] == "NODE_EDGE_POINT"
        assert detector["condition-native-name"] == "Loss Of Signal"
        assert detector["condition-normalized-name"] == "LOS"
        assert -(2**63) <= int(alarm) < 2**63
        legacy = detector["alarm-condition-detector-detail"]["legacy-properties"]
        assert legacy["perceived-severity"] == "CRITICAL"
        assert legacy["service-affect"] == "SERVICE_AFFECTING"
        assert provider.entities("network").keys() & {alarm} == set()


@pytest.mark.asyncio
async def test_4_4_an_alarm_goes_through_its_states_and_clear_is_followed_by_tombstone() -> None:
    async with Provider(network()) as provider:
        alarm = provider.raise_alarm("n0", "FANFAIL")
        provider.operator.change_alarm(alarm, state=AlarmDetectorState.INTERMITTENT)
        provider.operator.change_alarm(alarm, severity="MINOR", acknowledged=True)
        assert list(truth(provider, "alarms")) == [alarm]
        provider.clear_alarm(alarm)
        records = logged(provider, "alarms")
        assert [kind(r) for r in records] == ["CREATE_UPDATE"] * 4 + ["TOMBSTONE"]
        assert [state(r).removeprefix("ALARM_DETECTOR_STATE_") for r in records[:4]] == [
            "ACTIVE",
            "INTERMITTENT",
            "INTERMITTENT",
            "CLEAR",
        ]
        assert {key(r) for r in records} == {alarm}
        assert truth(provider, "alarms") == {}
        assert provider.raise_alarm("n0", "FANFAIL") == alarm, "a detector lives on"


@pytest.mark.asyncio
async def test_4_4_a_tombstone_alone_clears_as_well() -> None:
    async with Provider(network()) as provider:
        alarm = provider.raise_alarm("n0", "FANFAIL")
        provider.clear_alarm(alarm, tombstone_only=True)
        assert [kind(r) for r in logged(provider, "alarms")] == ["CREATE_UPDATE", "TOMBSTONE"]
        assert truth(provider, "alarms") == {}


@pytest.mark.asyncio
async def test_4_4_alarms_at_a_deleted_entity_are_tombstoned() -> None:
    async with Provider(network()) as provider:
        gone, stays = provider.raise_alarm("n0p0", "LOS"), provider.raise_alarm("n1p0", "LOS")
        provider.delete("n0")
        assert list(truth(provider, "alarms")) == [stays]
        last = logged(provider, "alarms")[-1]
        assert (key(last), kind(last)) == (gone, "TOMBSTONE")


def test_several_detectors_of_one_condition_are_several_alarms() -> None:
    provider = Provider(network())
    keys = {provider.raise_alarm("n0", "FANFAIL", detector=n) for n in range(3)}
    assert len(keys) == 3


def test_many_random_alarms_fit_their_entities_and_are_reproducible() -> None:
    first, second = Provider(network()), Provider(network())
    assert first.raise_alarms(500) == second.raise_alarms(500)
    assert len(truth(first, "alarms")) == 500
    for content in truth(first, "alarms").values():
        names = {c.name for c in conditions_of(content["measured-entity-class"])}
        assert content["condition-normalized-name"] in names


def test_the_table_of_conditions_is_sound() -> None:
    assert len({c.name for c in CONDITIONS}) == len(CONDITIONS) > 30
    assert {c.severity for c in CONDITIONS} <= {"CRITICAL", "MAJOR", "MINOR", "WARNING"}
    assert {"NODE", "NODE_EDGE_POINT", "CONNECTION_END_POINT", "LINK"} <= MEASURED_CLASSES


def test_what_is_not_there_is_named() -> None:
    provider = Provider(network())
    with pytest.raises(ConfigurationError, match="no entity has the key 'x'"):
        provider.update("x", {})
    with pytest.raises(ConfigurationError, match="no condition is named 'x'"):
        provider.raise_alarm("n0", "x")
    with pytest.raises(ConfigurationError, match="no alarm has the key 'x'"):
        provider.clear_alarm("x")
    with pytest.raises(ConfigurationError, match="no stream is named 'x'"):
        provider.entities("x")
    with pytest.raises(ConfigurationError, match="cannot be deleted"):
        provider.delete("ctx")
    with pytest.raises(ConfigurationError, match="needs a uuid"):
        provider.create("top", "node", {})


def test_differences_name_the_smallest_members_and_merge_takes_them_back() -> None:
    old = {"uuid": "e", "a": {"x": 1, "y": 2}, "gone": 1, "list": [1], "flag": 1}
    new = {"uuid": "e", "a": {"x": 1, "y": 3, "z": {}}, "list": [1, 2], "flag": True}
    found = dict(differences(old, new))
    assert found == {
        ("gone",): GONE,
        ("a", "y"): 3,
        ("a", "z"): {},
        ("list",): [1, 2],
        ("flag",): True,
    }
    assert skeleton("e", ("a", "y"), 3) == {"uuid": "e", "a": {"y": 3}}
    merge(old, {"a": {"y": 3, "z": {}}, "gone": None, "list": [1, 2], "flag": True})
    assert old == new


@pytest.mark.asyncio
async def test_3_8_2_2_change_only_states_the_changed_member_under_a_key_of_its_own() -> None:
    settings = one_stream(record_strategy=LogRecordStrategy.CHANGE_ONLY)
    async with Provider(network(), settings) as provider, connected(provider) as client:
        await client.records(ENTITIES)
        provider.update("n0", {"operational-state": "DISABLED", "extra": {"deep": {"er": 1}}})
        provider.update("n0", {"extra": {"deep": None}})
        provider.update("n0", {"extra": {}})
        state_, extra, gone = await client.records(3)
        assert (key(state_), key(extra)) == ("n0/operational-state", "n0/extra")
        assert state_["log-record-body"]["node"] == {
            "uuid": "n0",
            "operational-state": "DISABLED",
        }
        assert (key(gone), kind(gone)) == ("n0/extra/deep", "TOMBSTONE")
        assert truth(provider)["n0"]["extra"] == {}
        await client.silence()
        provider.delete("n0")
        ends = await client.records(6)
        assert key(ends[-1]) == "n0", "the whole entity's key ends it with its parts"


@pytest.mark.asyncio
async def test_3_8_2_3_periodic_statements_come_without_a_change_and_stop_when_quiet() -> None:
    settings = one_stream(
        record_strategy=LogRecordStrategy.WHOLE_ENTITY_PERIODIC, statement_period_s=0.05
    )
    async with Provider(network(), settings) as provider, connected(provider) as client:
        records = await client.records(3 * ENTITIES)
        assert [key(r) for r in records[:ENTITIES]] == [key(r) for r in records[ENTITIES:22]]
        provider.set_faults(quiet=True)
        newest = provider.stream("all").log.next_ordinal
        await asyncio.sleep(0.15)
        assert provider.stream("all").log.next_ordinal == newest


def storm(provider: Provider, keys: int | None = None, seed: int = 1) -> Storm:
    return Storm(provider.operator, StormSettings(1000, keys), random.Random(seed), provider.faults)


def test_a_storm_over_few_keys_stays_on_them() -> None:
    provider = Provider(network(20, 4))
    provider.raise_alarms(50)
    before = {s.stream_id: s.log.next_ordinal for s in provider.streams}
    weather = storm(provider, keys=5)
    for _ in range(500):
        weather.change()
    for stream in provider.streams:
        later = [json.loads(r.data) for r in stream.log][before[stream.stream_id] :]
        assert 0 < len({key(r) for r in later}) <= 5


def test_a_storm_is_the_same_from_the_same_seed_and_states_the_truth() -> None:
    providers = [Provider(network(20, 4)) for _ in range(2)]
    for provider in providers:
        provider.raise_alarms(50)
        weather = storm(provider)
        for _ in range(2000):
            weather.change()
    for stream in ("network", "alarms"):
        assert providers[0].entities(stream).keys() == providers[1].entities(stream).keys()
        assert held(logged(providers[0], stream)) == truth(providers[0], stream)
    kinds = {kind(r) for r in logged(providers[0], "alarms")}
    assert kinds == {"CREATE_UPDATE", "TOMBSTONE"}


@pytest.mark.asyncio
async def test_a_storm_runs_at_its_rate_until_it_is_stopped_or_quiet() -> None:
    async with Provider(network(20, 4)) as provider:
        provider.raise_alarms(20)
        log = provider.stream("alarms").log
        await provider.start_storm(2000)
        await until(lambda: log.next_ordinal > 300, "a storm")
        provider.set_faults(quiet=True)
        await asyncio.sleep(0.05)
        newest = log.next_ordinal
        await asyncio.sleep(0.05)
        assert log.next_ordinal == newest
        provider.set_faults(quiet=False)
        await until(lambda: log.next_ordinal > newest, "the storm's return")
        await provider.stop_storm()


@pytest.mark.asyncio
async def test_a_storm_is_a_fault_like_the_others() -> None:
    async with Provider(network(), faults=Faults(storm_changes_per_s=500.0)) as provider:
        log = provider.stream("alarms").log
        await until(lambda: log.next_ordinal > 50, "a storm")
        with pytest.raises(ConfigurationError, match="rate above 0"):
            provider.set_faults(storm_changes_per_s=-1)
        assert provider.faults.storm_changes_per_s == 0


@pytest.mark.asyncio
async def test_a_client_in_a_storm_ends_with_the_truth() -> None:
    streams = (StreamSettings("all", compaction_delay_s=0.2, tombstone_retention_s=30),)
    settings = ProviderSettings(streams=streams)
    async with (
        Provider(network(20, 4), settings, faults=Faults()) as provider,
        connected(provider) as client,
    ):
        provider.raise_alarms(50)
        await provider.start_storm(3000)
        records = await client.records(2000)
        await provider.stop_storm()
        while held(records) != truth(provider):
            records.append(await client.frame())


@pytest.mark.parametrize("wrong", [{"changes_per_s": 0}, {"changes_per_s": 1, "keys": 0}])
def test_a_storm_of_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        StormSettings(**wrong)
