"""`instep provider`, as a process of its own and as a command."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from instep_tapi_provider.cli.provider import period_s, provider
from tests.json_names_kit import check_names

PROGRAM = (
    "import typer; from instep_tapi_provider.cli.provider import provider; typer.run(provider)"
)
SMALL = ["--topology", "sndlib/polska", "--services", "5", "--alarms", "7"]
DEADLINE_S = 60

application = typer.Typer()
application.command()(provider)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[dict[str, Any], "subprocess.Popen[str]"]]:
    """The command in its own process, from its line of JSON to the end of its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments, "--format", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=DEADLINE_S)[1]
        check_names(["provider"], line)
        yield json.loads(line), process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
        return str(response.read().decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    with served(*SMALL, "--control", "--ready-file", str(ready)) as (ready_line, process):
        streams = {s["stream"]: s for s in ready_line["streams"]}
        assert streams["alarms"]["entities"] == 7
        assert ready.read_text().strip() == ready_line["url"]
        context = json.loads(
            get(f"{ready_line['url']}{ready_line['root']}/data/tapi-common:context")
        )
        assert len(context["tapi-common:context"]["service-interface-point"]) == 10
        lines = get(f"{ready_line['url']}/_instep/entities").splitlines()
        assert len(lines) == sum(s["entities"] for s in streams.values())
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_context_file_is_served(shared_data: Path) -> None:
    path = shared_data / "tapi" / "onf_ri_ols_context.json"
    arguments = ["--context", str(path), "--strategy", "truncated", "--record-limit", "5"]
    with served(*arguments, "--root", "/tapi", "--alarms", "0") as (ready_line, _):
        assert [s["storage_strategy"] for s in ready_line["streams"]] == ["TRUNCATED", "TRUNCATED"]
        assert ready_line["streams"][0]["entities"] == 21
        assert json.loads(get(f"{ready_line['url']}/tapi/data/context"))["tapi-common:context"]


def test_a_storm_and_faults_are_options() -> None:
    options = ["--storm", "500", "--storm-keys", "3", "--fault", "rewind-records=5", "--control"]
    with served(*SMALL, *options, "--fault", "silent") as (ready_line, _):
        faults = json.loads(get(f"{ready_line['url']}/_instep/faults"))
        assert (faults["rewind_records"], faults["silent"]) == (5, True)


def test_the_table_shows_where_it_is() -> None:
    command = [sys.executable, "-c", PROGRAM, *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "TAPI provider at" in process.stdout.readline()
            process.terminate()
            shown = process.stdout.read()
            assert "COMPACTED" in shown
            # Whole, to be copied: the output is 80 columns wide.
            assert len(re.findall(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", shown)) == 2
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "/nowhere.json"], "/nowhere.json: cannot be read"),
        (["--topology", "nothing"], "topohub has no such topology"),
        (["--topology", "x", "--context", "y"], "choose one of"),
        (["--compaction-delay", "5h"], "shorter than the compaction"),
        (["--compaction-delay", "soon"], "is not a period"),
        (["--fault", "nope"], "no fault named 'nope'"),
        (["--fault", "stall-s=x"], "NAME=NUMBER"),
        (["--wrapper", "paper"], "paper"),
        (["--records-per-frame", "5"], "bare frame"),
        (["--oauth2", "client"], "NAME:SECRET"),
        (["--tls-key", "k.pem"], "needs --tls-cert"),
        (["--tls-cert", "/nowhere.pem"], "no usable certificate"),
        (["--root", "data"], "must begin with /"),
        (["--information", "10s"], "--information needs --tapi 2.6"),
    ],
)
def test_wrong_options_exit_2_and_say_what(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(application, arguments)
    assert result.exit_code == 2
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())


def test_an_address_that_is_taken_exits_1() -> None:
    with served(*SMALL) as (ready_line, _):
        port = ready_line["url"].rpartition(":")[2]
        result = CliRunner().invoke(application, [*SMALL, "--port", port])
    assert result.exit_code == 1
    assert "cannot listen" in result.output


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("30s", 30), ("10m", 600), (" 1.5 h", 5400), ("1d", 86400)]
)
def test_periods(text: str, seconds: float) -> None:
    assert period_s(text) == seconds


def test_the_edition_of_tapi_is_chosen() -> None:
    arguments = [*SMALL, "--tapi", "2.6", "--record-strategy", "CHANGE_ONLY"]
    arguments += ["--information", "10s"]
    with served(*arguments) as (ready_line, _):
        context = f"{ready_line['url']}{ready_line['root']}/data/tapi-common:context"
        whole = json.loads(get(context))["tapi-common:context"]
        discover = ("discover", ready_line["url"], "--format", "jsonl")
        line = subprocess.run(
            [sys.executable, "-m", "instep.cli", *discover],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        ).stdout
    assert len(whole["tapi-fm:fault-management-context"]["active-condition"]) == 7
    types = whole["tapi-streaming:stream-context"]["supported-stream-type"]
    assert types[0]["log-record-strategy"] == "LOG_RECORD_STRATEGY_CHANGE_ONLY"
    found = {one["stream"]: one for one in map(json.loads, line.splitlines())}
    assert found.keys() == {"network", "alarms", "measurements"}
    assert {one["tapi"] for one in found.values()} == {"2.6"}
    assert {name for name, one in found.items() if one["chosen"]} == {"network", "alarms"}
    assert "GNMI" in found["measurements"]["reason"]


def test_another_edition_is_refused() -> None:
    result = CliRunner().invoke(application, ["--tapi", "3.0"])
    assert result.exit_code == 2
