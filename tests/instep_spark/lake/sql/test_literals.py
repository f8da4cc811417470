"""Literals of Spark SQL, whatever their texts are like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from instep_spark.lake.sql.literals import in_stream, of_streams, rows_behind, rows_between, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.mark.parametrize("streams", [1, 3, 60])
def test_rows_are_chosen_by_the_ordinals_of_their_streams(
    spark: SparkSession, streams: int
) -> None:
    names = [f"s{n:02}" for n in range(streams)]
    stated = [("c", name, ordinal) for name in [*names, "new"] for ordinal in range(1, 7)]
    rows = spark.createDataFrame(
        pa.table(
            dict(zip(("consumer", "stream", "ordinal"), zip(*stated, strict=True), strict=True))
        )
    )
    known = {("c", name): n % 5 for n, name in enumerate(names)}
    upto = {key: ordinal + 1 for key, ordinal in known.items()}

    def found(chosen: DataFrame) -> list[tuple[str, str, int]]:
        return sorted((row.consumer, row.stream, row.ordinal) for row in chosen.collect())

    behind = [row for row in stated if row[2] > known.get(row[:2], 0)]
    assert found(rows_behind(rows, known)) == sorted(behind)
    assert found(rows_between(rows, known, upto)) == [
        (*key, at) for key, at in sorted(upto.items())
    ]
    assert found(rows.alias("t").where(of_streams(known))) == sorted(
        row for row in stated if row[1] != "new"
    )


def test_of_many_streams_a_condition_names_the_bounds() -> None:
    named = of_streams(("c", f"s{number:03}") for number in range(900))
    assert named == "t.consumer IN ('c') AND t.stream BETWEEN 's000' AND 's899'"
