"""Public records and answers of the field, judged: what is known of them is found, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep.conformance import (
    ConformanceReport,
    ConnectionOpened,
    Event,
    MessageReceived,
    ResponseReceived,
    RuleStatus,
    judge,
)
from instep_tapi.conformance.book import tapi_rules

AT = 1_620_000_000_000_000
EXAMPLE = """{"log-record-header": {"token": "62234255_0:-1379579382:AAAAAQAAhw4=",
"log-append-time-stamp": "2021-04-28T14:14:28.780Z", "entity-key": "3669276387587255710",
"record-type": "RECORD_TYPE_CREATE_UPDATE", "full-log-record-offset-id": [
{"value-name": "partition", "value": "0"}, {"value-name": "offset", "value": "910"}]},
"log-record-body": {"event-time-stamp": {"approx-date-and-time": {
"primary-time-stamp": "2021-04-28T14:14:20.000Z", "spread": "SPREAD_AT",
"source-precision": "SOURCE_PRECISION_SYNCHRONIZED"}}, "record-content": "CONDITION_DETECTOR",
"condition-detector": {"detector-uuid": "b650df3b-7081-3447-91b3-166a59101122",
"detector-native-id": "3669276387587255710", "alarm-condition-detector-detail": {
"alarm-detector-state": "ACTIVE", "legacy-properties": {"perceived-severity": "CRITICAL",
"is-acknowledged": false, "service-affect": "SERVICE_AFFECTING",
"additional-alarm-info": ["CTP Loss of Frame, LOF"]}}, "condition-native-name": "ODU LOF",
"measured-entity-uuid": "6317c7ed-9f38-30bd-8f3b-4f6c64f74837",
"measured-entity-native-id": "SiteA54:ODUCTP-1-A-15-2-4P1-2EP78",
"condition-detector-type": "ALARM_DETECTOR"}}}"""
"""The alarm of TR-548 6.3, with the brace that it lacks."""


def declared(**type_: Any) -> ResponseReceived:
    stated = {
        "uuid": "t",
        "stream-type-name": "alarms",
        "record-retention": "FOREVER",
        "record-content": ["CONDITION_DETECTOR"],
        "log-storage-strategy": "LOG_STORAGE_STRATEGY_COMPACTED",
        "log-record-strategy": "LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE",
        "compacted-log-details": {"tombstone-retention": "240", "compaction-delay": "10"},
    } | {name.replace("_", "-"): value for name, value in type_.items()}
    stream = {
        "uuid": "s",
        "stream-id": "alarms",
        "connection-address": "wss://127.0.0.1/s",
        "connection-protocol": "websockets",
        "stream-state": "STREAM_STATE_ACTIVE",
        "supported-stream-type": {"supported-stream-type-uuid": "t"},
    }
    content = {"available-stream": [stream], "supported-stream-type": [stated]}
    body = json.dumps({"tapi-streaming:stream-context": content}).encode()
    return ResponseReceived(AT, "/restconf/data/tapi-common:context/x", 200, body)


def found(*events: Event) -> ConformanceReport:
    return judge(tapi_rules(), events)


def broken(report: ConformanceReport) -> set[str]:
    return {one.rule.removeprefix("tapi-") for one in report.broken}


def test_the_example_of_the_specification_departs_from_its_yang_in_three_ways() -> None:
    report = found(
        declared(), ConnectionOpened(AT, 1, "s"), MessageReceived(AT, 1, EXAMPLE.encode())
    )
    assert broken(report) == {"event-time-flat", "detector-type", "alarm-state"}


def test_a_controller_with_truncated_logs_of_a_day_is_told_so() -> None:
    """As the field's controller declares its streams: TRUNCATED, 24 h, no details."""
    answer = declared(
        record_retention="1440", log_storage_strategy="LOG_STORAGE_STRATEGY_TRUNCATED"
    )
    assert broken(found(answer)) == {"compacted-offered", "alarms-compacted"}


@pytest.mark.parametrize(
    "wrapper",
    [
        "{}",
        "[{}]",
        '{{"log-record":[{}]}}',
        '{{"tapi-streaming:stream-record":{{"log-record":[{}]}}}}',
        '{{"ietf-restconf:notification":{{"eventTime":"x","stream-record":{{"log-record":{}}}}}}}',
    ],
)
def test_every_wrapper_of_the_field_is_read(wrapper: str) -> None:
    frame = wrapper.format(EXAMPLE).encode()
    report = found(declared(), ConnectionOpened(AT, 1, "s"), MessageReceived(AT, 1, frame))
    assert {one.rule for one in report.results if one.status is RuleStatus.HELD} > {
        "tapi-token",
        "tapi-message-json",
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"null", b"{}", b"[]", b"[1]", b'"x"', b"{" * 5_000, b'{"log-record":{}}'],
)
def test_what_is_no_record_breaks_one_rule_and_no_judge(content: bytes) -> None:
    report = found(declared(), ConnectionOpened(AT, 1, "s"), MessageReceived(AT, 1, content))
    assert broken(report) == {"message-json"}


def test_nothing_is_proven_by_nothing() -> None:
    report = found()
    assert {one.status for one in report.results} == {RuleStatus.NOT_SEEN}
    assert all(one.provoke for one in report.results)
