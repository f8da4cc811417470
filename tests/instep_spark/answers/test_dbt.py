"""The dbt project: it names only what it has, and `dbt build` answers as the oracle does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.errors import ConfigurationError
from instep_spark.answers.dbt_project import dbt_project, write_dbt_project
from instep_spark.answers.definitions import TABLES
from instep_spark.lake.tables.schema import LAKE_TABLES
from tests.instep_spark.answers.answers_kit import (
    MOMENTS,
    QUESTIONS,
    differences,
    duckdb_asker,
    oracles,
    write_tables,
)

COLUMNS = {
    name: {column.name: column.meaning for column in table.columns}
    for name, table in LAKE_TABLES.items()
}
WINDOW = dict(QUESTIONS)["availability_between"]
GIVEN = {
    "availability_between": WINDOW,
    "repair_between": WINDOW,
    "topology_at": (MOMENTS[-1],),
    "entities_at": (MOMENTS[-1], MOMENTS[1]),
}
DBT = os.environ.get("DBT") or shutil.which("dbt")


def test_each_model_names_only_models_and_sources_that_there_are() -> None:
    files = dict(dbt_project(COLUMNS))
    models = {Path(name).stem for name in files if name.startswith("models/") and "/" in name[7:]}
    named = {name for content in files.values() for name in re.findall(r"ref\('(\w+)'\)", content)}
    assert named <= models
    sources = {one for text in files.values() for one in re.findall(r"'lake', '(\w+)'", text)}
    assert sources == set(TABLES)
    described = json.loads(files["models/answers.yml"])["models"]
    assert {one["name"] for one in described} == models
    assert all(one["description"] for one in described)
    told = json.loads(files["models/sources.yml"])["sources"][0]["tables"]
    landed = {"changes", "stream_facts"}
    assert all(one["columns"] for one in told if one["name"] not in landed)


def test_a_project_of_another_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: mine\n")
    with pytest.raises(ConfigurationError, match="of another name"):
        write_dbt_project(tmp_path, COLUMNS)
    assert [path.name for path in tmp_path.iterdir()] == ["dbt_project.yml"]


# dbt parses and plans for half a minute.
@pytest.mark.timeout(600)
def test_dbt_build_answers_as_the_oracle(tmp_path: Path) -> None:
    if DBT is None:
        pytest.skip("dbt is not installed: `make dbt` installs it, and runs this test")
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    networks = oracles(range(50, 60))
    lake, project = tmp_path / "lake", tmp_path / "project"
    write_tables(networks, lake)
    write_dbt_project(project, COLUMNS)
    times = {
        "window_start": WINDOW[0],
        "window_end": WINDOW[1],
        "moment": MOMENTS[-1],
        "as_of": MOMENTS[1],
    }
    moments = {name: str(_at(us)) for name, us in times.items()}
    done = subprocess.run(
        [str(Path(DBT).resolve()), "build", "--vars", json.dumps(moments), "--no-use-colors"],
        cwd=project,
        env={**os.environ, "LAKE_URL": str(lake), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "WARN=0 ERROR=0 SKIP=0" in done.stdout
    built: Any = duckdb.connect(str(project / "answers.duckdb"))

    def ask(name: str, _: tuple[int, ...]) -> pa.Table:
        return duckdb_asker(built)(name, ())

    for name in dict(QUESTIONS):
        given = GIVEN.get(name, ())
        assert differences(networks, ask, name, given) == ""


def _at(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
