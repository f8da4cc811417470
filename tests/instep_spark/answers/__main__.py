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
    differences,
    duckdb_asker,
    lake_of,
    oracles,
    spark_asker,
    write_tables,
)
from tests.instep_spark.spark_server_kit import QUICK


def main(
    networks: int = 300, first: int = 0, *, without_spark: bool = False, pipeline: bool = False
) -> None:
    """Compare all answers with the oracle; ends with 1 where one differs. `pipeline`: make the
    tables with it, which takes ten seconds a network, in place of writing what it would make.
    """
    spark = None if without_spark else open_session(SparkOptions(master="local[2]", config=QUICK))
    wrong = 0
    for seeds in _fifties(range(first, first + networks)):
        began = time.monotonic()
        asked = oracles(seeds)
        with TemporaryDirectory() as folder:
            lake = Path(folder)
            if pipeline and spark is not None:
                lake_of(asked, lake, spark)
            else:
                write_tables(asked, lake)
            engines = {"duckdb": duckdb_asker(open_lake(str(lake)))}
            if spark is not None:
                engines["spark"] = spark_asker(spark, lake.as_uri())
            for engine, ask in engines.items():
                for name, given in QUESTIONS:
                    if told := differences(asked, ask, name, given):
                        wrong += 1
                        typer.echo(f"{engine}: {told}")
        typer.echo(
            f"networks {seeds[0]} to {seeds[-1]}: {len(QUESTIONS)} questions by"
            f" {', '.join(engines)} in {time.monotonic() - began:.0f} s, {wrong} differ so far"
        )
    raise typer.Exit(bool(wrong))


def _fifties(seeds: range) -> list[range]:
    return [seeds[at : at + 50] for at in range(0, len(seeds), 50)]


if __name__ == "__main__":
    typer.run(main)
