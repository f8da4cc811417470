"""The tables of names and their spellings."""

import pytest

from instep_tapi.facts import names
from instep_tapi.facts.names import (
    AlarmDetectorState,
    LogRecordType,
    LogStorageStrategy,
    StreamState,
    class_named,
    class_of,
    container_of,
    long_identity,
    short_identity,
    strip_module,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tapi-streaming:RECORD_TYPE_DELETE", "DELETE"),
        ("RECORD_TYPE_DELETE", "DELETE"),
        ("DELETE", "DELETE"),
        (" CONDITION_DETECTOR_TYPE_ALARM_DETECTOR", "ALARM_DETECTOR"),
        ("tapi-streaming: STREAM_STATE_ACTIVE ", "ACTIVE"),
        ("FULL-HISTORY", "FULL_HISTORY"),
        ("LOG_STORAGE_STRATEGY_TRUNCATED", "TRUNCATED"),
        ("tapi-fm:RECORD_TYPE_INFORMATION", "INFORMATION"),
        ("vendor:SOMETHING_ELSE", "SOMETHING_ELSE"),
        ("", ""),
    ],
)
def test_short_identity_reads_every_spelling(text: str, expected: str) -> None:
    assert short_identity(text) == expected


def test_long_and_short_are_inverse_for_every_identity() -> None:
    for enum in names.IDENTITIES.values():
        for member in enum:
            assert short_identity(long_identity(member)) == member
            assert short_identity(long_identity(member, prefixed=False)) == member
            assert short_identity(member.value) == member


def test_long_identity_is_the_yang_name() -> None:
    assert long_identity(LogRecordType.TOMBSTONE) == "tapi-streaming:RECORD_TYPE_TOMBSTONE"
    assert (
        long_identity(LogStorageStrategy.COMPACTED, prefixed=False)
        == "LOG_STORAGE_STRATEGY_COMPACTED"
    )


def test_equal_names_of_two_enumerations_stay_apart() -> None:
    assert long_identity(StreamState.ACTIVE) == "tapi-streaming:STREAM_STATE_ACTIVE"
    assert long_identity(AlarmDetectorState.ACTIVE) == "tapi-streaming:ALARM_DETECTOR_STATE_ACTIVE"


# The classes of TR-548 v3.2 3.10.3, tables 1 and 3, that 2.1.3 does not have.
LATER = {
    *("PROFILE", "OAM_SERVICE_POINT", "OAM_JOB_SERVICE", "OAM_JOB_DESCRIPTOR", "CEP_PM_DATA"),
    *("MEP_PM_DATA", "MIP_PM_DATA", "CURRENT_DATA", "HISTORY_DATA", "PM_DATA"),
    *("PM_PARAMETER_CONFIG", "STRAND_JOINT", "PHYSICAL_ROUTE", "PHYSICAL_ROUTE_ELEMENT"),
    *("TOPOLOGY_CONSTRAINT", "RESILIENCE_CONSTRAINT", "RESILIENCE_ROUTE"),
    "LAYER_PROTOCOL_CONSTRAINT",
}


def test_the_classes_are_those_of_both_editions() -> None:
    # The YANG of 2.6 has four more: of the streams, of notification and of gNMI.
    more = {"OAM_PM_DATA", "MEASUREMENT_DETAILS", "NOTIFICATION_SUBSCRIPTION_SERVICE"}
    more.add("RESILIENCE_ROUTE_CONSTRAINT")
    assert LATER | more <= names.OBJECT_CLASSES
    assert len(names.OBJECT_CLASSES.difference(LATER, more)) == 49


@pytest.mark.parametrize(
    ("identity", "cls"),
    [
        ("tapi-oam:OAM_OBJECT_TYPE_MEP", "MEG_END_POINT"),
        ("tapi-oam:OAM_OBJECT_TYPE_MIP", "MEG_INTERMEDIATE_POINT"),
        ("OAM_OBJECT_TYPE_MEG", "MAINTENANCE_ENTITY_GROUP"),
        (
            "PATH_COMPUTATION_OBJECT_TYPE_PATH_COMP_PATH_SERVICE_END_POINT",
            "PATH_SERVICE_END_POINT",
        ),
        ("tapi-oam:OAM_OBJECT_TYPE_CURRENT_DATA", "CURRENT_DATA"),
        ("tapi-common:OBJECT_TYPE_PROFILE", "PROFILE"),
    ],
)
def test_what_2_6_names_anew_is_the_class_of_2_1_3(identity: str, cls: str) -> None:
    assert class_named(identity) == cls


@pytest.mark.parametrize(
    ("cls", "container"),
    [
        ("MEG_END_POINT", "mep"),
        ("MEG_INTERMEDIATE_POINT", "mip"),
        ("MAINTENANCE_ENTITY_GROUP", "meg"),
        ("NODE_EDGE_POINT", "node-edge-point"),
        ("CONDITION_DETECTOR", "condition-detector"),
        ("A_CLASS_OF_TOMORROW", "a-class-of-tomorrow"),
    ],
)
def test_container_and_class_are_inverse(cls: str, container: str) -> None:
    assert container_of(cls) == container
    assert class_of(container) == cls
    assert class_of(f"tapi-topology:{container}") == cls


@pytest.mark.parametrize("cls", ["TAPI_CONTEXT", "CONNECTION_SPEC", "MAINTENANCE_ENTITY"])
def test_classes_without_a_container(cls: str) -> None:
    assert container_of(cls) is None


@pytest.mark.parametrize(
    ("member", "cls"),
    [
        ("tapi-common:context", "TAPI_CONTEXT"),
        ("owned-node-edge-point", "NODE_EDGE_POINT"),
        ("nw-topology-service", "NETWORK_TOPOLOGY_SERVICE"),
        ("tapi-path-computation:path-comp-service", "PATH_COMPUTATION_SERVICE"),
        ("tapi-oam:history-data", "HISTORY_DATA"),
        ("end-point", "END_POINT"),
    ],
)
def test_members_of_the_context_tree_have_their_class(member: str, cls: str) -> None:
    assert class_of(member) == cls


def test_strip_module() -> None:
    assert strip_module("tapi-connectivity:cep-list") == "cep-list"
    assert strip_module("cep-list") == "cep-list"
