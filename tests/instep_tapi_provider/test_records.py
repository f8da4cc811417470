"""The spellings of records and frames."""

import json
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_tapi.facts.names import LogRecordType
from instep_tapi_provider.log import LogRecord
from instep_tapi_provider.records import (
    IdentityStyle,
    RecordEncoder,
    RecordStyle,
    Statement,
    Wrapper,
)

APPENDED_S = 1619619268.78
EVENT_S = 1619619260.0


def record(kind: LogRecordType = LogRecordType.CREATE_UPDATE, key: str = "k") -> LogRecord:
    return LogRecord(9, key, kind, 2, 910, APPENDED_S, "62_2:-13:AAA=")


def statement(cls: str = "NODE", event_s: float | None = EVENT_S) -> Statement:
    return Statement("k", cls, b'{"uuid":"k"}', ("topology-uuid:t",), event_s)


def encoded(
    style: RecordStyle | None = None,
    kind: LogRecordType = LogRecordType.CREATE_UPDATE,
    stated: Statement | None = None,
) -> dict[str, Any]:
    encoder = RecordEncoder(style or RecordStyle())
    decoded: dict[str, Any] = json.loads(encoder.record(record(kind), stated or statement()))
    return decoded


def test_the_default_is_what_yang_and_examples_agree_on() -> None:
    assert encoded() == {
        "log-record-header": {
            "token": "62_2:-13:AAA=",
            "log-append-time-stamp": "2021-04-28T14:14:28.780Z",
            "entity-key": "k",
            "record-type": "RECORD_TYPE_CREATE_UPDATE",
            "full-log-record-offset-id": [
                {"value-name": "partition", "value": "2"},
                {"value-name": "offset", "value": "910"},
            ],
        },
        "log-record-body": {
            "event-time-stamp": {
                "primary-time-stamp": "2021-04-28T14:14:20.000Z",
                "spread": "SPREAD_AT",
                "source-precision": "SOURCE_PRECISION_SYNCHRONIZED",
            },
            "event-source": "RESOURCE_OPERATION",
            "parent-address": ["topology-uuid:t"],
            "record-content": "NODE",
            "node": {"uuid": "k"},
        },
    }


def test_a_tombstone_has_a_header_only_and_a_delete_no_content() -> None:
    assert list(encoded(kind=LogRecordType.TOMBSTONE)) == ["log-record-header"]
    body = encoded(kind=LogRecordType.DELETE)["log-record-body"]
    assert body["record-content"] == "ANY_CLASS"
    assert set(body) == {"event-time-stamp", "event-source", "record-content"}


def test_without_an_event_time_the_append_time_is_stated_with_spread_before() -> None:
    stamp = encoded(stated=statement(event_s=None))["log-record-body"]["event-time-stamp"]
    assert stamp["primary-time-stamp"] == "2021-04-28T14:14:28.780Z"
    assert stamp["spread"] == "SPREAD_BEFORE"


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (IdentityStyle.NAME, "RECORD_TYPE_DELETE"),
        (IdentityStyle.PREFIXED, "tapi-streaming:RECORD_TYPE_DELETE"),
        (IdentityStyle.SHORT, "DELETE"),
        (IdentityStyle.BLANK, " RECORD_TYPE_DELETE"),
    ],
)
def test_identities(style: IdentityStyle, expected: str) -> None:
    decoded = encoded(RecordStyle(identities=style), LogRecordType.DELETE)
    assert decoded["log-record-header"]["record-type"] == expected


def test_prefixed_members_nested_time_yang_time_and_numbers() -> None:
    style = RecordStyle(
        prefixed_members=True, nested_time=True, yang_time=True, numeric_offsets=True
    )
    decoded = encoded(style)
    header = decoded["tapi-streaming:log-record-header"]
    assert header["log-append-time-stamp"] == "20210428141428.780Z"
    assert header["full-log-record-offset-id"][1]["value"] == 910
    body = decoded["tapi-streaming:log-record-body"]
    stamp = body["event-time-stamp"]["approx-date-and-time"]
    assert stamp["primary-time-stamp"] == "20210428141420.000Z"
    assert body["tapi-streaming:node"] == {"uuid": "k"}


@pytest.mark.parametrize("cls", ["TAPI_CONTEXT", "MAINTENANCE_ENTITY"])
def test_classes_without_a_container_are_stated_under_the_name_one_would_expect(cls: str) -> None:
    body = encoded(stated=statement(cls))["log-record-body"]
    assert body[cls.lower().replace("_", "-")] == {"uuid": "k"}


def test_keys_and_addresses_are_escaped() -> None:
    stated = Statement('a"b\\', "NODE", b"{}", ('x"',), EVENT_S)
    data = RecordEncoder(RecordStyle()).record(record(key='a"b\\'), stated)
    assert json.loads(data)["log-record-header"]["entity-key"] == 'a"b\\'


@pytest.mark.parametrize(
    ("wrapper", "frames"),
    [
        (Wrapper.BARE, [{"r": 0}, {"r": 1}, {"r": 2}]),
        (Wrapper.LIST, [[{"r": 0}, {"r": 1}], [{"r": 2}]]),
        (Wrapper.LOG_RECORD, [{"log-record": [{"r": 0}, {"r": 1}]}, {"log-record": [{"r": 2}]}]),
        (
            Wrapper.STREAM_RECORD,
            [
                {"stream-record": {"log-record": [{"r": 0}, {"r": 1}]}},
                {"stream-record": {"log-record": [{"r": 2}]}},
            ],
        ),
        (
            Wrapper.NOTIFICATION,
            [
                {
                    "ietf-restconf:notification": {
                        "eventTime": "2021-04-28T14:14:28.780Z",
                        "tapi-streaming:stream-record": {"log-record": records},
                    }
                }
                for records in ([{"r": 0}, {"r": 1}], [{"r": 2}])
            ],
        ),
    ],
)
def test_wrappers(wrapper: Wrapper, frames: list[Any]) -> None:
    style = RecordStyle(wrapper, records_per_frame=1 if wrapper is Wrapper.BARE else 2)
    frames_sent = RecordEncoder(style).frames([b'{"r":0}', b'{"r":1}', b'{"r":2}'], APPENDED_S)
    assert [json.loads(frame) for frame in frames_sent] == frames


def test_a_bare_frame_cannot_hold_several_records() -> None:
    with pytest.raises(ConfigurationError, match="bare frame"):
        RecordStyle(records_per_frame=2)
    with pytest.raises(ConfigurationError, match="at least 1"):
        RecordStyle(Wrapper.LIST, records_per_frame=0)
