"""What real providers and the published examples are known for is found, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep.conformance import ConnectionOpened, Event, MessageReceived, ResponseReceived, judge
from instep_tapi.conformance.book import tapi_rules

AT_US = 1_800_000_000_000_000
STREAMS = "/restconf/data/tapi-common:context/tapi-streaming:stream-context"
PUBLISHED = {
    # The published text lacks a brace, in either document.
    "tr548_v11_6.3_alarm_as_in_seed.txt": {"message-json"},
    "tr548_v31_alarm_full_as_published.txt": {"message-json"},
    "tr548_v11_6.3_alarm_yang_valid.json": set(),
    "tr548_v11_alarm_plus_tombstone_yang_valid.json": set(),
    # Of an edition between: its detector has no state where that of 2.1.3 stands.
    "tr548_v31_alarm_compact_as_published.json": {
        "event-time-flat", "detector-type", "alarm-state",
    },
}  # fmt: skip
MENDED = {"event-time-flat", "detector-type", "alarm-state"}
"""What is left of the alarm of v1.1, once its brace is there."""


def found_in(*events: Event, edition: str = "2.1.3") -> set[str]:
    report = judge(tapi_rules(edition), events)
    return {one.rule.removeprefix("tapi-") for one in report.broken}


def found_in_messages(*contents: bytes, edition: str = "2.1.3") -> set[str]:
    messages = [
        MessageReceived(AT_US + number, 1, content) for number, content in enumerate(contents, 1)
    ]
    return found_in(ConnectionOpened(AT_US, 1, "s"), *messages, edition=edition)


@pytest.mark.parametrize("name", PUBLISHED)
def test_in_a_published_example_only_what_is_known_is_found(name: str, shared_data: Path) -> None:
    content = (shared_data / "tapi" / name).read_bytes()
    assert found_in_messages(content) == PUBLISHED[name]


def test_the_alarm_of_v1_1_with_its_brace_breaks_three_rules(shared_data: Path) -> None:
    text = (shared_data / "tapi" / "tr548_v11_6.3_alarm_as_in_seed.txt").read_text()
    mended = text.replace('],\n  "log-record-body"', ']},\n  "log-record-body"', 1)
    assert found_in_messages(mended.encode()) == MENDED


# -- spellings that the YANG allows, or that are no statement of it --------------------------------


def record(offset: int, key: str, kind: str, body: dict[str, Any] | None) -> dict[str, Any]:
    header = {
        # Colons, a sign and a padded tail, as tokens of the field have them.
        "token": f"Rfm8:1666904039108_0:-1379579382:AAAAAQAAgn{offset}=",
        "log-append-time-stamp": "2027-01-15T08:00:00.000Z",
        "entity-key": key,
        "record-type": kind,
        "full-log-record-offset-id": [
            {"value-name": "partition", "value": "0"},
            {"value-name": "offset", "value": str(offset)},
        ],
    }
    return {"log-record-header": header, **({} if body is None else {"log-record-body": body})}


TIME = {
    "primary-time-stamp": "2027-01-15T08:00:00.000Z",
    "spread": "tapi-streaming:SPREAD_BEFORE",
    "source-precision": "SOURCE_PRECISION_UNKNOWN",
}
NODE = {
    "event-time-stamp": TIME,
    "record-content": "NODE",
    "parent-address": ["topology-uuid:t1"],
    # No pattern of a uuid is enforced, and a vendor's member is no fault.
    "node": {"uuid": "sip-pe1-uni1", "vendor-shelf": 7},
}
NODE_GONE = {"event-time-stamp": TIME, "record-content": "NODE"}
DETECTOR = {
    "detector-native-id": "-1542773359860369954",
    "condition-detector-type": "tapi-streaming:CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
    "condition-native-name": "Loss Of Signal",
    "measured-entity-uuid": "113f57a4-74a5-36a4-7a4b-5f4ffa38159a",
    "measured-entity-native-id": "fac-63782-1uag",
}


def alarm(state: str) -> dict[str, Any]:
    detail = {"alarm-detector-state": f"ALARM_DETECTOR_STATE_{state}"}
    detector = {**DETECTOR, "alarm-condition-detector-detail": detail}
    return {
        "event-time-stamp": TIME,
        "record-content": "CONDITION_DETECTOR",
        "condition-detector": detector,
    }


LIFE = [
    record(0, "-1", "RECORD_TYPE_CREATE_UPDATE", NODE),
    record(1, "-1", "tapi-streaming:RECORD_TYPE_DELETE", NODE_GONE),
    record(2, "-1", "RECORD_TYPE_TOMBSTONE", None),
    record(3, "-1542773359860369954", "RECORD_TYPE_CREATE_UPDATE", alarm("ACTIVE")),
    record(4, "-1542773359860369954", "RECORD_TYPE_CREATE_UPDATE", alarm("INTERMITTENT")),
    record(5, "-1542773359860369954", "RECORD_TYPE_CREATE_UPDATE", alarm("CLEAR")),
    record(6, "-1542773359860369954", "RECORD_TYPE_TOMBSTONE", None),
]


def in_lists(of: list[Any]) -> list[Any]:
    return [{"tapi-streaming:stream-record": {"log-record": [one]}} for one in of]


def in_notifications(of: list[Any]) -> list[Any]:
    inner = in_lists(of)
    return [
        {"ietf-restconf:notification": {"eventTime": "2027-01-15T08:00:00Z", **one}}
        for one in inner
    ]


FRAMES = [
    lambda of: of,
    in_lists,
    in_notifications,
    lambda of: [of],
    lambda of: [{"log-record": of}],
]


@pytest.mark.parametrize("framed", FRAMES)
def test_no_spelling_that_is_allowed_is_a_deviation(framed: Any) -> None:
    assert found_in_messages(*map(msgspec.json.encode, framed(LIFE))) == set()


def spelled(path: str, value: object) -> list[dict[str, Any]]:
    """The life of the alarm with one member of its first record as it is in the field."""
    changed: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(LIFE[3:]))
    place = changed[0]
    *above, name = path.split("/")
    for one in above:
        place = place[one]
    if value is None:
        del place[name]
    else:
        place[name] = value
    return changed


BODY = "log-record-body"
DETAIL = f"{BODY}/condition-detector/alarm-condition-detector-detail"
IN_THE_FIELD: list[tuple[str, object, str]] = [
    (f"{BODY}/event-time-stamp", {"approx-date-and-time": TIME}, "event-time-flat"),
    (f"{DETAIL}/alarm-detector-state", "ACTIVE", "alarm-state"),
    (f"{BODY}/condition-detector/condition-detector-type", "ALARM_DETECTOR", "detector-type"),
    (
        f"{BODY}/condition-detector/condition-detector-type",
        " CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
        "detector-type",
    ),
    ("log-record-header/record-type", "CREATE_UPDATE", "record-type"),
    ("log-record-header/full-log-record-offset-id", None, "offset"),
    (f"{BODY}/event-time-stamp/spread", "AT", "event-time-names"),
]


@pytest.mark.parametrize(("path", "value", "rule"), IN_THE_FIELD)
def test_what_is_spelled_otherwise_in_the_field_is_one_deviation(
    path: str, value: object, rule: str
) -> None:
    assert found_in_messages(*map(msgspec.json.encode, spelled(path, value))) == {rule}


# -- the streams of a controller that has no compacted log -----------------------------------------


def stream_context(**changes: str) -> bytes:
    type_ = {
        "uuid": "t1",
        "stream-type-name": "network",
        "record-retention": "24 HOURS",
        "segment-size": "1",
        "record-content": ["NODE", "LINK"],
        "log-storage-strategy": "tapi-streaming:LOG_STORAGE_STRATEGY_TRUNCATED",
        "log-record-strategy": "tapi-streaming:LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE",
        "connection-protocol-details": {"allowed-connection-protocols": ["websocket"]},
        **changes,
    }
    stream = {
        "uuid": "s1",
        "connection-address": "wss://10.0.0.1:28014/restconf/data/context/s1",
        "connection-protocol": "websocket",
        "stream-state": "tapi-streaming:STREAM_STATE_ACTIVE",
        "stream-id": "s1",
        "supported-stream-type": {"supported-stream-type-uuid": "t1"},
    }
    shown = {"supported-stream-type": [type_], "available-stream": [stream]}
    return msgspec.json.encode({"tapi-streaming:stream-context": shown})


def test_a_controller_with_truncated_logs_alone_is_named_for_it() -> None:
    seen = ResponseReceived(AT_US, STREAMS, 200, stream_context())
    assert found_in(seen) == {"compacted-offered"}


@pytest.mark.parametrize("strategy", ["FULL-HISTORY", "TRUNCATED"])
def test_a_strategy_in_the_words_of_the_prose_is_one_deviation(strategy: str) -> None:
    context = stream_context(**{"log-storage-strategy": strategy})
    seen = ResponseReceived(AT_US, STREAMS, 200, context)
    assert found_in(seen) == {"type-strategies", "compacted-offered"}
