"""`conformance = true`: what a running consumer finds is in `status`, in the metrics, in the counts
of deviations, and as a report with its evidence.
"""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, fill, instep, small_provider, started

CONFIG = """
[operations]
listen = "127.0.0.1:0"
[[consumers]]
name = "east"
conformance = true
isolation = "{isolation}"
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "sqlite:///{folder}/net.db" }}
[consumers.settings]
stale_after_s = 1.5
"""
RULE = "tapi-clear-tombstone"
BROKEN = f'instep_consumer_rules_broken_total{{consumer="east",rule="{RULE}"}}'
DEADLINE_S = 40


def until(found: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not found():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.5)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_what_a_running_consumer_finds_is_shown_everywhere(tmp_path: Path, isolation: str) -> None:
    file = tmp_path / "instep.toml"
    with small_provider("--storm", "50", "--fault", "deviates=no-alarm-tombstone") as url:
        file.write_text(CONFIG.format(url=url, folder=tmp_path, isolation=isolation))
        with started("run", str(file), "--format", "jsonl") as process:
            try:
                assert process.stderr is not None
                told = re.search(rb"http://[\d.:]+", process.stderr.readline())
                assert told
                port = told.group().decode()
                until((tmp_path / "net.db").exists, "no store was made")
                until(lambda: RULE in instep("status", str(file)).stdout, "nothing was found")
                until(lambda: _counted(file), "it is no deviation")
                until(lambda: BROKEN in _read(f"{port}/metrics"), "no metric has it")
                metrics = _read(f"{port}/metrics")
                (facts,) = json.loads(_read(f"{port}/status.json"))["consumers"]
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=30)
    assert 'instep_consumer_rules{consumer="east",status="broken"} 1' in metrics
    assert facts["rules_broken"].keys() == {RULE}
    assert facts["messages_judged"] > 0
    text = " ".join(instep("status", str(file)).stdout.split())
    assert "east: TAPI streaming (TR-548)" in text
    assert "of 80" in text
    # Once as a deviation of the stream, once with what was found.
    assert "A TOMBSTONE follows the CLEAR of an alarm at once." in text
    lines = [
        json.loads(one)
        for one in instep("status", str(file), "--format", "jsonl").stdout.splitlines()
    ]
    (found,) = [one["conformance_report"] for one in lines if "conformance_report" in one]
    assert [one["rule"] for one in found["rules"] if one["status"] == "broken"] == [RULE]
    html = tmp_path / "report.html"
    done = instep("conformance", "report", str(file), "--format", "json", "--html", str(html))
    assert done.exit_code == 1
    (broken,) = [one for one in json.loads(done.stdout)["rules"] if one["status"] == "broken"]
    assert "has no TOMBSTONE" in broken["reason"]
    assert "log-record-header" in broken["evidence"][0]["body"]
    assert f'id="{RULE}"' in html.read_text()


def _read(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        found: bytes = answer.read()
    return found.decode()


def _counted(file: Path) -> bool:
    """Whether the break is counted as a deviation of the stream, with what was found."""
    lines = instep("status", str(file), "--format", "jsonl").stdout.splitlines()
    return any(
        RULE in one.get("deviations", {}) and "TOMBSTONE" in one["samples"][RULE]
        for one in map(json.loads, lines)
    )


def test_a_store_without_a_report_says_how_to_get_one(tmp_path: Path) -> None:
    url = fill(tmp_path)
    error = failed(instep("conformance", "report", "--store", url), 2)
    assert "no peer was judged yet" in error
    assert "conformance = true" in error


def test_check_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(CONFIG.format(url="http://127.0.0.1:9", folder=tmp_path, isolation="none"))
    assert "conformance  while it works" in instep("check", str(file)).stdout
    facts = json.loads(instep("check", str(file), "--format", "jsonl").stdout)
    assert facts["conformance"] is True


def test_a_kind_without_rules_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    config = CONFIG.format(url="http://127.0.0.1:9", folder=tmp_path, isolation="none")
    file.write_text(config.replace('kind = "tapi"', 'kind = "nats"'))
    error = failed(instep("check", str(file)), 2)
    assert "there are no rules of 'nats'" in error
    assert "consumers[0].conformance" in error
