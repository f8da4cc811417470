"""Literals of Spark SQL, whatever their texts are like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.sql.literals import in_stream, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
TAB, QUOTE, BACKSLASH = "a\tb", "it's", "\\"
HOSTILE = ["", "x", TAB, QUOTE, BACKSLASH, "\\' OR true OR '", "' OR true --", "é\u202e\n", "${x}"]


@pytest.mark.parametrize("as_it_is", [False, True])
def test_a_text_of_a_stranger_stays_a_text(spark: SparkSession, as_it_is: bool) -> None:
    key = "spark.sql.parser.escapedStringLiterals"
    spark.conf.set(key, as_it_is)
    try:
        literals = ", ".join(f"{text(value)} AS c{n}" for n, value in enumerate(HOSTILE))
        assert list(spark.sql(f"SELECT {literals}").first() or ()) == HOSTILE
        spark.createDataFrame([("c", "s")], "consumer STRING, stream STRING").createTempView("two")
        for value in HOSTILE:
            assert spark.sql(f"SELECT * FROM two WHERE {in_stream(('c', value))}").count() == 0
    finally:
        spark.catalog.dropTempView("two")
        spark.conf.unset(key)
