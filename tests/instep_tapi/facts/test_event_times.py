"""An event time that is read by its types is the one that is read by its names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model.records import Record, RecordType
from instep_tapi.facts.event_times import _any_time, _usual_time

TEXTS = st.sampled_from(
    ["2026-06-30T23:59:60Z", "20260630235959.0-0500", "SPREAD_AT", "", "é", "\\", "x" * 300]
)
STAMPS = st.dictionaries(
    st.sampled_from(
        [
            *("primary-time-stamp", "start-time-stamp", "spread", "source-precision"),
            *("tapi-streaming:primary-time-stamp", "approx-date-and-time", "other"),
        ]
    ),
    TEXTS | st.none() | st.integers() | st.just({"primary-time-stamp": "2026-06-30T00:00:00Z"}),
)
ENVELOPES = st.dictionaries(
    st.sampled_from(["event-time-stamp", "tapi-streaming:event-time-stamp", "parent-address"]),
    STAMPS | TEXTS | st.lists(TEXTS),
)


def stated(envelope: dict[str, Any]) -> Record:
    text = json.dumps(envelope).encode()
    return Record("s", "k", RecordType.CREATE_UPDATE, "t", 7, envelope=text)


@given(ENVELOPES)
def test_both_read_the_same(envelope: dict[str, Any]) -> None:
    record = stated(envelope)
    assert _usual_time(record) in (None, _any_time(record))


def test_the_spelling_of_the_yang_is_read_by_its_types() -> None:
    """Else the short cut would be one that nobody takes."""
    stamp = {"primary-time-stamp": "2026-06-30T00:00:00Z", "spread": "SPREAD_AT"}
    found = _usual_time(stated({"event-time-stamp": stamp}))
    assert found is not None
    assert (found.at_us, found.spread) == (1_782_777_600_000_000, "AT")


@pytest.mark.parametrize("name", ["event-time-stamp", "tapi-streaming:event-time-stamp"])
def test_without_a_time_it_is_the_append_time(name: str) -> None:
    for stamp in ({}, {"primary-time-stamp": "2026-06-30"}, "tomorrow", None):
        record = stated({name: stamp})
        assert _usual_time(record) is None
        assert (_any_time(record).at_us, _any_time(record).spread) == (7, "BEFORE")
