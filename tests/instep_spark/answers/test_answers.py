"""All engines answer as the oracle does, over random networks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from instep.errors import ConfigurationError
from instep_spark.answers import availability, failure_impact, open_lake, repair_times
from instep_spark.answers.definitions import query
from instep_spark.answers.dialects import SPARK
from tests.instep_spark.answers.answers_kit import (
    QUESTIONS,
    differences,
    duckdb_asker,
    oracles,
    spark_asker,
    write_tables,
)
from tests.instep_spark.answers.network_kit import HOUR_US, START_US
from tests.instep_spark.answers.oracle_kit import ANSWERS, Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(12)
WINDOW = (START_US, START_US + 3 * HOUR_US)
BY_SPARK = (
    *("impact", "availability_between", "repair_between", "topology_at", "entities_at"),
    *(pytest.param(one, marks=pytest.mark.long) for one in ("alarm_places_at_raise", "link_load")),
)
"""These read all readings and nearly all views."""
START, END = (datetime.fromtimestamp(at // 1_000_000, UTC) for at in WINDOW)


@pytest.fixture(scope="module")
def networks() -> list[Oracle]:
    return oracles(SEEDS)


@pytest.fixture(scope="module")
def lake(networks: list[Oracle], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("networks")
    write_tables(networks, folder)
    return folder


@pytest.fixture(scope="module")
def opened(lake: Path) -> Any:
    pytest.importorskip("duckdb", reason="DuckDB is not installed")
    return open_lake(str(lake))


@pytest.mark.parametrize(("name", "given"), QUESTIONS)
def test_l6_duckdb_answers_as_the_oracle(
    networks: list[Oracle], opened: Any, name: str, given: tuple[int, ...]
) -> None:
    assert differences(networks, duckdb_asker(opened), name, given) == ""


def test_the_networks_ask_for_something(networks: list[Oracle]) -> None:
    for name in ANSWERS:
        given = [arguments for other, arguments in QUESTIONS if other == name]
        assert any(getattr(one, name)(*given[-1]) for one in networks), name
    hops = [hop for one in networks for hop in one.connection_hops()]
    assert {hop[-1] for hop in hops} == {"ROUTE", "POSSIBLE", None}
    figures = [row for one in networks for row in one.availability_between(*WINDOW)]
    assert any(row[8] == 0 for row in figures)
    assert any(row[8] > 0 for row in figures)


# A JVM starts, and plans queries of a hundred lines: a minute.
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BY_SPARK)
def test_spark_answers_as_the_oracle(
    networks: list[Oracle], lake: Path, spark: SparkSession, name: str
) -> None:
    given = [arguments for other, arguments in QUESTIONS if other == name][-1]
    ask = spark_asker(spark, lake.as_uri())
    assert differences(networks, ask, name, given) == ""


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_functions_compose(networks: list[Oracle], lake: Path, spark: SparkSession) -> None:
    figures = availability(spark, lake.as_uri(), START, END)
    worst = figures.where("class = 'LINK' AND consumer = 'c1'").orderBy("percent_at_least")
    found = [(one.id, one.percent_at_least) for one in worst.collect()]
    rows = networks[1].availability_between(*WINDOW)
    wanted = {row[1]: row[10] for row in rows if row[1].startswith("l")}
    assert dict(found) == pytest.approx(wanted)
    assert len(found) > 1
    (failed, *_) = [row[1] for row in networks[1].failure_impact() if row[0] == "LINK"]
    hit = failure_impact(spark, lake.as_uri(), failed).where("consumer = 'c1'")
    assert {one.connection_uuid for one in hit.collect()} == {
        row[4] for row in networks[1].failure_impact() if row[1] == failed
    }


def test_a_bad_time_is_told(lake: Path) -> None:
    none: Any = None
    with pytest.raises(ConfigurationError, match="has no zone"):
        availability(none, lake.as_uri(), START.replace(tzinfo=None), END)
    with pytest.raises(ConfigurationError, match="not after its start"):
        repair_times(none, lake.as_uri(), END, START)
    with pytest.raises(ConfigurationError, match="no answer 'availabilty'"):
        query("availabilty", {}, SPARK)


def test_where_there_is_no_lake_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lake at"):
        open_lake(str(tmp_path / "nowhere"))


def test_an_answer_of_which_a_table_is_not_there_is_left_out(lake: Path, tmp_path: Path) -> None:
    for name in ("entities", "changes"):
        (tmp_path / name).symlink_to(lake / name)
    few = open_lake(str(tmp_path))
    known = {row[0] for row in few.sql("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert {"entities", "links", "route_points"} <= known
    assert not known & {"place_history", "topology"}
    assert few.sql("SELECT * FROM edges LIMIT 1").fetchall()
