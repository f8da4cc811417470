"""A body that is not read again, or read by its types, gives what it would give otherwise."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model.records import Record, RecordType
from instep_tapi.facts.detector import (
    _any_detector,
    _usual_detector,
    all_active,
    read_detector,
    reread_detector,
    states_end,
    unknown_states,
)
from tests.instep_sql.store_kit import STREAM

NAMES = st.sampled_from(["LOS", "LOF", ""])
MAPPINGS = st.dictionaries(NAMES, st.sampled_from(["LOSS", "LOSS_OF_FRAME"]))
ADDRESSES = st.lists(st.sampled_from(["node-uuid:n1", "node-uuid:n2", "node-uuid:", "x", 7]))
ENVELOPES = st.fixed_dictionaries({}, optional={"parent-address": ADDRESSES, "m:other": NAMES})
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "condition-native-name": NAMES,
        "condition-normalized-name": NAMES,
        "tapi-fm:condition-native-name": NAMES,
        "measured-entity-class": st.sampled_from(["NODE", "LINK"]),
        "measured-entity-uuid": st.sampled_from(["n1", "n3", "x" * 1_000]),
        "detector-info": st.fixed_dictionaries({"condition-normalized-name": NAMES}),
        "is-acknowledged": st.booleans(),
    },
)


def record(body: dict[str, Any], envelope: dict[str, Any]) -> Record:
    return Record(
        STREAM,
        "k",
        RecordType.CREATE_UPDATE,
        "t",
        0,
        entity_class="CONDITION_DETECTOR",
        body=msgspec.json.encode(body),
        envelope=msgspec.json.encode(envelope),
    )


@given(BODIES, ENVELOPES, ENVELOPES, MAPPINGS, MAPPINGS)
def test_a_body_read_before_and_read_again_say_the_same(
    body: dict[str, Any],
    then: dict[str, Any],
    now: dict[str, Any],
    names_then: dict[str, str],
    names_now: dict[str, str],
) -> None:
    before = read_detector(record(body, then), names_then)
    again = record(body, now)

    assert reread_detector(before, again, names_now) == read_detector(again, names_now)


def test_what_says_nothing_new_is_the_same_object() -> None:
    statement = record({"condition-native-name": "LOS"}, {"parent-address": ["node-uuid:n1"]})
    before = read_detector(statement, {})

    assert reread_detector(before, statement, {}) is before


TEXTS = st.sampled_from(["", "LOS", "x" * 1_000, "\x00", "\\", "é", "\ud83d\ude00", None, 7, ["a"]])
IDENTITIES = st.sampled_from(
    ["", " ", "ACTIVE", "tapi-notification:CLEAR", "PERCEIVED_SEVERITY_MAJOR", "EVENT_DETECTOR", 3]
)
LISTS = st.sampled_from([[], ["a"], ["a", 7], "a", None, ["\x00"]])
LEGACY = st.fixed_dictionaries(
    {},
    optional={
        "perceived-severity": IDENTITIES,
        "service-affect": IDENTITIES,
        "is-acknowledged": st.sampled_from([True, False, "true", "false", "x", None]),
        "additional-alarm-info": LISTS,
        "tapi-fm:perceived-severity": IDENTITIES,
    },
)
DETAIL = st.fixed_dictionaries(
    {},
    optional={
        "alarm-detector-state": IDENTITIES,
        "legacy-properties": LEGACY | st.none(),
        "condition-native-name": TEXTS,
    },
)
USUAL_BODIES = st.fixed_dictionaries(
    {},
    optional={
        "condition-native-name": TEXTS,
        "condition-normalized-name": TEXTS,
        "measured-entity-uuid": TEXTS,
        "measured-entity-native-id": TEXTS,
        "measured-entity-local-id": LISTS,
        "measured-entity-class": IDENTITIES | st.just("NODE"),
        "detector-uuid": TEXTS,
        "detector-native-id": TEXTS,
        "condition-detector-type": IDENTITIES,
        "alarm-condition-detector-detail": DETAIL,
        "simple-detector": st.fixed_dictionaries(
            {}, optional={"simple-detector-state": IDENTITIES}
        ),
        "name": LISTS,
        "legacy-properties": LEGACY,
    },
)


@given(USUAL_BODIES, ADDRESSES, MAPPINGS)
def test_a_body_read_by_its_types_says_what_one_read_by_its_names_does(
    body: dict[str, Any], address: list[Any], names: dict[str, str]
) -> None:
    encoded = json.dumps(body).encode()
    usual = _usual_detector(encoded, address, names)

    assert usual in (None, _any_detector(encoded, address, names))


@pytest.mark.parametrize("broken", [b'{"name":"\xff"}', b'{"name":', b"", b"[]", b'{"name":1}x'])
def test_a_body_that_is_no_json_is_not_read_by_its_types(broken: bytes) -> None:
    assert _usual_detector(broken, None, {}) is None


def test_the_alarm_of_the_specification_is_read_by_its_types() -> None:
    """Else the short cut would be one that nobody takes."""
    detail = {"alarm-detector-state": "ACTIVE", "legacy-properties": {"is-acknowledged": True}}
    body = {"condition-native-name": "LOS", "alarm-condition-detector-detail": detail}
    usual = _usual_detector(msgspec.json.encode(body), None, {})

    assert usual is not None
    assert (usual.condition, usual.state, usual.acknowledged) == ("LOS", "ACTIVE", True)


STATES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "ACTIVE"),
    "active": ({"alarm-detector-state": "ACTIVE"}, "ACTIVE"),
    "intermittent": ({"alarm-detector-state": "INTERMITTENT"}, "INTERMITTENT"),
    "clear": ({"alarm-detector-state": "CLEAR"}, "CLEAR"),
    "identity": ({"alarm-detector-state": "tapi-fm:ALARM_DETECTOR_STATE_CLEAR"}, "CLEAR"),
    "later model": (
        {"simple-detector": {"simple-detector-state": "SIMPLE_DETECTOR_STATE_CLEAR"}},
        "CLEAR",
    ),
    # The state decides, whatever a legacy severity says (TR-548 4.4.1) …
    "active but cleared": (
        {"alarm-detector-state": "ACTIVE", "perceived-severity": "CLEARED"},
        "ACTIVE",
    ),
    # … which counts where there is no state.
    "cleared": ({"perceived-severity": "CLEARED"}, "CLEAR"),
    "cleared, as an identity": ({"perceived-severity": "PERCEIVED_SEVERITY_CLEARED"}, "CLEAR"),
    "empty and cleared": ({"alarm-detector-state": "", "perceived-severity": "CLEARED"}, "CLEAR"),
    # TAPI 2.4 and later (v3.2 4.5.2; 2.5 spells it otherwise).
    "fleeting": (
        {"simple-detector": {"simple-detector-state": "tapi-fm:SIMPLE_DETECTOR_STATE_FLEETING"}},
        "FLEETING",
    ),
    "never cleared": (
        {"alarm-detector-state": "SIMPLE_DETECTOR_STATE_ACTIVE_NO_EXPLICIT_CLEAR"},
        "ACTIVE_NO_EXPLICIT_CLEAR",
    ),
    "never cleared, in 2.5": (
        {"simple-detector-state": "ACTIVE-WITH-NO-SPECIFIC-CLEAR"},
        "ACTIVE_WITH_NO_SPECIFIC_CLEAR",
    ),
    # What may last has not ended.
    "clear outside, active inside": (
        {
            "alarm-detector-state": "CLEAR",
            "alarm-condition-detector-detail": {"alarm-detector-state": "ACTIVE"},
        },
        "ACTIVE",
    ),
    "active outside, clear inside": (
        {
            "alarm-detector-state": "ACTIVE",
            "alarm-condition-detector-detail": {"alarm-detector-state": "CLEAR"},
        },
        "ACTIVE",
    ),
}


@pytest.mark.parametrize("spelling", STATES)
@pytest.mark.parametrize("nested", [False, True], ids=["outside", "in its detail"])
def test_4_4_the_state_of_a_detector_has_one_reading(spelling: str, *, nested: bool) -> None:
    members, state = STATES[spelling]
    if nested and "alarm-condition-detector-detail" not in members:
        legacy = {name: one for name, one in members.items() if name == "perceived-severity"}
        others = {name: one for name, one in members.items() if name not in legacy}
        members = {"alarm-condition-detector-detail": {**others, "legacy-properties": legacy}}
    statement = record(members, {})

    assert read_detector(statement, {}).state == state
    assert states_end(statement.body, []) is (state not in ("ACTIVE", "INTERMITTENT"))


_PIECES = st.sampled_from(
    [
        '"alarm-detector-state":"ACTIVE"',
        '"alarm-detector-state": "ACTIVE"',
        '"simple-detector-state":"ACTIVE"',
        '"alarm-detector-state":"ACTIVE "',
        '"alarm-detector-state":null',
        '"alarm-detector-state":"CLEAR"',
        '"simple-detector-state":"tapi-fm:FLEETING"',
        '"simple-detector-state":"BROKEN"',
        '"alarm\\u002ddetector-state":"CLEAR"',
        '"perceived-severity":"CLEARED"',
        '"detector-native-id":"d1"',
    ]
)


@given(bodies=st.lists(st.lists(_PIECES, max_size=3), max_size=70))
def test_4_4_what_is_active_beyond_doubt_neither_ends_nor_is_unknown(
    bodies: list[list[str]],
) -> None:
    texts = [f"{{{','.join(pieces)}}}".encode() for pieces in bodies]
    if all_active(b",".join(texts)):
        deviations: list[str] = []
        assert not any(states_end(text, deviations) for text in texts)
        assert deviations == []
        assert sum(map(unknown_states, texts)) == 0


def test_4_4_active_in_the_usual_spelling_is_beyond_doubt() -> None:
    usual = b'{"alarm-condition-detector-detail":{"alarm-detector-state":"ACTIVE"}}'
    assert all_active(usual * 70)
    assert not all_active(usual * 69 + usual.replace(b"ACTIVE", b"BROKEN"))


def test_v32_4_5_2_an_alarm_of_tapi_fm() -> None:
    body = {
        "detector-native-id": "d1",
        "measured-entity-uuid": "n1",
        "condition-detector-type": "tapi-streaming:CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
        "tapi-fm:detected-condition": {
            "detected-condition-name": (
                "tapi-photonic-media:PHOTONIC_LAYER_DETECTED_CONDITION_NAME_LOS"
            ),
            "detected-condition-native-name": "Loss Of Signal",
            "detected-condition-native-info": "on the span",
            "detector-info": {
                "perceived-severity": "MAJOR",
                "service-affecting": "SERVICE_AFFECTING",
                "is-acknowledge": True,
            },
            "simple-detector": {"simple-detector-state": "tapi-fm:SIMPLE_DETECTOR_STATE_ACTIVE"},
        },
    }
    read = read_detector(record(body, {}), {})
    assert (read.state, read.severity, read.event) == ("ACTIVE", "MAJOR", False)
    assert (read.service_affect, read.acknowledged) == ("SERVICE_AFFECTING", True)
    assert (read.condition, read.info) == ("Loss Of Signal", '["on the span"]')
    assert read.condition_normalized == "PHOTONIC_LAYER_DETECTED_CONDITION_NAME_LOS"

    native = {"detected-condition-name": "tapi-fm:ALARM_NAME_NATIVE"}
    read = read_detector(record({"detected-condition": native}, {}), {})
    assert read.condition_normalized is None
