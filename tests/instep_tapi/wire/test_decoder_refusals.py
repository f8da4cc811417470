"""A frame that cannot be decoded is kept, whatever it is; published examples are decoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model.records import RecordType
from instep_tapi.deviations import DEVIATIONS
from tests.instep_tapi.log_record_kit import log_record, only, read, refused

EXACT = {"event-time-stamp": {}, "record-content": "CONDITION_DETECTOR"}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"<html>token", "not JSON"),
        (b'"log-record"', "neither an object nor a list"),
        (b"\xff\xfetoken", "not JSON"),
        (b'{"log-record-header":' * 100_000, "nested too deeply"),
        (b"[" * 1_000_000 + b"token", "nested too deeply"),
        ({"token": 1}, "no log-record-header"),
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
        *(
            (log_record(body={**EXACT, "condition-detector": value}), reason)
            for value, reason in (
                ("text", "its condition-detector is no object"),
                (1, "its condition-detector is no object"),
                ([{}], "its condition-detector is no object"),
                (None, "without the entity"),
            )
        ),
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


@pytest.mark.parametrize(
    "frame", [b"", b"<html>", b'"ping"', b"null", b"\xff\xfe", b"[" * 1_000_000, {"hello": 1}]
)
def test_a_text_that_names_no_record_is_none(frame: Any) -> None:
    chunk = read(frame, frame)
    assert not chunk.records
    assert not chunk.unreadable
    assert chunk.deviations == {"no-record": 2}
    assert chunk.samples.keys() == {"no-record"}


@pytest.mark.parametrize("cut", range(0, 900, 7))
def test_a_record_that_is_cut_off_tells_its_key_where_it_is_there(cut: int) -> None:
    frame = json.dumps(log_record()).encode()[:cut]
    for one in read(frame).unreadable:
        assert one.key in (None, "3669276387587255710")
        assert (one.key is not None) == (b'"3669276387587255710"' in frame)


def test_what_is_still_readable_of_a_record_is_kept() -> None:
    [one] = read(log_record(**{"log-append-time-stamp": "unknown"})).unreadable
    assert (one.key, one.partition, one.offset) == ("3669276387587255710", "0", 910)
    assert one.entity_class == "CONDITION_DETECTOR"
    [whole] = read([{"token": 1, "entity-key": "a"}] * 101).unreadable
    assert (whole.key, whole.token) == (None, None)


def test_one_bad_record_leaves_its_neighbours() -> None:
    bad = log_record(**{"entity-key": None}, token="2")
    chunk = read([log_record(token="1"), bad, log_record(token="3")])
    assert [record.token for record in chunk.records] == ["1", "3"]
    assert [unreadable.token for unreadable in chunk.unreadable] == ["2"]
    assert json.loads(chunk.unreadable[0].raw) == bad


def test_huge_numbers_do_no_harm() -> None:
    digits = "9" * 100_000
    text = json.dumps(log_record()).replace('"910"', digits)
    chunk = read(text.encode())
    assert only(chunk).offset == -1
    assert chunk.deviations == {"offset-unreadable": 1, "offset-missing": 1}


def test_every_deviation_is_explained() -> None:
    frames = [
        log_record(body={"node": {"x": 1}, "tapi-streaming:event-source": "UNKNOWN"}),
        log_record(**{"full-log-record-offset-id": None, "record-type": " X"}),
    ]
    assert set(read(*frames).deviations) <= set(DEVIATIONS)


@given(st.binary(max_size=300))
def test_no_bytes_raise(frame: bytes) -> None:
    chunk = read(frame)
    assert chunk.size_bytes == len(frame)
    assert not chunk.records


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
    damaged = log_record(**changes)
    chunk = read([damaged, good] if in_list else damaged)
    assert len(chunk.records) + len(chunk.unreadable) == 1 + in_list
    if in_list:
        assert chunk.records[-1].token == "good"


@given(json_values)
def test_json_that_is_no_record_is_kept(value: Any) -> None:
    chunk = read(value)
    assert not chunk.records
    assert value == [] or chunk.unreadable or chunk.deviations["no-record"]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("tr548_v11_6.3_alarm_yang_valid.json", [RecordType.CREATE_UPDATE]),
        (
            "tr548_v11_alarm_plus_tombstone_yang_valid.json",
            [RecordType.CREATE_UPDATE, RecordType.TOMBSTONE],
        ),
        ("tr548_v31_alarm_compact_as_published.json", [RecordType.CREATE_UPDATE]),
    ],
)
def test_reads_the_published_examples(
    shared_data: Path, name: str, kinds: list[RecordType]
) -> None:
    chunk = read((shared_data / "tapi" / name).read_bytes())
    assert not chunk.unreadable
    assert [record.kind for record in chunk.records] == kinds
    record = chunk.decode().records[0]
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
