"""The liberal reader: every spelling of the field gives one Record, and no input raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.records import Delivery, Kind, Record
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.reader import Reader

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


def read(*frames: Any, **options: Any) -> Delivery:
    return Reader("s", **options).read(
        [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
    )


def only(delivery: Delivery) -> Record:
    assert not delivery.unreadable
    [record] = delivery.records
    return record


def refused(frame: Any) -> str:
    delivery = read(frame)
    assert delivery.records == []
    [unreadable] = delivery.unreadable
    return unreadable.reason


def test_reads_the_header_and_leaves_the_body_as_stated() -> None:
    frame = (
        b'{"log-record-header":{"token":"t","log-append-time-stamp":"2021-04-28T14:14:28.780Z",'
        b'"entity-key":"k","record-type":"RECORD_TYPE_CREATE_UPDATE","full-log-record-offset-id":'
        b'[{"value-name":"partition","value":"3"},{"value-name":"offset","value":"910"}]},'
        b'"log-record-body":{"event-time-stamp":{"spread":"SPREAD_AT"},"record-content":"NODE",'
        b'"parent-address":["topology-uuid:a"],"node":{ "uuid" : "u","x":1.00}}}'
    )
    delivery = Reader("s", with_uuid=True).read([frame])
    assert delivery.deviations == {}
    assert delivery.size_bytes == len(frame)
    assert only(delivery) == Record(
        stream="s",
        key="k",
        kind=Kind.CREATE_UPDATE,
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
    delivery = read(log_record(**{"log-append-time-stamp": stamp}))
    assert only(delivery).appended_at_us == appended_at_us
    assert ("time-without-zone" in delivery.deviations) == stamp.endswith(".780")


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
    delivery = read(frame)
    record = only(delivery)
    assert (record.key, record.token) == ("-1542773359860369954", "12345678901234567890123")
    assert (record.partition, record.offset) == ("2", 7)
    assert delivery.deviations == {"number-for-text": 3}


def test_a_tombstone_has_a_header_only() -> None:
    record = only(read(log_record(**{"record-type": "RECORD_TYPE_TOMBSTONE"}, body=None)))
    assert (record.kind, record.ends, record.body, record.envelope) == (
        Kind.TOMBSTONE,
        True,
        b"",
        b"",
    )


@pytest.mark.parametrize("state", ["CLEAR", "ALARM_DETECTOR_STATE_CLEAR", " CLEAR"])
@pytest.mark.parametrize("prefix", ["", "tapi-streaming:"])
def test_st_4_4_an_alarm_that_is_clear_ends(state: str, prefix: str) -> None:
    alarm = {prefix + "alarm-condition-detector-detail": {prefix + "alarm-detector-state": state}}
    assert only(read(_alarm(alarm))).ends
    assert only(read(_alarm(alarm))).kind is Kind.CREATE_UPDATE


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
def test_st_4_7_what_ends_an_alarm(alarm: dict[str, Any], ends: bool) -> None:
    assert only(read(_alarm(alarm))).ends is ends


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
        ("PROFILE", "profile", "PROFILE", {"class-unknown": 1}),
        ("NODE", "thing", "NODE", {"container-other": 1}),
        ("TAPI_CONTEXT", "tapi-context", "TAPI_CONTEXT", {}),
        ("TAPI_CONTEXT", None, "TAPI_CONTEXT", {"container-missing": 1}),
    ],
)
def test_classes_and_their_containers(
    stated: str | None, member: str | None, entity_class: str, deviations: dict[str, int]
) -> None:
    body: dict[str, Any] = {"event-time-stamp": EVENT_TIME}
    if stated:
        body["record-content"] = stated
    if member:
        body[member] = {"uuid": "u"}
    delivery = read(log_record(body=body))
    record = only(delivery)
    assert record.entity_class == entity_class
    assert json.loads(record.body) == ({"uuid": "u"} if member else {})
    assert delivery.deviations == deviations


def test_unknown_members_are_kept_in_the_envelope() -> None:
    body = {
        "event-time-stamp": {"approx-date-and-time": EVENT_TIME},
        "record-content": "NODE",
        "record-trigger": "100%",
        "node": {"uuid": "u"},
        "vendor:extra": [1],
    }
    delivery = read(log_record(body=body))
    del body["node"]
    assert json.loads(only(delivery).envelope) == body
    assert delivery.deviations == {"event-time-nested": 1}


@pytest.mark.parametrize(
    ("record_type", "kind", "whole", "deviations"),
    [
        ("RECORD_TYPE_CREATE", Kind.CREATE_UPDATE, True, {}),
        ("RECORD_TYPE_UPDATE", Kind.CREATE_UPDATE, True, {}),
        ("RECORD_TYPE_CHANGE", Kind.CREATE_UPDATE, False, {}),
        ("SOMETHING", Kind.CREATE_UPDATE, True, {"record-type-unknown": 1}),
        ("DELETE", Kind.DELETE, True, {"identity-spelling": 1}),
        (
            " RECORD_TYPE_DELETE",
            Kind.DELETE,
            True,
            {"identity-blanks": 1},
        ),
    ],
)
def test_record_types_of_later_versions(
    record_type: str, kind: Kind, whole: bool, deviations: dict[str, int]
) -> None:
    delivery = read(log_record(**{"record-type": record_type}))
    record = only(delivery)
    assert (record.kind, record.whole) == (kind, whole)
    assert delivery.deviations == deviations


def test_a_change_only_stream_states_parts() -> None:
    assert not only(read(log_record(), whole=False)).whole


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"<html>", "not JSON"),
        (b"", "not JSON"),
        (b'"text"', "neither an object nor a list"),
        (b"\xff\xfe", "not JSON"),
        (b'{"log-record-header":' * 100_000, "nested too deeply"),
        (b"[" * 1_000_000, "nested too deeply"),
        ({"hello": 1}, "no log-record-header"),
        (log_record(token=None), "no token"),
        (log_record(token=""), "empty token"),
        (log_record(token="x" * 5000), "5000 characters"),
        (log_record(**{"entity-key": None}), "no entity-key"),
        (log_record(**{"entity-key": "a\0b"}), "NUL"),
        (log_record(**{"entity-key": {"a": 1}}), "neither text nor number"),
        (log_record(**{"log-append-time-stamp": None}), "no log-append-time-stamp"),
        (log_record(**{"log-append-time-stamp": "yesterday"}), "'yesterday' is no time"),
        (log_record(**{"record-type": None}), "no record-type"),
        (log_record(body=None), "without the entity"),
        (log_record(body={"record-content": "NODE"}), "without the entity"),
        (json.dumps(log_record()).encode().replace(b"ODU", b"\xff"), "utf-8"),
    ],
)
def test_what_cannot_be_read_is_kept_with_its_reason(frame: Any, reason: str) -> None:
    assert reason in refused(frame)


def test_a_missing_entity_key_leaves_token_and_bytes_for_the_quarantine() -> None:
    frame = json.dumps(log_record(**{"entity-key": None})).encode()
    [unreadable] = read(frame).unreadable
    assert unreadable.token == "62234255_0:-1379579382:AAAAAQAAhw4="
    assert unreadable.raw == frame
    assert unreadable.reason == "no entity-key in the log-record-header (mandatory, TR-548 3.10)"


def test_one_bad_record_leaves_its_neighbours() -> None:
    bad = log_record(**{"entity-key": None}, token="2")
    delivery = read([log_record(token="1"), bad, log_record(token="3")])
    assert [record.token for record in delivery.records] == ["1", "3"]
    assert [unreadable.token for unreadable in delivery.unreadable] == ["2"]
    assert json.loads(delivery.unreadable[0].raw) == bad


def test_huge_numbers_do_no_harm() -> None:
    digits = "9" * 100_000
    text = json.dumps(log_record()).replace('"910"', digits)
    delivery = read(text.encode())
    assert only(delivery).offset == -1
    assert delivery.deviations == {"offset-unreadable": 1, "offset-missing": 1}


def test_every_deviation_is_explained() -> None:
    frames = [
        log_record(body={"node": {"x": 1}, "tapi-streaming:event-source": "UNKNOWN"}),
        log_record(**{"full-log-record-offset-id": None, "record-type": " X"}),
    ]
    assert set(read(*frames).deviations) <= set(DEVIATIONS)


@given(st.binary(max_size=300))
def test_no_bytes_raise(frame: bytes) -> None:
    delivery = read(frame)
    assert delivery.size_bytes == len(frame)
    assert not delivery.records


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = [
    "token",
    "log-append-time-stamp",
    "entity-key",
    "record-type",
    "full-log-record-offset-id",
    "body",
]


@given(st.dictionaries(st.sampled_from(NAMES), json_values, min_size=1), st.booleans())
def test_a_record_with_anything_in_any_place_is_read_or_kept(
    changes: dict[str, Any], in_list: bool
) -> None:
    good = log_record(token="good")
    odd = log_record(**changes)
    delivery = read([odd, good] if in_list else odd)
    assert len(delivery.records) + len(delivery.unreadable) == 1 + in_list
    if in_list:
        assert delivery.records[-1].token == "good"


@given(json_values)
def test_json_that_is_no_record_is_kept(value: Any) -> None:
    delivery = read(value)
    assert not delivery.records
    assert value == [] or delivery.unreadable


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("tr548_v11_6.3_alarm_yang_valid.json", [Kind.CREATE_UPDATE]),
        ("tr548_v11_alarm_plus_tombstone_yang_valid.json", [Kind.CREATE_UPDATE, Kind.TOMBSTONE]),
        ("tr548_v31_alarm_compact_as_published.json", [Kind.CREATE_UPDATE]),
    ],
)
def test_reads_the_published_examples(shared_data: Path, name: str, kinds: list[Kind]) -> None:
    delivery = read((shared_data / "tapi" / name).read_bytes())
    assert not delivery.unreadable
    assert [record.kind for record in delivery.records] == kinds
    record = delivery.records[0]
    assert record.entity_class == "CONDITION_DETECTOR"
    assert json.loads(record.body)["detector-native-id"] == record.key


@pytest.mark.parametrize(
    "name", ["tr548_v11_6.3_alarm_as_in_seed.txt", "tr548_v31_alarm_full_as_published.txt"]
)
def test_published_examples_that_are_no_json_are_kept(shared_data: Path, name: str) -> None:
    raw = (shared_data / "tapi" / name).read_bytes()
    [unreadable] = read(raw).unreadable
    assert unreadable.raw == raw
    assert unreadable.reason.startswith("not JSON")
