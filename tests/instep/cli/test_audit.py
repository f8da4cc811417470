"""`instep audit`, against a real provider, beside the process that consumes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import (
    QUICK_CONFIG,
    align_and_lose_a_node,
    failed,
    instep,
    lines,
    small_provider,
    started,
)


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with small_provider() as url:
        yield url


@pytest.fixture
def config(tmp_path: Path, provider: str) -> str:
    """Of a store that is aligned, and of which then an entity was lost."""
    file = tmp_path / "instep.toml"
    store = tmp_path / "network"
    file.write_text(QUICK_CONFIG.format(url=provider, store=store))
    align_and_lose_a_node(file, store.with_suffix(".db"))
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
