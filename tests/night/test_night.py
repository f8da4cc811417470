"""A short night and a short quiet hour, with a real Prometheus; the whole by `make night`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.night.faults import Gap, Hang, HungDatabase
from tests.night.nights import faulty_night, quiet_night
from tests.night.site import scaled_rules
from tests.postgres_kit import Missing, serving

# A night of some hours takes minutes even where it is twenty times as fast.
SCALE = 20.0
QUIET_S = 1_200.0

needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="prometheus is not here; Debian: apt install prometheus"
)


def test_all_durations_of_the_rules_are_divided_but_that_of_the_processor() -> None:
    rules = scaled_rules(60)
    assert "for: 2000ms" in rules
    assert "for: 5000ms" in rules
    assert "_seconds > 15" in rules
    assert "[15000ms]" in rules
    assert "loop_lag_seconds > 1" in rules
    assert "for: 120s" not in rules
    assert rules.count("for: 600s") == 1


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_prometheus
def test_alerts_fire_and_are_over_as_the_run_book_says(tmp_path: Path) -> None:
    try:
        with serving() as server:
            faults = (Hang, HungDatabase, Gap)
            report = asyncio.run(faulty_night(tmp_path, SCALE, faults, server))
    except Missing as missing:
        pytest.skip(str(missing))
    assert report.mistakes == []
    fired = {line.alert for line in report.lines if line.fired_s}
    assert fired == {
        "InstepProviderSilent",
        "InstepDisconnected",
        "InstepStoreAway",
        "InstepGap",
    }


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_prometheus
def test_what_is_planned_fires_nothing(tmp_path: Path) -> None:
    try:
        with serving() as server:
            report = asyncio.run(quiet_night(tmp_path, SCALE, server, QUIET_S))
    except Missing as missing:
        pytest.skip(str(missing))
    assert report.mistakes == []
    assert len(report.lines) == 5
