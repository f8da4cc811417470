"""Members of JSON bodies, read in Spark SQL, whatever their texts are like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.sql.json_fields import enum_field, text_field

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
