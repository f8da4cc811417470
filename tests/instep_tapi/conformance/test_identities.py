"""Tokens, offsets and entity-keys that name more, or less, than one record or one entity."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from instep.conformance import ConnectionOpened, Event, MessageReceived, ResponseReceived, judge
from instep_tapi.conformance.book import tapi_rules

_S = 1_000_000
_DECLARED = {
    "tapi-streaming:stream-context": {
        "available-stream": [
            {
                "uuid": "s",
                "stream-id": "s",
                "stream-state": "STREAM_STATE_ACTIVE",
                "connection-protocol": "websockets",
                "supported-stream-type": {"supported-stream-type-uuid": "t"},
            }
        ],
        "supported-stream-type": [
            {
                "uuid": "t",
                "stream-type-name": "t",
                "record-retention": "FOREVER",
                "log-storage-strategy": "LOG_STORAGE_STRATEGY_FULL_HISTORY",
                "record-content": ["NODE"],
            }
        ],
    }
}
BEGUN: list[Event] = [
    ResponseReceived(0, "/stream-context", 200, json.dumps(_DECLARED).encode()),
    ConnectionOpened(1 * _S, 1, "s"),
]
AGAIN = ConnectionOpened(50 * _S, 2, "s")


def record(
    offset: int,
    *,
    connection: int = 1,
    key: str = "a",
    kind: str = "CREATE_UPDATE",
    token: str = "",
    name: str = "a node",
    uuid: str = "uuid-a",
    topology: str = "one",
) -> Event:
    at_s = offset + 2 + 50 * (connection - 1)
    stamp = datetime.fromtimestamp(offset + 2, UTC).isoformat().replace("+00:00", "Z")
    header = {
        "token": token or f"token {offset}",
        "log-append-time-stamp": stamp,
        "entity-key": key,
        "record-type": f"RECORD_TYPE_{kind}",
        "full-log-record-offset-id": [{"value-name": "offset", "value": str(offset)}],
    }
    body: dict[str, Any] = {
        "event-time-stamp": {"primary-time-stamp": stamp},
        "record-content": "NODE",
        "parent-address": [f"topology-uuid:{topology}"],
        "node": {"uuid": uuid, "name": [{"value-name": "name", "value": name}]},
    }
    stated = {"log-record-header": header} | (
        {} if kind == "TOMBSTONE" else {"log-record-body": body}
    )
    return MessageReceived(at_s * _S, connection, json.dumps(stated).encode())


JUDGED = {"tapi-token-one-record", "tapi-offset-one-record", "tapi-entity-one-key"}


def broken(*events: Event) -> set[str]:
    """Which of the rules about identities are broken."""
    report = judge(tapi_rules(), [*BEGUN, *events])
    found = [one for one in report.broken if one.rule in JUDGED]
    assert all(len(one.evidence) == 2 for one in found)
    return {one.rule.removeprefix("tapi-") for one in found}


def test_a_record_that_says_something_else_the_next_time() -> None:
    first = [record(0), record(1, key="b", uuid="uuid-b")]
    assert broken(*first, AGAIN, record(0, connection=2)) == set()
    other = record(0, connection=2, name="another node")
    assert broken(*first, AGAIN, other) == {"token-one-record"}


def test_an_offset_that_two_records_have() -> None:
    first = record(3)
    assert broken(first, first, record(4, key="b", uuid="uuid-b")) == set()
    other = record(3, key="b", uuid="uuid-b", token="another token")
    assert broken(first, other) == {"offset-one-record"}
    # A log that was lost begins its offsets anew.
    assert broken(first, AGAIN, record(3, connection=2, token="another token")) == set()


def test_an_entity_whose_key_changes() -> None:
    assert broken(record(0), record(1, key="b")) == {"entity-one-key"}
    assert broken(record(0), record(1), record(2, key="b", uuid="uuid-b")) == set()


def test_an_entity_that_exists_anew_may_have_another_key() -> None:
    ended = [record(1, kind="DELETE"), record(2, kind="TOMBSTONE")]
    assert broken(record(0), *ended, record(3, key="b")) == set()
    wrong = record(1, kind="DELETE", key="b")
    assert broken(record(0), wrong, record(2, kind="TOMBSTONE", key="b")) == {"entity-one-key"}


def test_one_uuid_at_two_places_may_have_two_keys() -> None:
    assert broken(record(0), record(1, key="b", topology="two")) == set()
