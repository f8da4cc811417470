"""What an answer calls proven was so at the provider, and its bounds hold the true figure."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep_spark.answers import open_lake
from tests.instep_spark.answers.answers_kit import (
    QUESTIONS,
    differences,
    duckdb_asker,
    write_tables,
)
from tests.instep_spark.answers.network_kit import COMPACTION_US, HOUR_US, START_US, Outages
from tests.instep_spark.answers.oracle_kit import Oracle

pytest.importorskip("duckdb", reason="DuckDB is not installed")
Truth = dict[str, list[tuple[int, dict[str, Any]]]]
WINDOWS = (
    (START_US, START_US + HOUR_US),
    (START_US + 600_000_000, START_US + 2 * HOUR_US),
)


def state_of(body: dict[str, Any]) -> str | None:
    if str(body.get("lifecycle-state", "")).startswith("PLANNED"):
        return "planned"
    return {"ENABLED": "up", "DISABLED": "down"}.get(body.get("operational-state", ""))


def pieces(truth: list[tuple[int, dict[str, Any]]], low: int, high: int) -> dict[Any, int]:
    """Microseconds of each true state between two times."""
    time: dict[Any, int] = defaultdict(int)
    ends = [at for at, _ in truth[1:]] + [high]
    for (at, body), until in zip(truth, ends, strict=True):
        span = min(until, high) - max(at, low)
        if span > 0:
            time[state_of(body)] += span
    return dict(time)


def rows_of(lake: Any, query: str) -> list[dict[str, Any]]:
    found = pa.table(lake.sql(query).to_arrow_table())
    for at, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(at, column.name, found[column.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.fixture(scope="module")
def networks() -> list[Outages]:
    return [Outages(seed) for seed in range(60)]


@pytest.fixture(scope="module")
def oracles(networks: list[Outages]) -> list[Oracle]:
    return [Oracle(one.rows, COMPACTION_US if n % 2 else None) for n, one in enumerate(networks)]


@pytest.fixture(scope="module")
def lake(oracles: list[Oracle], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("outages")
    write_tables(oracles, folder)
    return open_lake(str(folder))


@pytest.fixture(scope="module")
def truths(networks: list[Outages]) -> dict[str, Truth]:
    return {one.consumer: by_key(one.truth) for one in networks}


def by_key(told: list[tuple[str, int, dict[str, Any]]]) -> Truth:
    truth: Truth = defaultdict(list)
    for key, at, body in told:
        truth[key].append((at, body))
    return truth


def test_what_is_proven_was_so(lake: Any, truths: dict[str, Truth]) -> None:
    spells = rows_of(lake, "SELECT * FROM availability")
    assert len(spells) > 500
    for one in spells:
        low, high = one["valid_from"], one["proven_until"]
        true = pieces(truths[one["consumer"]][one["id"]], low, high)
        assert true in ({}, {one["state"]: high - low}), (one, true)


def test_the_bounds_of_an_alarm_hold_the_truth(lake: Any, networks: list[Outages]) -> None:
    alarms = {one.consumer: by_key(one.alarms) for one in networks}
    episodes = rows_of(lake, "SELECT * FROM alarm_intervals")
    assert len(episodes) > 150
    hidden = exact = 0
    for one in episodes:
        told = alarms[one["consumer"]][one["id"]]
        ends = [at for at, body in told if not body and at > one["raised_at"]]
        end = min(ends, default=None)
        assert end is None or end >= one["proven_until"], (one, told)
        if one["cleared_at"] is None:
            continue
        assert end is not None
        assert end <= one["cleared_at"], (one, told)
        least = one["cleared_at"] - round(one["uncertain_s"] * 1e6)
        assert least <= end, (one, told)
        hidden += end < one["cleared_at"]
        exact += least == one["cleared_at"]
    # Some that were raised again meanwhile look like one; most are exact.
    assert hidden > 5
    assert exact > 15


@pytest.mark.parametrize("window", WINDOWS)
def test_the_bounds_hold_the_truth(
    lake: Any, truths: dict[str, Truth], window: tuple[int, int]
) -> None:
    called = ", ".join(f"make_timestamp({at})" for at in window)
    figures = rows_of(lake, f"SELECT * FROM availability_between({called})")
    spells = rows_of(lake, "SELECT * FROM availability")
    exact = wide = wrong = 0
    for one in figures:
        up = judged = 0
        for spell in spells:
            if (spell["consumer"], spell["id"]) != (one["consumer"], one["id"]):
                continue
            end = window[1] if spell["valid_to"] is None else spell["valid_to"]
            low, high = max(window[0], spell["valid_from"]), min(window[1], end)
            proven = max(low, min(high, spell["proven_until"]))
            # What is planned for certain is in no percentage.
            since = proven if spell["state"] == "planned" else low
            if since < high:
                up += pieces(truths[one["consumer"]][one["id"]], since, high).get("up", 0)
                judged += high - since
        if not judged:
            assert one["percent_at_least"] is None
            continue
        true = 100 * up / judged
        assert one["percent_at_least"] - 1e-9 <= true <= one["percent_at_most"] + 1e-9, one
        exact += one["percent_at_least"] == one["percent_at_most"]
        wide += one["unproven_s"] > 0
        wrong += one["percent"] is not None and abs(one["percent"] - true) > 1
    # The networks show all three: nothing in doubt, something, and figures that are wrong without.
    assert exact > 50
    assert wide > 50
    assert wrong > 10


def test_the_bounds_are_those_of_the_evidence(lake: Any, oracles: list[Oracle]) -> None:
    for name, given in QUESTIONS:
        if name.startswith(("availability", "repair")):
            assert differences(oracles, duckdb_asker(lake), name, given) == ""
