"""What only the text of TR-548 makes one think of: each breach by hand, beside what is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    MessageReceived,
    ResponseReceived,
    judge,
)
from instep_tapi.conformance.book import tapi_rules

_S = 1_000_000
_BEGAN_S = 1_000_000
_DETAILS = {"tombstone-retention": "0.5", "compaction-delay": "0.2"}


def declared(
    storage: str = "COMPACTED",
    edition: str = "2.1.3",
    *,
    classes: Sequence[str] = ("NODE", "NODE_EDGE_POINT", "LINK"),
    retention: str = "FOREVER",
) -> Event:
    """A stream, and its type."""
    type_: dict[str, Any] = {
        "uuid": "t",
        "stream-type-name": "t",
        "record-retention": retention,
        "log-storage-strategy": f"LOG_STORAGE_STRATEGY_{storage}",
        "log-record-strategy": "LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE",
        "record-content": list(classes),
    }
    if storage == "COMPACTED":
        type_["compacted-log-details"] = _DETAILS
    if edition == "2.6":
        type_["record-trigger"] = "RECORD_TRIGGER_ON_CHANGE"
    stream = {
        "uuid": "s",
        "stream-id": "s",
        "stream-state": "STREAM_STATE_ACTIVE",
        "connection-address": "ws://p/s",
        "connection-protocol": "websockets",
        "supported-stream-type": {"supported-stream-type-uuid": "t"},
    }
    shown = {"available-stream": [stream], "supported-stream-type": [type_]}
    content = json.dumps({"tapi-streaming:stream-context": shown}).encode()
    return ResponseReceived(_BEGAN_S * _S, "/stream-context", 200, content)


def opened(at_s: float, number: int, start: str = "") -> Event:
    return ConnectionOpened(_us(at_s), number, "s", start)


def closed(at_s: float, number: int) -> Event:
    return ConnectionClosed(_us(at_s), number, "", by_us=True)


def record(
    at_s: float,
    offset: int,
    *,
    kind: str = "CREATE_UPDATE",
    key: str = "",
    appended_s: float | None = None,
    connection: int = 1,
    cls: str = "LINK",
    parents: Sequence[str] = ("topology-uuid:x",),
    time: str = "",
    entity: dict[str, Any] | None = None,
    **body: Any,
) -> Event:
    """A log-record that comes at this time."""
    appended = _stamp(at_s if appended_s is None else appended_s)
    key = key or f"{cls} {offset}"
    header = {
        "token": f"token {offset}",
        "log-append-time-stamp": appended,
        "entity-key": key,
        "record-type": f"RECORD_TYPE_{kind}",
        "full-log-record-offset-id": [{"value-name": "offset", "value": str(offset)}],
    }
    stated = {
        "event-time-stamp": {"primary-time-stamp": time or appended},
        "record-content": cls,
        "parent-address": list(parents),
        cls.lower().replace("_", "-"): {"uuid": key, **(entity or {})},
        **body,
    }
    document = {"log-record-header": header}
    if kind != "TOMBSTONE":
        document["log-record-body"] = stated
    return MessageReceived(_us(at_s), connection, json.dumps(document).encode())


def shown(at_s: float, **context: Any) -> Event:
    """Current state by GET: a topology with this in it."""
    topology = {"uuid": "x", **context}
    content = {"tapi-common:context": {"tapi-topology:topology-context": {"topology": [topology]}}}
    path = "/restconf/data/tapi-common:context"
    return ResponseReceived(_us(at_s), path, 200, json.dumps(content).encode())


_LATER = ResponseReceived((_BEGAN_S + 70) * _S, "/stream-context", 404, b"")


def found(*trace: Event) -> set[str]:
    report = judge(tapi_rules(), trace)
    assert all(one.reason and one.evidence for one in report.broken)
    return {one.rule.removeprefix("tapi-") for one in report.broken}


def _us(at_s: float) -> int:
    return int((_BEGAN_S + at_s) * _S)


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(_BEGAN_S + at_s, UTC).isoformat().replace("+00:00", "Z")


_NEP = {"cls": "NODE_EDGE_POINT", "parents": ("topology-uuid:x", "node-uuid:n")}


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ({}, {"event-source": "DEVICE"}, "enumerations"),
        ({}, {"time": "1970-01-12T13:46:40"}, "time-zone"),
        ({"time": "19700112134640.0+0500"}, {"time": "19700112134640.0"}, "time-zone"),
        ({}, {"time": "1970-02-12T13:46:40Z"}, "event-time-past"),
        (_NEP, {**_NEP, "parents": ("topology-uuid:x",)}, "parent-address-direct"),
    ],
)
def test_a_record(right: dict[str, Any], wrong: dict[str, Any], rule: str) -> None:
    begun = declared(), opened(1, 1)
    assert found(*begun, record(2, 1, **right)) == set()
    assert found(*begun, record(2, 1, **wrong)) == {rule}


def test_a_time_of_a_clock_that_is_free_is_no_fault() -> None:
    stamp = {"primary-time-stamp": "1970-02-12T13:46:40Z"}
    free = {**stamp, "source-precision": "SOURCE_PRECISION_FREE_RUNNING"}
    body: dict[str, Any] = {"event-time-stamp": free}
    assert found(declared(), opened(1, 1), record(2, 1, **body)) == set()


@pytest.mark.parametrize("severity", ["MAJOR", "HIGH"])
def test_the_severity_of_an_alarm(severity: str) -> None:
    alarm = {
        "measured-entity-native-id": "m",
        "detector-native-id": "d",
        "condition-native-name": "LOS",
        "condition-detector-type": "CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
        "alarm-condition-detector-detail": {
            "alarm-detector-state": "ALARM_DETECTOR_STATE_ACTIVE",
            "legacy-properties": {"perceived-severity": severity},
        },
    }
    begun = declared(classes=["CONDITION_DETECTOR"]), opened(1, 1)
    raised = record(2, 1, cls="CONDITION_DETECTOR", entity=alarm)
    assert found(*begun, raised) == ({"enumerations"} if severity == "HIGH" else set())


def test_a_type_declares_classes_of_the_yang() -> None:
    assert found(declared(classes=["LINK", "PORT"])) == {"type-classes"}


def _of_2_6(*trace: Event) -> set[str]:
    return found(declared(edition="2.6"), *trace)


def test_a_create_of_what_is_there() -> None:
    first = [opened(1, 1), record(2, 1, kind="CREATE", key="a")]
    again = record(3, 2, kind="CREATE", key="a")
    assert _of_2_6(*first, again) == {"create-new"}
    assert _of_2_6(*first, first[1], record(3, 2, kind="UPDATE", key="a")) == set()
    # Its end may be among what is missing.
    assert _of_2_6(*first, record(3, 3, kind="CREATE", key="a")) == set()
    ended = [record(3, 2, kind="DELETE", key="a"), record(3, 3, kind="TOMBSTONE", key="a")]
    assert _of_2_6(*first, *ended, record(4, 4, kind="CREATE", key="a")) == set()


def test_a_change_of_what_the_client_has_not_got() -> None:
    change = record(12, 7, kind="CHANGE", key="a", appended_s=2)
    whole = record(12, 6, kind="UPDATE", key="a", appended_s=1)
    assert _of_2_6(opened(11, 1), change) == {"change-known"}
    assert _of_2_6(opened(11, 1, "token 3"), change) == set()
    assert _of_2_6(opened(11, 1), whole, change) == set()
    # What was whole may have been compacted since.
    assert _of_2_6(opened(1, 1), change) == set()


def test_a_record_is_a_change_for_one_client_and_whole_for_another() -> None:
    """The provider chooses by where a client reads (TR-548 5.2 of v3.2)."""
    whole = record(2, 1, kind="UPDATE", key="a", entity=_LINK)
    part = record(3, 1, kind="CHANGE", key="a", appended_s=2, connection=2)
    read = [opened(1, 1), whole, opened(2, 2, "token 0")]
    assert _of_2_6(*read, part) == set()
    again = record(4, 1, kind="CHANGE", key="a", appended_s=2, connection=2, entity=_LINK)
    assert _of_2_6(*read, part, again) == {"token-one-record"}


def test_the_latest_record_is_not_the_oldest() -> None:
    begun = declared("TRUNCATED", retention="60"), opened(1_000, 1, "latest")
    old = [record(1_001 + one, one, appended_s=one) for one in range(1, 4)]
    offered = {"compacted-offered"}
    assert found(*begun, *old) == offered | {"start-latest"}
    assert found(*begun, old[0], record(1_010, 4)) == offered


def _read_twice(storage: str, again: Sequence[int], apart_s: float, retention: str) -> set[str]:
    first = [record(2 + one, one) for one in range(1, 11)]
    second = [record(apart_s, one, appended_s=2 + one, connection=2) for one in again if one <= 10]
    read = [opened(1, 1), *first, closed(20, 1), opened(apart_s, 2), *second]
    begun = declared(storage, retention=retention)
    return found(begun, *read, record(apart_s + 1, 11, connection=2)) - {"compacted-offered"}


def test_a_log_keeps_what_it_states_to_keep() -> None:
    whole, cut = range(1, 11), range(6, 11)
    for storage, rule in (("FULL_HISTORY", "history-kept"), ("TRUNCATED", "retention-kept")):
        assert _read_twice(storage, whole, 100, "60") == set()
        assert _read_twice(storage, cut, 100, "60") == {rule}
    assert _read_twice("TRUNCATED", cut, 4_000, "60") == set()
    assert _read_twice("TRUNCATED", cut, 100, "1000000 bytes") == set()


def test_a_token_is_followed_beside_another_client() -> None:
    """The other one gets what the first one is not sent."""
    times = {one: 2 + one for one in range(1, 21)}

    def sent(connection: int, *offsets: int, at_s: float = 0) -> list[Event]:
        return [
            record(
                at_s or max(times[one], 9 * (connection == 3)),
                one,
                appended_s=times[one],
                connection=connection,
            )
            for one in offsets
        ]

    def trace(*resumed: int) -> list[Event]:
        events = [
            declared("FULL_HISTORY"),
            opened(1, 1),
            opened(1, 2),
            *sent(1, *range(1, 6)),
            *sent(2, *range(1, 21)),
            closed(8, 1),
            opened(9, 3, "token 5"),
            *sent(3, *resumed),
            closed(24, 3),
            opened(25, 4),
            *sent(4, *range(1, 21), at_s=26),
        ]
        return sorted(events, key=lambda one: one.at_us)

    assert found(*trace(*range(6, 21))) == {"compacted-offered"}
    assert found(*trace(*range(9, 21))) == {"compacted-offered", "token-next"}


def test_what_a_connection_has_lost_is_not_gone_from_the_log() -> None:
    times = {one: 2 + one for one in range(1, 21)}

    def sent(connection: int, at_s: float, *offsets: int) -> list[Event]:
        return [record(at_s, one, appended_s=times[one], connection=connection) for one in offsets]

    whole, lossy = range(1, 21), (*range(1, 16), *range(19, 21))
    read = [declared(), opened(1, 1), *sent(1, 22, *whole), closed(22.1, 1), opened(22.2, 2)]
    read += [*sent(2, 22.5, *lossy), record(22.6, 21, appended_s=22, connection=2)]
    assert found(*read) == {"delay-kept"}
    again = [opened(22.7, 3), *sent(3, 22.8, *whole), record(22.9, 21, appended_s=22, connection=3)]
    assert found(*read, *again) == {"at-least-once"}


def test_a_tombstone_is_missing_in_a_log_with_a_short_delay() -> None:
    """A TOMBSTONE outlives the compaction delay: what is not missing was never there."""
    begun = [declared(), opened(1, 1), record(2, 1, key="a")]
    deleted = [*begun, record(3, 2, kind="DELETE", key="a")]
    after = [record(4 + one, 3 + one) for one in range(11)]
    assert found(*deleted, *after) == {"delete-tombstone"}
    tombstone = record(3, 3, kind="TOMBSTONE", key="a")
    assert found(*deleted, tombstone, *after[1:]) == set()
    assert found(*deleted, *after[1:]) == set()


def _link(state: str) -> dict[str, Any]:
    return {"uuid": "a", "operational-state": state}


@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
def test_a_get_differs_from_the_log(storage: str) -> None:
    read = [declared(storage), opened(40, 1), record(41, 1, appended_s=2, key="a", entity=_LINK)]
    other = {"compacted-offered"} if storage == "TRUNCATED" else set()
    same = [shown(30, link=[_link("ENABLED")]), *read, shown(60, link=[_link("ENABLED")])]
    assert found(*same) == other
    differs = [shown(30, link=[_link("DISABLED")]), *read, shown(60, link=[_link("DISABLED")])]
    assert found(*differs) == other | {"get-agrees"}
    # Its record came after both: it is of another time than it states.
    late = [shown(30, link=[]), declared(storage), opened(40, 1), shown(60, link=[])]
    assert found(*late, record(61, 1, appended_s=2, key="a", entity=_LINK), _LATER) == other


_LINK = _link("ENABLED")


def test_what_ends_after_the_second_get_is_in_the_stream() -> None:
    read = [declared(), opened(40, 1), record(41, 1, appended_s=2, key="a", entity=_LINK)]
    ended = [record(61, 2, kind="DELETE", key="a"), record(61, 3, kind="TOMBSTONE", key="a")]
    gets = shown(30, link=[_LINK]), shown(60, link=[_LINK])
    assert found(gets[0], *read, gets[1], *ended) == set()
    early = [record(45, 2, appended_s=3, kind="DELETE", key="a")]
    assert "all-streamed" in found(gets[0], *read, *early, gets[1], _LATER)


def test_a_parent_that_a_get_shows_otherwise() -> None:
    port = {"uuid": "p"}
    node = {"uuid": "n", "owned-node-edge-point": [port]}
    context = {"node": [node, {"uuid": "other"}]}
    nodes = [
        record(41, number, appended_s=2, cls="NODE", key=uuid)
        for number, uuid in ((1, "n"), (2, "other"))
    ]

    def read(parent: str) -> set[str]:
        placed = record(
            41,
            3,
            appended_s=2,
            cls="NODE_EDGE_POINT",
            key="p",
            parents=("topology-uuid:x", f"node-uuid:{parent}"),
        )
        begun = declared(), opened(40, 1), *nodes, placed
        return found(shown(30, **context), *begun, shown(60, **context), _LATER)

    assert read("n") == set()
    assert read("other") == {"parent-true"}
