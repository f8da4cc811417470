"""The dbt project: it names only what it has, and `dbt build` answers as the oracle does."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from instep.errors import ConfigurationError
from instep_spark.answers.dbt_project import dbt_project, write_dbt_project
from instep_spark.answers.definitions import TABLES
from tests.instep_spark.answers.answers_kit import (
    differences,
    oracles,
    write_tables,
)
from tests.instep_spark.answers.dbt_kit import COLUMNS, dbt_asker

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
    networks = oracles(range(50, 60))
    lake = tmp_path / "lake"
    write_tables(networks, lake)
    ask, questions = dbt_asker(DBT, lake, tmp_path / "project", 0)
    for name, given in questions:
        assert differences(networks, ask, name, given) == ""
