"""Members of JSON bodies, read in Spark SQL, whatever their texts are like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from instep_tapi.lake.json_members import enum_field, text_field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_texts_of_any_length_and_with_any_escapes_are_read(spark: SparkSession) -> None:
    texts = ["", "x", 'a "quoted" \\ name\n', "long " * 100_000, '"\\' * 50_000]
    bodies = [
        (json.dumps({"module:text": text, "state": " m:SIMPLE_DETECTOR_STATE_UP "}),)
        for text in texts
    ]
    frame = spark.createDataFrame(bodies, "body STRING")
    rows = frame.selectExpr(
        f"{text_field('text')} AS text", f"{enum_field('state')} AS state"
    ).collect()
    assert [row.text or "" for row in rows] == texts
    assert {row.state for row in rows} == {"UP"}


def test_a_member_is_found_wherever_it_stands(spark: SparkSession) -> None:
    far = {"text": ["é" * 700, 'state"', '"up": "x"'], "not-up": "no", "m:other-state": "x"}
    found = {
        json.dumps({**far, "module:up": "yes", "more": {"up": "no"}}, ensure_ascii=False): "yes",
        json.dumps({**far, "down": "first", "up": "second"}): "first",
        json.dumps({**far, "a": [{"up": "first"}], "down": "second"}, indent=1): "first",
        json.dumps({**far, "up": 7, "x": {"down": "text"}}): "text",
        json.dumps({**far, "x" * 64 + ":down": "prefixed"}): "prefixed",
        json.dumps(far): None,
        "{}": None,
        "": None,
    }
    frame = spark.createDataFrame([(body,) for body in found], "body STRING")
    rows = frame.selectExpr("body", f"{text_field('up', 'down')} AS text").collect()
    assert {row.body: row.text for row in rows} == found
