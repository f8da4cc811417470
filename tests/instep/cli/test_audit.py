"""`instep audit`, against a real provider, beside the process that consumes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep, lines, started

SMALL = ["--topology", "sndlib/polska", "--services", "5", "--alarms", "9"]
CONFIG = """
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "sqlite:///{folder}/network.db" }}
settings = {{ alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.5 }} }}
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with started("provider", *SMALL, "--format", "jsonl") as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


@pytest.fixture
def config(tmp_path: Path, provider: str) -> str:
    """Of a store that is aligned, and of which then an entity was lost."""
    file = tmp_path / "instep.toml"
    file.write_text(CONFIG.format(url=provider, folder=tmp_path))
    with started("run", str(file), "--until-aligned") as process:
        process.communicate(timeout=60)
    with closing(sqlite3.connect(tmp_path / "network.db")) as raw, raw:
        raw.execute(
            "DELETE FROM instep_entity WHERE id = (SELECT max(id) FROM instep_entity WHERE class ="
            " 'NODE')"
        )
    return str(file)


def test_what_is_missing_is_shown_repaired_and_then_right(config: str) -> None:
    result = instep("audit", config, "--format", "jsonl")
    assert result.exit_code == 1
    wrong = [json.loads(line) for line in result.stdout.splitlines() if '"verdict"' in line]
    [[verdict, class_, repaired]] = [[w["verdict"], w["class"], w["repaired"]] for w in wrong]
    assert (verdict, class_, repaired) == ("missing", "NODE", False)
    [stale, *reports] = lines(instep("audit", config, "--repair", "--format", "jsonl"))
    assert stale["repaired"] is True
    assert sum(one["report"]["counts"]["repaired"] for one in reports) == 1
    again = lines(instep("audit", config, "--format", "jsonl"))
    assert [one["report"]["counts"]["missing"] for one in again] == [0, 0]


def test_a_table_shows_the_same(config: str) -> None:
    result = instep("audit", config, "--stream", "network")
    assert result.exit_code == 1
    assert "missing" in result.stdout
    assert "east / network: " in result.stdout
    assert "1 missing, 0 repaired" in result.stdout


def test_an_unknown_stream_is_named(config: str) -> None:
    assert "no consumer has such a stream" in failed(instep("audit", config, "--stream", "x"), 2)


def test_each_store_of_a_tee_is_audited(config: str, tmp_path: Path) -> None:
    text = Path(config).read_text()
    sink = f'{{ kind = "sql", url = "sqlite:///{tmp_path}/network.db" }}'
    assert sink in text
    other = sink.replace("network.db", "other.db")
    tee = tmp_path / "tee.toml"
    tee.write_text(text.replace(sink, f'{{ kind = "tee", sinks = [{other}, {sink}] }}'))
    with started("run", str(tee), "--until-aligned") as process:
        process.communicate(timeout=60)
    result = instep("audit", str(tee), "--stream", "network", "--format", "jsonl")
    assert result.exit_code == 1
    reports = [json.loads(line) for line in result.stdout.splitlines() if '"report"' in line]
    assert [one["report"]["counts"]["missing"] for one in reports] == [0, 1]
