"""The liberal reader: every spelling of the field gives one Record, and no input raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from instep.model.columns import CompactedAway
from instep.model.records import Record, RecordType
from instep_tapi.wire.decoder import FrameDecoder
from tests.instep_tapi.log_record_kit import APPENDED_US, EVENT_TIME, log_record, only, read


def test_reads_the_header_and_leaves_the_body_as_stated() -> None:
    frame = (
        b'{"log-record-header":{"token":"t","log-append-time-stamp":"2021-04-28T14:14:28.780Z",'
        b'"entity-key":"k","record-type":"RECORD_TYPE_CREATE_UPDATE","full-log-record-offset-id":'
        b'[{"value-name":"partition","value":"3"},{"value-name":"offset","value":"910"}]},'
        b'"log-record-body":{"event-time-stamp":{"spread":"SPREAD_AT"},"record-content":"NODE",'
        b'"parent-address":["topology-uuid:a"],"node":{ "uuid" : "u","x":1.00}}}'
    )
    chunk = FrameDecoder("s", with_uuid=True).read([frame])
    assert chunk.deviations == {}
    assert chunk.size_bytes == len(frame)
    assert only(chunk) == Record(
        stream="s",
        key="k",
        kind=RecordType.CREATE_UPDATE,
        token="t",
        appended_at_us=APPENDED_US,
        partition="3",
        offset=910,
        entity_class="NODE",
        body=b'{ "uuid" : "u","x":1.00}',
        envelope=b'{"event-time-stamp":{"spread":"SPREAD_AT"},"record-content":"NODE",'
        b'"parent-address":["topology-uuid:a"]}',
        uuid="u",
    )


@pytest.mark.parametrize("prefix", ["", "tapi-streaming:"])
@pytest.mark.parametrize(
    ("entity_class", "container", "kind", "missing"),
    [
        ("NODE_EDGE_POINT", "node-edge-point", "CREATE_UPDATE", True),
        ("ROUTE", "route", "CREATE_UPDATE", True),
        ("NODE_EDGE_POINT", "node-edge-point", "DELETE", False),
        # A child of the context has no parent to name: an empty leaf-list is absent in JSON.
        ("CONNECTION", "connection", "CREATE_UPDATE", False),
        ("CONDITION_DETECTOR", "condition-detector", "CREATE_UPDATE", False),
    ],
)
def test_3_10_a_parent_address_is_mandatory_below_another_entity(
    entity_class: str, container: str, kind: str, missing: bool, prefix: str
) -> None:
    body = {
        "event-time-stamp": EVENT_TIME,
        prefix + "record-content": entity_class,
        container: {"uuid": "u"},
    }
    stated = log_record(body=body, **{"record-type": f"RECORD_TYPE_{kind}"})
    chunk = read(stated)
    only(chunk)
    assert chunk.deviations.get("parent-address-missing", 0) == missing
    body[prefix + "parent-address"] = ["node-uuid:n"]
    chunk = read(stated)
    only(chunk)
    assert "parent-address-missing" not in chunk.deviations


def test_3_10_what_else_the_header_states_is_kept() -> None:
    place = [
        {"value-name": "partition", "value": "0"},
        {"value-name": "offset", "value": "910"},
        {"value-name": "topic", "value": "alarms"},
    ]
    more = {"tapi-context": "c1", "tapi-later:reason": {"x": [1]}}
    stated = log_record(**more)
    del stated["log-record-body"]["event-time-stamp"]
    record = only(read(stated))
    kept = {"reason": {"x": [1]}, "tapi-context": "c1"}
    assert json.loads(record.envelope) == {
        "record-content": "CONDITION_DETECTOR",
        "log-record-header": kept,
    }
    ended = only(read(log_record(body=None, **more, **{"record-type": "RECORD_TYPE_TOMBSTONE"})))
    assert json.loads(ended.envelope) == {"log-record-header": kept}
    record = only(read(log_record(**{"full-log-record-offset-id": place})))
    assert json.loads(record.envelope)["log-record-header"] == {"full-log-record-offset-id": place}
    assert (record.partition, record.offset) == ("0", 910)


SHAPES: dict[str, Callable[[Any, str], Any]] = {
    "bare": lambda record, _: record,
    "list": lambda record, _: [record],
    "log-record": lambda record, p: {p + "log-record": [record]},
    "stream-record": lambda record, p: {p + "stream-record": {p + "log-record": [record]}},
    "notification": lambda record, p: {
        "ietf-restconf:notification": {
            "eventTime": "2021-04-28T14:14:29Z",
            p + "stream-record": {"log-record": [record]},
        }
    },
    "time-last": lambda record, p: {
        "notification": {p + "stream-record": {"log-record": [record]}, "eventTime": "x"}
    },
}
IDENTITIES = ["RECORD_TYPE_DELETE", "tapi-streaming:RECORD_TYPE_DELETE", "DELETE", " DELETE "]


@pytest.mark.parametrize(
    ("shape", "prefix", "identity"), list(product(SHAPES, ["", "tapi-streaming:"], IDENTITIES))
)
def test_every_shape_prefix_and_spelling_gives_the_same_record(
    shape: str, prefix: str, identity: str
) -> None:
    plain = log_record(**{"record-type": "RECORD_TYPE_DELETE"})
    spelled = log_record(**{"record-type": identity})
    spelled = {prefix + name: value for name, value in spelled.items()}
    body = spelled[prefix + "log-record-body"]
    body[prefix + "condition-detector"] = body.pop("condition-detector")
    assert only(read(SHAPES[shape](spelled, prefix))) == only(read(plain))


def test_a_frame_holds_several_records_in_order() -> None:
    frame = {"stream-record": {"log-record": [log_record(token=str(n)) for n in range(50)]}}
    assert [record.token for record in read(frame).records] == [str(n) for n in range(50)]


@pytest.mark.parametrize(
    ("stamp", "appended_at_us"),
    [
        ("2021-04-28T14:14:28.780Z", APPENDED_US),
        ("2021-04-28T16:14:28.78+02:00", APPENDED_US),
        ("20210428141428.78Z", APPENDED_US),
        ("20210428091428.780-0500", APPENDED_US),
        ("20210428141428.780", APPENDED_US),
        ("2021-04-28T14:14:28.780", APPENDED_US),
    ],
)
def test_reads_both_time_formats(stamp: str, appended_at_us: int) -> None:
    chunk = read(log_record(**{"log-append-time-stamp": stamp}))
    assert only(chunk).appended_at_us == appended_at_us
    assert ("time-without-zone" in chunk.deviations) == stamp.endswith(".780")


def test_numbers_stand_for_texts_by_their_digits() -> None:
    frame = log_record(
        **{
            "entity-key": -1542773359860369954,
            "token": 12345678901234567890123,
            "full-log-record-offset-id": [
                {"value-name": "offset", "value": 7},
                {"value-name": "topic", "value": "x"},
                {"value-name": "partition", "value": 2},
            ],
        }
    )
    chunk = read(frame)
    record = only(chunk)
    assert (record.key, record.token) == ("-1542773359860369954", "12345678901234567890123")
    assert (record.partition, record.offset) == ("2", 7)
    assert chunk.deviations == {"number-for-text": 3}


def test_a_tombstone_has_a_header_only() -> None:
    record = only(read(log_record(**{"record-type": "RECORD_TYPE_TOMBSTONE"}, body=None)))
    assert (record.kind, record.ends, record.body, record.envelope) == (
        RecordType.TOMBSTONE,
        True,
        b"",
        b"",
    )


@pytest.mark.parametrize("state", ["CLEAR", "ALARM_DETECTOR_STATE_CLEAR", " CLEAR"])
@pytest.mark.parametrize("prefix", ["", "tapi-streaming:"])
def test_4_4_an_alarm_that_is_clear_ends(state: str, prefix: str) -> None:
    alarm = {prefix + "alarm-condition-detector-detail": {prefix + "alarm-detector-state": state}}
    assert only(read(_alarm(alarm))).ends
    assert only(read(_alarm(alarm))).kind is RecordType.CREATE_UPDATE


@pytest.mark.parametrize(
    ("alarm", "ends"),
    [
        ({"alarm-condition-detector-detail": {"alarm-detector-state": "ACTIVE"}}, False),
        ({"additional": "this alarm does not CLEAR"}, False),
        ({"note": {"alarm-detector-state": "CLEAR"}}, False),
        (
            {
                "alarm-condition-detector-detail": {
                    "legacy-properties": {"perceived-severity": "CLEARED"}
                }
            },
            True,
        ),
        (
            {
                "tapi-fm:detected-condition": {
                    "simple-detector": {"simple-detector-state": "SIMPLE_DETECTOR_STATE_CLEAR"}
                }
            },
            True,
        ),
    ],
)
def test_4_7_what_ends_an_alarm(alarm: dict[str, Any], ends: bool) -> None:
    assert only(read(_alarm(alarm))).ends is ends


@pytest.mark.parametrize("state", ["ACTIVE", "tapi-streaming:ALARM_DETECTOR_STATE_INTERMITTENT"])
def test_4_4_the_state_of_the_detector_overrules_a_legacy_severity(state: str) -> None:
    """A4: the state decides, and a severity only where none is stated."""
    detail = {
        "legacy-properties": {"perceived-severity": "CLEARED"},
        "alarm-detector-state": state,
    }
    chunk = read(_alarm({"alarm-condition-detector-detail": detail}))
    assert not only(chunk).ends
    assert chunk.deviations["severity-against-state"] == 1
    detail["alarm-detector-state"] = "ALARM_DETECTOR_STATE_CLEAR"
    chunk = read(_alarm({"alarm-condition-detector-detail": detail}))
    assert only(chunk).ends
    assert "severity-against-state" not in chunk.deviations


def test_an_escaped_clear_is_clear() -> None:
    text = json.dumps(_alarm({"alarm-condition-detector-detail": {"alarm-detector-state": "@"}}))
    assert only(read(text.replace("@", "\\u0043LEAR").encode())).ends


def _alarm(content: dict[str, Any]) -> dict[str, Any]:
    return log_record(
        body={
            "event-time-stamp": EVENT_TIME,
            "record-content": "CONDITION_DETECTOR",
            "condition-detector": content,
        }
    )


@pytest.mark.parametrize(
    ("stated", "member", "entity_class", "deviations"),
    [
        ("NODE", "node", "NODE", {}),
        ("NODE", "tapi-topology:node", "NODE", {}),
        ("MEG_END_POINT", "mep", "MEG_END_POINT", {}),
        (
            "CONNECTIVITY_OBJECT_TYPE_CONNECTION_END_POINT",
            "connection-end-point",
            "CONNECTION_END_POINT",
            {},
        ),
        ("ANY_CLASS", "link", "LINK", {}),
        (None, "link", "LINK", {"record-content-missing": 1}),
        ("tapi-common:OBJECT_TYPE_PROFILE", "profile", "PROFILE", {}),
        ("tapi-oam:OAM_OBJECT_TYPE_MEP", "tapi-oam:mep", "MEG_END_POINT", {}),
        ("tapi-oam:OAM_OBJECT_TYPE_HISTORY_DATA", "tapi-oam:history-data", "HISTORY_DATA", {}),
        ("OF_TOMORROW", "of-tomorrow", "OF_TOMORROW", {"class-unknown": 1}),
        ("NODE", "thing", "NODE", {"container-other": 1}),
        ("TAPI_CONTEXT", "tapi-context", "TAPI_CONTEXT", {}),
        ("TAPI_CONTEXT", None, "TAPI_CONTEXT", {"container-missing": 1}),
    ],
)
def test_classes_and_their_containers(
    stated: str | None, member: str | None, entity_class: str, deviations: dict[str, int]
) -> None:
    body: dict[str, Any] = {"event-time-stamp": EVENT_TIME, "parent-address": ["x-uuid:x"]}
    if stated:
        body["record-content"] = stated
    if member:
        body[member] = {"uuid": "u"}
    chunk = read(log_record(body=body))
    record = only(chunk)
    assert record.entity_class == entity_class
    assert json.loads(record.body) == ({"uuid": "u"} if member else {})
    assert chunk.deviations == deviations


def test_unknown_members_are_kept_in_the_envelope() -> None:
    body = {
        "event-time-stamp": {"approx-date-and-time": EVENT_TIME},
        "record-content": "NODE",
        "parent-address": ["topology-uuid:t"],
        "record-trigger": "100%",
        "node": {"uuid": "u"},
        "vendor:extra": [1],
    }
    chunk = read(log_record(body=body))
    del body["node"]
    assert json.loads(only(chunk).envelope) == body
    assert chunk.deviations == {"event-time-nested": 1}


@pytest.mark.parametrize(
    ("record_type", "kind", "whole", "deviations"),
    [
        ("RECORD_TYPE_CREATE", RecordType.CREATE_UPDATE, True, {}),
        ("RECORD_TYPE_UPDATE", RecordType.CREATE_UPDATE, True, {}),
        ("RECORD_TYPE_CHANGE", RecordType.CHANGE, False, {}),
        ("SOMETHING", RecordType.CREATE_UPDATE, True, {"record-type-unknown": 1}),
        ("DELETE", RecordType.DELETE, True, {"identity-spelling": 1}),
        (
            " RECORD_TYPE_DELETE",
            RecordType.DELETE,
            True,
            {"identity-blanks": 1},
        ),
    ],
)
def test_record_types_of_later_versions(
    record_type: str, kind: RecordType, whole: bool, deviations: dict[str, int]
) -> None:
    chunk = read(log_record(**{"record-type": record_type}))
    record = only(chunk)
    assert (record.kind, record.whole) == (kind, whole)
    assert chunk.deviations == deviations


@pytest.mark.parametrize("body", [None, {"record-content": "NODE"}])
def test_v3_2_3_10_a_record_that_states_no_type_is_information_since_2_4(body: Any) -> None:
    untyped = log_record(body=body, **{"record-type": None})
    chunk = read(untyped, needs_type=False)
    (header,) = chunk.records
    assert (header.key, chunk.unreadable) == (only(read(log_record())).key, [])
    assert not isinstance(header, Record)
    assert "no record-type" in read(untyped).unreadable[0].reason


def test_v3_2_3_10_an_entity_needs_a_record_type() -> None:
    chunk = read(log_record(**{"record-type": None}), needs_type=False)
    assert "no record-type" in chunk.unreadable[0].reason


def test_a_change_only_stream_states_parts() -> None:
    assert not only(read(log_record(), whole=False)).whole


@pytest.mark.parametrize("frame", [json.dumps(log_record()).encode(), b"{}"])
def test_a10_what_was_declared_of_the_stream_is_told_once_with_the_first_frames(
    frame: bytes,
) -> None:
    decoder = FrameDecoder("s", stated=("retention-below-delay",))
    assert decoder.read([frame]).deviations["retention-below-delay"] == 1
    assert "retention-below-delay" not in decoder.read([frame]).deviations


@pytest.mark.parametrize("usual", [True, False])
def test_3_12_of_a_class_that_is_not_kept_the_header_is_left(usual: bool) -> None:
    """So that the position moves past it."""
    node = {"event-time-stamp": EVENT_TIME, "record-content": "NODE", "node": {"uuid": "n"}}
    unstated = {"record-type": "RECORD_TYPE_TOMBSTONE", "body": None}
    frames = [
        json.dumps(stated if usual else [stated]).encode()
        for stated in (
            log_record(token="1"),
            log_record(token="2", body=node),
            log_record(token="3", **unstated),
        )
    ]
    dropped, kept, end = FrameDecoder("s", only=["NODE"]).scan(frames).records
    assert isinstance(dropped, CompactedAway)
    assert (dropped.token, dropped.partition, dropped.offset) == ("1", "0", 910)
    assert isinstance(kept, Record)
    assert (kept.token, kept.entity_class) == ("2", "NODE")
    assert isinstance(end, Record)
    assert (end.token, end.ends) == ("3", True)


def test_rfc_7951_4_a_bare_record_must_name_its_module_and_a_member_below_need_not() -> None:
    def prefixed(members: dict[str, Any]) -> dict[str, Any]:
        return {f"tapi-streaming:{name}": value for name, value in members.items()}

    assert "needless-prefix" not in read(prefixed(log_record())).deviations
    assert read([prefixed(log_record())]).deviations["needless-prefix"] == 2
    below = prefixed(log_record())
    header = "tapi-streaming:log-record-header"
    below[header] = prefixed(below[header])
    assert read(below).deviations["needless-prefix"] == len(below[header])


def test_3_10_an_end_of_any_class_states_no_class() -> None:
    body = {"event-time-stamp": EVENT_TIME, "record-content": "ANY_CLASS"}
    record = only(read(log_record(body=body, **{"record-type": "RECORD_TYPE_DELETE"})))
    assert (record.ends, record.entity_class) == (True, "")
