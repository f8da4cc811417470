"""What Spark reads in bulk is what the facts of TAPI read one by one: event times and detectors."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from instep.model.records import Record, RecordType
from instep_tapi.facts.detector import states_end
from instep_tapi.facts.event_times import event_time, stated_time
from instep_tapi.facts.places import read_places
from instep_tapi.facts.times import time_us
from instep_tapi.lake.alarms import ALARMS
from instep_tapi.lake.event_times import EVENT_SQL, read_envelopes, time_sql
from instep_tapi.lake.json_members import parent_uuid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DATES: Final = (
    *("2026-06-30", "20260630", "2024-02-29", "2023-02-29", "2026-13-01", "20260631", "0001-01-01"),
    *("0000-01-01", "9999-12-31", "2026-W27-2", "2026W272", "2026-W27", "2026-W53-1", "2020W537"),
    *("2026-W00-1", "2026-W01-8", "2026-0630", "202606-30", "26-06-30", ""),
)
CLOCKS: Final = (
    *("23:59:59", "23:59:60", "24:00:00", "24:00:01", "24:00", "10", "10:20", "10:20:30.1234567"),
    *("102030", "1020", "102030.5", "102030,25", "235960", "240000", "10:2", "25:00:00"),
    *("10:61:00", "23:59:59.123456x7", "10:20:30.123456", "23:59:60.7", "24:00:00.000", "240000.1"),
    *(""),
)
ZONES: Final = (
    *("Z", "", "z", "+01:00", "-0500", "+23:59", "-24:00", "+01", "+1", "+01:02:03", "UTC"),
    "+00:00",
)
SEPARATORS: Final = ("T", " ", "t", "")
ODD: Final = ("", " ", "epoch", "now", "7", "2026", "T10:00:00", "x" * 70, "2026-06-30T1:00:00Z")


def spelled_times(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    texts = [*ODD]
    for _ in range(count):
        text = "".join(map(chance.choice, (DATES, SEPARATORS, CLOCKS, ZONES)))
        texts.append(chance.choice(("", " ", "\t")) + text if chance.random() < 0.05 else text)
    return texts


def test_spark_reads_each_spelling_of_a_time_as_the_facts_do(spark: SparkSession) -> None:
    texts = list(dict.fromkeys(spelled_times(7, 3_000)))
    rows = spark.createDataFrame(pa.table({"stated": texts}))
    found = rows.selectExpr("stated", f"unix_micros({time_sql('stated')}) AS us").collect()
    assert {row.stated: row.us for row in found} == {one: time_us(one) for one in texts}
    assert sum(row.us is not None for row in found) > 200


TIMES: Final = ("2026-11-25T15:52:53.387Z", "20261125155253.5+0100", "2026-11-25", "", None, 7)
NAMES: Final = (
    *("AT", "SPREAD_BEFORE", " tapi-common:SPREAD_BETWEEN ", "free-running", "", None, 3, ["AT"]),
    *("tapi-common:SOURCE_PRECISION_SYNCHRONIZED", "x" * 200, "a:b:AT", "\x00AT", "SPREAD_", "É"),
)


def is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def chosen(chance: random.Random, **members: Any) -> dict[str, Any]:
    """Some of these members, some with the name of a module."""
    return {
        chance.choice(("", "", "tapi-common:", "x.y-z:")) + name.replace("_", "-"): value
        for name, value in members.items()
        if chance.random() < 0.6
    }


def stamps(chance: random.Random) -> Any:
    # Spark cannot tell a text from a number that the other level states under the same name.
    texts_only = chance.random() < 0.7

    def own() -> dict[str, Any]:
        made = chosen(
            chance,
            primary_time_stamp=chance.choice(TIMES),
            start_time_stamp=chance.choice(TIMES),
            spread=chance.choice(NAMES),
            source_precision=chance.choice(NAMES),
        )
        return {name: value for name, value in made.items() if not texts_only or is_text(value)}

    if not texts_only:
        return own()
    nested = chosen(chance, approx_date_and_time=chance.choice((own(), own(), {}, None, "x")))
    return chance.choice((chance.choice(TIMES), own(), {**own(), **nested}, {**nested, **own()}))


def envelopes(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    made = ["", "{}", "[]"]
    for _ in range(count):
        members = chosen(
            chance,
            event_time_stamp=stamps(chance),
            parent_address=["node-uuid:n"],
            note='"spread":"AT"',
        )
        made.append(json.dumps(members, ensure_ascii=chance.random() < 0.5))
    return made


def test_how_sure_an_event_time_is_is_read_as_the_facts_do(spark: SparkSession) -> None:
    texts = list(dict.fromkeys(envelopes(7, 1_500)))
    rows = spark.createDataFrame(pa.table({"envelope": texts}))
    rows = rows.selectExpr("envelope", f"{EVENT_SQL} AS event")
    found = rows.selectExpr(
        "envelope",
        "unix_micros(event.event_start_at)",
        "event.event_spread",
        "event.event_precision",
    )
    read = {row[0]: tuple(row[1:]) for row in found.collect()}
    expected = {}
    for one in texts:
        record = Record("s", "k", RecordType.CREATE_UPDATE, "t", 0, envelope=one.encode())
        at = event_time(record)
        if time_us(stated_time(record.envelope)[0]) is not None:
            expected[one] = (at.from_us, at.spread, at.precision)
    assert {one: read[one] for one in expected} == expected
    assert len(expected) > 100


def test_the_envelopes_of_a_batch_are_read_as_each_one_is() -> None:
    texts = [one.encode() for one in envelopes(8, 3_000)]
    expected = [stated_time(one)[0] or None for one in texts]
    assert [one or None for one in read_envelopes(texts).event_times] == expected
    # Of none alone, so that the quick way is taken, too.
    for one, time in zip(texts, expected, strict=True):
        assert (read_envelopes([one]).event_times[0] or None) == time, one


TEXTS: Final = (
    *("", "LOS", "x" * 700, "a\x00b", "\\", "é", '"quoted":"LOS"', None, 7, "7", "-", True, "true"),
    *(["a"], "[", {"x": 1}, "{", "null", "Loss:"),
)
STATES: Final = (
    *("ACTIVE", "CLEAR", "INTERMITTENT", "tapi-notification:ALARM_DETECTOR_STATE_CLEAR", "", " "),
    *("SIMPLE_DETECTOR_STATE_ACTIVE", " CLEAR ", "x" * 200, None, 3),
    *("SIMPLE_DETECTOR_STATE_FLEETING", "tapi-fm:SIMPLE_DETECTOR_STATE_ACTIVE_NO_EXPLICIT_CLEAR"),
)
KINDS: Final = ("MAJOR", "PERCEIVED_SEVERITY_CLEARED", "CLEARED", "x:SEVERITY-A", "", None, 4)
TYPES: Final = (
    *("CONDITION_DETECTOR_TYPE_EVENT_DETECTOR", "PM_THRESHOLD_DETECTOR", "ALARM_DETECTOR", None),
)
CLASSES: Final = ("NODE", "tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE", "LINK", "", "x:y", None)
CONDITIONS: Final = (
    *("tapi-photonic-media:PHOTONIC_LAYER_DETECTED_CONDITION_NAME_LOS", "LOS", "", " ", None),
    *("tapi-fm:DETECTED_CONDITION_NAME_ALARM_NAME_NATIVE", "ALARM_NAME_NATIVE", "x:", 7),
)
INNER: Final = (
    *("alarm-condition-detector-detail", "legacy-properties", "detected-condition"),
    *("detector-info", "simple-detector", "other"),
)


def detector(chance: random.Random, depth: int = 0, *, flat: bool = False) -> dict[str, Any]:
    """`flat`: with values of any type, but no containers; see `stamps`."""
    own = chosen(
        chance,
        alarm_detector_state=chance.choice(STATES),
        simple_detector_state=chance.choice(STATES),
        perceived_severity=chance.choice(KINDS),
        service_affect=chance.choice(KINDS),
        service_affecting=chance.choice(KINDS),
        is_acknowledge=chance.choice((True, False, "true", "x", None)),
        detected_condition_native_name=chance.choice(TEXTS),
        detected_condition_name=chance.choice(CONDITIONS),
        is_acknowledged=chance.choice((True, False, "true", "false", "x", None, 1)),
        condition_native_name=chance.choice(TEXTS),
        condition_normalized_name=chance.choice(TEXTS),
        detector_native_id=chance.choice(TEXTS),
        detector_uuid=chance.choice(TEXTS),
        measured_entity_class=chance.choice(CLASSES),
        measured_entity_uuid=chance.choice(TEXTS),
        measured_entity_native_id=chance.choice(TEXTS),
        condition_detector_type=chance.choice(TYPES),
    )
    kept = {name: value for name, value in own.items() if chance.random() < 0.5}
    if not flat:
        kept = {name: one for name, one in kept.items() if is_text(one) or "acknowledged" in name}
    for name in INNER:
        if not flat and depth < 4 and chance.random() < 0.25:
            inner: Any = chance.choice((detector(chance, depth + 1), None, 7, []))
            kept[chance.choice(("", "tapi-fm:")) + name] = inner
    members = list(kept.items())
    chance.shuffle(members)
    return dict(members)


ADDRESSES: Final = (
    None,
    "",
    "[]",
    '["topology-uuid:t", "node-uuid:n1", "node-uuid:n2"]',
    '["node-uuid:", "node-uuid:n2"]',
    '["x-node-uuid:n1"]',
    '["node-uuid:\\u00e9"]',
    "{}",
    "[7]",
    '"node-uuid:n1"',
)


def test_the_entities_above_are_those_of_the_facts(spark: SparkSession) -> None:
    addresses = [one for one in ADDRESSES if one]
    frame = spark.createDataFrame(pa.table({"parent_address": addresses}))
    for name in ("node", "topology"):
        found = frame.selectExpr("parent_address", f"{parent_uuid(name)} AS uuid").collect()
        for row in found:
            envelope = b'{"parent-address":%b}' % row.parent_address.encode()
            above, _ = read_places("", envelope, b"{}")
            uuids = [uuid for _, _, element, uuid in reversed(above) if element == f"{name}-uuid"]
            assert row.uuid == (uuids[0] or None if uuids else None), row


ENDED: Final = (
    {"alarm-detector-state": "CLEAR"},
    {"alarm-condition-detector-detail": {"alarm-detector-state": "ALARM_DETECTOR_STATE_CLEAR"}},
    {"simple-detector": {"simple-detector-state": "tapi-fm:SIMPLE_DETECTOR_STATE_CLEAR"}},
    {"legacy-properties": {"perceived-severity": "CLEARED"}},
    {"legacy-properties": {"perceived-severity": "PERCEIVED_SEVERITY_CLEARED"}},
    {"alarm-detector-state": "", "legacy-properties": {"perceived-severity": "CLEARED"}},
)
EVENTS: Final = (
    {"simple-detector": {"simple-detector-state": "tapi-fm:SIMPLE_DETECTOR_STATE_FLEETING"}},
    {"simple-detector": {"simple-detector-state": "ACTIVE-NO-EXPLICIT-CLEAR"}},
    {"alarm-detector-state": "SIMPLE_DETECTOR_STATE_ACTIVE_WITH_NO_SPECIFIC_CLEAR"},
)
LASTING: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"alarm-detector-state": "ACTIVE", "legacy-properties": {"perceived-severity": "CLEARED"}},
    {
        "alarm-detector-state": "CLEAR",
        "alarm-condition-detector-detail": {"alarm-detector-state": "ACTIVE"},
    },
    {"alarm-condition-detector-detail": {"alarm-detector-state": "ACTIVE"}},
    {"alarm-detector-state": "INTERMITTENT"},
    {"legacy-properties": {"perceived-severity": "MAJOR"}},
)


def test_a_state_is_the_same_for_the_adapter_and_for_spark(spark: SparkSession) -> None:
    bodies = [json.dumps(body) for body in (*ENDED, *EVENTS, *LASTING)]
    frame = spark.createDataFrame(pa.table({"body": bodies, "parent_address": [""] * len(bodies)}))
    found = frame.selectExpr("body", f"{ALARMS.read_sql} AS stated").collect()
    states = {row.body: row.stated.state for row in found}
    assert [states[body] for body in bodies] == ALARMS.read(bodies, [None] * len(bodies))["state"]
    over = [states_end(body.encode(), []) for body in bodies]
    assert over == [states[body] not in ("ACTIVE", "INTERMITTENT") for body in bodies]
    assert over == [True] * len((*ENDED, *EVENTS)) + [False] * len(LASTING)


def test_spark_reads_detectors_as_the_facts_do(spark: SparkSession) -> None:
    chance = random.Random(7)
    bodies = [
        "",
        "[]",
        "7",
        *(json.dumps(detector(chance, flat=chance.random() < 0.3)) for _ in range(1_500)),
    ]
    addresses = [chance.choice(ADDRESSES) for _ in bodies]
    columns = {"at": range(len(bodies)), "body": bodies, "parent_address": addresses}
    frame = spark.createDataFrame(pa.table({name: list(one) for name, one in columns.items()}))
    found = frame.selectExpr("at", f"{ALARMS.read_sql} AS stated", f"{ALARMS.left_out_sql} AS may")
    read = ALARMS.read(bodies, addresses)
    assert read.keys() == ALARMS.stated.keys()
    for row in found.collect():
        expected = {name: values[row.at] for name, values in read.items()}
        assert row.stated.asDict() == expected, (bodies[row.at], addresses[row.at])
        assert row.may or not row.stated[ALARMS.left_out], (bodies[row.at], addresses[row.at])
