"""A dbt project with all answers as models, for dbt-duckdb: sources, models, tests, exposures, and
the meanings of tables, columns and answers as its documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from instep.errors import ConfigurationError
from instep_spark.answers.definitions import TABLES, Answer, answers
from instep_spark.answers.dialects import DUCKDB

__all__ = ["dbt_project", "write_dbt_project"]

_PROJECT: Final = """\
name: instep_lake
version: "1.0"
profile: instep_lake
model-paths: [models]
test-paths: [tests]
models:
  instep_lake:
    readings:
      +materialized: table
    answers:
      +materialized: view
"""
_PROFILES: Final = """\
instep_lake:
  target: answers
  outputs:
    answers:
      type: duckdb
      path: "{{ env_var('LAKE_DATABASE', 'answers.duckdb') }}"
      module_paths: ["{{ env_var('DBT_PROJECT_DIR', '.') }}"]
      settings:
        TimeZone: UTC
      plugins:
        - module: lake_tables
          config:
            url: "{{ env_var('LAKE_URL') }}"
"""
_PLUGIN: Final = '''\
"""The tables of the lake at `url`, for dbt-duckdb."""

from dbt.adapters.duckdb.plugins import BasePlugin

from instep_spark.answers.duckdb_lake import load_table


class Plugin(BasePlugin):
    def initialize(self, config):
        self._url = config["url"]

    def load(self, source_config):
        found = load_table(self._url, source_config.identifier)
        if found is None:
            raise ValueError(f"there is no table {source_config.identifier} at {self._url}")
        return found
'''
_WINDOW: Final = (
    "the window ends when the run starts, and begins thirty days before: "
    "`--vars '{window_start: …, window_end: …}'` gives another"
)
_DEFAULTS: Final = {
    "window_start": "run_started_at - modules.datetime.timedelta(days=30)",
    "window_end": "run_started_at",
    "moment": "run_started_at",
    "as_of": "run_started_at",
}
_TESTS: Final = {
    "availability_adds_up": "SELECT * FROM {{ ref('availability_between') }}\n"
    "WHERE abs(up_s + down_s + planned_s + unknown_s - window_s) > 1e-6 OR unknown_s < 0",
    "bounds_hold_the_figure": "SELECT * FROM {{ ref('availability_between') }}\n"
    "WHERE percent_at_least > percent_at_most OR unproven_s < 0",
    "spells_do_not_overlap": "SELECT * FROM (\n"
    "    SELECT *, lag(valid_to) OVER (\n"
    "        PARTITION BY consumer, stream, id ORDER BY valid_from, valid_to) AS before\n"
    "    FROM {{ ref('availability') }}\n"
    ") WHERE before > valid_from",
}
_NOT_NULL: Final = {
    "edges": ("link_uuid",),
    "connection_hops": ("connection_uuid", "route", "position"),
    "failure_impact": ("failed_uuid", "connection_uuid", "basis"),
    "availability": ("id", "state", "valid_from", "proven_until"),
    "availability_between": ("id", "window_s", "unknown_s"),
}
_VALUES: Final = {
    ("failure_impact", "basis"): ("ROUTE", "POSSIBLE"),
    ("availability", "state"): ("up", "down", "planned"),
}
_READ: Final = re.compile(r"\b(FROM|JOIN)(\s+)(\w+)")


def write_dbt_project(folder: Path, columns: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """Write the project. `columns`: the meaning of each column of each table of the lake. Raises
    `ConfigurationError` where the folder has another `dbt_project.yml`.
    """
    mark = folder / "dbt_project.yml"
    if mark.exists() and "instep_lake" not in mark.read_text("utf-8"):
        raise ConfigurationError(
            f"{folder} has a dbt project of another name", hint="give an empty folder"
        )
    written = []
    for name, content in dbt_project(columns):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
        written.append(path)
    return written


def dbt_project(columns: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """The files of the project: path and content."""
    yield "dbt_project.yml", _PROJECT
    yield "profiles.yml", _PROFILES
    yield "lake_tables.py", _PLUGIN
    yield "models/sources.yml", _yaml(_sources(columns))
    found = list(answers(DUCKDB))
    for one in found:
        folder = "readings" if one.reading else "answers"
        yield f"models/{folder}/{one.name}.sql", f"{_model(one)}\n"
    yield "models/answers.yml", _yaml({"models": [_described(one) for one in found]})
    yield "models/exposures.yml", _yaml(_exposures(found))
    for name, sql in _TESTS.items():
        yield f"tests/{name}.sql", f"{sql}\n"


def _model(one: Answer) -> str:
    def referred(found: re.Match[str]) -> str:
        word, space, name = found.groups()
        if name not in one.reads:
            return found[0]
        kind = f"source('lake', '{name}')" if name in TABLES else f"ref('{name}')"
        return f"{word}{space}{{{{ {kind} }}}}"

    sql = _READ.sub(referred, one.sql)
    for parameter, _ in one.parameters:
        value = f"{{{{ var('{parameter}', {_DEFAULTS[parameter]}) }}}}"
        # A time of dbt has a zone, which is UTC.
        moment = f"(CAST('{value}' AS TIMESTAMPTZ) AT TIME ZONE 'UTC')"
        sql = re.sub(rf"\b{parameter}\b", moment, sql)
    return sql.strip()


def _sources(columns: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    tables: list[dict[str, Any]] = [
        {
            "name": name,
            "description": f"`{name}` of the lake.",
            "columns": [
                {"name": column, "description": meaning}
                for column, meaning in columns.get(name, {}).items()
            ],
        }
        for name in TABLES
    ]
    tables[0]["loaded_at_field"] = "committed_at"
    tables[0]["freshness"] = {"warn_after": {"count": 1, "period": "hour"}}
    source = {"name": "lake", "config": {"meta": {"plugin": "lake_tables"}}, "tables": tables}
    return {"version": 2, "sources": [source]}


def _described(one: Answer) -> dict[str, Any]:
    told = f" By default, {_WINDOW}." if "window_start" in dict(one.parameters) else ""
    tests: dict[str, list[Any]] = {name: ["not_null"] for name in _NOT_NULL.get(one.name, ())}
    for (model, column), values in _VALUES.items():
        if model == one.name:
            accepted = {"accepted_values": {"arguments": {"values": list(values)}}}
            tests.setdefault(column, []).append(accepted)
    columns = [{"name": name, "data_tests": those} for name, those in tests.items()]
    return {"name": one.name, "description": f"{one.meaning}{told}", "columns": columns}


def _exposures(found: list[Answer]) -> dict[str, Any]:
    exposure = {
        "name": "questions_of_an_operator",
        "type": "dashboard",
        "description": "The questions that the page of questions asks.",
        "owner": {"name": "network operations", "email": "noc@example.net"},
        "depends_on": [f"ref('{one.name}')" for one in found if not one.reading],
    }
    return {"exposures": [exposure]}


def _yaml(content: dict[str, Any]) -> str:
    # JSON is YAML.
    return json.dumps({"version": 2, **content}, indent=1, ensure_ascii=False) + "\n"
