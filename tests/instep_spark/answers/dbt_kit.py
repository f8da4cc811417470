"""Builds the dbt project of a lake. `python -m tests.instep_spark.answers.dbt_kit FOLDER` makes an
environment with dbt-duckdb; it finds this environment's packages behind its own.

dbt has an environment of its own: it and instep pin some packages otherwise. Newer releases of dbt
fetch a program from elsewhere when they are installed, so these are held back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from instep_spark.answers.dbt_project import write_dbt_project
from instep_spark.lake.tables.schema import LAKE_TABLES
from tests.instep_spark.answers.answers_kit import MOMENTS, WINDOWS, Ask, duckdb_asker
from tests.instep_spark.answers.oracle_kit import ANSWERS

COLUMNS = {
    name: {column.name: column.meaning for column in table.columns}
    for name, table in LAKE_TABLES.items()
}
PINNED = ("dbt-core==1.10.23", "dbt-duckdb==1.10.1", "duckdb==2.0.*")


def _build(dbt: str, lake: Path, project: Path, moments_us: Mapping[str, int]) -> Path:
    """Write the project of a lake and run `dbt build`, all of whose tests have to pass.
    `moments_us`: the variables of the project. Returns the database with the answers.
    """
    write_dbt_project(project, COLUMNS)
    moments = {name: str(_at(us)) for name, us in moments_us.items()}
    done = subprocess.run(
        [str(Path(dbt).resolve()), "build", "--vars", json.dumps(moments), "--no-use-colors"],
        cwd=project,
        env={**os.environ, "LAKE_URL": str(lake), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "WARN=0 ERROR=0 SKIP=0" in done.stdout
    return project / "answers.duckdb"


def dbt_asker(
    dbt: str, lake: Path, project: Path, window: int
) -> tuple[Ask, list[tuple[str, tuple[int, ...]]]]:
    """Asks what `dbt build` has made of a lake; and what can be asked: a build knows one window and
    one moment.
    """
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    start, end = WINDOWS[window]
    moment, as_of = MOMENTS[window], MOMENTS[1]
    given = {
        "availability_between": (start, end),
        "repair_between": (start, end),
        "topology_at": (moment,),
        "entities_at": (moment, as_of),
    }
    times = {"window_start": start, "window_end": end, "moment": moment, "as_of": as_of}
    ask = duckdb_asker(duckdb.connect(str(_build(dbt, lake, project, times))))
    return lambda name, _: ask(name, ()), [(name, given.get(name, ())) for name in ANSWERS]


def _at(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def main(folder: Path) -> None:
    if not (folder / "bin/dbt").exists():
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *PINNED], check=True)
    (own,) = folder.glob("lib/python*/site-packages")
    behind = [path for path in sys.path if Path(path).is_absolute() and "site-packages" in path]
    (own / "instep_behind.pth").write_text("\n".join([*behind, *_sources()]) + "\n")


def _sources() -> list[str]:
    repository = Path(__file__).resolve().parents[3]
    return [str(repository / name) for name in ("sdk", "adapters", "store", "spark_sink")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
