"""The edition of a stream, sign by sign, as a stream-context states it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep_tapi.facts.stream_profile import DECISIONS, Decision
from instep_tapi.wire.stream_context import parse_context

V1 = {
    "uuid": "t",
    "stream-type-name": "x",
    "record-retention": "FOREVER",
    "record-content": ["NODE"],
    "log-storage-strategy": "LOG_STORAGE_STRATEGY_COMPACTED",
    "log-record-strategy": "LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE",
    "compacted-log-details": {"tombstone-retention": "240", "compaction-delay": "10"},
    "connection-protocol-details": {"allowed-connection-protocols": ["websockets"]},
}
BARE = {"uuid": "t", "log-record-strategy": "CHANGE_ONLY", "log-storage-strategy": "COMPACTED"}


def profile(type_: dict[str, Any], **stream: Any) -> tuple[str, str]:
    available = {"uuid": "s", "connection-address": "ws://h/s", **stream}
    available["supported-stream-type"] = {"supported-stream-type-uuid": "t"}
    context = parse_context(
        {
            "tapi-streaming:stream-context": {
                "supported-stream-type": [type_],
                "available-stream": [available],
            }
        }
    )
    assert context is not None
    (found,) = context.streams
    return found.profile.tapi, found.profile.evidence


@pytest.mark.parametrize(
    ("type_", "stream", "expected"),
    [
        (V1, {}, ("2.1.3", "record-content is stated")),
        (BARE, {}, ("2.1.3", "no sign of TAPI 2.4 or later")),
        ({**BARE, "stream-type-content": ["NODE"]}, {}, ("2.1.3", "no sign of TAPI 2.4 or later")),
        # New in the model of 2.4.
        (
            {**BARE, "record-trigger": "tapi-streaming:RECORD_TRIGGER_ON_CHANGE"},
            {},
            ("2.6", "record-trigger is stated"),
        ),
        (
            {**BARE, "log-record-strategy": "tapi-streaming:LOG_RECORD_STRATEGY_WHOLE_ENTITY"},
            {},
            ("2.6", "log-record-strategy is WHOLE_ENTITY"),
        ),
        (
            {**BARE, "connection-protocol-details": {"encoding-format": "ENCODING_FORMAT_JSON"}},
            {},
            ("2.6", "encoding-format is stated"),
        ),
        (
            {**BARE, "tapi-streaming:compacted-log-details": {"max-compaction-lag": "5"}},
            {},
            ("2.6", "the delay or lag of compaction is stated"),
        ),
        # Otherwise named in 2.4.
        (
            {**BARE, "stream-type-content": ["tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE"]},
            {},
            ("2.6", "classes are an OBJECT_TYPE"),
        ),
        (
            BARE,
            {"connection-protocol": "tapi-streaming:CONNECTION_PROTOCOL_WEBSOCKETS"},
            ("2.6", "connection-protocol is an identity"),
        ),
        (BARE, {"connection-address": ["ws://h/s"]}, ("2.6", "connection-address is a list")),
        # Mixed: what only one model can state decides.
        (V1, {"connection-address": ["ws://h/s"]}, ("2.1.3", "record-content is stated")),
        ({**V1, "record-trigger": "ON_CHANGE"}, {}, ("2.6", "record-trigger is stated")),
    ],
)
def test_each_sign(
    type_: dict[str, Any], stream: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert profile(type_, **stream) == expected


def test_a_type_that_is_stated_within_its_stream() -> None:
    type_ = {**BARE, "record-trigger": "ON_CHANGE"}
    context = parse_context({"available-stream": [{"uuid": "s", "supported-stream-type": type_}]})
    assert context is not None
    assert context.streams[0].profile.tapi == "2.6"


@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        ({}, "COMPACTED"),
        ({"compacted-log-details": {}}, ""),
        ({"log-storage-strategy": "LOG_STORAGE_STRATEGY_TRUNCATED"}, "TRUNCATED"),
    ],
)
def test_v3_2_3_7_1_a_log_with_details_of_compaction_is_compacted_by_default(
    changes: dict[str, Any], strategy: str
) -> None:
    type_ = {name: value for name, value in V1.items() if name != "log-storage-strategy"}
    context = parse_context({"supported-stream-type": [type_ | changes]})
    assert context is not None
    assert context.types[0].storage_strategy == strategy


@pytest.mark.parametrize("odd", [None, 7, "text", [], [None, {}], {}, {"a": []}])
def test_odd_shapes_are_no_sign(odd: Any) -> None:
    names = ("stream-type-content", "log-record-strategy", "compacted-log-details")
    type_ = {**BARE, **dict.fromkeys([*names, "connection-protocol-details"], odd)}
    assert profile(type_, **{"connection-protocol": odd})[0] == "2.1.3"


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda one: one.question)
def test_each_decision_is_a_line_of_the_documentation(decision: Decision) -> None:
    page = Path(__file__).parents[3] / "docs/how-to/choose-streams.md"
    assert f"| {' | '.join(decision)} |" in page.read_text()
