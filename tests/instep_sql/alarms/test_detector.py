"""A body that is not read again gives what it would give if it were read."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from instep.model.records import Record, RecordType
from instep_sql.alarms.detector import detector_of, same_body
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
    before = detector_of(record(body, then), names_then)
    again = record(body, now)

    assert same_body(before, again, names_now) == detector_of(again, names_now)


def test_what_says_nothing_new_is_the_same_object() -> None:
    statement = record({"condition-native-name": "LOS"}, {"parent-address": ["node-uuid:n1"]})
    before = detector_of(statement, {})

    assert same_body(before, statement, {}) is before
