"""`python -m tests.instep_spark.answers`: random networks, fifty to a lake, by every engine."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from instep_spark.answers import open_lake
from instep_spark.session import SparkOptions, open_session
from tests.instep_spark.answers.answers_kit import (
    QUESTIONS,
    WINDOWS,
    differences,
    duckdb_asker,
    lake_of,
    oracles,
    polars_asker,
    spark_asker,
    write_tables,
)
from tests.instep_spark.answers.dbt_kit import dbt_asker
from tests.instep_spark.spark_server_kit import QUICK


def main(
    networks: int = 300,
    first: int = 0,
    *,
    without_spark: bool = False,
    pipeline: bool = False,
    dbt: str = "",
) -> None:
    """Compare all answers with the oracle; ends with 1 where one differs. `pipeline`: make the
    tables with it, which takes ten seconds a network, in place of writing what it would make.
    `dbt`: the program that builds the dbt project; each lake has another window there.
    """
    spark = None if without_spark else open_session(SparkOptions(master="local[2]", config=QUICK))
    wrong = 0
    for seeds in _fifties(range(first, first + networks)):
        began = time.monotonic()
        known = oracles(seeds)
        with TemporaryDirectory() as folder:
            lake = Path(folder)
            if pipeline and spark is not None:
                lake_of(known, lake, spark)
            else:
                write_tables(known, lake)
            opened = open_lake(str(lake))
            engines = {"duckdb": duckdb_asker(opened), "polars": polars_asker(opened)}
            if spark is not None:
                engines["spark"] = spark_asker(spark, lake.as_uri())
            questions = dict.fromkeys(engines, QUESTIONS)
            if dbt:
                window = seeds[0] // 50 % len(WINDOWS)
                engines["dbt"], questions["dbt"] = dbt_asker(dbt, lake, lake / "dbt", window)
            for engine, ask in engines.items():
                for name, given in questions[engine]:
                    if told := differences(known, ask, name, given):
                        wrong += 1
                        typer.echo(f"{engine}: {told}")
        typer.echo(
            f"networks {seeds[0]} to {seeds[-1]}: "
            + ", ".join(f"{len(asked)} by {engine}" for engine, asked in questions.items())
            + f" in {time.monotonic() - began:.0f} s, {wrong} differ so far"
        )
    raise typer.Exit(bool(wrong))


def _fifties(seeds: range) -> list[range]:
    return [seeds[at : at + 50] for at in range(0, len(seeds), 50)]


if __name__ == "__main__":
    typer.run(main)
