"""The tables of names and their spellings."""

import pytest

from instep_tapi.facts import names
from instep_tapi.facts.names import (
    AlarmDetectorState,
    LogRecordType,
    LogStorageStrategy,
    StreamState,
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


def test_there_are_the_49_classes_of_2_1_3() -> None:
    assert len(names.OBJECT_CLASSES) == len(set(names.OBJECT_CLASSES)) == 49


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
    ],
)
def test_members_of_the_context_tree_have_their_class(member: str, cls: str) -> None:
    assert class_of(member) == cls


def test_strip_module() -> None:
    assert strip_module("tapi-connectivity:cep-list") == "cep-list"
    assert strip_module("cep-list") == "cep-list"
